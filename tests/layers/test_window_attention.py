"""Attention within windows, decomposed positions and the neck, in NumPy."""

import keras
import numpy as np
import pytest

from keras_vit import layers, models
from keras_vit.analysis import multiply_adds

HEADS, DIM = 2, 8
GRIDS = [((4, 4), 2), ((3, 5), 2), ((5, 4), 3), ((2, 3), 7), ((3, 3), 3)]


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def numpy_of(x):
    return keras.ops.convert_to_numpy(x)


def drawn(layer, *shapes):
    """The layer, built, with random weights."""
    layer.build(*shapes)
    for i, weight in enumerate(layer.weights):
        values = np.random.default_rng(i).normal(size=weight.shape)
        weight.assign(values.astype("float32"))
    return layer


def whole(**options):
    """Attention with the same weights to all of a window's patches."""
    return layers.SelfAttention(HEADS, **options)


@pytest.mark.parametrize(("grid", "size"), GRIDS)
def test_windows_attend_to_themselves_and_to_zeros_beside_the_grid(grid, size):
    """Section 3 of arXiv:2203.16527, window by window."""
    rows, columns = grid
    layer = layers.WindowAttention(HEADS, grid=grid, window_size=size)
    x = random(2, rows * columns, DIM)
    drawn(layer, x.shape)
    inner = drawn(whole(), (None, size**2, DIM))
    across = range(0, columns, size)
    padded = np.zeros((2, rows + size, columns + size, DIM), "float32")
    padded[:, :rows, :columns] = x.reshape(2, rows, columns, DIM)
    expected = np.zeros_like(padded)
    maps = np.zeros((2, HEADS, *grid, *grid))
    for i in range(0, rows, size):
        for j in across:
            part = np.s_[:, i : i + size, j : j + size]
            window = padded[part].reshape(2, size**2, DIM)
            expected[part] = numpy_of(inner(window)).reshape(padded[part].shape)
            weights = numpy_of(inner.attention_weights(window))
            weights = weights.reshape(2, HEADS, *(size,) * 4)
            down, right = min(size, rows - i), min(size, columns - j)
            kept = weights[:, :, :down, :right, :down, :right]
            place = np.s_[i : i + down, j : j + right]
            maps[(slice(None), slice(None), *place, *place)] = kept
    expected = expected[:, :rows, :columns].reshape(x.shape)
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-4)
    found = numpy_of(layer.attention_weights(x))
    maps = maps.reshape(2, HEADS, rows * columns, rows * columns)
    np.testing.assert_allclose(found, maps, atol=1e-5)


def bias_of(query, rows, columns, grid):
    """Equations 4 and 5 of arXiv:2112.01526, pair by pair."""
    places = [(i, j) for i in range(grid[0]) for j in range(grid[1])]
    found = np.zeros((*query.shape[:3], len(places)))
    for q, (i, j) in enumerate(places):
        for k, (row, column) in enumerate(places):
            vector = rows[i - row + grid[0] - 1]
            vector = vector + columns[j - column + grid[1] - 1]
            found[:, :, q, k] = query[:, :, q] @ vector
    return found


@pytest.mark.parametrize("grid", [(2, 3), (3, 3), (1, 4)])
def test_decomposed_positions_are_products_with_the_query(grid):
    tokens = grid[0] * grid[1]
    layer = layers.DecomposedPositionBias(grid, 4)
    scores = random(2, HEADS, tokens, tokens)
    query = random(2, HEADS, tokens, 4)
    drawn(layer, scores.shape, query.shape)
    rows, columns = numpy_of(layer.rows), numpy_of(layer.columns)
    expected = bias_of(query, rows, columns, grid)
    found = numpy_of(layer(scores, query)) - scores
    np.testing.assert_allclose(found, expected, atol=1e-4)
    turned = np.moveaxis(query, 1, 2)
    found = numpy_of(layer.fused_bias(keras.ops.convert_to_tensor(turned)))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_scores_are_scaled_and_their_positions_not(rate):
    """With and without a fused kernel."""
    grid = (2, 3)
    positions = layers.DecomposedPositionBias(grid, DIM // HEADS)
    layer = layers.SelfAttention(
        HEADS, attention_dropout_rate=rate, position_bias=positions
    )
    x = random(2, 6, DIM)
    drawn(layer, x.shape)
    qkv = x @ numpy_of(layer.qkv.kernel) + numpy_of(layer.qkv.bias)
    qkv = qkv.reshape(2, 6, HEADS, 3, -1).transpose(3, 0, 2, 1, 4)
    query, key, value = qkv
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(DIM / HEADS)
    scores = scores + bias_of(
        query, numpy_of(positions.rows), numpy_of(positions.columns), grid
    )
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    heads = np.moveaxis(weights @ value, 1, 2).reshape(2, 6, DIM)
    expected = heads @ numpy_of(layer.out.kernel) + numpy_of(layer.out.bias)
    found = numpy_of(layer(x, training=False))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def normalised(x, gamma, beta):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-6) * gamma + beta


