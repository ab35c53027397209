"""Distillation: its network and losses against NumPy and golden numbers."""

import dataclasses
import functools
import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import BiT, BiTConfig, VisionTransformer, ViTConfig
from keras_vit.training.build import own_variables
from keras_vit.training.optimizers import layer_depths
from keras_vit.training.tasks.distillation import (
    DistillationLoss,
    DistillConfig,
    Standardized,
    StudentAccuracy,
    distillation_network,
    pixels_for,
    resized,
)

FILE = (
    pathlib.Path(__file__)
    .parents[1]
    .joinpath("reference", "self_supervision", "distillation.npz")
)
SMALL = {
    **{"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "mlp_dim": 8},
    **{"channels": 3, "num_classes": 3, "include_preprocessing": True},
}
STUDENT = ViTConfig(image_size=(8, 8), patch_size=(2, 2), **SMALL)
TEACHER = ViTConfig(
    **{**SMALL, "hidden_dim": 12, "stochastic_depth_rate": 0.5},
    image_size=(12, 12),
    patch_size=(4, 4),
    register_tokens=2,
    pixel_mean=(0.4, 0.5, 0.6),
    pixel_std=(0.2, 0.3, 0.1),
)
ALL = DistillConfig(features=2.0, patches=0.5, logits=1.5, standardize=False)
IMAGES = (
    np.random.default_rng(0).uniform(0, 255, (4, 8, 8, 3)).astype("float32")
)
LABELS = np.random.default_rng(1).dirichlet([0.3] * 3, size=4).astype("float32")
close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


def random_model(config, seed):
    model = VisionTransformer(config)
    random = np.random.default_rng(seed)
    model.set_weights(
        [x + random.normal(0, 0.3, x.shape) for x in model.get_weights()]
    )
    return model


@pytest.fixture(scope="module")
def pair():
    return random_model(STUDENT, 0), random_model(TEACHER, 1)


def array(x):
    return keras.ops.convert_to_numpy(x)


def weights_of(network, name):
    layer = network.get_layer(name)
    return [array(x) for x in (layer.kernel, layer.bias)]


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def antialiased(old, new):
    """The weights of a triangle that is as wide as the pixels of the result."""
    scale = max(old / new, 1)
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    found = 1 - abs(centres[:, None] - np.arange(old)) / scale
    found = np.maximum(found, 0)
    return found / found.sum(1, keepdims=True)


def scaled(maps, new):
    x = antialiased(maps.shape[1], new)
    return np.einsum("hH,wW,bHWd->bhwd", x, x, maps)


def before_head(model, images):
    layer = model.get_layer("predictions")
    return array(keras.Model(model.input, layer.input)(images))


def test_maps_are_resampled_as_by_torch():
    with np.load(FILE) as data:
        grid, size = data["grid"], int(data["grid_target"])
        for method in ("linear", "bicubic"):
            found = resized(
                keras.ops.convert_to_tensor(grid.astype("float32")),
                (size, size),
                f"{method}_antialiased",
            )
            name = method.replace("linear", "bilinear").replace("bibi", "bi")
            wanted = data[f"resized_{name}_antialias"]
            np.testing.assert_allclose(array(found), wanted, atol=1e-5)
    ramp = np.arange(4, dtype="float32").reshape(1, 4, 1, 1)
    found = resized(keras.ops.convert_to_tensor(ramp), (2, 1))
    np.testing.assert_allclose(array(found).ravel(), [5 / 7, 16 / 7], rtol=1e-6)
    found = pixels_for(keras.ops.convert_to_tensor(ramp), (2, 1), None)
    np.testing.assert_allclose(array(found).ravel(), [5 / 7, 16 / 7], rtol=1e-6)


def test_network_and_gradients_are_those_of_numpy(pair):
    """The student's patches are 4x4, the teacher's 3x3 after registers."""
    model, teacher = pair
    network = distillation_network(model, teacher, ALL)
    pixels = scaled(IMAGES, 12).astype("float32")
    taught = before_head(teacher, pixels), array(teacher(pixels))
    (maps,) = keras_vit.features(teacher, pixels)
    (own,) = keras_vit.features(model, IMAGES)
    features = before_head(model, IMAGES)
    kernel, bias = weights_of(network, "project_features")
    x = features @ kernel + bias
    cosine = np.sum(unit(x) * unit(taught[0]), -1)
    patches, offset = weights_of(network, "project_patches")
    alike = np.sum(unit(own @ patches + offset) * unit(scaled(maps, 4)), -1)
    wanted = 2.0 * (1 - cosine) + 0.5 * (1 - alike).mean((1, 2))
    found = array(network(IMAGES))
    close(found[:, 0], wanted)
    logits = array(model(IMAGES)), taught[1]
    close(found[:, 1:], np.hstack(logits))
    # Of -cos(x, t) that is (cos x / |x| - t / |t|) / |x|.
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    gradient = (cosine[:, None] * unit(x) - unit(taught[0])) / length
    # Of the divergence it is T (p - q), and p = softmax(student / T).
    teach, own = (softmax(x / 3) for x in logits[::-1])
    before, kept = model.get_weights(), teacher.get_weights()
    network.compile(keras.optimizers.SGD(1.0), DistillationLoss(ALL))
    loss = network.train_on_batch(IMAGES, np.zeros((4, 1)))
    divergence = 9 * np.sum(teach * np.log(teach / own), -1)
    close(loss, (wanted + 1.5 * divergence).mean())
    step = kernel - weights_of(network, "project_features")[0]
    close(step, features.T @ gradient * 2 / 4)
    places = [x.path for x in model.weights]
    head = places.index("predictions/kernel")
    step = before[head] - model.get_weights()[head]
    close(step, 1.5 * 3 * features.T @ (own - teach) / 4)
    assert all(map(np.array_equal, kept, teacher.get_weights()))
    model.set_weights(before)


def test_targets_are_standardised_by_running_moments():
    """A step has the moments of all so far; an evaluation moves nothing."""
    random = np.random.default_rng(3)
    steps = random.normal(random.normal(0, 3, 5), 2, (3, 4, 2, 2, 5))
    steps = steps.astype("float32")
    layer = Standardized()
    for i, x in enumerate(steps):
        known = np.concatenate(steps[: i + 1]).reshape(-1, 5)
        wanted = (x - known.mean(0)) / known.std(0)
        close(array(layer(x, training=True)), wanted, rtol=1e-4)
        kept = [array(y).copy() for y in layer.variables]
        close(array(layer(x)), wanted, rtol=1e-4)
        assert all(map(np.array_equal, kept, map(array, layer.variables)))
    layer.running.steps.assign(500.0)  # 100 steps count from then on.
    layer(10 + x, training=True)
    mean = known.mean(0)
    ahead = x.reshape(-1, 5).mean(0) + 10
    close(array(layer.running.mean)[0], 0.99 * mean + 0.01 * ahead, rtol=1e-4)


def test_what_all_images_have_in_common_is_not_learned(pair):
    """Features far from 0: without, a constant has nearly all of the loss."""
    model, teacher = pair
    weights = teacher.get_weights()
    norm = teacher.get_layer("encoder_norm")
    norm.beta.assign(array(norm.beta) + 50)
    try:
        for standardize, least, most in ((True, 0.8, 1.2), (False, 0, 0.01)):
            config = DistillConfig(standardize=standardize)
            network = distillation_network(model, teacher, config)
            names = "features", "patches"
            told = [network.get_layer(f"project_{x}") for x in names]
            for layer in told:
                layer.kernel.assign(0 * layer.kernel)
                layer.bias.assign(0 * layer.bias + 1)  # The same of all.
            loss = array(network(IMAGES, training=True)).mean() / 2
            assert least < loss < most, standardize
    finally:
        teacher.set_weights(weights)


@pytest.mark.parametrize("labels", ["soft", "hard"])
def test_losses_of_deit_are_those_of_numpy(labels):
    outputs = np.random.default_rng(2).normal(0, 2, (4, 7)).astype("float32")
    student, teacher = outputs[:, 1:4], outputs[:, 4:]
    smooth = LABELS * 0.9 + 0.1 / 3
    own = -np.sum(smooth * np.log(softmax(student)), -1)
    if labels == "soft":
        taught, found = softmax(teacher / 3), softmax(student / 3)
        divergence = 9 * np.sum(taught * np.log(taught / found), -1)
        wanted = 0.9 * own + 0.1 * divergence
    else:
        said = softmax(student)[np.arange(4), teacher.argmax(1)]
        wanted = own / 2 - np.log(said) / 2
    config = DistillConfig(logits=2.0, labels=labels)
    loss = DistillationLoss(config, label_smoothing=0.1)
    weights = np.array([1, 0, 2, 1], "float32")  # 0 is of padding.
    found = loss(
        keras.ops.convert_to_tensor(LABELS),
        keras.ops.convert_to_tensor(outputs),
        keras.ops.convert_to_tensor(weights),
    )
    wanted = np.sum(weights * (outputs[:, 0] + 2 * wanted)) / 4
    np.testing.assert_allclose(array(found), wanted, rtol=1e-5)
    metric = StudentAccuracy()
    metric.update_state(LABELS, outputs)
    right = np.mean(student.argmax(1) == LABELS.argmax(1))
    assert float(metric.result()) == pytest.approx(right)


def test_the_teacher_is_no_variable_of_the_run(pair):
    model, teacher = pair
    network = distillation_network(model, teacher, DistillConfig())
    own = {id(x) for x in own_variables(network)}
    assert own.isdisjoint(id(x) for x in teacher.variables)
    names = "standardize_features", "standardize_patches"
    moments = [id(x) for y in names for x in network.get_layer(y).variables]
    assert own == {id(x) for x in network.trainable_variables} | {*moments}
    assert len(own) < len(network.variables)
    depths, wanted = layer_depths(network), layer_depths(model)
    wanted = {x: y for x, y in wanted.items() if "predictions" not in x}
    assert wanted.items() <= depths.items()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "The teacher has no classification layer"),
        ({"num_classes": 5}, "5 classes, and the student 3"),
        ({"channels": 1, "pixel_mean": None, "pixel_std": None}, "1 channel"),
    ],
)
def test_teachers_that_do_not_fit_are_refused(pair, changes, message):
    teacher = VisionTransformer(dataclasses.replace(TEACHER, **changes))
    with pytest.raises(ValueError, match=message):
        distillation_network(pair[0], teacher, ALL)


def test_a_teacher_without_patches_is_refused(pair):
    bit = BiT(BiTConfig(image_size=(32, 32), units=(1,), width=32))
    with pytest.raises(ValueError, match=r"no patch tokens, and the teacher"):
        distillation_network(pair[0], bit, DistillConfig())
    config = DistillConfig(patches=0)
    assert distillation_network(pair[0], bit, config).output_shape == (None, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"features": 0, "patches": 0},
        {"features": -1},
        {"temperature": 2.0},
        {"labels": "hard"},
        {"logits": 1, "teacher_share": 0.5},
        {"logits": 1, "features": 0, "patches": 0, "standardize": False},
        {"logits": 1, "temperature": float("nan")},
        {"logits": 1, "labels": "hard", "temperature": 1.0},
        {"teacher_size": 0},
    ],
)
def test_wrong_options_are_named(options):
    name = [*options][-1]
    with pytest.raises(ValueError, match=f"Received: .*{name}="):
        DistillConfig(**options)
