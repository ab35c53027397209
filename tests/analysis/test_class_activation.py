"""Grad-CAM against finite differences of the model in NumPy."""

import keras
import numpy as np
import numpy_forward
import pytest
import reference_cases
from analysis_cases import case, images_of, tiny_model
from arrays import read_arrays

from keras_vit.analysis import gradient_cam, patch_scores
from keras_vit.analysis.features import features
from keras_vit.analysis.saliency_maps import gradient_function

LAST = "Transformer/encoderblock_1/"
STEP = 1e-4


def score_in_numpy(params, x, normalized, pooling):
    """Logits from the last block's input and its normalised form."""
    block = numpy_forward.subtree(params, LAST)
    names = sorted({key.split("/")[0] for key in block})
    attention, mlp = (
        next(n for n in names if part in n) for part in ("Attention", "Mlp")
    )
    norm = [n for n in names if "LayerNorm" in n][1]
    mixed, _ = numpy_forward.self_attention(
        numpy_forward.subtree(block, f"{attention}/"), normalized
    )
    x = x + mixed
    y = numpy_forward.layer_norm(x, numpy_forward.subtree(block, f"{norm}/"))
    x = x + numpy_forward.mlp_block(numpy_forward.subtree(block, f"{mlp}/"), y)
    encoder_norm = numpy_forward.subtree(params, "Transformer/encoder_norm/")
    x = numpy_forward.layer_norm(x, encoder_norm)
    x = x[:, 0] if pooling == "token" else x.mean(axis=1)
    if "pre_logits/kernel" in params:
        pre_logits = numpy_forward.subtree(params, "pre_logits/")
        x = np.tanh(numpy_forward.dense(x, pre_logits))
    return numpy_forward.dense(x, numpy_forward.subtree(params, "head/"))


@pytest.mark.parametrize(
    ("name", "pooling"), [("vit_tiny_google", "token"), ("vit_tiny_gap", "")]
)
def test_gradient_cam_is_that_of_finite_differences(name, pooling):
    model, images, _ = case(name)
    params = {
        key: value.astype("float64")
        for key, value in read_arrays(reference_cases.path_of(name)).items()
    }
    prefix = model.config.num_prefix_tokens
    classes = np.array([3, 7])
    found = gradient_cam(model, images, classes)
    assert found.shape == (2, 4, 4)
    inputs = keras.Model(model.input, model.get_layer("block_1").input)(images)
    inputs = keras.ops.convert_to_numpy(inputs).astype("float64")
    norm = numpy_forward.subtree(params, f"{LAST}LayerNorm_0/")
    for i, (x, label) in enumerate(zip(inputs, classes, strict=True)):
        tokens = numpy_forward.layer_norm(x, norm)  # (T, D)
        moves = STEP * np.eye(tokens.size).reshape(-1, *tokens.shape)
        above, below = (
            score_in_numpy(params, x, tokens + move, pooling)[:, label]
            for move in (moves, -moves)
        )
        slopes = ((above - below) / (2 * STEP)).reshape(tokens.shape)
        importance = slopes[prefix:].mean(axis=0)
        wanted = np.maximum(tokens[prefix:] @ importance, 0).reshape(4, 4)
        assert wanted.max() > 0.01
        np.testing.assert_allclose(found[i], wanted, rtol=0, atol=5e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"class_token": False, "pooling": "max"},
        {"class_token": False, "pooling": "map"},
        {"distillation_token": True, "pooling": "prefix"},
        {"pooling": "none"},
        {"norm_after_pooling": True},
        {"channels": 5},
        {"representation_dim": 4},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_maps_of_any_model_are_not_blank(changes):
    # All were zero if the tokens after the last block were differentiated.
    model = tiny_model(**changes)
    images = images_of(model, 3)
    maps = [gradient_cam(model, images, label) for label in range(3)]
    assert maps[0].shape == (3, 2, 3)
    assert np.min(maps) == 0
    assert np.max(maps) > 0.01


def test_each_image_is_explained_on_its_own():
    model = tiny_model()
    images = images_of(model, 3)
    together = gradient_cam(model, images, [0, 1, 2], batch_size=2)
    alone = [gradient_cam(model, images[i : i + 1], i)[0] for i in range(3)]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)


def test_the_most_probable_class_is_the_default():
    model = tiny_model()
    images = images_of(model, 4)
    best = model.predict_on_batch(images).argmax(axis=-1)
    np.testing.assert_array_equal(
        gradient_cam(model, images), gradient_cam(model, images, best)
    )
    other = gradient_cam(model, images, (best + 1) % 3)
    assert np.abs(gradient_cam(model, images) - other).max() > 1e-3


