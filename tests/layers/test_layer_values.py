"""What the layers compute, against NumPy and by their properties."""

import numpy as np
import numpy_forward
import pytest
from arrays import read_arrays
from keras import ops
from random_layers import flax_attention, normal, randomise

from keras_vit import layers
from keras_vit.layers import attention
from keras_vit.layers.embedding import sine_cosine_table


def test_patches_follow_row_by_row():
    layer = layers.PatchEmbed(hidden_dim=24, patch_size=(2, 4))
    images = normal(2, 6, 8, 3)
    layer.build(images.shape)
    layer.projection.kernel.assign(np.eye(24).reshape(2, 4, 3, 24))
    tokens = ops.convert_to_numpy(layer(images))
    patch = images[:, 2:4, 4:8].reshape(2, -1)  # row 1, column 1 of 3 x 2
    np.testing.assert_allclose(tokens[:, 3], patch, atol=1e-6)


def test_class_token_starts_at_zero_and_comes_first():
    layer = layers.ClassToken()
    tokens = normal(2, 5, 8)
    x = ops.convert_to_numpy(layer(tokens))
    np.testing.assert_array_equal(x[:, 0], 0)
    np.testing.assert_array_equal(x[:, 1:], tokens)
    layer.token.assign(np.full((1, 1, 8), 7))
    x = ops.convert_to_numpy(layer(tokens))
    np.testing.assert_array_equal(x[:, 0], 7)


def test_sine_cosine_table_by_hand():
    table = sine_cosine_table((2, 3), 8)[0]
    # Token 5 is row 1, column 2; the frequencies are 1 and 1/10000.
    expected = [
        *np.sin([2, 2e-4]),
        *np.cos([2, 2e-4]),
        *np.sin([1, 1e-4]),
        *np.cos([1, 1e-4]),
    ]
    np.testing.assert_allclose(table[5], expected, atol=1e-6)
    assert table.shape == (6, 8)


def test_sine_cosine_table_is_the_one_of_big_vision():
    import golden

    file = "vit_tiny_bigvision_gap_sincos.expected.npz"
    expected = read_arrays(golden.FOLDER / file)["position_embedding"]
    np.testing.assert_allclose(
        sine_cosine_table((4, 4), 32), expected, atol=1e-6
    )


def test_fixed_position_embedding_leaves_prefix_tokens():
    layer = layers.AddPositionEmbedding(
        (2, 2), num_prefix_tokens=1, kind="sincos2d"
    )
    x = ops.convert_to_numpy(layer(np.zeros((1, 5, 8), "float32")))
    np.testing.assert_array_equal(x[0, 0], 0)
    np.testing.assert_allclose(x[:, 1:], sine_cosine_table((2, 2), 8))
    assert layer.weights == []


@pytest.mark.parametrize(
    ("rate", "fused"), [(0.0, False), (0.0, True), (0.5, True)]
)
def test_self_attention_is_that_of_numpy(rate, fused, monkeypatch):
    # On torch it is fused, on the others not.
    monkeypatch.setattr(
        attention, "backend_is", lambda name: fused and name == "torch"
    )
    tokens = normal(2, 7, 16)
    layer = layers.SelfAttention(4, attention_dropout_rate=rate)
    layer.build(tokens.shape)
    randomise(layer)
    expected, weights = numpy_forward.self_attention(
        flax_attention(layer), tokens
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(tokens)), expected, atol=1e-5
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer.attention_weights(tokens)),
        weights,
        atol=1e-5,
    )


@pytest.mark.parametrize("normalization", ["layer_norm", "rms_norm"])
def test_queries_and_keys_are_normalised_with_the_epsilon(normalization):
    epsilon = 0.5
    layer = layers.SelfAttention(
        4,
        qk_norm=True,
        normalization=normalization,
        layer_norm_epsilon=epsilon,
    )
    tokens = normal(2, 7, 16)
    layer.build(tokens.shape)
    randomise(layer)
    qkv = tokens @ np.array(layer.qkv.kernel) + np.array(layer.qkv.bias)
    parts = qkv.reshape(2, 7, 4, 3, 4)

    def normalised(x, norm):
        if normalization == "layer_norm":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
        weights = {x.path.split("/")[-1]: np.array(x) for x in norm.weights}
        scale = weights.get("gamma", weights.get("scale"))
        return x * scale + weights.get("beta", 0)

    query = normalised(parts[..., 0, :], layer.query_norm)
    key = normalised(parts[..., 1, :], layer.key_norm)
    scores = np.einsum("bnhd,bmhd->bhnm", query, key) / 2  # Of 4 numbers.
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer.attention_weights(tokens)),
        scores / scores.sum(-1, keepdims=True),
        atol=1e-5,
    )


