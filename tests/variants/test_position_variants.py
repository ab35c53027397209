"""Position embeddings of Table 8: none, 1-D, 2-D, relative; and where."""

from typing import Any

import keras
import numpy as np
import pytest
import variant_models
from keras import ops
from keras.src import testing

from keras_vit.variants import (
    AddPositionEmbedding2D,
    RelativePositionEmbedding,
    RelativeSelfAttention,
    VariantBlock,
    VariantConfig,
    VariantTransformerConfig,
)
from keras_vit.variants.variant_transformer import by_key

TABLE_8 = [
    ("none", None),
    ("1d", "stem"),
    ("1d", "every_layer"),
    ("1d", "every_layer_shared"),
    ("2d", "stem"),
    ("2d", "every_layer"),
    ("2d", "every_layer_shared"),
    ("relative", "every_layer"),
    ("relative", "every_layer_shared"),
]
each_of_table_8 = pytest.mark.parametrize(("position", "position_at"), TABLE_8)
TOKEN = {"pooling": "token"}
MEAN = {"pooling": "mean", "class_token": False}


@pytest.mark.parametrize(
    "pooling",
    [TOKEN, pytest.param(MEAN, marks=pytest.mark.slow)],
    ids=["token", "mean"],
)
@each_of_table_8
def test_it_computes_what_numpy_does(position, position_at, pooling):
    variant = {"position": position, "position_at": position_at}
    network = variant_models.model(variant, **pooling)
    answer = ops.convert_to_numpy(network(variant_models.images()))
    np.testing.assert_allclose(
        answer, variant_models.expected(network), rtol=1e-5, atol=1e-5
    )


def test_where_positions_are_by_default():
    places = {x: VariantConfig(x).position_at for x, _ in TABLE_8}
    assert places == {
        "none": None,
        "1d": "stem",
        "2d": "stem",
        "relative": "every_layer",
    }


def test_the_default_variant_is_the_plain_model():
    variant, plain = variant_models.model(), variant_models.plain_model()
    plain.set_weights(variant.get_weights())
    assert [x.path for x in plain.weights] == [x.path for x in variant.weights]
    images = variant_models.images()
    # A model computes the last block of its class token alone.
    np.testing.assert_allclose(
        ops.convert_to_numpy(plain(images)),
        ops.convert_to_numpy(variant(images)),
        rtol=1e-5,
        atol=1e-6,  # of scores that are close to 0
    )


def test_without_positions_the_order_of_patches_does_not_matter():
    network = variant_models.model({"position": "none"})
    images = variant_models.images()
    swapped = np.concatenate([images[:, 4:], images[:, :4]], axis=1)
    one, two = (ops.convert_to_numpy(network(x)) for x in (images, swapped))
    np.testing.assert_allclose(one, two, atol=1e-5)
    placed = variant_models.model({"position": "relative"})
    one, two = (ops.convert_to_numpy(placed(x)) for x in (images, swapped))
    assert np.abs(one - two).max() > 1e-3


def test_an_offset_is_that_of_the_query_minus_that_of_the_key():
    offsets = np.arange(4, -5, -1)  # of 5 tokens, as the table has them
    x = np.tile(offsets, (2, 3, 5, 1)).astype("float32")
    found = ops.convert_to_numpy(by_key(x))
    q, k = np.mgrid[:5, :5]
    np.testing.assert_array_equal(found, np.broadcast_to(q - k, found.shape))


def test_the_table_has_an_embedding_for_each_offset():
    layer = RelativePositionEmbedding((2, 2), num_prefix_tokens=1)
    assert layer(np.zeros((2, 5, 8), "float32")).shape == (9, 8)  # 4 to -4


