"""Talking heads, grouped queries, class and differential attention, parallel
blocks.

Against NumPy, from the equations of their papers.
"""

import keras
import numpy as np
import pytest
from arrays import drawn
from tiny_models import tiny_vit

from keras_vit import layers, models

HEADS, DIM = 2, 8


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def numpy_of(x):
    return keras.ops.convert_to_numpy(x)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def test_talking_heads_mix_scores_and_weights():
    """Head by head, as in the pseudo-code of arXiv:2003.02436."""
    layer = layers.SelfAttention(HEADS, talking_heads=True)
    x = random(2, 5, DIM)
    w = drawn(layer, x.shape)
    qkv = x @ w["qkv/kernel"] + w["qkv/bias"]  # by head, then q, k, v
    query, key, value = qkv.reshape(2, 5, HEADS, 3, -1).transpose(3, 2, 0, 1, 4)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(DIM / HEADS)  # (H, B, N, M)
    logits, last = w["logits_projection/kernel"], w["weights_projection/kernel"]
    biases = [w[f"{x}_projection/bias"].ravel() for x in ("logits", "weights")]
    before = [
        softmax(
            sum(logits[h, g] * scores[h] for h in range(HEADS)) + biases[0][g]
        )
        for g in range(HEADS)
    ]
    after = [
        sum(last[h, g] * before[h] for h in range(HEADS)) + biases[1][g]
        for g in range(HEADS)
    ]
    heads = [weights @ value[g] for g, weights in enumerate(after)]
    expected = np.concatenate(heads, axis=-1) @ w["out/kernel"] + w["out/bias"]
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=2e-4)
    found = numpy_of(layer.attention_weights(x))
    np.testing.assert_allclose(found, np.stack(after, axis=1), atol=2e-4)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_queries_of_a_group_read_the_same_key_and_value(groups):
    """Figure 2 of arXiv:2305.13245, head by head."""
    heads, dim = 4, 16
    layer = layers.SelfAttention(heads, key_value_heads=groups)
    x = random(2, 5, dim)
    w = drawn(layer, x.shape)
    queries = heads // groups
    assert layer.qkv.units == dim + 2 * groups * 4
    columns = (x @ w["qkv/kernel"] + w["qkv/bias"]).reshape(2, 5, groups, -1, 4)
    found, maps = [], []
    for group in range(groups):
        *asked, key, value = np.moveaxis(columns[:, :, group], 2, 0)
        assert len(asked) == queries
        for query in asked:
            maps.append(softmax(query @ key.swapaxes(1, 2) / 2))
            found.append(maps[-1] @ value)
    expected = np.concatenate(found, axis=-1) @ w["out/kernel"] + w["out/bias"]
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=2e-4)
    weights = numpy_of(layer.attention_weights(x))
    np.testing.assert_allclose(weights, np.stack(maps, axis=1), atol=1e-4)


@pytest.mark.parametrize("flash_attention", [None, False])
def test_grouped_queries_with_and_without_a_fused_kernel(flash_attention):
    options = {"key_value_heads": 2, "qk_norm": True}
    layer = layers.SelfAttention(4, flash_attention=flash_attention, **options)
    explicit = layers.SelfAttention(4, attention_dropout_rate=0.5, **options)
    x = random(2, 5, 16)
    drawn(layer, x.shape)
    drawn(explicit, x.shape)
    np.testing.assert_allclose(
        numpy_of(layer(x)), numpy_of(explicit(x, training=False)), atol=1e-4
    )


@pytest.mark.parametrize("groups", [0, 3, 8])
def test_groups_of_different_sizes_are_refused(groups):
    layer = layers.SelfAttention(4, key_value_heads=groups)
    with pytest.raises(ValueError, match=r"Choose one of \[1, 2, 4\]"):
        layer.build((None, 5, 16))


def test_the_mlp_alone_may_have_no_layer_scale():
    layer = layers.TransformerBlock(
        2, 16, layer_scale_init=0.5, mlp_layer_scale=False
    )
    x = random(2, 5, DIM)
    drawn(layer, x.shape)
    gammas = [w.path for w in layer.weights if "scale/gamma" in w.path]
    assert [x.split("/")[-2] for x in gammas] == ["attention_scale"]
    y = numpy_of(layer.attention(layer.attention_norm(x)))
    y = x + numpy_of(layer.attention_scale.gamma) * y
    expected = y + numpy_of(layer.mlp(layer.mlp_norm(y)))
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-4)


def test_talking_heads_have_no_fused_kernel():
    layer = layers.SelfAttention(
        HEADS, talking_heads=True, flash_attention=True
    )
    with pytest.raises(ValueError, match="True with talking_heads=True"):
        layer.build((None, 12, DIM))


