"""Noisy images of four classes, and a tiny model to probe."""

import functools

import numpy as np

from keras_vit import data
from keras_vit.models import VisionTransformer, ViTConfig

CLASSES = 4
BATCHES = functools.partial(
    data.evaluation_batches,
    image_size=8,
    channels=1,
    batch_size=16,
    preprocessing=data.PreprocessingConfig(evaluation="squash"),
)


def make_examples(count, seed):
    """Noise about a mean that tells the class."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % CLASSES)
    means = np.random.default_rng(9).uniform(60, 150, (CLASSES, 8, 8, 1))
    images = means[labels] + random.normal(0, 60, (count, 8, 8, 1))
    images = np.clip(images, 0, 255).astype("uint8")
    return data.Examples(images, labels.astype("int32"), source="noise")


def tiny(**options):
    config = {
        "image_size": 8,
        "patch_size": 4,
        "channels": 1,
        "hidden_dim": 8,
        "num_layers": 1,
        "mlp_dim": 8,
        "num_heads": 2,
        "num_classes": 3,
        "include_preprocessing": True,
        **options,
    }
    return VisionTransformer(ViTConfig(**config))
