"""Rotary and relative positions, gates and norms against NumPy."""

import keras
import numpy as np
import pytest
from arrays import drawn

from keras_vit import layers, models

GRID, PREFIX, HEADS, DIM = (3, 4), 2, 2, 8
TOKENS = GRID[0] * GRID[1] + PREFIX


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def numpy_of(x):
    return keras.ops.convert_to_numpy(x)


def turned(x, angles, pairs):
    """x (..., d) as complex numbers, turned by the angles (..., d / 2)."""
    x = x.astype("float64")
    if pairs == "neighbors":
        first, second = x[..., ::2], x[..., 1::2]
    else:
        first, second = np.split(x, 2, axis=-1)
    result = (first + 1j * second) * np.exp(1j * angles)
    if pairs == "neighbors":
        parts = np.stack([result.real, result.imag], axis=-1)
        return parts.reshape(x.shape)
    return np.concatenate([result.real, result.imag], axis=-1)


def angles_of(place, temperature, scale=1.0):
    """Angles of one patch: two of the first place, two of the second."""
    return [
        scale * axis / temperature**exponent
        for axis in place
        for exponent in (0, 0.5)
    ]


ROTATIONS = {
    "axial": ({}, lambda i, j: angles_of((i, j), 1e4)),
    "halves": ({"rope_pairs": "halves"}, lambda i, j: angles_of((i, j), 1e4)),
    "columns": (
        {"rope_axes": "column_first", "rope_temperature": 100.0},
        lambda i, j: angles_of((j, i), 100),
    ),
    "stretched": (
        {"rope_reference_grid": (6, 2), "rope_offset": 1.0},
        lambda i, j: angles_of(((i + 1) * 2, (j + 1) / 2), 1e4),
    ),
    "centered": (
        {"rope": "centered", "rope_temperature": 100.0},
        lambda i, j: angles_of(
            ((i + 0.5) / 1.5 - 1, (j + 0.5) / 2 - 1), 100, 2 * np.pi
        ),
    ),
}


