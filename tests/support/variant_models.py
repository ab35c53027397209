"""Tiny variants whose every weight is away from where it starts."""

import dataclasses

import keras
import numpy as np
import numpy_variants

from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.variants import (
    VariantConfig,
    VariantTransformer,
    VariantTransformerConfig,
)

GRID = (2, 3)  # so that rows and columns cannot be confused
PATCH = 4
NUM_HEADS = 2


def config(variant=None, **options):
    fields = {
        "image_size": (GRID[0] * PATCH, GRID[1] * PATCH),
        "patch_size": PATCH,
        "channels": 1,
        "hidden_dim": 8,
        "num_layers": 2,
        "mlp_dim": 12,
        "num_heads": NUM_HEADS,
        "num_classes": 3,
    }
    variant = VariantConfig(**(variant or {}))
    if variant.attention == "axial":
        fields |= {"pooling": "mean", "class_token": False}
    return VariantTransformerConfig(**{**fields, **options}, variant=variant)


def images(count=2, size=(GRID[0] * PATCH, GRID[1] * PATCH)):
    shape = (count, *size, 1)
    return np.random.default_rng(7).normal(size=shape).astype("float32")


def randomised(model, seed=0):
    random = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    return model


def model(variant=None, dtype=None, **options):
    made = VariantTransformer(config(variant, **options), dtype=dtype)
    return randomised(made)


def plain_model():
    fields = dict(vars(config()))
    del fields["variant"]
    return VisionTransformer(ViTConfig(**fields))


def by_path(network):
    return {
        x.path: np.array(keras.ops.convert_to_numpy(x)) for x in network.weights
    }


def expected(network):
    """What the oracle says that a model answers to `images()`."""
    return numpy_variants.logits(
        by_path(network),
        images(),
        grid=GRID,
        patch_size=PATCH,
        num_heads=NUM_HEADS,
        variant=dataclasses.asdict(network.config.variant),
    )
