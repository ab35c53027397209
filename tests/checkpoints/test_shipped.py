"""The weights that come with the package."""

import hashlib
import re
from pathlib import Path

import keras
import numpy as np
import numpy_forward
import pytest
import yaml
from named_data.fractals import fractal_images

import keras_vit
from keras_vit.checkpoints import check_weights, read_info
from keras_vit.checkpoints.public import fetch
from keras_vit.checkpoints.public.catalog import SHIPPED
from keras_vit.checkpoints.public.fetch import shipped_path
from keras_vit.training import ModelConfig, Recipe
from keras_vit.training.build import make_model

ROOT = Path(__file__).parents[2]
PATH = ROOT / "keras_vit" / "weights" / "fractals.npz"
README = (PATH.parent / "README.md").read_text()
CONFIG = yaml.safe_load(
    (ROOT / "recipes" / "configs" / "fractals_small.yaml").read_text()
)
MAX_BYTES = 3 * 10**6


def stated(row: str) -> str:
    """What a table of the README says."""
    [value] = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", README, re.M)
    return value.strip("`")


def test_every_file_is_there_and_small():
    for name in SHIPPED:
        assert 0 < Path(str(shipped_path(name))).stat().st_size <= MAX_BYTES
    assert {path.suffix for path in PATH.parent.iterdir()} == {".md", ".npz"}


def test_a_name_needs_no_network(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check_weights("fractals")
    assert fetch.resolve("Fractals") == str(PATH)


def test_an_application_has_no_such_weights():
    for ask in (check_weights, fetch.resolve):
        with pytest.raises(ValueError, match="not of ViT_B16"):
            ask("fractals", "ViT_B16")


def test_readme_says_what_the_file_is():
    content = PATH.read_bytes()
    assert stated("SHA-256") == hashlib.sha256(content).hexdigest()
    assert stated("bytes") == f"{len(content):,}"
    info = read_info("fractals")
    assert stated("parameters") == f"{info.num_parameters:,}"
    assert stated("classes") == str(info.fields["num_classes"])
    for key in CONFIG["model"]:
        assert stated(key) == str(CONFIG["model"][key])


def test_file_is_the_model_of_the_committed_config():
    fields = read_info("fractals").fields
    for key, value in CONFIG["model"].items():
        expected = [value, (value, value)]  # image and patch have two sides
        assert fields[key] in expected
    classes, data = fields["num_classes"], CONFIG["data"]["name"]
    assert f"num_classes={classes}," in data
    assert f"image_size={fields['image_size'][0]}" in data
    assert f" of {CONFIG['training']['epochs']}," in stated("epochs")


def test_it_knows_how_its_images_were_prepared():
    known = keras_vit.load_checkpoint("fractals").trained_as
    assert known.assumed == () and known.source == "fractals"
    way = CONFIG["preprocessing"]["evaluation"]
    assert known.preprocessing["evaluation"] == way


def test_logits_are_those_of_the_paper_s_equations_in_numpy():
    images = fractal_images(range(8), [1000] * 8, image_size=16)
    model = keras_vit.load_checkpoint("fractals", include_preprocessing=True)
    logits = model.predict(images.astype("float32"), verbose=0)
    expected = numpy_forward.vit(
        dict(np.load(PATH)), images / 127.5 - 1, pooling="mean"
    )["logits"]
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_it_names_fractals_that_it_has_not_seen():
    """Of 500 classes chance is right in one of 500."""
    classes = np.arange(100)
    images = fractal_images(classes, classes + 1000, image_size=16)
    model = keras_vit.load_checkpoint("fractals", include_preprocessing=True)
    scores = model.predict(images.astype("float32"), verbose=0)
    assert (scores.argmax(axis=1) == classes).mean() > 0.7


def test_a_recipe_starts_from_it_at_another_size():
    model = make_model(
        Recipe(model=ModelConfig(weights="fractals", image_size=24)),
        ["cat", "dog"],
    )
    assert model.input_shape == (None, 24, 24, 1)
    assert not keras.ops.convert_to_numpy(model.weights[-2]).any()
    kernel = keras.ops.convert_to_numpy(model.get_layer("block_0").weights[2])
    query = np.load(PATH)[
        "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/query/kernel"
    ]
    # The columns of the fused kernel go by head: query, key, value.
    head_dim = query.shape[-1]
    np.testing.assert_array_equal(kernel[:, :head_dim], query[:, 0])
