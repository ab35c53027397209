"""Classes by words, and the search and the metrics by which they are found."""

import json
import math
import re
import shutil
import types
import zlib
from typing import Any

import keras
import numpy as np
import pytest
from command import fail
from PIL import Image
from text_cases import FOLDER

import keras_vit
from keras_vit.checkpoints import average_weights
from keras_vit.cli import main
from keras_vit.evaluation import match_classes
from keras_vit.prediction import as_encoder, load_zero_shot
from keras_vit.runs.smoke import smoke
from keras_vit.text import (
    class_embeddings,
    load_class_embeddings,
    load_image_text,
    retrieval_recall,
)
from keras_vit.text.templates import TEMPLATES, imagenet_names
from keras_vit.text.zero_shot import (
    as_text_encoder,
    labels_of,
    zero_shot_model,
)
from keras_vit.training import ModelConfig, Recipe
from keras_vit.training.build import make_model, regression

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="the same on each backend"
)
for module in ("tokenizers", "sentencepiece"):
    pytest.importorskip(module)
# The first texts of the golden data.
TEXTS = [
    "a photo of a cat",
    "a photo of a dog",
    "This is a photo of a bridge.",
    "two children playing",
]
CLIP, SIGLIP = FOLDER / "clip_quick_gelu", FOLDER / "siglip"


@pytest.fixture(scope="module")
def pairs():
    return {x: load_image_text(x) for x in (CLIP, SIGLIP)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for name in "abc":
        pixels = random.integers(0, 256, (40, 36, 3), "uint8")
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return folder


def run(capsys, *words) -> str:
    """What a command prints."""
    assert main([*map(str, words)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("case", [CLIP, SIGLIP])
def test_scores_of_labels_are_those_of_the_original(case, pairs):
    expected = np.load(case / "expected.npz")
    classes = class_embeddings(pairs[case], TEXTS, "{}")
    np.testing.assert_allclose(
        classes.vectors, expected["text_embeds"][:4], atol=1e-5
    )
    model = zero_shot_model(pairs[case].image_tower, classes)
    found = model.predict(expected["images"], verbose=0)
    logits = expected["logits_per_image"][:, :4]
    np.testing.assert_allclose(found, logits, atol=5e-5)
    classifier = load_zero_shot(pairs[case], classes)
    pixels = np.zeros((1, 32, 32, 3), "uint8")
    sums = classifier.probabilities(pixels).sum()
    assert classifier.activation == ("softmax", "sigmoid")[case == SIGLIP]
    assert (abs(sums - 1) < 1e-5) == (case == CLIP)


def test_a_classifier_of_words_is_saved_as_any_model(pairs, tmp_path):
    """Its weights and its names; the golden logits again."""
    expected = np.load(SIGLIP / "expected.npz")
    classes = class_embeddings(pairs[SIGLIP], TEXTS, "{}")
    zero_shot_model(pairs[SIGLIP].image_tower, classes).save(
        tmp_path / "words.keras"
    )
    model = keras_vit.load_checkpoint(tmp_path / "words.keras")
    found = model.predict(expected["images"], verbose=0)
    logits = expected["logits_per_image"][:, :4]
    np.testing.assert_allclose(found, logits, atol=5e-5)
    assert model.trained_as.class_names == tuple(TEXTS)
    assert model.trained_as.answers_by == "sigmoid"


def test_a_training_starts_from_words(pairs, tmp_path):
    """Its first logits are the golden ones; what it saves is read again."""
    expected = np.load(CLIP / "expected.npz")
    start = ModelConfig(weights=str(CLIP), head="words", template="{}")
    model = make_model(Recipe(model=start), TEXTS)
    pixels = expected["images"] * model.config.pixel_std
    pixels = 255 * (pixels + model.config.pixel_mean)
    logits = expected["logits_per_image"][:, :4]
    found = model.predict(pixels, verbose=0)
    np.testing.assert_allclose(found, logits, atol=2e-4)
    assert all(x.trainable for x in model.layers)
    model.save(tmp_path / "model.keras")
    again = keras_vit.load_checkpoint(tmp_path / "model.keras")
    found = again.predict(pixels, verbose=0)
    np.testing.assert_allclose(found, logits, atol=2e-4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"head": "words"}, "without weights"),
        ({"head": "keep", "weights": "a", "template": "a {}"}, "template does"),
        ({"head": "words", "weights": "a", "template": "a cat"}, "a cat"),
        ({"head": "words", "weights": "a", "name": "ViT_B16"}, "name does"),
    ],
)
def test_heads_of_words_that_cannot_be(fields, words):
    with pytest.raises(ValueError, match=words):
        ModelConfig(**fields)


