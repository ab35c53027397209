import keras
import numpy as np
import pytest
import reference_cases
from analysis_cases import CASES, case, images_of, tiny_model

import keras_vit
from keras_vit.analysis import attention_grids, attention_maps
from keras_vit.analysis.attention_weights import is_signed
from keras_vit.layers import SelfAttention


def computed_layer_by_layer(model, images):
    """The weights without any walk: one block after the other."""
    states = [
        model.get_layer(f"block_{i}").input
        for i in range(model.config.num_layers)
    ]
    inputs = keras.Model(model.input, states)(images)
    return np.stack(
        [
            reference_cases.weights(model.get_layer(f"block_{i}"), x)
            for i, x in enumerate(inputs)
        ]
    )


@pytest.mark.parametrize("name", CASES)
def test_maps_equal_those_of_the_original(name):
    model, images, expected = case(name)
    maps = attention_maps(model, images)
    np.testing.assert_allclose(
        maps, expected["attention"], **reference_cases.TOLERANCE
    )
    if not (is_signed(model.config) or model.config.window_size):
        np.testing.assert_allclose(maps.sum(axis=-1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 5},
        {"class_token": False, "pooling": "mean"},
        {"distillation_token": True, "pooling": "prefix"},
        {"patch_size": (2, 4)},
        {"include_preprocessing": True},
        {"num_classes": 0, "pooling": "none"},
        {"rematerialize": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_any_model_has_maps(changes):
    model = tiny_model(**changes)
    images = images_of(model)
    maps = attention_maps(model, images)
    wanted = computed_layer_by_layer(model, images)
    np.testing.assert_allclose(maps, wanted, rtol=0, atol=1e-5)


def test_mixed_precision_has_maps_in_float32():
    model, mixed = tiny_model(), tiny_model(dtype="mixed_bfloat16")
    images = images_of(model)
    maps = attention_maps(mixed, images)
    assert maps.dtype == np.float32
    # bfloat16 has three digits.
    assert np.abs(maps - attention_maps(model, images)).mean() < 0.02
    np.testing.assert_allclose(maps.sum(axis=-1), 1, rtol=0, atol=0.02)


@pytest.mark.once
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_the_batch_size_changes_nothing(batch_size):
    model = tiny_model()
    images = images_of(model, 3)
    maps = attention_maps(model, images, batch_size=batch_size)
    alone = [attention_maps(model, images[i : i + 1]) for i in range(3)]
    np.testing.assert_allclose(
        maps, np.concatenate(alone, axis=1), rtol=0, atol=1e-6
    )


@pytest.fixture
def fused(monkeypatch):
    """The calls of the fused attention."""
    calls = []
    attend = SelfAttention._fused

    def spy(*args):
        calls.append(args)
        return attend(*args)

    monkeypatch.setattr(SelfAttention, "_fused", spy)
    # As where it is asked for, or on torch.
    monkeypatch.setattr(SelfAttention, "_is_fused", lambda layer: True)
    return calls


def test_the_tokens_come_from_the_fused_attention(fused):
    model = tiny_model()
    fused.clear()
    attention_maps(model, images_of(model))
    assert len(fused) == model.config.num_layers


def test_a_second_call_compiles_nothing(fused, backend):
    model = tiny_model()
    attention_maps(model, images_of(model))
    fused.clear()
    attention_maps(model, images_of(model))
    # torch compiles nothing in either.
    assert len(fused) == (model.config.num_layers if backend == "torch" else 0)


@pytest.mark.once
def test_weights_that_have_changed_are_seen():
    model, images = tiny_model(), images_of(tiny_model())
    before = attention_maps(model, images)
    for block in ("block_0", "block_1"):
        kernel = model.get_layer(block).attention.qkv.kernel
        kernel.assign(-2 * kernel)
    after = attention_maps(model, images)
    assert np.abs(after - before).max() > 0.01
    wanted = computed_layer_by_layer(model, images)
    np.testing.assert_allclose(after, wanted, rtol=0, atol=1e-5)


def test_a_model_quantised_since_is_seen():
    model, images = tiny_model(), images_of(tiny_model())
    attention_maps(model, images)
    model.quantize("int8")
    np.testing.assert_allclose(
        attention_maps(model, images),
        computed_layer_by_layer(model, images),
        rtol=0,
        atol=1e-4,
    )


def test_the_model_stays_as_it_was(tmp_path):
    model = tiny_model()
    images = images_of(model)
    variables, before = list(model.variables), model.predict_on_batch(images)
    attention_maps(model, images)
    np.testing.assert_array_equal(model.predict_on_batch(images), before)
    assert [v.path for v in model.variables] == [v.path for v in variables]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict_on_batch(images), before)


@pytest.mark.once
def test_lists_and_tensors_are_images_too():
    model = tiny_model()
    images = images_of(model)
    maps = attention_maps(model, images)
    tensor = keras.ops.convert_to_tensor(images)
    np.testing.assert_array_equal(attention_maps(model, tensor), maps)
    np.testing.assert_array_equal(attention_maps(model, images.tolist()), maps)


@pytest.mark.once
@pytest.mark.parametrize(
    "images", [np.zeros((8, 12, 3)), np.zeros((1, 12, 8, 3)), []]
)
def test_images_of_another_shape(images):
    with pytest.raises(ValueError, match=r"\(batch, 8, 12, 3\)"):
        attention_maps(tiny_model(), images)


@pytest.mark.once
def test_another_model():
    model = keras_vit.Mixer_S32(weights=None, input_shape=(32, 32, 3))
    with pytest.raises(ValueError, match="VisionTransformer.*Mixer"):
        attention_maps(model, np.zeros((1, 32, 32, 3)))


@pytest.mark.once
# Rows of weights for a grid of 2x3 patches; key k has the weight k.
@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        (
            {"class_token": False, "pooling": "mean"},
            [25, 26, 27, 28, 29, 30],
        ),
        (
            {"distillation_token": True, "pooling": "prefix"},
            [7, 8, 9, 10, 11, 12],
        ),
        ({"distillation_token": True}, [2, 3, 4, 5, 6, 7]),
        ({"pooling": "mean"}, [36, 37, 38, 39, 40, 41]),
        ({"pooling": "none"}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_grids_are_the_rows_that_the_head_reads(changes, wanted):
    model = tiny_model(**changes)
    tokens = 6 + model.config.num_prefix_tokens
    # Query q has 10 q more.
    maps = np.arange(tokens) + 10.0 * np.arange(tokens)[:, None]
    grids = attention_grids(model, maps[None, None, None])
    assert grids.shape == (1, 1, 1, 2, 3)
    np.testing.assert_allclose(grids.ravel(), wanted)


@pytest.mark.once
def test_grids_of_maps_of_another_model():
    with pytest.raises(ValueError, match="7 tokens"):
        attention_grids(tiny_model(), np.zeros((1, 1, 1, 6, 6)))
