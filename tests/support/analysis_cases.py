"""Models, images and expected attention for the tests of the analysis."""

import functools

import numpy as np
import reference_cases

from keras_vit.models import VisionTransformer, ViTConfig

# Every golden case with attention: each format, with and without class token,
# pooling "map", hybrids.
CASES = [
    name
    for name, case in reference_cases.CASES.items()
    if case["family"] in ("vit", "hybrid")
    and "attention" in reference_cases.expected(name)
]
TINY = {
    "image_size": (8, 12),
    "patch_size": 4,
    "hidden_dim": 8,
    "num_layers": 2,
    "mlp_dim": 16,
    "num_heads": 2,
    "num_classes": 3,
}


def tiny_model(**changes):
    """A ViT with random weights everywhere, on a grid of 2x3 patches."""
    dtype = changes.pop("dtype", None)
    model = VisionTransformer(ViTConfig(**{**TINY, **changes}), dtype=dtype)
    generator = np.random.default_rng(1)
    for variable in model.trainable_variables:
        noise = generator.normal(size=variable.shape, scale=0.5)
        variable.assign(noise + (variable.name == "gamma"))
    return model


def images_of(model, count=2):
    shape = (count, *model.config.image_size, model.config.channels)
    return np.random.default_rng(2).uniform(-1, 1, shape).astype("float32")


@functools.cache
def case(name):
    """The model of a golden case, its images and its expected arrays."""
    expected = reference_cases.expected(name)
    return reference_cases.load(name), expected["image"], expected


def rolled_out(attention, read):
    """Rollout in NumPy and float64, of weights (L, B, H, T, T).

    Args:
        attention: array of weights.
        read: array (B, T), which rows are read.
    """
    tokens = attention.shape[-1]
    product = np.eye(tokens)
    for layer in attention.astype("float64").mean(axis=2):
        with_residual = layer + np.eye(tokens)
        product = (
            with_residual / with_residual.sum(axis=-1, keepdims=True) @ product
        )
    return np.einsum("bq,bqk->bk", read, product)
