"""Layers whose weights a mistake cannot hide behind."""

import numpy as np


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomise(layer):
    """Gives every weight values that a mistake cannot hide behind."""
    for i, weight in enumerate(layer.trainable_weights):
        weight.assign(0.3 * normal(*weight.shape, seed=i))
    return layer


def flax_attention(layer):
    """The weights of a SelfAttention as the original file holds them."""
    heads, d = layer.num_heads, layer.head_dim
    kernel = np.array(layer.qkv.kernel).reshape(-1, heads, 3, d)
    bias = np.array(layer.qkv.bias).reshape(heads, 3, d)
    params = {
        "out/kernel": np.array(layer.out.kernel).reshape(heads, d, -1),
        "out/bias": np.array(layer.out.bias),
    }
    for i, name in enumerate(("query", "key", "value")):
        params[f"{name}/kernel"] = kernel[:, :, i]
        params[f"{name}/bias"] = bias[:, i]
    return params