def test_attention_pooling_is_that_of_numpy():
    tokens = normal(2, 7, 16)
    layer = layers.AttentionPooling(num_heads=4, mlp_dim=32)
    layer.build(tokens.shape)
    randomise(layer)
    query = np.array(layer.probe) @ np.array(layer.query.kernel)
    query = (query + np.array(layer.query.bias)).reshape(1, 1, 4, 4)
    pair = tokens @ np.array(layer.key_value.kernel)
    pair = (pair + np.array(layer.key_value.bias)).reshape(2, 7, 4, 2, 4)
    scores = np.einsum("bnhd,Bmhd->Bhnm", query, pair[:, :, :, 0]) / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    y = np.einsum("bhnm,bmhd->bnhd", weights, pair[:, :, :, 1])
    y = y.reshape(2, 1, 16) @ np.array(layer.out.kernel)
    y = y + np.array(layer.out.bias)
    norm = {
        "scale": np.array(layer.norm.gamma),
        "bias": np.array(layer.norm.beta),
    }
    z = numpy_forward.layer_norm(y, norm) @ np.array(layer.mlp.dense.kernel)
    z = numpy_forward.gelu_tanh(z + np.array(layer.mlp.dense.bias))
    z = z @ np.array(layer.mlp.dense_1.kernel)
    expected = (y + z + np.array(layer.mlp.dense_1.bias))[:, 0]
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(tokens)), expected, atol=1e-4
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer.attention_weights(tokens)),
        weights,
        atol=1e-5,
    )


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "relu"])
def test_mlp_has_the_named_activation(activation):
    import math

    forms = {
        "gelu_tanh": numpy_forward.gelu_tanh,
        "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2,
        "relu": lambda x: np.maximum(x, 0),
    }
    x = np.linspace(-4, 4, 33, dtype="float32")[:, None]
    layer = layers.MLP(1, activation=activation)
    layer.build(x.shape)
    for dense in (layer.dense, layer.dense_1):
        dense.kernel.assign([[1.0]])
        dense.bias.assign([0.0])
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(x)), forms[activation](x), atol=1e-6
    )


def test_pooling_leaves_prefix_tokens_out():
    x = normal(2, 5, 8)
    expected = {
        "token": x[:, 0],
        "mean": x[:, 2:].mean(axis=1),
        "max": x[:, 2:].max(axis=1),
        "prefix": x[:, :2].reshape(2, 16),
        "prefix_mean": x[:, :2].mean(axis=1),
        "token_and_mean": np.concatenate(
            [x[:, 0], x[:, 2:].mean(axis=1)], axis=1
        ),
    }
    for pooling, wanted in expected.items():
        layer = layers.TokenPooling(pooling, num_prefix_tokens=2)
        np.testing.assert_allclose(
            ops.convert_to_numpy(layer(x)), wanted, atol=1e-6
        )


def limits(initializer_name):
    """Bounds of the original initialisers for D = 64, M = 256, P = 4."""
    return {
        "patch_embed": (1 / 48) ** 0.5,
        "qkv": (6 / 128) ** 0.5 / 3**0.5,
        "out": (6 / 128) ** 0.5 / 3**0.5,
        "mlp": (6 / (64 + 256)) ** 0.5 / 3**0.5,
        "mlp_bias": 1e-6,
        "position": 0.02,
    }[initializer_name]


@pytest.mark.parametrize("rematerialize", [False, True])
def test_layer_scale_multiplies_each_branch(rematerialize):
    block = layers.TransformerBlock(
        2, 12, layer_scale_init=0.5, rematerialize=rematerialize
    )
    tokens = normal(2, 5, 8)
    block.build(tokens.shape)
    for scale in (block.attention_scale, block.mlp_scale):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(scale.gamma), np.full(8, 0.5)
        )
    randomise(block)
    expected, _ = numpy_forward.block(flax(block), tokens.astype("float64"))
    x = ops.convert_to_tensor(tokens)
    after_norm = block.after_norm(x, block.attention_norm(x))
    for found in (block(tokens, training=True), after_norm):
        np.testing.assert_allclose(
            ops.convert_to_numpy(found), expected, rtol=1e-5, atol=1e-5
        )