def test_differential_attention_takes_one_softmax_from_another():
    """Equations 1 to 3 of arXiv:2410.05258, head by head."""
    layer = layers.SelfAttention(HEADS, differential_lambda=0.35)
    x = random(2, 5, DIM)
    w = drawn(layer, x.shape)
    qkv = (x @ w["qkv/kernel"] + w["qkv/bias"]).reshape(2, 5, HEADS, 3, -1)
    q1, k1, q2, k2 = w["lambdas"]
    factor = np.exp(q1 @ k1) - np.exp(q2 @ k2) + 0.35
    heads, maps = [], []
    for h in range(HEADS):
        query, key, value = (qkv[:, :, h, i] for i in range(3))
        first, second = (
            softmax(q @ k.swapaxes(1, 2) / np.sqrt(DIM / HEADS / 2))
            for q, k in zip(
                np.split(query, 2, axis=-1),
                np.split(key, 2, axis=-1),
                strict=True,
            )
        )
        maps.append(first - factor * second)
        head = maps[-1] @ value
        size = np.sqrt((head**2).mean(axis=-1, keepdims=True) + 1e-5)
        heads.append((1 - 0.35) * w["heads_norm/gamma"] * head / size)
    expected = np.concatenate(heads, axis=-1) @ w["out/kernel"] + w["out/bias"]
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=2e-4)
    found = numpy_of(layer.attention_weights(x))
    np.testing.assert_allclose(found, np.stack(maps, axis=1), atol=1e-4)


def test_the_second_softmax_grows_with_the_depth():
    """Section 2.1: 0.8 - 0.6 exp(-0.3 (l - 1)) in layer l, from 1."""
    config = models.ViTConfig(
        **{"image_size": 8, "patch_size": 4, "hidden_dim": 8, "num_heads": 2},
        **{"num_layers": 3, "mlp_dim": 8, "differential_attention": True},
    )
    model = models.VisionTransformer(config)
    found = [
        model.get_layer(f"block_{i}").attention.differential_lambda
        for i in range(3)
    ]
    np.testing.assert_allclose(found, [0.2, 0.35550907, 0.47071302])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flash_attention": True}, "True with a differential_lambda"),
        ({"qk_norm": True}, "Received: qk_norm, and 4 features"),
        ({"num_heads": 8}, "none of them, and 1 features per head"),
    ],
)
def test_what_differential_attention_has_not(options, message):
    options = {"num_heads": 2, "differential_lambda": 0.2, **options}
    layer = layers.SelfAttention(**options)
    with pytest.raises(ValueError, match=message):
        layer.build((None, 12, DIM))


def test_attention_and_mlp_of_a_parallel_block_read_the_same_tokens():
    layer = layers.ParallelBlock(HEADS, 16, layer_scale_init=0.5)
    x = random(2, 5, DIM)
    drawn(layer, x.shape)
    assert layer.mlp.dense_1.bias is None  # The attention has it.
    normed = layer.attention_norm(x)
    parts = [numpy_of(y(normed)) for y in (layer.attention, layer.mlp)]
    expected = x + numpy_of(layer.attention_scale.gamma) * sum(parts)
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-4)
    with pytest.raises(ValueError, match="norm_placement='after'"):
        layers.ParallelBlock(HEADS, 16, norm_placement="after")


def test_class_attention_asks_for_the_class_token_alone():
    layer = layers.ClassAttention(HEADS)
    x = random(2, 5, DIM)
    w = drawn(layer, x.shape)
    query = (x[:, :1] @ w["query/kernel"] + w["query/bias"]).reshape(
        2, HEADS, -1
    )
    both = x @ w["key_value/kernel"] + w["key_value/bias"]
    both = both.reshape(2, 5, HEADS, 2, -1)
    key, value = both[..., 0, :], both[..., 1, :]
    scores = np.einsum("bhd,bmhd->bhm", query, key) / np.sqrt(DIM / HEADS)
    weights = softmax(scores)
    heads = np.einsum("bhm,bmhd->bhd", weights, value).reshape(2, 1, DIM)
    expected = heads @ w["out/kernel"] + w["out/bias"]
    np.testing.assert_allclose(numpy_of(layer(x)), expected, atol=1e-4)
    found = numpy_of(layer.attention_weights(x))
    np.testing.assert_allclose(found[:, :, 0], weights, atol=1e-5)


def test_a_class_attention_block_leaves_the_patches_as_they_are():
    layer = layers.ClassAttentionBlock(HEADS, 16, layer_scale_init=0.5)
    x = random(2, 5, DIM)
    drawn(layer, x.shape)
    found = numpy_of(layer(x))
    np.testing.assert_array_equal(found[:, 1:], x[:, 1:])
    token = x[:, :1]
    scale = numpy_of(layer.attention_scale.gamma)
    token = token + scale * numpy_of(layer.attention(layer.attention_norm(x)))
    scale = numpy_of(layer.mlp_scale.gamma)
    token = token + scale * numpy_of(layer.mlp(layer.mlp_norm(token)))
    np.testing.assert_allclose(found[:, :1], token, atol=1e-4)


def test_no_sample_skips_a_class_attention_block():
    # timm's Cait: drop_path_rate is of the blocks of patches alone.
    model = tiny_vit(
        **{"num_layers": 2, "class_attention_layers": 2},
        **{"class_token": True, "stochastic_depth_rate": 0.9},
    )
    rates = [
        model.get_layer(f"block_{i}").stochastic_depth_rate for i in (0, 1)
    ]
    assert rates == [0, 0.9]
    for i in range(2):
        block = model.get_layer(f"class_block_{i}")
        assert block.stochastic_depth_rate == 0