def test_the_neck_projects_and_mixes_neighbours():
    """Appendix A of arXiv:2304.02643, patch by patch."""
    rows, columns = grid = (3, 4)
    layer = layers.Neck(5, grid)
    x = random(2, 12, DIM)
    drawn(layer, x.shape)
    weights = [numpy_of(w) for w in layer.projection_norm.weights]
    y = normalised(x @ numpy_of(layer.projection.kernel), *weights)
    padded = np.pad(
        y.reshape(2, rows, columns, 5), [(0, 0), (1, 1), (1, 1), (0, 0)]
    )
    kernel = numpy_of(layer.convolution.kernel)
    mixed = np.stack(
        [
            np.einsum("bijc,ijck->bk", padded[:, i : i + 3, j : j + 3], kernel)
            for i in range(rows)
            for j in range(columns)
        ],
        axis=1,
    )
    weights = [numpy_of(w) for w in layer.convolution_norm.weights]
    expected = normalised(mixed, *weights)
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=2e-4)


def test_windows_of_other_tokens_or_none_are_refused():
    layer = layers.WindowAttention(HEADS, grid=(3, 4), window_size=2)
    with pytest.raises(ValueError, match="3x4 patches and no other tokens"):
        layer.build((None, 13, DIM))
    with pytest.raises(ValueError, match="window_size=0"):
        layers.WindowAttention(HEADS, grid=(3, 4), window_size=0)


TINY = {
    **{"image_size": (24, 40), "patch_size": 8, "hidden_dim": 8},
    **{"num_layers": 2, "mlp_dim": 16, "num_heads": 2, "num_classes": 3},
    **{"class_token": False, "pooling": "mean", "final_norm": False},
    **{"window_size": 2, "global_attention_blocks": (1,), "neck_dim": 6},
    **{"relative_position_bias": True, "relative_position_kind": "decomposed"},
}


def test_global_blocks_read_all_patches_and_others_their_window():
    """A change of one patch reaches those of its window, then all."""
    model = models.VisionTransformer(models.ViTConfig(**TINY))
    for i, weight in enumerate(model.weights):
        values = np.random.default_rng(i).normal(size=weight.shape)
        weight.assign(values.astype("float32"))
    blocks = [model.get_layer(f"block_{i}").output for i in range(2)]
    network = keras.Model(model.input, blocks)
    image = random(1, 24, 40, 3)
    changed = image.copy()
    changed[:, :8, 16:24] += 1  # the patch in row 0 and column 2
    reached = [
        np.abs(numpy_of(x) - numpy_of(y)).max(axis=-1).reshape(3, 5) > 1e-6
        for x, y in zip(network(image), network(changed), strict=True)
    ]
    window = np.zeros((3, 5), "bool")
    window[:2, 2:4] = True
    np.testing.assert_array_equal(reached[0], window)
    assert reached[1].all()


def test_multiply_adds_count_windows_positions_and_neck():
    model = models.VisionTransformer(models.ViTConfig(**TINY))
    found = multiply_adds(model)
    dim, mlp, tokens = 8, 2 * 8 * 16, 15
    # Six windows of four patches, whose positions have 2 + 2 distances.
    window = 4 * 4 * dim**2 + 2 * 4**2 * dim + 4 * (2 + 2) * dim
    assert found["block_0"] == 6 * window + tokens * mlp
    # 3 + 5 distances.
    whole = 4 * dim**2 * tokens + 2 * tokens**2 * dim + tokens * 8 * dim
    assert found["block_1"] == whole + tokens * mlp
    assert found["neck"] == tokens * (8 * 6 + 9 * 6 * 6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class_token": True}, "needs class_token=False"),
        ({"register_tokens": 2}, "needs register_tokens=0"),
        ({"rope": "axial"}, "needs rope=None"),
        ({"relative_position_kind": "table"}, "'decomposed'. Received"),
        ({"global_attention_blocks": (2,)}, "from 0 to 1, beside a window"),
        ({"global_attention_blocks": (-1,)}, "from 0 to 1, beside a window"),
        ({"window_size": 0}, "beside a window_size. Received"),
        ({"window_size": -1}, "window_size must be at least 0"),
        ({"neck_dim": -1}, "neck_dim must be at least 0"),
        (
            {"neck_dim": 6, "norm_after_pooling": True, "final_norm": True},
            "needs norm_after_pooling=False",
        ),
        (
            {"window_size": 0, "global_attention_blocks": ()}
            | {"neck_dim": 0, "class_token": True},
            "'decomposed' needs class_token=False",
        ),
    ],
)
def test_options_of_sam_that_do_not_fit_together(fields, message):
    with pytest.raises(ValueError, match=message):
        models.ViTConfig(**{**TINY, **fields})
