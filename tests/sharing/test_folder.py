"""What stands in a folder that is shared."""

import json
import re
import shutil
import sys

import keras
import numpy as np
import pytest
import shared_models as shared
from shared_models import NAMES, build, output, run
from text_cases import FOLDER as PAIRS
from timm_stub import import_timm

import keras_vit
from keras_vit.checkpoints.files.folders import read_shared
from keras_vit.cli import main
from keras_vit.data import PreprocessingConfig
from keras_vit.models import BiT, Mixer
from keras_vit.sharing import model_card
from keras_vit.sharing.shared_folder import distinct
from keras_vit.variants import VariantTransformer

__all__ = ["run"]  # a fixture

yaml = pytest.importorskip("yaml")


def pushed(model, folder, name="me/shapes", **options):
    keras_vit.push_to_hub(model, name, dry_run=folder, **options)
    return {path.name: path for path in folder.iterdir()}


def metadata(files):
    _, block, body = files["README.md"].read_text().split("---\n", 2)
    return yaml.safe_load(block), body


def content(files, name):
    return json.loads(files[name].read_text())


def test_the_card_of_a_run_has_what_it_measured(run, tmp_path):
    files = pushed(run, tmp_path / "out")
    result = json.loads((run / "result.json").read_text())
    fields, body = metadata(files)
    (found,) = fields["model-index"]
    (task,) = found["results"]
    assert task["dataset"] == {
        "name": "images in memory",
        "type": "images in memory",
        "split": "test",
    }
    found = {metric["type"]: metric["value"] for metric in task["metrics"]}
    assert found["accuracy"] == result["top1"]
    assert found["f1"] == result["macro_f1"]
    assert found["roc_auc"] == result["auc"]
    assert f"| accuracy | {result['top1']:.2%} |" in body
    assert "images per step | 8 |" in body
    assert f"keras {result['versions']['keras']}" in body
    assert "![Learning curves](training.png)" in body
    assert files["training.png"].read_bytes().startswith(b"\x89PNG")


def test_the_card_of_a_run_names_its_baseline(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    result = json.loads((copied / "result.json").read_text())
    result |= {"baseline": "a *guess*", "baseline_accuracy": 0.125}
    (copied / "result.json").write_text(json.dumps(result))
    _, body = metadata(pushed(copied, tmp_path / "out"))
    assert "| accuracy of a baseline | 12.50% |" in body
    assert r"The baseline: a \*guess\*." in body


def test_metadata_are_those_of_the_hub(run, tmp_path):
    files = pushed(run, tmp_path / "out", license="Apache-2.0")
    fields, _ = metadata(files)
    assert fields["library_name"] == "transformers"
    assert fields["pipeline_tag"] == "image-classification"
    assert fields["license"] == "apache-2.0"
    assert "keras" in fields["tags"]


def test_a_licence_that_the_hub_has_no_word_for_has_a_name(tmp_path):
    files = pushed(build(), tmp_path / "out", license="dinov3-license")
    fields, _ = metadata(files)
    assert fields["license"] == "other"
    assert fields["license_name"] == "dinov3-license"


def test_public_weights_have_their_licence_and_their_name(tmp_path):
    fields, body = metadata(pushed("fractals", tmp_path / "out"))
    assert fields["license"] == "apache-2.0"
    assert "These weights are fractals" in body


def test_no_path_of_this_machine_is_in_any_file(run, tmp_path):
    files = pushed(run, tmp_path / "out")
    secret = str(run.parent).encode()
    assert secret in (run / "config.yaml").read_bytes()
    assert not [x for x, y in files.items() if secret in y.read_bytes()]


def test_weights_of_a_path_are_called_a_file(run, tmp_path):
    first = tmp_path / "run"
    first.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (first / path.name).write_bytes(path.read_bytes())
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["model"]["weights"] = "/home/somebody/secret.npz"
    config["data"] |= {"name": None, "folder": "/home/somebody/patients"}
    (first / "config.yaml").write_text(yaml.safe_dump(config))
    files = pushed(first, tmp_path / "out")
    body = files["README.md"].read_text()
    assert "somebody" not in body
    assert "a folder of images" in body and "a file of weights" in body


def test_source_weights_are_named_with_their_licence(run, tmp_path):
    first = tmp_path / "run"
    first.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (first / path.name).write_bytes(path.read_bytes())
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["model"] |= {"name": "ViT_S16", "weights": "dinov3"}
    config["data"]["name"] = "cifar10"
    (first / "config.yaml").write_text(yaml.safe_dump(config))
    result = json.loads((run / "result.json").read_text())
    result["teacher"] = {
        **{"weights": "run", "started_from": "ViT_B16/mae"},
        **{"url": "https://a.example/mae", "licence": "CC-BY-NC-4.0"},
    }
    (first / "result.json").write_text(json.dumps(result))
    fields, body = metadata(pushed(first, tmp_path / "out"))
    teacher = body.partition("## Teacher")[2].partition("##")[0]
    assert "[ViT\\_B16/mae](https://a.example/mae)" in teacher
    assert "licence is CC-BY-NC-4.0" in teacher
    assert fields["base_model"].startswith("timm/vit_small_patch16_dinov3")
    assert fields["datasets"] == "uoft-cs/cifar10"
    assert "dinov3-license" in body


@pytest.mark.parametrize("format", ["hugging_face", "timm", "keras"])
def test_every_format_has_the_names_and_the_preprocessing(tmp_path, format):
    rule = PreprocessingConfig(
        evaluation="resize_central_crop", resize_size=20, antialias=True
    )
    model = build(activation="gelu", layer_norm_epsilon=1e-6)
    folder = tmp_path / "out"
    files = pushed(
        model, folder, class_names=NAMES, preprocessing=rule, format=format
    )
    classifier = keras_vit.prediction.load_classifier(folder)
    assert classifier.class_names == NAMES
    assert classifier.geometry.config == rule
    assert ("preprocessor_config.json" in files) == (format == "hugging_face")
    names = content(files, "config.json")
    names = names.get("label_names") or list(names["id2label"].values())
    assert names == list(NAMES)


def test_probabilities_of_a_sigmoid_stay_those(tmp_path):
    model = build(include_preprocessing=True)
    classifier = keras_vit.prediction.Classifier(
        model,
        NAMES,
        keras_vit.prediction.as_classifier(model).geometry,
        "sigmoid",
    )
    files = pushed(classifier, tmp_path / "out")
    kind = content(files, "config.json")["problem_type"]
    assert kind == "multi_label_classification"
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), "uint8")
    (expected,) = keras_vit.predict(classifier, image)
    (found,) = keras_vit.predict(tmp_path / "out", image)
    assert dict(found.classes) == pytest.approx(dict(expected.classes))
    assert sum(dict(found.classes).values()) != pytest.approx(1, abs=1e-3)