@pytest.mark.parametrize("heads_first", [True, False])
@pytest.mark.parametrize("name", ROTATIONS)
def test_rotary_embedding_turns_complex_numbers(name, heads_first):
    options, expected_angles = ROTATIONS[name]
    layer = layers.RotaryEmbedding(GRID, num_prefix_tokens=PREFIX, **options)
    x = random(2, HEADS, TOKENS, DIM)
    layer.build(x.shape)
    angles = np.zeros((TOKENS, DIM // 2))
    for i in range(GRID[0]):
        for j in range(GRID[1]):
            angles[PREFIX + i * GRID[1] + j] = expected_angles(i, j)
    expected = turned(x, angles, options.get("rope_pairs", "neighbors"))
    if not heads_first:
        x, expected = np.swapaxes(x, 1, 2), np.swapaxes(expected, 1, 2)
    found = numpy_of(layer(x, heads_first=heads_first))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_mixed_rotary_embedding_learns_the_frequencies_of_each_head():
    layer = layers.RotaryEmbedding(GRID, num_prefix_tokens=PREFIX, rope="mixed")
    x = random(2, HEADS, TOKENS, DIM)
    layer.build(x.shape)
    frequencies = random(2, HEADS, DIM // 2)
    layer.frequencies.assign(frequencies)
    angles = np.zeros((HEADS, TOKENS, DIM // 2))
    for i in range(GRID[0]):
        for j in range(GRID[1]):
            angles[:, PREFIX + i * GRID[1] + j] = (
                i * frequencies[0] + j * frequencies[1]
            )
    expected = turned(x, angles, "neighbors")
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-5)


def test_mixed_frequencies_begin_at_a_right_angle_of_each_other():
    layer = layers.RotaryEmbedding(GRID, rope="mixed", rope_temperature=10.0)
    layer.build((None, HEADS, 12, DIM))
    found = numpy_of(layer.frequencies)
    lengths = np.hypot(*found)  # (H, d / 2)
    expected = [10**-x for x in (0, 0.5)] * 2
    np.testing.assert_allclose(lengths, [expected] * HEADS, rtol=1e-5)
    products = (found[..., :2] * found[..., 2:]).sum(axis=0)
    np.testing.assert_allclose(products, 0, atol=1e-6)
    assert not np.allclose(found[:, 0], found[:, 1])


@pytest.mark.parametrize("prefix", [0, 1])
def test_relative_position_bias_is_that_of_the_distance(prefix):
    layer = layers.RelativePositionBias(GRID, HEADS, num_prefix_tokens=prefix)
    tokens = 12 + prefix
    layer.build((None, HEADS, tokens, tokens))
    table = random(5 * 7 + 3 * prefix, HEADS)
    layer.table.assign(table)
    found = numpy_of(layer(np.zeros((1, HEADS, tokens, tokens), "float32")))[0]
    patches = [(i, j) for i in range(3) for j in range(4)]
    for query, (i, j) in enumerate(patches, prefix):
        for key, (k, m) in enumerate(patches, prefix):
            row = (i - k + 2) * 7 + j - m + 3
            np.testing.assert_array_equal(found[:, query, key], table[row])
    if prefix:
        np.testing.assert_array_equal(found[:, 0, 1:].T, [table[35]] * 12)
        np.testing.assert_array_equal(found[:, 1:, 0].T, [table[36]] * 12)
        np.testing.assert_array_equal(found[:, 0, 0], table[37])


LOGARITHMS = {
    "mlp": lambda x, longest: np.sign(x) * np.log(1 + abs(x)),
    "mlp_swin": lambda x, longest: (
        np.sign(x) * np.log2(1 + abs(8 * x / longest)) / 3
    ),
}


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("kind", LOGARITHMS)
def test_relative_positions_are_an_mlp_of_the_distance(kind, prefix):
    layer = layers.RelativePositionBias(
        GRID,
        HEADS,
        num_prefix_tokens=prefix,
        relative_position_kind=kind,
        relative_position_dim=5,
    )
    tokens = 12 + prefix
    layer.build((None, HEADS, tokens, tokens))
    shapes = [(2, 5), (5,), (5, HEADS), (HEADS,)]
    values = [random(*x) * (i + 1) for i, x in enumerate(shapes)]
    layer.set_weights(values[: len(layer.weights)])
    assert len(layer.weights) == (4 if kind == "mlp" else 3)
    found = numpy_of(layer(np.ones((1, HEADS, tokens, tokens), "float32")))[0]
    patches = [(i, j) for i in range(3) for j in range(4)]
    for query, (i, j) in enumerate(patches, prefix):
        for key, (k, m) in enumerate(patches, prefix):
            x = [LOGARITHMS[kind](i - k, 2), LOGARITHMS[kind](j - m, 3)]
            hidden = np.maximum(x @ values[0] + values[1], 0) @ values[2]
            expected = hidden + values[3]
            if kind == "mlp_swin":
                expected = 16 / (1 + np.exp(-hidden))
            np.testing.assert_allclose(
                found[:, query, key], 1 + expected, rtol=0, atol=2e-5
            )
    np.testing.assert_array_equal(found[:, :prefix], 1)
    np.testing.assert_array_equal(found[:, :, :prefix], 1)


@pytest.mark.parametrize("kind", ["table", "mlp", "mlp_swin"])
def test_all_blocks_learn_the_positions_that_they_share(kind, tmp_path):
    config = models.ViTConfig(
        **{"image_size": (12, 16), "patch_size": 4, "hidden_dim": DIM},
        **{"num_layers": 3, "mlp_dim": 8, "num_heads": HEADS},
        **{"position_embedding": "none", "relative_position_bias": True},
        relative_position_kind=kind,
        relative_position_dim=4,
        relative_positions_shared=True,
        num_classes=2,
    )
    model = models.VisionTransformer(config)
    shared = [x for x in model.weights if "position_bias" in x.path]
    assert {x.path.split("/")[0] for x in shared} == {"position_bias"}
    assert len(shared) == {"table": 1, "mlp": 4, "mlp_swin": 3}[kind]
    layers_of_blocks = {
        id(model.get_layer(f"block_{i}").attention.position_bias)
        for i in range(3)
    }
    assert len(layers_of_blocks) == 1
    model.get_layer("predictions").kernel.assign(random(DIM, 2))
    before = [numpy_of(x).copy() for x in shared]
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    images = random(4, 12, 16, 3)
    model.fit(images, random(4, 2), epochs=2, verbose=0)
    for weight, old in zip(shared, before, strict=True):
        assert np.abs(numpy_of(weight) - old).max() > 0
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        model.predict(images, verbose=0), again.predict(images, verbose=0)
    )


def test_gated_mlp_multiplies_by_silu_of_the_gates():
    layer = layers.GatedMLP(6, activation="silu", mlp_inner_norm=True)
    x = random(2, 5, 4)
    layer.build(x.shape)
    shapes = {w.path.split("/", 1)[1]: w for w in layer.weights}
    for i, weight in enumerate(shapes.values()):
        values = np.random.default_rng(i).normal(size=weight.shape)
        weight.assign(values.astype("float32"))
    kernel, bias, last, last_bias, scale, offset = (
        numpy_of(shapes[name]).astype("float64")
        for name in (
            *("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"),
            *("inner_norm/gamma", "inner_norm/beta"),
        )
    )
    gates, values = np.split(x @ kernel + bias, 2, axis=-1)
    hidden = gates / (1 + np.exp(-gates)) * values
    centered = hidden - hidden.mean(-1, keepdims=True)
    normed = centered / np.sqrt(hidden.var(-1, keepdims=True) + 1e-6)
    expected = (normed * scale + offset) @ last + last_bias
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-4)


def test_affine_takes_no_statistics():
    layer = layers.Affine()
    gamma, beta = drawn(layer, (2, 5, 4)).values()
    x = random(2, 5, 4)
    np.testing.assert_allclose(numpy_of(layer(x)), x * gamma + beta, atol=1e-5)


def test_spatial_gating_mixes_the_normalised_half_across_tokens():
    layer = layers.SpatialGatingUnit()
    x = random(2, 5, 8)
    weights = drawn(layer, x.shape)
    values, gates = np.split(x.astype("float64"), 2, axis=-1)
    centered = gates - gates.mean(-1, keepdims=True)
    normed = centered / np.sqrt(gates.var(-1, keepdims=True) + 1e-5)
    normed = normed * weights["norm/gamma"] + weights["norm/beta"]
    mixed = np.einsum("bnc,nm->bmc", normed, weights["dense/kernel"])
    expected = values * (mixed + weights["dense/bias"][:, None])
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-5)


def test_a_new_spatial_gate_is_open():
    """Section 2.1 of arXiv:2105.08050: W close to 0, b = 1."""
    x = random(2, 5, 8)
    found = numpy_of(layers.SpatialGatingUnit()(x))
    np.testing.assert_allclose(found, x[..., :4], atol=1e-4)


def test_resmlp_is_two_linear_residuals():
    """Equations 2 and 3 of arXiv:2105.03404 with its factors."""
    block = layers.MixerBlock(
        *(0, 6),
        **{"mixing": "linear", "normalization": "affine"},
        **{"layer_scale_init": 0.1, "activation": "relu"},
    )
    x = random(2, 5, 4)
    weights = drawn(block, x.shape)

    def affine(name, y):
        return y * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def dense(name, y):
        return y @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    y = np.swapaxes(affine("token_norm", x), 1, 2)
    y = np.swapaxes(dense("token_mixing", y), 1, 2)
    x = x + y * weights["token_scale/gamma"]
    y = np.maximum(dense("channel_mixing/dense", affine("channel_norm", x)), 0)
    y = dense("channel_mixing/dense_1", y)
    expected = x + y * weights["channel_scale/gamma"]
    found = numpy_of(block(random(2, 5, 4)))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_evolved_normalization_divides_by_the_deviation_of_the_group():
    layer = layers.EvolvedNormalization(groups=2, epsilon=0.1)
    x = random(2, 3, 4, 6) + 1
    layer.build(x.shape)
    gamma, beta, gate = (random(6) * i for i in (1, 2, 3))
    for weight, value in {"gamma": gamma, "beta": beta, "gate": gate}.items():
        getattr(layer, weight).assign(value)
    expected = np.empty(x.shape)
    for image in range(2):
        for group in (slice(0, 3), slice(3, 6)):
            y = x[image, ..., group].astype("float64")
            gated = y / (1 + np.exp(-gate[group] * y))
            expected[image, ..., group] = (
                gated / np.sqrt(y.var() + 0.1) * gamma[group] + beta[group]
            )
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-5)