def test_a_trial_of_a_head_of_words_has_a_new_head():
    start = ModelConfig(weights="a", head="words", template="the {}")
    small = smoke(Recipe(model=start)).model
    assert (small.head, small.template, small.weights) == ("new", None, None)


def test_words_name_no_numbers():
    start = ModelConfig(weights="a", head="words")
    numbers = types.SimpleNamespace(labels=np.array([[0.0], [1.0]]))
    dataset: Any = types.SimpleNamespace(train=numbers)
    task = regression(dataset)
    with pytest.raises(ValueError, match="the data has numbers"):
        task.make_model(Recipe(model=start), ["age"])


def test_a_tower_without_texts_has_no_head_of_words(tmp_path):
    keras_vit.load_checkpoint(CLIP).save(tmp_path / "image.keras")
    start = ModelConfig(weights=str(tmp_path / "image.keras"), head="words")
    with pytest.raises(ValueError, match="text"):
        make_model(Recipe(model=start), TEXTS)


def test_weights_are_averaged(pairs, tmp_path, capsys):
    tower = pairs[CLIP].image_tower
    classes = class_embeddings(pairs[CLIP], ["cat", "dog"])
    first, second = (zero_shot_model(tower, classes) for _ in range(2))
    for weight in second.weights:
        weight.assign(weight + 1)
    first.save(tmp_path / "a.keras")
    second.save(tmp_path / "b.keras")
    files = [tmp_path / "a.keras", tmp_path / "b.keras"]
    for shares, expected in ((None, 0.5), ([0.75, 0.25], 0.25)):
        found = average_weights(files, shares)
        for one, other in zip(found.weights, first.weights, strict=True):
            np.testing.assert_allclose(
                keras.ops.convert_to_numpy(one),
                keras.ops.convert_to_numpy(other) + expected,
                atol=1e-6,
            )
    assert found.trained_as.class_names == ("cat", "dog")
    out = tmp_path / "c.keras"
    words = ("weights", "average", *files, "-o", out, "--shares", "0.75", ".25")
    assert "average of 2 models" in run(capsys, *words)
    again = keras_vit.load_checkpoint(out)
    for one, other in zip(again.weights, found.weights, strict=True):
        one, other = map(keras.ops.convert_to_numpy, (one, other))
        np.testing.assert_array_equal(one, other)


def test_what_is_not_averaged(pairs, capsys, tmp_path):
    tower = pairs[CLIP].image_tower
    models = [
        zero_shot_model(tower, class_embeddings(pairs[CLIP], names))
        for names in (["cat", "dog"], ["cat", "bird"])
    ]
    with pytest.raises(ValueError, match="class_names: .*dog.* in the first"):
        average_weights(models)
    for given, shares in (
        (tmp_path / "a.keras", None),
        (models[0], None),
        (models[:1], None),
        (models, [0.5]),
        (models, [0.5, 0.6]),
        (models, [np.nan, 1]),
    ):
        with pytest.raises(ValueError, match="a share for each"):
            average_weights(given, shares)
    words = ("average", "a", "b", "-o", tmp_path / "a.npz")
    assert "ends in .keras" in fail(capsys, *words)


def test_labels_of_imagenet(tmp_path, monkeypatch):
    """A file of that name comes first; two names are there twice."""
    monkeypatch.chdir(tmp_path)
    assert len(labels_of("imagenet")) == 1000
    names = ["missile", "cat"]
    (tmp_path / "imagenet").write_text("\n".join(names))
    assert labels_of("imagenet") == tuple(names)
    assert labels_of(imagenet_names()) == imagenet_names()
    found = match_classes(["n01440764", "n02504458"], imagenet_names())
    assert found.tolist() == [0, 386]