PROCESSORS = {
    "squash": {"height": 16, "width": 16},
    "resize_small_central_crop": {"shortest_edge": 18},
    "resize_central_crop": {"height": 18, "width": 18},
}


@pytest.mark.parametrize("crop", PROCESSORS)
def test_transformers_crops_as_the_evaluation_does(tmp_path, crop):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    image_module = pytest.importorskip("PIL.Image")
    folder = tmp_path / "out"
    rule = PreprocessingConfig(evaluation=crop, antialias=True)
    files = pushed(build(), folder, preprocessing=rule)
    found = content(files, "preprocessor_config.json")
    assert found["size"] == PROCESSORS[crop]
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    # Each half of one colour: what is cut off shows.
    pixels = np.zeros((36, 72, 3), "uint8")
    pixels[:, 36:] = 255
    image = image_module.fromarray(pixels)
    (values,) = processor(image, return_tensors="np")["pixel_values"]
    assert values.shape == (3, 16, 16)
    classifier = keras_vit.prediction.load_classifier(folder)
    ours = classifier.read(image) / 127.5 - 1
    np.testing.assert_allclose(np.moveaxis(values, 0, -1), ours, atol=0.01)


FORMATS = {
    "a plain model": (lambda: build(), "hugging_face"),
    "a pooling that transformers has not": (
        lambda: build(
            pooling="max", activation="gelu", layer_norm_epsilon=1e-6
        ),
        "timm",
    ),
    "a layer that neither has": (
        lambda: build(representation_dim=4),
        "keras",
    ),
    "an MLP-Mixer of timm's": (
        lambda: shared.random(
            Mixer,
            image_size=32,
            patch_size=32,
            num_layers=8,
            hidden_dim=512,
            tokens_mlp_dim=256,
            channels_mlp_dim=2048,
            activation="gelu",
            num_classes=3,
        ),
        "timm",
    ),
    "another MLP-Mixer": (
        lambda: shared.random(
            Mixer,
            **shared.SIZES,
            tokens_mlp_dim=4,
            channels_mlp_dim=8,
            num_classes=3,
        ),
        "keras",
    ),
    "a hybrid, whose class transformers dropped": (
        lambda: build(resnet_units=(1,), resnet_width=32, patch_size=2),
        "keras",
    ),
    "a variant": (
        lambda: shared.random(
            VariantTransformer, **shared.VIT, variant={"mlp": "local"}
        ),
        "keras",
    ),
    "a BiT": (
        lambda: shared.random(
            BiT,
            units=(1, 1),
            width=32,
            image_size=(None, None),
            num_classes=3,
            standardization_epsilon=1e-8,
        ),
        "hugging_face",
    ),
    "an encoder": (lambda: build(num_classes=0), "hugging_face"),
}
LIBRARIES = {"hugging_face": "transformers", "timm": "timm"}