def test_groups_that_do_not_divide_the_channels_are_refused():
    with pytest.raises(ValueError, match="groups=4, 6 channels"):
        layers.EvolvedNormalization(groups=4).build((None, 3, 4, 6))


def test_rms_normalization_keeps_the_mean():
    layer = layers.TokenRMSNormalization(epsilon=0.1)
    x = random(2, 3, 4) + 1
    layer.build(x.shape)
    gamma = random(4)
    layer.gamma.assign(gamma)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * gamma
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-5)
    default = keras.layers.RMSNormalization().epsilon
    assert layers.TokenRMSNormalization().epsilon == default


def test_a_key_without_bias_gets_none_in_training():
    attention = layers.SelfAttention(
        HEADS, key_bias=False, rotary=layers.RotaryEmbedding((2, 2))
    )
    model = keras.Sequential([keras.Input((4, DIM)), attention])
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    x = random(8, 4, DIM)
    model.fit(x, -x, batch_size=8, epochs=2, verbose=0)
    bias = numpy_of(attention.qkv.bias).reshape(HEADS, 3, -1)
    np.testing.assert_array_equal(bias[:, 1], 0)
    assert (bias[:, 0] != 0).all() and (bias[:, 2] != 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope": "spiral"}, "rope: .spiral"),
        ({"rope_axes": "ij"}, "rope_axes: .ij"),
        ({"rope_pairs": "thirds"}, "rope_pairs: .thirds"),
    ],
)
def test_unknown_options_of_rope_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        layers.RotaryEmbedding(GRID, **options)


