"""The evaluation recipe: run folders, files and folders of images."""

import dataclasses
import hashlib
import json
import shutil

import keras
import numpy as np
import pytest
import yaml
from html_page import Page
from PIL import Image as PillowImage
from recipe_scripts import TINY, script
from text_cases import FOLDER

import keras_vit
from keras_vit.data.config import DataConfig, chosen_reader
from keras_vit.data.manifest import Image, write_manifest
from keras_vit.evaluation.config import Evaluation, ModelSource
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.trained_as import TrainedAs
from keras_vit.training.run import files as run_folder

NAMES = ("blue", "green", "red")
SQUASH = ("--preprocessing.evaluation", "squash")


@pytest.fixture(scope="module")
def model():
    """A model whose answers differ from image to image."""
    model = VisionTransformer(
        ViTConfig(
            image_size=(8, 8),
            patch_size=(4, 4),
            hidden_dim=4,
            num_layers=1,
            mlp_dim=4,
            num_heads=1,
            pooling="mean",
            class_token=False,
            num_classes=3,
            include_preprocessing=True,
        )
    )
    generator = np.random.default_rng(3)
    model.set_weights(
        [generator.normal(size=w.shape) for w in model.get_weights()]
    )
    return model


@pytest.fixture
def run(model, tmp_path):
    """A folder like that of a finished run, on the images beside it."""
    folder = tmp_path / "run"
    folder.mkdir()
    model.trained_as = TrainedAs(
        preprocessing={"evaluation": "squash"}, problem="multilabel"
    )
    run_folder.save_model(model, NAMES, folder / "model.keras")
    config = {
        "data": {"folder": str(tmp_path / "images"), "reader": "pillow"},
        "preprocessing": {"evaluation": "squash"},
        "training": {"loss": "sigmoid"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture
def images(tmp_path):
    """Test images of three classes, as many as fill no batch."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 2), ("val", 1), ("test", 7)):
        for name in NAMES:
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = generator.integers(0, 256, (8, 8, 3), "uint8")
                PillowImage.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "images"


def evaluate(tmp_path, *arguments):
    folder = tmp_path / "out"
    code = script("evaluate").main(
        [*map(str, arguments), "--run_dir", str(folder)]
    )
    assert code == 0
    return folder, json.loads((folder / "result.json").read_text())


def refusal(capsys, *arguments):
    """What the recipe says when it ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        script("evaluate").main([*map(str, arguments)])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.once
def test_a_seed_is_of_trials(capsys):
    message = refusal(capsys, "--model.weights", "runs/x", "--seed", "3")
    assert "seed does nothing with weights. Received: seed=3" in message


def share_right(model, folder, order=NAMES):
    """A plain count over the image files, one at a time."""
    right = []
    for path in sorted(folder.glob("test/*/*.png")):
        image = np.asarray(PillowImage.open(path))[np.newaxis]
        scores = keras.ops.convert_to_numpy(model(image, training=False))
        right.append(order[scores.argmax()] == path.parent.name)
    return np.mean(right)


def test_run_folder_is_evaluated_on_its_own_data(model, run, images, tmp_path):
    arguments = ("--model.weights", run, "--batch_size", 4)
    folder, result = evaluate(tmp_path, *arguments)
    assert result["num_examples"] == 21
    assert result["top1"] == share_right(model, images)
    assert 0 < result["top1"] < 1
    assert result["split"] == "test"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["preprocessing"]["evaluation"] == "squash"
    assert config["model"]["activation"] == "sigmoid"
    assert config["data"]["reader"] == "pillow"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "attention.npz",
        "class_names.json",
        "confusion.png",
        "config.yaml",
        "environment.json",
        "keras_vit_run.json",
        "per_class.csv",
        "predictions.csv",
        "predictions.npz",
        "report.html",
        "result.json",
    }


@pytest.mark.once
@pytest.mark.parametrize(
    ("images", "reader"),
    [
        (DataConfig(folder="x"), "pillow"),
        (DataConfig(csv="x.csv"), "pillow"),
        (DataConfig(shards="x.tar"), "pillow"),
        # Data by name may be read by TensorFlow alone.
        (DataConfig(name="cifar10"), chosen_reader("auto")),
    ],
    ids=["folder", "csv", "shards", "name"],
)
def test_files_are_read_as_those_of_the_run(images, reader, run):
    module = script("evaluate")
    recipe = Evaluation(model=ModelSource(weights=str(run)), data=images)
    found = module.complete(recipe).data
    assert found == dataclasses.replace(images, reader=reader)


def test_classes_by_words(images, tmp_path, capsys):
    """A plain count with the scores of the pair, and a file of labels."""
    for module in ("tokenizers", "ftfy"):
        pytest.importorskip(module)
    clip = FOLDER / "clip_quick_gelu"
    pair = keras_vit.load_image_text(clip, include_preprocessing=True)
    texts = pair.encode_texts([f"a {x} thing" for x in NAMES])
    files = sorted(images.glob("test/*/*.png"))
    for seed, path in enumerate(files):
        # As the tower takes them: nothing is resized.
        generator = np.random.default_rng(seed)
        pixels = generator.integers(0, 256, (32, 32, 3), "uint8")
        PillowImage.fromarray(pixels).save(path)
    pixels = np.stack([np.asarray(PillowImage.open(x)) for x in files])
    found = pair.encode_images(pixels), texts
    encoded, texts = map(keras.ops.convert_to_numpy, found)
    cosines = encoded @ texts.T
    best = np.array(NAMES)[np.argmax(cosines, axis=-1)]
    right = best == [x.parent.name for x in files]
    assert 0 < np.mean(right) < 1
    by_names = (clip, images, *SQUASH, "--template", "a {} thing")
    _, result = evaluate(tmp_path, *by_names)
    assert result["top1"] == np.mean(right)
    labels = tmp_path / "labels.txt"
    labels.write_text("red\ngreen\nyellow\nblue\n")
    _, result = evaluate(tmp_path, *by_names, "--labels", labels, "--overwrite")
    assert result["num_classes"] == 4
    line = refusal(capsys, *by_names, "--model.precision", "mixed_bfloat16")
    assert "float32" in line


def test_a_file_is_evaluated_as_its_run(model, run, images, tmp_path):
    arguments = ("--data.folder", images, "--batch_size", 4)
    _, result = evaluate(
        tmp_path, "--model.weights", run / "model.keras", *arguments
    )
    assert result["top1"] == share_right(model, images)


def test_a_folder_without_parts_is_scored_as_a_whole(
    model, run, images, tmp_path, capsys
):
    folder = tmp_path / "flat"
    shutil.copytree(images / "test", folder)
    _, result = evaluate(tmp_path, run, folder, "--batch_size", 4)
    assert (result["num_examples"], result["split"]) == (21, "test")
    assert result["top1"] == share_right(model, images)
    assert "of 21 test images of flat" in capsys.readouterr().out
    shutil.rmtree(images / "train")
    shutil.rmtree(images / "val")
    _, result = evaluate(tmp_path, run, images, "--overwrite")
    assert result["num_examples"] == 21
    cut = ("--split", "test", "--data.test_fraction", 0.4, "--overwrite")
    _, result = evaluate(tmp_path, run, folder, *cut)
    assert result["num_examples"] < 15


def test_a_csv_file_is_scored_as_a_whole(model, run, images, tmp_path):
    rows = [
        f"{x.relative_to(images)},{x.parent.name}"
        for x in sorted(images.glob("test/*/*.png"))
    ]
    path = images / "labels.csv"
    path.write_text("\n".join(["image,label", *rows]) + "\n")
    _, result = evaluate(tmp_path, run, path)
    assert result["num_examples"] == 21
    assert result["top1"] == share_right(model, images)


def test_images_that_it_was_trained_on_are_counted(
    run, images, tmp_path, capsys
):
    for name in ("keras_vit_run.json", "environment.json"):
        (run / name).write_text("{}")
    content = (images / "test" / "red" / "3.png").read_bytes()
    seen = Image("x", 1, hashlib.sha256(content).hexdigest(), "red", "train")
    write_manifest(run / "images.csv.gz", [seen, seen._replace(part="test")])
    _, result = evaluate(tmp_path, run, images / "test")
    assert result["num_trained_on"] == 1
    output = capsys.readouterr().out
    assert "1 of them are images that it was trained on" in output


def test_more_than_a_model_and_its_data_is_refused(capsys, run):
    message = refusal(capsys, run, "a", "b")
    assert "one folder or CSV file" in message


def test_report_shows_the_evaluation(run, images, tmp_path):
    folder, result = evaluate(tmp_path, "--model.weights", run)
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    wrong = round(21 * (1 - result["top1"]))
    assert f"{wrong} of 21 images are misclassified" in page.part("mistakes")
    assert len(page.all("figure", part="mistakes")) == wrong
    assert len(page.all("figure", part="unsure")) == 21 - wrong
    assert len([x for x in page.elements if "data-example" in x]) == 8
    assert f"{100 * result['top1']:.2f}" in page.part("summary")


def test_other_split_by_option(run, images, tmp_path):
    _, result = evaluate(
        tmp_path, "--model.weights", run, "--split", "validation"
    )
    assert result["num_examples"] == 3


def test_files_are_named_and_those_left_out_as_well(
    run, images, tmp_path, capsys
):
    broken = images / "test" / "green" / "3.png"
    broken.write_bytes(broken.read_bytes()[:40])
    note = images / "notes.txt"
    note.write_text("What the classes are.")
    arguments = ("--model.weights", run, "--data.on_broken_image", "skip")
    folder, result = evaluate(
        tmp_path, *arguments, "--data.folder", images, "--split", "test"
    )
    assert result["num_examples"] == 20
    assert result["skipped"] == {
        "unreadable": {"count": 1, "files": [str(broken)]},
        "no_image_suffix": {"count": 1, "files": [str(note)]},
    }
    with np.load(folder / "predictions.npz") as arrays:
        names = arrays["names"].tolist()
    assert names == sorted(
        str(path) for path in images.glob("test/*/*.png") if path != broken
    )
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert str(broken) in page.part("summary")
    assert str(note) in page.part("summary")
    answers = page.part("mistakes") + page.part("unsure")
    assert "blue/0.png" in answers and "green/3.png" not in answers
    # All answers of a model of three classes are among the top 5.
    output = capsys.readouterr().out
    assert "top-1" in output and "top-5" not in output
    assert "1 not readable as images, 1 without the suffix" in output


def test_a_training_without_evaluation_says_what_is_left_out(
    images, tmp_path, capsys
):
    (images / "notes.txt").write_text("What the classes are.")
    shutil.rmtree(images / "val")
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    options = {
        "--config": config,
        "--data.folder": images,
        "--data.test_fraction": 0,
        "--data.validation_fraction": 0,
        "--model.image_size": 16,
        "--model.channels": 3,
        "--training.batch_size": 6,
        "--run_dir": tmp_path / "pretrained",
    }
    words = [str(word) for option in options.items() for word in option]
    assert script("pretrain").main(words) == 0
    assert "left out: 1 without the suffix" in capsys.readouterr().out
    result = json.loads((tmp_path / "pretrained" / "result.json").read_text())
    assert "top1" not in result
    assert result["skipped"]["no_image_suffix"]["count"] == 1


def test_classes_in_another_order_are_matched(model, run, images, tmp_path):
    order = ("red", "blue", "green")
    run_folder.save_model(model, order, run / "model.keras")
    _, result = evaluate(tmp_path, "--model.weights", run)
    assert result["top1"] == share_right(model, images, order)


def test_file_without_names_has_those_of_the_data(model, images, tmp_path):
    model.save(tmp_path / "model.keras")
    arguments = ("--model.weights", tmp_path / "model.keras")
    folder, result = evaluate(
        tmp_path, *arguments, "--data.folder", images, *SQUASH
    )
    assert result["top1"] == share_right(model, images)
    names = json.loads((folder / "class_names.json").read_text())
    assert tuple(names) == NAMES


def test_other_image_size_by_one_argument(run, images, tmp_path):
    arguments = ("--model.weights", run, "--model.image_size", 16)
    _, result = evaluate(tmp_path, *arguments)
    assert result["num_examples"] == 21
    assert result["image_size"] == [16, 16]


def test_reassessed_labels_by_file_name(model, run, tmp_path, images):
    for number, path in enumerate(sorted(images.glob("test/*/*.png")), 1):
        path.rename(path.with_name(f"ILSVRC2012_val_{number:08}.png"))
    labels = tmp_path / "real.json"
    # Without labels but for the last, which has all that there are.
    labels.write_text(json.dumps([[]] * 20 + [[0, 1, 2]]))
    arguments = ("--model.weights", run, "--real_labels", labels)
    _, result = evaluate(tmp_path, *arguments)
    assert result["real_top1"] == 1
    assert result["real_num_examples"] == 1
    assert result["num_examples"] == 21


def test_smoke_needs_nothing(tmp_path, monkeypatch):
    opened: list = []
    monkeypatch.setattr("keras_vit.runs.script.open_page", opened.append)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    folder, result = evaluate(tmp_path, "--smoke", "--open")
    assert opened == [folder / "report.html"]
    assert result["num_examples"] == 40
    assert (folder / "report.html").exists()


def test_of_what_is_missing(capsys, tmp_path, run, images):
    assert "--model.weights" in refusal(capsys)
    line = refusal(capsys, "--model.weights", tmp_path / "nowhere")
    assert "nowhere" in line
    line = refusal(capsys, "--model.weights", run, "--split", "all")
    assert "'validation'" in line
    line = refusal(capsys, "--model.weight", run)
    assert "Did you mean --model.weights?" in line


def test_data_of_other_classes_is_refused(capsys, tmp_path, run, images):
    for folder in images.glob("*/red"):
        folder.rename(folder.with_name("yellow"))
    line = refusal(capsys, "--model.weights", run)
    assert "'yellow'" in line
    assert "3 classes" in line


def test_finished_run_is_not_replaced(capsys, run, images, tmp_path):
    arguments = ("--model.weights", run, "--run_dir", tmp_path / "out")
    evaluate(tmp_path, "--model.weights", run)
    assert "holds a finished run" in refusal(capsys, *arguments)