def test_a_softmax_does_not_flatten_the_map():
    model = tiny_model()
    images = images_of(model)
    softmax = tiny_model(classifier_activation="softmax")
    softmax.set_weights(model.get_weights())
    np.testing.assert_allclose(
        gradient_cam(softmax, images, 1),
        gradient_cam(model, images, 1),
        rtol=1e-4,
        atol=1e-6,
    )


def test_any_block_can_be_taken():
    model = tiny_model()
    images = images_of(model)
    last = gradient_cam(model, images, 0)
    np.testing.assert_array_equal(gradient_cam(model, images, 0, block=1), last)
    first = gradient_cam(model, images, 0, block=0)
    assert np.abs(first - last).max() > 1e-3
    with pytest.raises(ValueError, match="2 blocks.*block=2"):
        gradient_cam(model, images, 0, block=2)


@pytest.mark.parametrize("classes", [3, -1, [0], 0.5, [0, 1, 2]])
def test_classes_that_the_model_does_not_have(classes):
    model = tiny_model()
    with pytest.raises(ValueError, match="from 0 to 2"):
        gradient_cam(model, images_of(model), classes)


def test_a_model_without_classes():
    model = tiny_model(num_classes=0)
    with pytest.raises(ValueError, match="num_classes=0"):
        gradient_cam(model, images_of(model))


def test_a_gradient_by_hand():
    model = tiny_model()
    gradient = gradient_function(
        model, lambda x, factor: keras.ops.sum(factor * x**3, axis=-1)
    )
    x = np.array([[1.0, -2.0], [0.5, 0.0]], "float32")
    found = gradient(x, np.array([[2.0], [4.0]], "float32"))
    np.testing.assert_allclose(found, [[6, 24], [3, 0]], rtol=1e-6)


def test_a_gradient_follows_the_weights():
    model = tiny_model()
    bias = model.get_layer("predictions").bias
    gradient = gradient_function(model, lambda x: bias[0] * x)
    for value in (2.0, 3.0):
        bias.assign([value, 0, 0])
        np.testing.assert_allclose(gradient(np.ones(4, "float32")), value)


def test_a_backend_without_gradients(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
    with pytest.raises(ValueError, match="jax, tensorflow, torch.*'numpy'"):
        gradient_function(keras.Model(), lambda x: x)


def test_scores_of_patches_have_the_scores_of_the_image_as_their_mean():
    """The head is linear in the mean of the tokens."""
    model = tiny_model(class_token=False, pooling="mean")
    images = images_of(model, 3)
    found = patch_scores(model, images, batch_size=2)
    assert found.shape == (3, 2, 3, 3)
    np.testing.assert_allclose(
        found.mean(axis=(1, 2)),
        keras.ops.convert_to_numpy(model(images)),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"representation_dim": 4},
        {"norm_after_pooling": True},
        {"unit_features": True},
        {"register_tokens": 2},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_scores_of_patches_are_those_of_the_head(changes):
    """Of the token of one patch in the place of the class token."""
    model = tiny_model(**changes)
    images = images_of(model, 2)
    (maps,) = features(model, images)  # (B, R, C, D)
    dense = {
        x.name: [keras.ops.convert_to_numpy(w) for w in x.weights]
        for x in model.layers
        if x.name in ("pre_logits", "predictions")
    }
    x = maps.reshape(-1, maps.shape[-1])
    if model.config.norm_after_pooling:
        norm = {
            w.name: keras.ops.convert_to_numpy(w)
            for w in model.get_layer("encoder_norm").weights
        }
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt(x.var(axis=1, keepdims=True) + 1e-6)
        x = x * norm["gamma"] + norm["beta"]
    if "pre_logits" in dense:
        kernel, bias = dense["pre_logits"]
        x = np.tanh(x @ kernel + bias)
    if model.config.unit_features:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    kernel, bias = dense["predictions"]
    wanted = (x @ kernel + bias).reshape(*maps.shape[:3], -1)
    np.testing.assert_allclose(patch_scores(model, images), wanted, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*\n*.*softmax over axis")
def test_the_score_of_the_only_patch_is_that_of_attention_pooling():
    model = tiny_model(class_token=False, pooling="map", image_size=4)
    images = images_of(model, 2)
    found = patch_scores(model, images)
    assert found.shape == (2, 1, 1, 3)
    np.testing.assert_allclose(
        found[:, 0, 0],
        keras.ops.convert_to_numpy(model(images)),
        atol=1e-5,
    )


@pytest.mark.parametrize("changes", [{"num_classes": 0}, {"pooling": "none"}])
def test_patches_that_no_head_scores(changes):
    model = tiny_model(**changes)
    with pytest.raises(ValueError, match="Only models with classes"):
        patch_scores(model, images_of(model, 1))
