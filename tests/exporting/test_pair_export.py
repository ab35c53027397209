"""Both towers in other runtimes, with the tokenizer: the golden data again."""

import json
import shutil
import types
from typing import Any

import keras
import numpy as np
import pytest
import served
from recipe_scripts import script
from text_cases import FOLDER

import keras_vit
from keras_vit.cli import main
from keras_vit.data import PreprocessingConfig
from keras_vit.evaluation.config import ModelSource
from keras_vit.exporting.export import export_pair
from keras_vit.prediction import as_encoder
from keras_vit.prediction.embeddings_file import load_search
from keras_vit.prediction.exported_pair import ExportedPair
from keras_vit.text import load_class_embeddings, load_image_text

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "torch", reason="the same on each backend"
    ),
    # torch's compiler forks when it is imported, of which JAX warns.
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]
for module in ("tokenizers", "sentencepiece", "onnxruntime", "onnxscript"):
    pytest.importorskip(module)
CLIP, SIGLIP = FOLDER / "clip_quick_gelu", FOLDER / "siglip"
CASES = [
    (CLIP, "onnx", "onnxruntime"),
    (SIGLIP, "litert", "ai_edge_litert"),
    # As ONNX, which OpenVINO's files are made of.
    pytest.param((CLIP, "openvino", "openvino"), marks=pytest.mark.slow),
    pytest.param((SIGLIP, "stablehlo", "jax"), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda x: x[1])
def exported(request, tmp_path_factory):
    source, format, module = request.param
    pytest.importorskip(module)
    folder = tmp_path_factory.mktemp("pairs") / "pair"
    words = ("export", source, folder, "--texts", "--format", format)
    assert main([*map(str, words)]) == 0
    return source, folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(3):
        (folder / f"{seed}.png").write_bytes(
            served.encoded(served.picture(seed, (40, 36, 3)))
        )
    return folder


def test_both_files_give_the_golden_embeddings(exported):
    source, folder = exported
    expected = np.load(source / "expected.npz")
    pair = ExportedPair(folder)
    ids = [*expected["token_ids"]]
    np.testing.assert_allclose(
        pair.texts.vectors(ids), expected["text_embeds"], atol=1e-4
    )
    np.testing.assert_allclose(
        pair.texts.vectors(["a photo of a cat", "a photo of a dog"]),
        expected["text_embeds"][:2],
        atol=1e-4,
    )
    config = pair.image.model.config
    mean = 0.5 if config.pixel_mean is None else np.array(config.pixel_mean)
    std = 0.5 if config.pixel_std is None else np.array(config.pixel_std)
    images = 255 * (expected["images"] * std + mean)
    found = pair.image.model.predict_on_batch(images)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected["image_embeds"], atol=1e-4)


def test_labels_are_those_of_the_model(exported, photos):
    source, folder = exported
    labels = ["cat", "dog", "ein Hund"]
    found, wanted = (
        keras_vit.predict(x, photos, labels=labels, template="a {}!")
        for x in (folder, source)
    )
    for one, other in zip(found, wanted, strict=True):
        assert dict(one.classes) == pytest.approx(dict(other.classes), abs=1e-4)


def test_labels_are_saved_as_those_of_the_model(exported, photos, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    vectors = []
    for number, model in enumerate(exported):
        words = ["predict", model, photos, "--labels", tmp_path / "labels.txt"]
        words += ["--save_labels", tmp_path / f"{number}.npz"]
        assert main([*map(str, words)]) == 0
        found = load_class_embeddings(tmp_path / f"{number}.npz")
        assert found.names == ("cat", "dog")
        vectors.append(found.vectors)
    np.testing.assert_allclose(*vectors, atol=1e-4)


def test_a_search_is_that_of_the_model(exported, photos, tmp_path):
    source, folder = exported
    found = []
    for model in (source, folder):
        file = tmp_path / f"{model.name}.npz"
        assert main(["embed", str(model), str(photos), "-o", str(file)]) == 0
        search = load_search(file)
        image = keras_vit.embed(search.encoder, photos / "1.png")
        queries = np.concatenate([search.words(["a red car"]), image])
        found.append(search.nearest(queries, 3))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-4)


