"""Both towers of each published pair, in miniature, as the original's."""

import functools
import json
import shutil

import keras
import numpy as np
import pytest
from pair_cases import PAIRS, inputs, sequences, written

from keras_vit.checkpoints.public.catalog import pair_repository, pair_source
from keras_vit.models import NaFlexTransformer
from keras_vit.text import ClassEmbeddings, load_image_text, zero_shot_model

one_backend = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the same on each backend"
)
CASES = json.loads(PAIRS.with_suffix(".json").read_text("utf-8"))
TAGS, KINDS = CASES["tags"], CASES["kinds"]
# Narrower than their names say, which tell the heads of towers of timm.
HEADS: dict = {
    x: {"num_heads": 2}
    for x, y in KINDS.items()
    if "timm_model_name" in str(y) and x != "MobileCLIP-B"
}
numbers = keras.ops.convert_to_numpy


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return largest differences of a kind from the original's, kept."""

    torch = pytest.importorskip("torch")

    @functools.cache
    def differences(name):
        kind = KINDS[name]
        folder = written(tmp_path_factory.mktemp("pairs") / name, kind)
        pair = load_image_text(folder, **HEADS.get(name, {}))
        shutil.rmtree(folder)
        text = {"context_length": 12, **kind["config"].get("text_cfg", {})}
        size = pair.image_tower.config.image_size
        images, ids = inputs(size, text)
        given = torch.tensor(images, requires_grad=True)
        found = {
            "images": pair.encode_images(images),
            "texts": pair.encode_texts(ids),
            "logits": pair.logits(given, ids),
        }
        found["logits"][1, 2].backward()
        assert given.grad is not None
        found["gradient"] = given.grad[1]
        with np.load(PAIRS.with_suffix(".npz")) as file:
            expected = {x: file[f"{name}/{x}"] for x in found}
        keras.utils.clear_session()
        scale = np.abs(expected["gradient"]).max()
        assert scale > 1e-4
        expected["gradient"] /= scale
        found["gradient"] = found["gradient"] / scale
        return {
            key: np.abs(numbers(x) - expected[key]).max()
            for key, x in found.items()
        }

    return differences


def test_each_tag_has_a_kind():
    table = PAIRS.parents[3] / "keras_vit/checkpoints/public/pairs.csv"
    lines = table.read_text("utf-8").splitlines()[1:]
    assert [x.partition(",")[0] for x in lines] == [*TAGS]
    assert {x for found in TAGS.values() for x in found} == {*KINDS}


@one_backend
@pytest.mark.parametrize("tag", TAGS)
def test_both_towers_of_a_tag_are_the_original_s(tag, measured):
    """Or the tag is refused by its name, with the one to load."""
    if "_gap_" in tag:
        with pytest.raises(
            ValueError, match=rf"Load '{tag.replace('_gap', '')}"
        ):
            pair_source(tag)
    else:
        assert pair_source(tag) == f"hf://{pair_repository(tag)}"
    for kind in TAGS[tag]:
        found = measured(kind)
        assert max(found["images"], found["texts"]) < 1e-5, found
        assert found["logits"] < 1e-4, found
        assert found["gradient"] < 1e-4, found  # Of the largest.


def test_rectangles_of_a_naflex_pair_are_the_original_s(tmp_path):
    """In both towers, and as a classifier of unit features."""
    folder = written(tmp_path / "pair", KINDS["SigLIP2-naflex"])
    pair = load_image_text(folder)
    with np.load(PAIRS.with_suffix(".npz")) as file:
        images, texts, logits = (
            file[f"SigLIP2-naflex/{x}"]
            for x in ("rectangles", "texts", "rectangle_logits")
        )
    _, ids = inputs((32, 32), {"context_length": 12})
    given = sequences()
    found = numbers(pair.encode_images(given))
    np.testing.assert_allclose(found, images, atol=1e-5)
    np.testing.assert_allclose(
        numbers(pair.logits(given, ids)), logits, atol=1e-4
    )
    scale, bias = (
        float(numbers(x)) for x in (pair.logit_scale, pair.logit_bias)
    )
    classes = ClassEmbeddings((*"abcd",), texts, scale, bias)
    classifier = zero_shot_model(pair.image_tower, classes)
    assert classifier.config.unit_features
    found = numbers(NaFlexTransformer(classifier)(given))
    np.testing.assert_allclose(found, logits, atol=1e-4)


def test_a_rectangle_goes_through_both_towers(tmp_path):
    """As sequences of the same patches do, whose positions are resampled."""
    folder = written(tmp_path / "pair", KINDS["SigLIP2-naflex"])
    pair = load_image_text(folder, input_shape=(32, 48, 3))
    given = {x: y[:1] for x, y in sequences().items()}  # 2 x 3 patches
    patches = given["patches"].reshape(1, 2, 3, 16, 16, 3)
    image = patches.transpose(0, 1, 3, 2, 4, 5).reshape(1, 32, 48, 3)
    with np.load(PAIRS.with_suffix(".npz")) as file:
        expected = file["SigLIP2-naflex/rectangles"][:1]
    found = numbers(pair.encode_images(image))
    np.testing.assert_allclose(found, expected, atol=1e-5)