@pytest.mark.parametrize("case", FORMATS)
def test_the_format_is_the_first_that_holds_the_model(tmp_path, case):
    make, format = FORMATS[case]
    model = make()
    files = pushed(model, tmp_path / "out")
    fields, body = metadata(files)
    assert fields["library_name"] == LIBRARIES.get(
        format, "keras-vision-transformer"
    )
    assert ("model.keras" in files) == (format == "keras")
    assert ("In transformers" in body) == (format == "hugging_face")
    assert ("In timm" in body) == (format == "timm")
    found = keras_vit.load_checkpoint(tmp_path / "out")
    assert found.config == model.config


SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("hugging_face", {}),
        ("hugging_face", {"num_classes": 0}),
        ("hugging_face", {"channels": 1}),
        ("timm", {"activation": "gelu", "layer_norm_epsilon": 1e-6}),
        ("keras", {}),
    ],
)
def test_snippets_of_the_card_run(
    tmp_path, monkeypatch, format, options, request
):
    pytest.importorskip("torch")
    if format == "timm":
        import_timm()
    else:
        pytest.importorskip(LIBRARIES.get(format, "keras"))
    image_module = pytest.importorskip("PIL.Image")
    folder = tmp_path / "me" / "shapes"
    folder.parent.mkdir()
    model = build(include_preprocessing=True, **options)
    files = pushed(model, folder, format=format)
    (tmp_path / "photos").mkdir()
    image = image_module.new("RGB", (20, 20), (200, 30, 30))
    image.save(tmp_path / "photos" / "photo.jpg")
    image.save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    # A folder stands for the repository, which transformers takes as well.
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **__: str(folder)
    )
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download", lambda _, file: str(folder / file)
    )
    snippets = SNIPPET.findall(files["README.md"].read_text())
    assert len(snippets) > 1
    for snippet in snippets:
        snippet = snippet.replace("hf-hub:", "local-dir:")
        if "timm.data.create_transform" in snippet:  # It needs torchvision.
            snippet = snippet.rpartition("transform =")[0]
        exec(compile(snippet, "README.md", "exec"), {})


PAIR = PAIRS / "clip_quick_gelu"


def test_both_towers_of_a_pair_are_shared(tmp_path, capsys):
    """As the original's logits, of the folder that is uploaded."""
    folder = tmp_path / "out"
    options = ("--texts", "--dry_run", str(folder))
    assert main(["push", str(PAIR), "me/words", *options]) == 0
    assert sorted(x.name for x in folder.iterdir()) == [
        *("README.md", "config.json", "keras_vit.json", "model.keras")
    ]
    expected = np.load(PAIR / "expected.npz")
    found = keras_vit.load_image_text(folder).logits(
        expected["images"], expected["token_ids"]
    )
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(found),
        expected["logits_per_image"],
        atol=5e-5,
    )
    config = json.loads((PAIR / "config.json").read_text())
    written = json.loads((folder / "config.json").read_text())
    for half, theirs, ours in (
        ("text_config", "vocab_size", "vocabulary_size"),
        ("text_config", "hidden_size", "hidden_dim"),
        ("vision_config", "num_hidden_layers", "num_layers"),
    ):
        assert written[half][ours] == config[half][theirs]


