"""One case of benchmarks/speed.py: which model, which task, on which arrays.

Letters: B images of a batch.
"""

from typing import NamedTuple

import numpy as np

CLASSES = 1000
LEARNING_RATE = 1e-3


class Case(NamedTuple):
    """What is measured."""

    model: str  # of keras_vit, for example "ViT_B16"
    image_size: int
    task: str  # "training" or "inference"
    batch: int
    precision: str  # "float32" or "bfloat16"


def arrays(case):
    """Images (B, H, W, 3) in [-1, 1] and their labels (B,)."""
    random = np.random.default_rng(0)
    shape = (case.batch, case.image_size, case.image_size, 3)
    images = random.uniform(-1, 1, shape).astype("float32")
    return images, random.integers(0, CLASSES, case.batch)


def sizes(case):
    """The `ViTConfig` of the case."""
    from keras_vit.planning.counts import vit_config

    size = (case.image_size, case.image_size)
    return vit_config(case.model, image_size=size, num_classes=CLASSES)
