"""A run folder with a tiny model, and images on disk."""

import numpy as np
import pytest
import yaml
from PIL import Image
from tiny_models import tiny_vit

from keras_vit.cli import main
from keras_vit.trained_as import TrainedAs
from keras_vit.training.run.files import save_model

NAMES = ("cat", "dog", "owl")
PREPROCESSING = {"evaluation": "squash", "rounding": "float32"}


def prepared_vit(**changed):
    fields = {"num_layers": 2, "mlp_dim": 16, "include_preprocessing": True}
    return tiny_vit(**{**fields, **changed})


@pytest.fixture
def make_vit():
    return prepared_vit


def pixels_of(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, "uint8")


@pytest.fixture
def run_folder(tmp_path):
    return saved_run(tmp_path / "run", {"training": {"loss": "softmax"}})


@pytest.fixture
def save_run(tmp_path):
    return lambda name, config: saved_run(tmp_path / name, config)


def saved_run(folder, config):
    folder.mkdir()
    model = prepared_vit()
    head = model.get_layer("predictions")
    # A trained head is no longer zeros.
    head.set_weights(
        [np.random.default_rng(1).normal(size=x.shape) for x in head.weights]
    )
    config = {"preprocessing": PREPROCESSING, **config}
    model.trained_as = TrainedAs(
        preprocessing=config["preprocessing"],
        activation=config.get("training", {}).get("loss"),
    )
    save_model(model, NAMES, folder / "model.keras")
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture
def photos(tmp_path):
    """Three images in a folder and below it, and a text file."""
    folder = tmp_path / "photos"
    (folder / "below").mkdir(parents=True)
    for seed, name in enumerate(("b.png", "a.PNG", "below/c.webp")):
        image = Image.fromarray(pixels_of((12, 10, 3), seed))
        image.save(folder / name, lossless=True)
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture
def image():
    return np.random.default_rng(3).integers(0, 256, (8, 8, 3), "uint8")


@pytest.fixture
def run(capsys):
    def run(*arguments):
        assert main([*map(str, arguments)]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run


@pytest.fixture
def fail(capsys):
    """Standard output, and the lines on standard error."""

    def fail(*arguments):
        assert main([*map(str, arguments)]) == 2
        printed = capsys.readouterr()
        lines = printed.err.splitlines()
        assert lines[-1].startswith("keras-vit: error: ")
        return printed.out, lines

    return fail