def test_a_pair_that_resizes_embeds_images_of_any_size(tmp_path):
    """They were cropped before, too: the vectors were of other images."""
    from keras_vit.serving.service import ServedSearch

    model = load_image_text(CLIP)
    tower = model.image_tower
    rule = {"evaluation": "cover_crop", "rounding": "float32"}
    tower.trained_as = tower.trained_as.but(
        preprocessing={**rule, "resize_size": (40, 40), "antialias": True}
    )
    export_pair(model, tmp_path / "pair", include_resizing=True)
    images = [served.picture(i, (50 + 9 * i, 60, 3)) for i in range(3)]
    expected = keras_vit.embed(model, images)
    found = keras_vit.embed(tmp_path / "pair", images)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    squash = PreprocessingConfig(evaluation="squash")
    with pytest.raises(ValueError, match="squash.*without include_resizing"):
        keras_vit.embed(tmp_path / "pair", images, preprocessing=squash)
    encoder = as_encoder(tmp_path / "pair")
    files = types.SimpleNamespace(files=["a.png"])
    search: Any = types.SimpleNamespace(encoder=encoder, embeddings=files)
    found = ServedSearch(search, 4)._images([encoder.read(x) for x in images])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_a_file_of_texts_runs_without_keras_vit(exported):
    source, folder = exported
    if not (folder / "text.onnx").exists():
        pytest.skip("ONNX Runtime runs ONNX alone")
    import onnxruntime

    expected = np.load(source / "expected.npz")
    session = onnxruntime.InferenceSession(folder / "text.onnx")
    ids = expected["token_ids"].astype("int32")
    (found,) = session.run(["scores"], {"token_ids": ids})
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected["text_embeds"], atol=1e-4)
    names = {x.name for x in folder.iterdir()}
    assert {"image.onnx", "text.onnx", "tokenizer", "pair.json"} <= names


@pytest.fixture
def copied(exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "pair")
    return tmp_path / "pair"


def test_files_that_were_changed_are_refused(copied):
    record = json.loads((copied / "pair.json").read_text())
    with (copied / record["text"]).open("ab") as file:
        file.write(b" ")
    with pytest.raises(ValueError, match="Export the model again"):
        ExportedPair(copied).texts  # noqa: B018
    about = record["text_config"]
    for change in (
        {"image": "../image.onnx"},
        {"text_config": 3},
        {"text_config": {**about, "run": "it"}},
        {"text_config": {**about, "num_heads": "4"}},
        {"text_config": {**about, "context_length": 10**9}},
        {"logit_scale": float("inf")},
        {"logit_scale": 100.5},
        {"logit_bias": float("nan")},
        {"tokenizer": {"files": []}},
        {"tokenizer": {"files": ["a"], "cleaning": []}},
        {"tokenizer": {"files": ["../a"], "cleaning": [], "padding": 0}},
        None,
    ):
        content = json.dumps(change and {**record, **change})
        (copied / "pair.json").write_text(content)
        with pytest.raises(ValueError, match="damaged"):
            ExportedPair(copied)


def test_the_largest_scale_is_read(copied):
    record = json.loads((copied / "pair.json").read_text())
    content = json.dumps({**record, "logit_scale": 100.0})
    (copied / "pair.json").write_text(content)
    assert ExportedPair(copied).texts.logit_scale == 100


def test_what_cannot_be_had_is_refused(exported, photos, tmp_path, capsys):
    _, folder = exported
    with pytest.raises(ValueError, match="projected embeddings alone"):
        as_encoder(folder, kind="tokens")
    with pytest.raises(ValueError, match="projected embeddings alone"):
        as_encoder(folder, blocks=1)
    with pytest.raises(ValueError, match="32x32"):
        as_encoder(folder, image_size=64)
    with pytest.raises(ValueError, match="own options. Received: kind='tok"):
        as_encoder(as_encoder(folder), kind="tokens")
    # Before the labels are read: there are none.
    evaluation = script("evaluate").Evaluation(
        model=ModelSource(weights=str(folder)),
        labels=str(tmp_path / "labels.txt"),
    )
    with pytest.raises(ValueError, match="It is a program: take the weights"):
        script("evaluate").load_named_model(evaluation)
    pair = load_image_text(CLIP)
    with pytest.raises(ValueError, match="Two towers"):
        export_pair(pair.image_tower, tmp_path / "a")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(ValueError, match="not a folder that keras_vit"):
        export_pair(pair, tmp_path / "mine")
    with pytest.raises(ValueError, match="no folder .*none'. Make it first"):
        export_pair(pair, tmp_path / "none" / "pair")
    words = ["export", str(CLIP), str(tmp_path / "b"), "--texts"]
    assert main([*words, "--labels", "imagenet"]) == 2
    assert "without classes" in capsys.readouterr().err
