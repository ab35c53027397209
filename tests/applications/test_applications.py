"""What everyone does with an application, on tiny sizes of each."""

import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import shrunken
from shrunken import LABELS, SPARSE, images, shake

import keras_vit
from keras_vit import sizes

OTHERS = [
    name
    for name in (*sizes.VIT, *sizes.MIXER, *sizes.BIT)
    if name not in shrunken.KINDS
]
SLOW = pytest.mark.slow
ALL = [*shrunken.KINDS, *(pytest.param(name, marks=SLOW) for name in OTHERS)]
# Hybrids are a Vision Transformer behind parts of a ResNet.
HYBRIDS = ("ViT_R_Ti16", "ViT_R50_B16")


@pytest.fixture(autouse=True)
def tiny_sizes(monkeypatch):
    shrunken.shrink(monkeypatch)


ONE_OF_EACH = [name for name in shrunken.KINDS if name not in HYBRIDS]


@pytest.mark.parametrize(
    "name",
    [
        *ONE_OF_EACH,
        *(pytest.param(name, marks=SLOW) for name in (*HYBRIDS, *OTHERS)),
    ],
)
def test_predicts_and_trains(name):
    model = shake(shrunken.build(name))
    model.compile(keras.optimizers.Adam(1e-3), SPARSE())
    before = [np.array(w) for w in model.trainable_weights]
    history = model.fit(images(name), LABELS, batch_size=4, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    pairs = zip(before, model.trainable_weights, strict=True)
    assert all((a != np.array(b)).any() for a, b in pairs)
    probabilities = model.predict(images(name), verbose=0)
    assert probabilities.shape == (4, 5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


LOAD = """
import sys, keras, keras_vit, numpy as np

for name in sys.argv[1:]:
    model = keras.models.load_model(f"{name}.keras", safe_mode=True)
    found = model.predict(np.load(f"{name}.npy"), verbose=0)
    np.save(f"{name}-loaded.npy", found)
    print(name, type(model).__name__)
"""


@pytest.mark.once
@pytest.mark.parametrize(
    "names",
    [ONE_OF_EACH, pytest.param([*HYBRIDS, *OTHERS], marks=SLOW)],
    ids=["one of each", "the others"],
)
def test_saved_models_load_in_a_fresh_process(names, tmp_path):
    expected, kinds = {}, []
    for name in names:
        model = shake(shrunken.build(name))
        expected[name] = model.predict(images(name), verbose=0)
        model.save(tmp_path / f"{name}.keras")
        np.save(tmp_path / f"{name}.npy", images(name))
        kinds.append(f"{name} {type(model).__name__}")
    process = subprocess.run(
        [sys.executable, "-c", LOAD, *names],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert set(kinds) <= set(process.stdout.splitlines())
    for name in names:
        loaded = np.load(tmp_path / f"{name}-loaded.npy")
        np.testing.assert_array_equal(loaded, expected[name])


@pytest.mark.once
@pytest.mark.parametrize("name", ALL)
def test_clones_and_round_trips_its_config(name):
    model = shake(shrunken.build(name))
    expected = model.predict(images(name), verbose=0)
    rebuilt = type(model).from_config(model.get_config())
    assert rebuilt.config == model.config
    for copy in (rebuilt, keras.models.clone_model(model)):
        paths = [w.path for w in copy.weights]
        assert paths == [w.path for w in model.weights]
        copy.set_weights(model.get_weights())
        np.testing.assert_array_equal(
            copy.predict(images(name), verbose=0), expected
        )


def test_frozen_layers_stay_frozen_after_loading(tmp_path):
    model = shrunken.build("ViT_B16")
    model.get_layer("block_0").trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    ours = [w.path for w in model.trainable_weights]
    assert [w.path for w in loaded.trainable_weights] == ours
    assert not any(path.startswith("block_0/") for path in ours)


@pytest.mark.parametrize("name", shrunken.KINDS)
def test_preprocessing_inside_is_preprocess_input(name):
    outside = shake(shrunken.build(name))
    inside = shrunken.build(name, include_preprocessing=True)
    inside.set_weights(outside.get_weights())
    pixels = np.random.default_rng(0).integers(
        0, 256, images(name).shape, "uint8"
    )
    expected = outside.predict(keras_vit.preprocess_input(pixels), verbose=0)
    np.testing.assert_allclose(
        inside.predict(pixels, verbose=0), expected, atol=1e-5
    )


def test_input_tensor_may_be_the_output_of_other_layers(tmp_path):
    inputs = keras.Input(shrunken.input_shape("ViT_B16"))
    x = keras.layers.RandomFlip("horizontal")(inputs)
    model = shrunken.build("ViT_B16", input_tensor=x, input_shape=None)
    plain = shrunken.build("ViT_B16")
    shake(plain)
    model.set_weights(
        [*plain.get_weights(), *model.get_weights()[len(plain.weights) :]]
    )
    outputs = model.predict(images("ViT_B16"), verbose=0)
    np.testing.assert_allclose(
        outputs, plain.predict(images("ViT_B16"), verbose=0), atol=1e-6
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(images("ViT_B16"), verbose=0), outputs
    )


OUTPUT_SHAPES = [
    ("ViT_B16", {"include_top": False}, (None, 3, 48)),
    ("ViT_B16", {"include_top": False, "pooling": "avg"}, (None, 48)),
    ("ViT_B16", {"include_top": False, "pooling": "token"}, (None, 48)),
    ("ViT_B16", {"include_top": False, "pooling": "max"}, (None, 48)),
    ("ViT_B16", {"include_top": False, "pooling": "map"}, (None, 48)),
    ("ViT_B16", {"classes": 0}, (None, 48)),
    ("ViT_B16", {"classes": 0, "representation_dim": 7}, (None, 7)),
    ("ViT_B16", {"class_token": False}, (None, 5)),
    ("ViT_B16", {"pooling": "none"}, (None, 3, 5)),
    ("Mixer_S8", {"include_top": False}, (None, 2, 16)),
    ("BiT_R50x1", {"include_top": False}, (None, 2, 2, 1024)),
    (
        "BiT_R50x1",
        {"include_top": False, "input_shape": (None, None, 3)},
        (None, None, None, 1024),
    ),
    ("ViT_R50_B16", {"include_top": False}, (None, 3, 48)),
]


@pytest.mark.parametrize("name, options, expected", OUTPUT_SHAPES)
def test_output_shapes(name, options, expected):
    assert shrunken.build(name, **options).output_shape == expected


def test_default_arguments_are_those_of_keras_applications():
    import inspect

    theirs = inspect.signature(keras.applications.EfficientNetV2B0).parameters
    for name in (*sizes.VIT, *sizes.MIXER, *sizes.BIT):
        application = getattr(keras_vit, name)
        ours = inspect.signature(application).parameters
        assert list(ours)[: len(theirs)] == list(theirs)
        extra = list(ours.values())[len(theirs) :]
        assert all(p.kind is p.KEYWORD_ONLY for p in extra)
        assert application.__name__ == name
        for argument in ours:
            assert f"    {argument}: " in application.__doc__


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "paper"),
    [
        ("ViT_B16", "2010.11929"),
        ("ViT_R50_B16", "2106.10270"),
        ("Mixer_B16", "2105.01601"),
        ("BiT_R50x1", "1912.11370"),
    ],
)
def test_the_paper_of_an_application_is_named(name, paper):
    found = re.findall(
        r"arxiv.org/abs/([\d.]+)", getattr(keras_vit, name).__doc__
    )
    assert found == [paper]
