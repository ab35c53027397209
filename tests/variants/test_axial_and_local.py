"""Axial attention (appendix D.6) and the MLP with locality."""

import keras
import numpy as np
import pytest
import variant_models
from keras import ops
from keras.src import testing

from keras_vit.layers import MLP, TransformerBlock
from keras_vit.variants import (
    AxialAttention,
    AxialBlock,
    LocalMLP,
    VariantBlock,
    VariantConfig,
)

TOKEN = {"pooling": "token"}
MEAN = {"pooling": "mean", "class_token": False}
# The variant, and how the model pools.
CASES = {
    "axial": ({"attention": "axial"}, MEAN),
    "axial_2d": ({"attention": "axial", "position": "2d"}, MEAN),
    "local": ({"mlp": "local"}, TOKEN),
    "local_mean": ({"mlp": "local"}, MEAN),
    "local_relative": ({"mlp": "local", "position": "relative"}, TOKEN),
    "axial_local": (
        {
            "attention": "axial",
            "mlp": "local",
            "position_at": "every_layer_shared",
        },
        MEAN,
    ),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomised(layer, shape):
    layer.build(shape)
    for i, weight in enumerate(layer.weights):
        weight.assign(0.5 * normal(*weight.shape, seed=i))
    return layer


@pytest.mark.parametrize(("variant", "pooling"), CASES.values(), ids=CASES)
def test_it_computes_what_numpy_does(variant, pooling):
    network = variant_models.model(variant, **pooling)
    answer = ops.convert_to_numpy(network(variant_models.images()))
    np.testing.assert_allclose(
        answer, variant_models.expected(network), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("axis", "reached"), [("rows", [3, 4, 5]), ("columns", [1, 4])]
)
def test_a_patch_reaches_those_of_its_row_or_its_column(axis, reached):
    layer = randomised(AxialAttention(2, (2, 3), axis=axis), (None, 6, 8))
    x = normal(1, 6, 8)
    changed = x.copy()
    changed[:, 4] += 1  # row 1, column 1
    difference = ops.convert_to_numpy(layer(changed) - layer(x))
    moved = np.flatnonzero(np.abs(difference).max(axis=(0, 2)) > 1e-6)
    np.testing.assert_array_equal(moved, reached)


def test_one_axial_block_carries_a_patch_everywhere():
    block = AxialBlock(2, 16, options={"grid": (2, 3)})
    randomised(block, (None, 6, 8))
    x = normal(1, 6, 8)
    changed = x.copy()
    changed[:, 4, 0] += 1  # all alike the normalisation takes away
    difference = ops.convert_to_numpy(block(changed) - block(x))
    assert (np.abs(difference).max(axis=(0, 2)) > 1e-6).all()


def test_the_class_token_passes_around_the_convolution():
    layer = randomised(LocalMLP(12, (2, 3), num_prefix_tokens=1), (None, 7, 8))
    x = normal(2, 7, 8)
    plain = MLP(12)
    plain.build(x.shape)
    for name in ("dense", "dense_1"):
        weights = getattr(layer, name).get_weights()
        getattr(plain, name).set_weights(weights)
    alone, local = (ops.convert_to_numpy(f(x)) for f in (plain, layer))
    np.testing.assert_allclose(local[:, 0], alone[:, 0], atol=1e-6)
    assert np.abs(local[:, 1:] - alone[:, 1:]).max(axis=(0, 2)).min() > 0.01


def test_the_convolution_starts_with_sums_of_variance_1():
    layer = LocalMLP(400, (2, 3))
    layer.build((None, 6, 8))
    kernel = ops.convert_to_numpy(layer.convolution.kernel)
    assert kernel.shape[:2] == (3, 3)
    assert kernel.std() == pytest.approx(1 / 3, rel=0.05)


def test_a_patch_reaches_its_neighbours_through_the_mlp():
    layer = randomised(LocalMLP(12, (4, 4)), (None, 16, 8))
    x = normal(1, 16, 8)
    changed = x.copy()
    changed[:, 0] += 1  # the corner
    difference = ops.convert_to_numpy(layer(changed) - layer(x))
    moved = np.flatnonzero(np.abs(difference).max(axis=(0, 2)) > 1e-6)
    np.testing.assert_array_equal(moved, [0, 1, 4, 5])


@pytest.mark.skipif(
    keras.backend.backend() != "jax",
    reason="A convolution of the backend adds up as the processor lets it.",
)
def test_the_convolution_adds_up_in_float32():
    layer = LocalMLP(1, (3, 3), activation="linear", dtype="mixed_bfloat16")
    layer.build((None, 9, 1))
    for weight in layer.weights:
        weight.assign(np.full(weight.shape, weight.name != "bias"))
    x = np.array([256.0] + 8 * [1.0]).reshape(1, 9, 1)
    # Whoever adds up in bfloat16 stays at 256: it has no 257.
    centre = ops.convert_to_numpy(ops.cast(layer(x), "float32"))[0, 4, 0]
    assert centre == 264


def test_the_mlp_takes_the_patches_of_a_larger_image():
    layer = randomised(LocalMLP(12, (2, 3), num_prefix_tokens=1), (None, 7, 8))
    larger = LocalMLP(12, (4, 6), num_prefix_tokens=1)
    larger.build((None, 25, 8))
    larger.set_weights(layer.get_weights())
    x = normal(2, 25, 8)
    found, expected = (ops.convert_to_numpy(f(x)) for f in (layer, larger))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(ValueError, match="8 patches are no image"):
        layer(normal(2, 9, 8))


LAYERS = {
    "axial_attention": (AxialAttention, {"num_heads": 2, "grid": (2, 3)}, 4),
    "local_mlp": (LocalMLP, {"mlp_dim": 12, "grid": (2, 3)}, 6),
    "axial_block": (
        AxialBlock,
        {"num_heads": 2, "mlp_dim": 12, "options": {"grid": (2, 3)}},
        24,
    ),
    "block": (
        VariantBlock,
        {"num_heads": 2, "mlp_dim": 12, "grid": (2, 3), "mlp": "local"},
        14,
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.parametrize("name", ["axial_attention", "local_mlp"])
def test_layer_passes_the_test_of_keras(name):
    layer, arguments, weights = LAYERS[name]
    testing.TestCase().run_layer_test(
        layer,
        init_kwargs=arguments,
        input_shape=(2, 6, 8),
        expected_output_shape=(2, 6, 8),
        expected_num_trainable_weights=weights,
        expected_num_non_trainable_weights=0,
        expected_num_seed_generators=0,
        expected_num_losses=0,
        supports_masking=False,
        assert_built_after_instantiation=False,
    )


@pytest.mark.parametrize("name", LAYERS)
def test_config_makes_the_layer_again(name):
    layer_class, arguments, weights = LAYERS[name]
    layer = layer_class(**arguments)
    layer.build((None, 6, 8))
    assert len(layer.weights) == weights
    config = layer.get_config()
    assert {k: config[k] for k in arguments} == arguments
    assert layer_class.from_config(config).get_config() == config


def test_a_block_of_given_parts_is_saved_with_them(tmp_path):
    tokens = keras.Input((6, 8))
    block = TransformerBlock(
        2,
        12,
        attention=AxialAttention(2, (2, 3), name="attention"),
        mlp=LocalMLP(12, (2, 3), name="mlp"),
        name="block",
    )
    model = keras.Model(tokens, block(tokens))
    assert "block/attention/attention/qkv/kernel" in paths(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert paths(loaded) == paths(model)
    x = normal(2, 6, 8)
    answers = (ops.convert_to_numpy(f(x)) for f in (loaded, model))
    np.testing.assert_array_equal(*answers)


def paths(model):
    return [weight.path for weight in model.weights]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AxialAttention(2, (2, 3), axis="row"), "Unknown axis: 'row'"),
        (lambda: AxialAttention(2, (2, 3)).build((None, 7, 8)), "no row"),
        (lambda: LocalMLP(8, (2, 3)).build((None, 7, 8)), "makes 6 tokens"),
        (lambda: VariantBlock(2, 8, mlp="local"), "grid=None"),
        (lambda: VariantBlock(2, 8, attention="row"), "'rows'"),
        (lambda: VariantConfig(attention="axal"), "'axial'"),
        (lambda: VariantConfig(mlp="convolution"), "'local'"),
        (lambda: VariantBlock(2, 8, mlp="convolution"), "'local'"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        ({"attention": "axial"}, {"class_token": True}, "in none of them"),
        ({"attention": "axial", "position": "relative"}, MEAN, "offsets"),
    ],
)
def test_axial_models_that_are_none_are_refused(variant, options, message):
    with pytest.raises(ValueError, match=message):
        variant_models.config(variant, **options)