def test_the_card_of_a_pair_has_both_towers(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    image_module = pytest.importorskip("PIL.Image")
    folder = tmp_path / "me" / "words"
    folder.parent.mkdir()
    files = pushed(keras_vit.load_image_text(PAIR), folder, "me/words")
    fields, body = metadata(files)
    assert fields["pipeline_tag"] == "zero-shot-image-classification"
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = safetensors.load_file(PAIR / "model.safetensors")
    parameters = sum(
        y.size
        for x, y in tensors.items()
        if x.startswith(("text_model", "text_projection"))
    )
    assert f"text tower: {parameters:,}, texts of 16 tokens" in body
    assert "a softmax over the texts" in body
    assert "Text tower:" in body and "| tokens of a text | 16 |" in body
    (tmp_path / "photos").mkdir()
    image = image_module.new("RGB", (20, 20), (200, 30, 30))
    image.save(tmp_path / "photos" / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **__: str(folder)
    )
    (snippet,) = SNIPPET.findall(files["README.md"].read_text())
    assert "labels=labels" in snippet
    scope: dict = {}
    exec(compile(snippet, "README.md", "exec"), scope)
    vectors = keras.ops.convert_to_numpy(scope["vectors"])
    # The first text of the golden data.
    expected = np.load(PAIR / "expected.npz")["text_embeds"][:1]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (PAIR, {"class_names": ["a"], "texts": True}, "shared as they are"),
        (PAIR, {"format": "timm", "texts": True}, "shared as they are"),
        ("fractals", {"texts": True}, "no known format"),
    ],
)
def test_what_is_no_pair_is_not_shared_as_one(
    tmp_path, model, options, message
):
    with pytest.raises(ValueError, match=message):
        pushed(model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_names_that_occur_twice_are_told_apart():
    names = keras_vit.preprocessing.class_names(1000)
    found = distinct(names)
    assert len(set(found)) == 1000
    # The bird and the machine, as the labels of ImageNet number them.
    assert (found[134], found[517]) == ("crane", "crane (517)")


def test_a_name_cannot_change_the_card(tmp_path):
    names = ("a|b", "<script>x</script>", "# no\n\n---\n[x](http://y)")
    files = pushed(build(), tmp_path / "out", class_names=names)
    _, body = metadata(files)
    assert "<script>" not in body and "\n# no" not in body
    assert r"\[x\]" in body
    assert (
        keras_vit.prediction.load_classifier(tmp_path / "out").class_names
        == names
    )


@pytest.mark.parametrize(
    "field",
    [
        {"activation": "exec"},
        {"problem": "ranking"},
        {"crop": "squash"},
        {"preprocessing": [1]},
    ],
)
def test_a_damaged_record_is_refused(tmp_path, field):
    folder = tmp_path / "out"
    files = pushed(build(), folder)
    record = content(files, "keras_vit.json")
    record["trained_as"] |= field
    files["keras_vit.json"].write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"keras_vit\.json.*damaged"):
        read_shared(folder / "keras_vit.json")
    with pytest.raises(ValueError, match=r"keras_vit\.json.*damaged"):
        keras_vit.prediction.load_classifier(folder)


@pytest.mark.parametrize("names", ["abc", [1, 2, 3], ["\ud800", "b", "c"]])
def test_names_that_are_no_texts_are_refused(tmp_path, names):
    folder = tmp_path / "out"
    files = pushed(build(), folder)
    record = content(files, "keras_vit.json")
    record["trained_as"]["class_names"] = names
    files["keras_vit.json"].write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"keras_vit\.json.*texts"):
        keras_vit.prediction.load_classifier(folder)


def test_an_unfinished_run_is_refused(tmp_path, run, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    manifest = (run / "keras_vit_run.json").read_text()
    (folder / "keras_vit_run.json").write_text(manifest)
    words = ["push", str(folder), "me/x", "--dry_run", str(tmp_path / "out")]
    assert main(words) == 2
    assert "has no model.keras yet" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_path_that_is_none_is_refused(tmp_path, capsys):
    words = ["push", str(tmp_path / "nothing.keras"), "me/x"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "is no file" in error and error.count("\n") == 1


def test_a_format_that_cannot_hold_the_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'hugging_face' cannot hold"):
        pushed(build(pooling="max"), tmp_path / "out", format="hugging_face")
    assert list(tmp_path.iterdir()) == []


def test_without_huggingface_hub_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"keras-vision-transformer\[hub\]"):
        pushed(build(), tmp_path / "out")


def test_low_rank_adaptations_are_merged(tmp_path):
    model = build()
    model.get_layer("block_0").mlp.dense.enable_lora(2)
    for weight in model.trainable_weights:
        if "lora" in weight.name:
            weight.assign(np.ones(weight.shape))
    files = pushed(model, tmp_path / "out")
    assert "model.safetensors" in files  # which has no place for them.
    found = keras_vit.load_checkpoint(tmp_path / "out")
    np.testing.assert_allclose(output(found), output(model), atol=1e-5)


def test_what_was_written_is_compared_without_dropout(tmp_path):
    files = pushed(build(dropout_rate=0.5), tmp_path / "folder")
    assert "model.safetensors" in files


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        ({"shards": "train-{000..099}.tar"}, "shards", "images in shards"),
        ({"folder": "photos"}, "imagefolder", "a folder of images"),
        ({"csv": "a.csv"}, "csv", "a CSV file"),
        ({"name": "given/birds"}, "birds", "birds"),
        ({"name": "given"}, "images in memory", "images in memory"),
        ({"name": None}, "digits", "digits"),
        ({"name": "food101:2.0.0"}, "food101:2.0.0", "food101:2.0.0"),
    ],
)
def test_a_card_names_the_data_of_its_run(options, name, words):
    config = {"data": options}
    assert model_card.dataset_of(config)[0] == name
    assert dict(model_card.training_rows(config, {}))["data"] == words
