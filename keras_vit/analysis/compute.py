"""Multiply-adds of a model.

Axes: N tokens, D hidden dimension.
"""

import math

import keras

from keras_vit import layers, variants
from keras_vit.io.checks import check_kind
from keras_vit.layers.embedding import bias_multiply_adds

__all__ = ["layer_multiply_adds", "multiply_adds"]


def multiply_adds(model: keras.Model) -> dict[str, int]:
    """Count the multiply-adds of a forward pass on one image, by layer.

    Dense layers, convolutions and the two products of attention are counted;
    what is linear in the number of activations (norms, activations, sums) is
    not. Papers and libraries call a billion of these a GFLOP or a GMAC; as
    floating-point operations they are twice as many. Every block counts whole,
    as in papers, also the last one, of which a model with a class token
    computes a quarter.

    Args:
        model: a functional model of known image size, from layers of Keras
            and keras_vit.

    Returns:
        Dict from layer name to multiply-adds; `sum(counts.values())` is the
        total. Layers that do none are left out.

    Raises:
        ValueError: when the image size is not known.

    Example:

    >>> counts = multiply_adds(keras_vit.ViT_B16(weights=None))
    >>> round(sum(counts.values()) / 1e9, 2)
    17.56
    """
    check_kind(keras.Model, model=model)
    if not hasattr(model, "input_shape"):
        raise ValueError(
            "multiply_adds needs a model of known image size. Received: the "
            f"model {model.name!r}, which is not built. Call it on an image."
        )
    if None in model.input_shape[1:]:
        raise ValueError(
            "multiply_adds needs a model of known image size. Received a "
            f"model with input_shape={model.input_shape}. Build it with an "
            "input_shape, for example (224, 224, 3)."
        )
    counts = {}
    for layer in model.layers:
        counter = COUNTERS.get(type(layer))
        if counter:
            first = keras.tree.flatten(layer.input)[0]
            counts[layer.name] = counter(layer, first.shape[1:])
    return counts


def layer_multiply_adds(layer: keras.layers.Layer, shape: tuple) -> int:
    """Count those of one layer on an input of another shape.

    Args:
        layer: a built layer of a kind that `multiply_adds` counts.
        shape: of its input for one image, such as (N, D).

    Example:

    >>> block = keras_vit.ViT_B16(weights=None).get_layer("block_0")
    >>> layer_multiply_adds(block, (50, 768))
    357734400
    """
    return COUNTERS[type(layer)](layer, shape)


def _dense(layer, shape):
    return math.prod(shape) * layer.units


def _conv(layer, shape):
    output = layer.compute_output_shape((1, *shape))
    return math.prod(output[1:3]) * math.prod(layer.kernel.shape)


def _patch_embed(layer, shape):
    return _conv(layer.projection, shape)


def _self_attention(layer, shape):
    tokens, dim = shape
    products = 2 * tokens * tokens * dim
    if getattr(layer, "position_bias", None):
        products += POSITIONS[type(layer.position_bias)](layer)
    if layer.talking_heads:
        products += 2 * (layer.num_heads * tokens) ** 2
    return _dense(layer.qkv, shape) + products + _dense(layer.out, shape)


POSITIONS = {
    layers.RelativePositionBias: lambda layer: bias_multiply_adds(
        layer.position_bias
    ),
    layers.DecomposedPositionBias: lambda layer: (
        layer.position_bias.multiply_adds(layer.num_heads)
    ),
}


def _window_attention(layer, shape):
    window = (layer.window_size**2, shape[-1])
    return math.prod(layer.window_grid) * _self_attention(layer, window)


def _neck(layer, shape):
    kernel = math.prod(layer.convolution.kernel.shape)
    return _dense(layer.projection, shape) + shape[0] * kernel


def _class_attention(layer, shape):
    tokens, dim = shape
    return (
        _dense(layer.query, (1, dim))
        + _dense(layer.key_value, shape)
        + 2 * tokens * dim
        + _dense(layer.out, (1, dim))
    )


def _mlp(layer, shape):
    return 2 * math.prod(shape) * layer.mlp_dim


def _gated_mlp(layer, shape):
    return 3 * math.prod(shape) * layer.mlp_dim


def _relative_attention(layer, shape):
    tokens, dim = shape
    offsets = tokens * (2 * tokens - 1) * dim  # a logit for each offset
    return _self_attention(layer, shape) + offsets


def _axial_attention(layer, shape):
    rows, columns = layer.grid
    if layer.axis == "columns":
        rows, columns = columns, rows
    return rows * _self_attention(layer.attention, (columns, shape[-1]))


def _local_mlp(layer, shape):
    kernel = math.prod(layer.convolution.kernel.shape)
    return _mlp(layer, shape) + math.prod(layer.grid) * kernel


def _transformer_block(layer, shape):
    parts = (layer.attention, layer.mlp)
    return sum(COUNTERS[type(part)](part, shape) for part in parts)


def _class_attention_block(layer, shape):
    token = (1, shape[-1])
    attention = _class_attention(layer.attention, shape)
    return attention + COUNTERS[type(layer.mlp)](layer.mlp, token)


def _axial_block(layer, shape):
    parts = (layer.rows, layer.columns)
    return sum(_transformer_block(part, shape) for part in parts)


def _mixer_block(layer, shape):
    if layer.mixing == "linear":
        tokens = shape[0] * math.prod(shape)
    else:
        tokens = COUNTERS[type(layer.token_mixing)](layer.token_mixing, shape)
    channels = COUNTERS[type(layer.channel_mixing)]
    return tokens + channels(layer.channel_mixing, shape)


def _spatial_gating_block(layer, shape):
    tokens, dim = shape
    gate_dim = layer.channels_mlp_dim // 2
    return tokens * gate_dim * (3 * dim + tokens)


def _attention_pooling(layer, shape):
    tokens, dim = shape
    tokens -= layer.num_prefix_tokens  # which it does not read
    one = (1, dim)
    query = _dense(layer.query, one) if layer.project_query else 0
    mlp = 0 if layer.mlp_dim is None else _mlp(layer.mlp, one)
    products = _dense(layer.key_value, (tokens, dim)) + 2 * tokens * dim
    return query + products + _dense(layer.out, one) + mlp


COUNTERS = {
    keras.layers.Conv2D: _conv,
    keras.layers.Dense: _dense,
    layers.AttentionPooling: _attention_pooling,
    layers.ClassAttentionBlock: _class_attention_block,
    layers.GatedMLP: _gated_mlp,
    layers.MLP: _mlp,
    layers.MixerBlock: _mixer_block,
    layers.SpatialGatingBlock: _spatial_gating_block,
    layers.Neck: _neck,
    layers.ParallelBlock: _transformer_block,
    layers.PatchEmbed: _patch_embed,
    layers.SelfAttention: _self_attention,
    layers.StandardizedConv2D: _conv,
    layers.TransformerBlock: _transformer_block,
    layers.WindowAttention: _window_attention,
    variants.AxialAttention: _axial_attention,
    variants.AxialBlock: _axial_block,
    variants.LocalMLP: _local_mlp,
    variants.RelativeSelfAttention: _relative_attention,
    variants.VariantBlock: _transformer_block,
}