@pytest.mark.parametrize("case", [CLIP, SIGLIP])
def test_texts_are_found_in_images(case, pairs, photos, tmp_path, capsys):
    """The page has the cosine of each image and text."""
    texts = ["a red car", "<b>snow"]
    words = ["explain", case, photos / "a.png", photos / "b.png"]
    words += ["-o", tmp_path / "out", "--texts", *texts]
    assert run(capsys, *words).endswith("index.html\n")
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    vectors = as_text_encoder(pairs[case]).vectors(texts)
    images = keras_vit.embed(case, [str(photos / f"{x}.png") for x in "ab"])
    images /= np.linalg.norm(images, axis=1, keepdims=True)
    found = re.findall(r"gradient, cosine (-?\d\.\d+)", page)
    wanted = (images @ vectors.T).ravel()
    np.testing.assert_allclose(np.array(found, float), wanted, atol=6e-4)
    assert len(re.findall(r"similarity, cosines -?\d", page)) == 4
    assert "&lt;b&gt;snow" in page and "<b>snow" not in page
    with Image.open(tmp_path / "out" / "b_texts.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 10


def test_texts_that_cannot_be_found_in_images(photos, tmp_path, capsys):
    for words, message in (
        (["--texts", *map(str, range(13))], "1 to 12 texts"),
        (["--texts", ""], "labels are texts"),
        (["--texts", "a", "--top", "2"], "does not read top"),
        (["--texts", "a", "--checkpoints"], "does not read texts"),
    ):
        words = ["explain", CLIP, photos, "-o", tmp_path / "out", *words]
        assert main([*map(str, words)]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_export_gives_the_scores_of_classes(photos, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\nein Hund\n", "utf-8")
    options = ["--labels", labels, "--template", "the {}"]
    run(capsys, "export", CLIP, tmp_path / "a.onnx", *options)
    expected = keras_vit.predict(CLIP, photos, labels=labels, template="the {}")
    found = keras_vit.predict(tmp_path / "a.onnx", photos)
    for one, other in zip(found, expected, strict=True):
        assert dict(one.classes) == pytest.approx(dict(other.classes), abs=1e-5)


def test_a_server_of_labels(tmp_path, monkeypatch):
    given = {}

    def serve(model, **options):
        given.update(options, classifier=model)

    monkeypatch.setattr("keras_vit.serving.serve", serve)
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    labels = ["--labels", str(tmp_path / "labels.txt")]
    options = [*labels, "--image_size", "64"]
    assert main(["serve", str(SIGLIP), *options]) == 0
    classifier = given["classifier"]
    assert classifier.class_names == ("cat", "dog")
    assert (classifier.geometry.image_size, given["image_size"]) == (
        (64, 64),
        None,
    )


def test_an_ensemble_is_the_mean_of_unit_vectors(pairs):
    templates = TEMPLATES["openai_best"]
    found = class_embeddings(pairs[CLIP], ["cat", "red car"], "openai_best")
    for name, vector in zip(("cat", "red car"), found.vectors, strict=True):
        texts = [x.format(name) for x in templates]
        each = keras.ops.convert_to_numpy(pairs[CLIP].encode_texts(texts))
        mean = np.mean(each, axis=0)
        np.testing.assert_allclose(
            vector, mean / np.linalg.norm(mean), atol=1e-6
        )


def test_the_templates_are_those_of_the_paper():
    assert len({*TEMPLATES["openai"]}) == len(TEMPLATES["openai"]) == 80
    assert {*TEMPLATES["openai_best"]} < {*TEMPLATES["openai"]}
    for known in ("itap of my {}.", "a photo of the hard to see {}."):
        assert known in TEMPLATES["openai"]


def test_a_file_of_classes_needs_no_texts(pairs, photos, tmp_path):
    labels = ["cat", "dog", "ein Hund"]
    expected = keras_vit.predict(CLIP, photos, labels=labels, template="{}!")
    class_embeddings(pairs[CLIP], labels, "{}!").save(tmp_path / "c.npz")
    folder = tmp_path / "clip"
    shutil.copytree(CLIP, folder)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").unlink()
    found = keras_vit.predict(folder, photos, labels=tmp_path / "c.npz")
    assert [x.classes for x in found] == [x.classes for x in expected]
    assert load_class_embeddings(tmp_path / "c.npz").templates == ("{}!",)
    with pytest.raises(ValueError, match="no tokenizer"):
        keras_vit.predict(folder, photos, labels=labels)
    with pytest.raises(ValueError, match="32 numbers"):
        other = class_embeddings(pairs[SIGLIP], labels)
        keras_vit.predict(folder, photos, labels=other)


def test_classes_of_another_model_are_refused(pairs, photos, tmp_path):
    """The same sizes with other weights, and the model at another size."""
    class_embeddings(CLIP, ["cat", "dog"]).save(tmp_path / "c.npz")
    other = load_image_text(CLIP)
    norm = other.image_tower.get_layer("encoder_norm")
    known = load_class_embeddings(tmp_path / "c.npz")
    gamma = keras.ops.convert_to_numpy(norm.gamma)
    assert known.image_crc32 == zlib.crc32(gamma.tobytes())
    larger = load_zero_shot(CLIP, tmp_path / "c.npz", image_size=64)
    assert larger.model.input_shape == (None, 64, 64, 3)
    labels = {"labels": tmp_path / "c.npz"}
    found = keras_vit.predict(CLIP, photos, **labels, image_size=64)
    expected = keras_vit.predict(larger, photos)
    assert [x.classes for x in found] == [x.classes for x in expected]
    with pytest.raises(ValueError, match="takes images of 32x32"):
        keras_vit.predict(other, photos, **labels, image_size=64)
    norm.gamma.assign(norm.gamma * 1.5)
    both = f"{CLIP.name}' with checksum {known.image_crc32:08x}, .* given to"
    with pytest.raises(ValueError, match=both):
        keras_vit.predict(other, photos, labels=tmp_path / "c.npz")


def test_names_beside_labels_are_refused(pairs, photos):
    with pytest.raises(ValueError, match="beside labels"):
        keras_vit.predict(
            pairs[CLIP], photos, labels=["cat", "dog"], class_names=("x", "y")
        )


@pytest.mark.parametrize(
    ("labels", "template", "message"),
    [
        ([], None, "0 labels"),
        (["cat", "dog", "cat "], None, "1 twice, such as .*cat"),
        (["cat", ""], None, "1 that are none"),
        (["cat", 3], None, "1 that are none"),
        (["cat", "x" * 100_000], None, "1 that are none"),
        (["cat"], None, "softmax over the labels"),
        (["cat", "dog"], "a photo", "one {} for the class"),
        (["cat", "dog"], [], "one {} for the class"),
        ("no/such.txt", None, "cannot be read"),
        ("no/such.npz", None, "There is no file"),
        (None, "a {}", "without labels"),
    ],
)
def test_labels_that_are_none_are_refused(
    labels, template, message, photos, pairs
):
    with pytest.raises(ValueError, match=message):
        keras_vit.predict(pairs[CLIP], photos, labels=labels, template=template)


def test_pairs_are_named_where_they_are_refused(pairs, photos):
    pair = pairs[CLIP]
    message = "a path or a name. Received: .* of type ImageTextModel"
    with pytest.raises(ValueError, match=message):
        load_image_text(pair)
    message = "type ImageTextModel. Give its image_tower, or labels to"
    with pytest.raises(ValueError, match=message):
        keras_vit.predict(pair, photos)
    for part in (pair, CLIP):
        with pytest.raises(ValueError, match="above 0. Received: batch_size=0"):
            class_embeddings(part, ["cat"], batch_size=0)


def test_models_without_texts_are_refused(photos, tmp_path):
    with pytest.raises(ValueError, match="no known format"):
        keras_vit.predict(
            FOLDER.parent / "hf_vit_tiny", photos, labels=["cat", "dog"]
        )
    with pytest.raises(ValueError, match="need an image-text model"):
        keras_vit.predict(keras.Model(), photos, labels=["cat", "dog"])
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match="no embeddings of classes"):
        load_class_embeddings(tmp_path / "c.npz")


@pytest.mark.slow
def test_50_000_labels(pairs, photos):
    labels = [f"{x} {y}" for x in range(250) for y in range(200)]
    found = keras_vit.predict(pairs[SIGLIP], photos, 2, labels=labels)
    assert len(found[0].classes) == 2


def test_labels_of_a_command(photos, tmp_path, capsys):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\nein Hund\n", "utf-8")
    words = ["predict", str(CLIP), str(photos), "--format", "csv"]
    first = run(capsys, *words, "--labels", labels)
    saved = str(tmp_path / "classes.npz")
    options = ["--template", "a photo of a {}.", "--save_labels", saved]
    assert run(capsys, *words, "--labels", labels, *options) == first
    assert run(capsys, *words, "--labels", saved) == first
    assert first.count("ein Hund") == 3
    for options in (["--template", "a {}."], ["--save_labels", saved]):
        assert main([*words, *options]) == 2
        assert "Received: no --labels" in capsys.readouterr().err


def test_embeddings_are_those_that_texts_are_compared_with(pairs):
    expected = np.load(CLIP / "expected.npz")
    found = as_encoder(pairs[CLIP]).network.predict(
        expected["images"], verbose=0
    )
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected["image_embeds"], atol=1e-5)
    before = as_encoder(pairs[CLIP], kind="features").network
    assert before.output_shape == (None, 48)


def test_a_search_by_words(photos, tmp_path, capsys, pairs):
    file = str(tmp_path / "photos.npz")
    run(capsys, "embed", CLIP, photos, "-o", file)
    found = run(capsys, "search", file, "a red car", "--top", 1)
    vectors = keras_vit.embed(CLIP, photos)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    text = keras.ops.convert_to_numpy(pairs[CLIP].encode_texts(["a red car"]))
    cosines = (vectors @ text.T)[:, 0]
    assert f"{cosines.max():.4f}" in found
    assert f"{'abc'[cosines.argmax()]}.png" in found
    other = tmp_path / "features.npz"
    run(capsys, "embed", CLIP, photos, "-o", other, "--features")
    assert keras_vit.prediction.load_embeddings(other).vectors.shape == (3, 48)
    with pytest.raises(ValueError, match="projected embeddings"):
        keras_vit.prediction.embed_texts(
            as_encoder(CLIP, kind="features"), CLIP, ["a red car"]
        )


def test_a_summary_counts_both_towers(pairs, capsys):
    """Of the text tower by hand: D 32, MLP 128 and two heads of 16 tokens."""
    out = run(capsys, "summary", CLIP, "--texts", "--format", "json")
    found = json.loads(out)
    parameters = sum(
        math.prod(x.shape)
        for x in pairs[CLIP].weights
        if "logit_scale" not in x.path
    )
    assert found["total"]["parameters"] == parameters
    (block,) = [x for x in found["parts"] if x["part"] == "texts: block_*"]
    config = pairs[CLIP].text_tower.config
    dim, length = config.hidden_dim, config.context_length
    dense = length * (4 * dim**2 + 2 * dim * config.mlp_dim)
    assert block["multiply_adds"] == dense + 2 * length**2 * dim
    assert block["times"] == config.num_layers == 2
    table = run(capsys, "summary", CLIP, "--texts")
    assert "and one text of 16 tokens" in table and "texts: block_*" in table


def test_the_text_half_alone_embeds_texts(pairs):
    expected = np.load(SIGLIP / "expected.npz")["text_embeds"][:4]
    for model in (SIGLIP, pairs[SIGLIP]):
        found = as_text_encoder(model).vectors(TEXTS, batch_size=3)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_recall_both_ways():
    """By hand: texts 0 and 1 are of image 0, text 2 of image 1."""
    images = np.eye(3)
    texts = np.array([[1, 0, 0], [0.6, 0.8, 0], [0.8, 0.6, 0]])
    found = retrieval_recall(images, texts, [0, 0, 1], at=(1, 2, 10))
    assert found == {
        "image_recall_at_1": pytest.approx(1 / 3),
        "image_recall_at_2": 1.0,
        "image_recall_at_10": 1.0,
        # Image 0 finds text 0 first; image 1 text 1, of image 0, and then 2.
        "text_recall_at_1": 0.5,
        "text_recall_at_2": 1.0,
        "text_recall_at_10": 1.0,
    }
    for wrong in ([0, 0], [0, 0, 3], [0.0, 0.0, 1.0]):
        with pytest.raises(ValueError, match="number of its image"):
            retrieval_recall(images, texts, wrong)


def test_the_page_runs(tmp_path, monkeypatch, photos):
    page = (FOLDER.parents[2] / "docs" / "image-text.md").read_text("utf-8")
    shutil.copytree(CLIP, tmp_path / "openai" / "clip-vit-base-patch32")
    shutil.copytree(photos, tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = re.findall("^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for block in blocks:
        exec(compile(block, "image-text.md", "exec"), names)
    assert names["texts"].shape == (3, 24) and len(names["found"]) == 3


def test_images_of_tips_are_squashed_and_not_normalised(tmp_path):
    folder = tmp_path / "tips"
    shutil.copytree(FOLDER.parent / "hf_tipsv2_tiny", folder)
    shutil.copy(FOLDER / "tipsv2" / "preprocessor_config.json", folder)
    model = keras_vit.load_checkpoint(folder)
    rule = model.trained_as.preprocessing
    assert (rule["evaluation"], rule["resize_method"]) == ("squash", "bilinear")
    assert model.config.pixel_mean == (0, 0, 0)
    assert model.config.pixel_std == (1, 1, 1)