def test_rotations_of_another_grid_are_refused():
    layer = layers.RotaryEmbedding(GRID)
    with pytest.raises(ValueError, match="3x4 patches and 0 other tokens"):
        layer.build((None, 2, 13, 8))
    with pytest.raises(ValueError, match="a multiple of 4 features"):
        layer.build((None, 2, 12, 6))


def test_relative_positions_of_registers_are_refused():
    with pytest.raises(ValueError, match="num_prefix_tokens=5"):
        layers.RelativePositionBias(GRID, 2, num_prefix_tokens=5)


def test_an_unknown_kind_of_relative_positions_is_refused():
    with pytest.raises(ValueError, match="relative_position_kind: .mlp_cr"):
        layers.RelativePositionBias(GRID, 2, relative_position_kind="mlp_cr")


def test_attention_with_every_option_comes_back_from_its_config():
    attention = layers.SelfAttention(
        HEADS,
        key_bias=False,
        projection_bias=False,
        qk_norm=True,
        attention_inner_norm=True,
        normalization="rms_norm",
        rotary=layers.RotaryEmbedding(GRID, rope="mixed"),
        position_bias=layers.RelativePositionBias(GRID, HEADS),
    )
    block = layers.TransformerBlock(
        HEADS, 16, attention=attention, mlp=layers.GatedMLP(16)
    )
    again = layers.TransformerBlock.from_config(block.get_config())
    x = random(2, 12, DIM)
    for layer in (block, again):
        layer.build(x.shape)
    assert len(block.weights) == 16
    again.set_weights([random(*w.shape) for w in again.weights])
    block.set_weights(again.get_weights())
    np.testing.assert_array_equal(numpy_of(block(x)), numpy_of(again(x)))


def test_a_fused_kernel_with_relative_positions_is_refused():
    attention = layers.SelfAttention(
        HEADS,
        flash_attention=True,
        position_bias=layers.RelativePositionBias(GRID, HEADS),
    )
    with pytest.raises(ValueError, match="flash_attention=True with a pos"):
        attention.build((None, 12, DIM))