def flax(block):
    """The weights of a block in the layout of the original files."""
    arrays = {
        "/".join(weight.path.split("/")[1:]): ops.convert_to_numpy(weight)
        for weight in block.weights
    }
    heads, dim = block.num_heads, len(arrays["attention/out/bias"])
    shape = (heads, 3, dim // heads)
    kernel = arrays["attention/qkv/kernel"].reshape(dim, *shape)
    bias = arrays["attention/qkv/bias"].reshape(shape)
    attention = "MultiHeadDotProductAttention_1"
    params = {
        f"{attention}/out/kernel": arrays["attention/out/kernel"].reshape(
            heads, dim // heads, dim
        ),
        f"{attention}/out/bias": arrays["attention/out/bias"],
        "attention_scale": arrays["attention_scale/gamma"],
        "mlp_scale": arrays["mlp_scale/gamma"],
    }
    for i, name in enumerate(("query", "key", "value")):
        params[f"{attention}/{name}/kernel"] = kernel[:, :, i]
        params[f"{attention}/{name}/bias"] = bias[:, i]
    for i, name in enumerate(("attention_norm", "mlp_norm")):
        params[f"LayerNorm_{i}/scale"] = arrays[f"{name}/gamma"]
        params[f"LayerNorm_{i}/bias"] = arrays[f"{name}/beta"]
    for i, name in enumerate(("dense", "dense_1")):
        for part in ("kernel", "bias"):
            array = arrays[f"mlp/{name}/{part}"]
            params[f"MlpBlock_3/Dense_{i}/{part}"] = array
    return params


def test_initial_weights_are_spread_as_in_the_original():
    patch = layers.PatchEmbed(64, 4)
    patch.build((None, 32, 32, 3))
    block = layers.TransformerBlock(4, 256)
    block.build((None, 17, 64))
    position = layers.AddPositionEmbedding((16, 16))
    position.build((None, 256, 64))
    weights = {
        "patch_embed": patch.projection.kernel,
        "qkv": block.attention.qkv.kernel,
        "out": block.attention.out.kernel,
        "mlp": block.mlp.dense.kernel,
        "mlp_bias": block.mlp.dense.bias,
        "position": position.embedding,
    }
    for name, weight in weights.items():
        values = ops.convert_to_numpy(weight)
        tolerance = 5 / (2 * values.size) ** 0.5  # 5 sigma of a deviation
        np.testing.assert_allclose(
            values.std(), limits(name), rtol=tolerance, err_msg=name
        )
    for zero in (patch.projection.bias, block.attention.qkv.bias):
        assert not ops.convert_to_numpy(zero).any()
    bound = (6 / 128) ** 0.5
    assert abs(ops.convert_to_numpy(weights["qkv"])).max() <= bound


@pytest.mark.parametrize("form", ["deviation", "variance"])
def test_standardised_kernels_have_mean_0_and_variance_1(form):
    layer = layers.StandardizedConv2D(4, 3, standardization=form, epsilon=1e-3)
    layer.build((None, 3, 3, 2))
    kernel = 5 + 0.01 * normal(3, 3, 2, 4)
    layer.kernel.assign(kernel)
    images = normal(2, 3, 3, 2)
    deviation = {
        "deviation": kernel.std(axis=(0, 1, 2)) + 1e-3,
        "variance": np.sqrt(kernel.var(axis=(0, 1, 2)) + 1e-3),
    }[form]
    standardised = (kernel - kernel.mean(axis=(0, 1, 2))) / deviation
    expected = np.einsum("bhwc,hwcd->bd", images, standardised)
    found = ops.convert_to_numpy(layer(images))
    np.testing.assert_allclose(found[:, 0, 0], expected, atol=1e-3)
    layer.fold()
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(images)), found)
    kernel = ops.convert_to_numpy(layer.kernel)
    np.testing.assert_allclose(kernel, standardised, atol=1e-3)
