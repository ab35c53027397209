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
    limit: str = ""  # "avx2": instructions that no library goes beyond


def arrays(case):
    """Images (B, H, W, 3) in [-1, 1] and their labels (B,)."""
    random = np.random.default_rng(0)
    shape = (case.batch, case.image_size, case.image_size, 3)
    images = random.uniform(-1, 1, shape).astype("float32")
    return images, random.integers(0, CLASSES, case.batch)


def keras_hub_model(config):
    """keras-hub's ViT of the sizes of a `ViTConfig`, with logits of CLASSES."""
    import keras
    import keras_hub as hub  # pyright: ignore[reportMissingImports]

    backbone = hub.models.ViTBackbone(
        image_shape=(*config.image_size, 3),
        patch_size=config.patch_size[0],
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        hidden_dim=config.hidden_dim,
        mlp_dim=config.mlp_dim,
    )
    task = hub.models.ViTImageClassifier(
        backbone=backbone, num_classes=CLASSES, preprocessor=None
    )
    # A plain model: a task's own fit takes no batches from a generator.
    return keras.Model(task.inputs, task.outputs)


def sizes(case):
    """The `ViTConfig` of the case."""
    from keras_vit.planning.estimate import vit_config

    size = (case.image_size, case.image_size)
    return vit_config(case.model, image_size=size, num_classes=CLASSES)