def test_attention_weights_sum_to_one_and_are_those_of_call():
    tokens = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    offsets = np.random.default_rng(1).normal(size=(9, 8)).astype("float32")
    layer = RelativeSelfAttention(2)
    mixed = layer(tokens, offsets)
    weights = layer.attention_weights(tokens, offsets)
    sums = ops.convert_to_numpy(ops.sum(weights, axis=-1))
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    value = layer._project(tokens)[..., 2, :]
    y = ops.einsum("bhnm,bmhd->bnhd", weights, value)
    again = layer.out(ops.reshape(y, (2, 5, 8)))
    np.testing.assert_allclose(
        *map(ops.convert_to_numpy, (mixed, again)), atol=1e-6
    )
    assert layer.compute_output_shape((2, 5, 8), (9, 8)) == mixed.shape


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_2d_passes_the_layer_test_of_keras():
    testing.TestCase().run_layer_test(
        AddPositionEmbedding2D,
        init_kwargs={"grid": (2, 8), "num_prefix_tokens": 1},
        input_shape=(2, 17, 16),
        expected_output_shape=(2, 17, 16),
        expected_num_trainable_weights=2,
        expected_num_non_trainable_weights=0,
        expected_num_seed_generators=0,
        expected_num_losses=0,
        supports_masking=False,
        assert_built_after_instantiation=False,
    )


@pytest.mark.parametrize(
    "layer",
    [
        RelativePositionEmbedding((2, 3), num_prefix_tokens=1),
        RelativeSelfAttention(2, attention_dropout_rate=0.1),
        VariantBlock(2, 16, dropout_rate=0.1, rematerialize=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_config_makes_the_layer_again(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"position": "3d"}, "Unknown position: '3d'"),
        ({"position": "relative", "position_at": "stem"}, "'every_layer'"),
        ({"position": "none", "position_at": "stem"}, "cannot be at 'stem'"),
        ({"position_at": "every_block"}, "'every_layer_shared'"),
    ],
)
def test_a_variant_that_is_none_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        VariantConfig(**arguments)


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        ({"position": "2d"}, {"position_embedding": "sincos2d"}, "sincos2d"),
        (
            {"position": "2d"},
            {"hidden_dim": 9, "num_heads": 3},
            "hidden_dim=9",
        ),
        ({"position": "relative"}, {"flash_attention": True}, "fused kernel"),
    ],
)
def test_options_that_do_not_fit_are_refused(variant, options, message):
    with pytest.raises(ValueError, match=message):
        variant_models.config(variant, **options)


def test_a_variant_must_be_one():
    word: Any = "2d"
    with pytest.raises(ValueError, match="must be VariantConfig"):
        VariantTransformerConfig(variant=word)


@pytest.mark.parametrize(
    "layer", [AddPositionEmbedding2D, RelativePositionEmbedding]
)
def test_a_grid_that_is_not_the_sequence_is_refused(layer):
    with pytest.raises(ValueError, match="2x3 patches with 1 prefix"):
        layer((2, 3), num_prefix_tokens=1)(np.zeros((1, 6, 8)))


@pytest.mark.parametrize(
    "dtype",
    [
        "mixed_bfloat16",
        pytest.param("mixed_float16", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("position", ["2d", "relative"])
def test_mixed_precision_is_near_float32(position, dtype):
    variant = {"position": position}
    network = variant_models.model(variant, dtype=dtype)
    assert {x.dtype for x in network.weights} == {"float32"}
    block = network.get_layer("block_1").output
    assert keras.backend.standardize_dtype(block.dtype) == dtype[6:]
    images = variant_models.images()
    expected = ops.convert_to_numpy(variant_models.model(variant)(images))
    answer = ops.convert_to_numpy(network(images))
    np.testing.assert_allclose(answer, expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    "kind", [AddPositionEmbedding2D, RelativePositionEmbedding]
)
def test_tables_start_as_those_of_the_original(kind):
    """vision_transformer: normal(stddev=0.02) for its position embedding."""
    layer = kind((8, 8))
    layer.build((None, 64, 64))
    for table in layer.weights:
        values = keras.ops.convert_to_numpy(table)
        assert values.std() == pytest.approx(0.02, rel=0.1)
