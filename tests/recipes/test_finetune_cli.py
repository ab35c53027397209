import csv
import json
import re
import shutil

import keras
import numpy as np
import pytest
import yaml
from recipe_scripts import RECIPES, script

import keras_vit
from keras_vit import data
from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.io.run_folder import MANIFEST
from keras_vit.runs.script import parse
from keras_vit.training import Recipe
from keras_vit.training.run import files as run_folder


def split(part):
    """Images and labels of the tiny run, as its model takes them."""
    config = data.DataConfig(test_fraction=0.4, validation_fraction=0.4)
    dataset = data.open_dataset(config)
    batches = data.evaluation_batches(
        getattr(dataset, part),
        image_size=16,
        channels=1,
        batch_size=100,
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
    )
    images, labels, masks = (
        np.concatenate(arrays)
        for arrays in zip(*batches.as_numpy_iterator(), strict=True)
    )
    return images[masks], labels[masks]


@pytest.fixture(scope="module")
def test_split():
    return split("test")


@pytest.fixture
def result(finished_run):
    return json.loads((finished_run.folder / "result.json").read_text())


def refusal(capsys, *arguments):
    """What the recipe says when it ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        script("finetune").main([*map(str, arguments)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_folder_is_complete(finished_run):
    assert finished_run.exit_code == 0
    found = {path.name for path in finished_run.folder.iterdir()}
    found -= {"tensorboard"}  # where its writer is installed
    of_others = {"few_shot.csv", "few_shot.png"}
    of_others |= {"mae.png", "masked_patch.png", "over_time.npz"}
    of_others |= {"pseudo_labels.npz", "trackers.json"}
    files = {x for x in run_folder.FILES if not {"/", "*"} & set(x)}
    files |= {MANIFEST, "checkpoints", "examples"}
    assert found == files - of_others
    examples = list((finished_run.folder / "examples").iterdir())
    assert len(examples) == 20


def test_test_accuracy_is_that_of_the_saved_model(
    finished_run, result, test_split
):
    images, labels = test_split
    model = keras.saving.load_model(finished_run.folder / "model.keras")
    logits = model.predict(images, batch_size=100, verbose=0)
    right = np.mean(logits.argmax(axis=-1) == labels)
    assert result["split"] == "test"
    assert result["top1"] == pytest.approx(right)
    assert result["num_examples"] == len(labels) == 719


def test_baseline_is_the_nearest_training_image(result, test_split):
    (known, known_labels), (images, labels) = split("train"), test_split
    known = known.reshape(len(known), -1).astype(float)
    right = [
        known_labels[((known - image.ravel()) ** 2).sum(axis=1).argmin()]
        for image in images
    ] == labels
    assert result["baseline_accuracy"] == pytest.approx(np.mean(right))


def test_history_has_a_line_an_epoch(finished_run, result):
    with (finished_run.folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert float(rows[-1]["val_accuracy"]) == pytest.approx(
        result["validation_accuracy"]
    )
    assert result["seconds"] > 0
    assert result["images_per_second"] > 0


def test_report_shows_the_run(finished_run, result):
    page = (finished_run.folder / "report.html").read_text()
    shown = f"{100 * result['top1']:.2f}\N{NARROW NO-BREAK SPACE}%"
    assert shown in page
    assert "is not in this folder" not in page


def test_environment_and_versions(finished_run, result):
    environment = json.loads(
        (finished_run.folder / "environment.json").read_text()
    )
    assert environment["backend"] == keras.backend.backend()
    assert environment["devices"]
    assert environment["versions"] == result["versions"]
    assert result["versions"]["keras"] == keras.__version__
    assert keras.backend.backend() in result["versions"]


def test_class_names_are_beside_the_model_and_in_it(finished_run):
    names = json.loads((finished_run.folder / "class_names.json").read_text())
    assert names == list("0123456789")
    assert load_model(finished_run.folder / "model.keras")[1] == tuple(names)


def test_summary_gives_the_result(finished_run, result):
    assert f"{result['top1']:.2%} of 719 test images" in finished_run.output
    assert str(finished_run.folder) in finished_run.output


def test_written_config_is_the_recipe_again(finished_run):
    written = finished_run.folder / "config.yaml"
    recipe = parse(Recipe, ["--config", str(written)], "")
    assert recipe.training.epochs == 2
    assert recipe.model.patch_size == 8
    assert recipe.run_dir == str(finished_run.folder)
    again = yaml.safe_load(written.read_text())
    assert again["model"]["hidden_dim"] == recipe.model.hidden_dim


def test_finished_run_is_not_replaced(finished_run, result, capsys):
    line = refusal(
        capsys,
        "--config",
        finished_run.config,
        "--run_dir",
        finished_run.folder,
    )
    assert "holds a finished run" in line
    assert "--overwrite true" in line
    unchanged = json.loads((finished_run.folder / "result.json").read_text())
    assert unchanged == result


def test_killed_before_the_result_the_report_is_made(
    finished_run, result, tmp_path, capsys
):
    """As a run is that was killed while it wrote the report."""
    folder = tmp_path / "run"
    shutil.copytree(finished_run.folder, folder)
    for name in ("result.json", "report.html"):
        (folder / name).unlink()
    arguments = ["--config", finished_run.config, "--run_dir", folder]
    assert script("finetune").main([*map(str, arguments)]) == 0
    again = json.loads((folder / "result.json").read_text())
    assert again["top1"] == result["top1"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"{100 * result['top1']:.2f}" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--training.epoch", "3"], "--training.epochs"),
        (["--traning.epochs", "3"], "--training.epochs"),
        (["--batch_size", "3"], "--training.batch_size"),
        (["--training.epochs", "many"], "many"),
        (["--model.patch_size", "5"], "cannot be cut"),
        (["--data.name", "cats"], "'cats'"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--training.batch_size", "5000"], "batch_size=5000"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message, tmp_path, capsys):
    line = refusal(capsys, *arguments, "--run_dir", tmp_path / "run")
    assert message in line


def test_a_wrong_recipe_leaves_an_earlier_run_alone(
    finished_run, result, capsys
):
    folder = finished_run.folder
    arguments = ["--run_dir", folder, "--overwrite", "true"]
    refusal(capsys, "--training.batch_size", "5000", *arguments)
    assert json.loads((folder / "result.json").read_text()) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: {epoch: 3}", "Did you mean --training.epochs?"),
        ("trainig: {epochs: 3}", "Did you mean --training.epochs?"),
        ("hidden_dim: 3", "Did you mean --model.hidden_dim?"),
        ("training: [", "config"),
        ("data: " + 60 * "[" + 60 * "]", "at most 50 levels"),
    ],
)
def test_wrong_files_are_explained(text, message, tmp_path, capsys):
    (tmp_path / "wrong.yaml").write_text(text)
    assert message in refusal(capsys, "--config", tmp_path / "wrong.yaml")


def test_options_after_the_file_win(tmp_path):
    (tmp_path / "a.yaml").write_text("seed: 3\nmodel: {image_size: [16, 8]}")
    arguments = ["--config", str(tmp_path / "a.yaml"), "--seed", "4"]
    recipe = parse(Recipe, arguments, "")
    assert recipe.seed == 4
    assert recipe.model.image_size == (16, 8)


def test_help_says_what_the_fields_mean(capsys):
    with pytest.raises(SystemExit) as ended:
        script("finetune").main(["--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--training.epochs" in text
    assert "Highest learning rate" in text
    assert "Largest random shift along each axis" in text


GROUPS = (
    *("data", "model", "model.variant", "preprocessing", "augmentation"),
    *("optimizer", "training"),
)


def help_of(name, capsys):
    with pytest.raises(SystemExit) as ended:
        script(name).main(["--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def options_of(text):
    """The option on each line that begins with one."""
    return re.findall(r"^  --([\w.]+)", text, re.MULTILINE)


def test_help_groups_the_options_and_has_none_of_another_recipe(capsys):
    text = help_of("finetune", capsys)
    titles = re.findall(r"^([\w.]+): \w", text, re.MULTILINE)
    assert tuple(title for title in titles if title != "usage") == GROUPS
    owners = {name.rpartition(".")[0] for name in options_of(text)}
    assert owners == {"", *GROUPS}
    rest = text[text.index("--training.best_metric") :]
    fields = ["distribution", "seed", "run_dir", "overwrite", "smoke"]
    assert options_of(rest) == fields


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("sweep", "sweep"),
        ("noisy_student", "noisy_student"),
    ],
)
def test_a_recipe_adds_its_own_options(name, group, capsys):
    own = set(options_of(help_of(name, capsys)))
    shared = set(options_of(help_of("finetune", capsys)))
    assert shared < own
    assert {field.partition(".")[0] for field in own - shared} == {group}
    # What a field means is its docstring in the recipe's own module.
    assert "Learning rates to choose from" in help_of("sweep", capsys)


def test_options_of_another_recipe_are_refused_and_skipped_in_files(
    tmp_path, capsys
):
    line = refusal(capsys, "--sweep.learning_rates", "[0.1]")
    assert "--sweep.learning_rates" in line
    path = tmp_path / "a.yaml"
    path.write_text("seed: 3\nsweep: {learning_rates: [1e-2]}")
    assert parse(Recipe, ["--config", str(path)], "").seed == 3
    path.write_text("sweep: {learning_rates: [0.1]}")
    assert parse(Recipe, ["--config", str(path)], "") == Recipe()
    path.write_text("sweep: {learning_rates: [0.1]}\nseeds: 3")
    assert "Did you mean --seed?" in refusal(capsys, "--config", path)


def test_interrupted_run_says_where_its_files_are(
    tmp_path, capsys, monkeypatch
):
    finetune = script("finetune")

    def interrupted(recipe):
        raise KeyboardInterrupt

    monkeypatch.setattr(finetune, "run", interrupted)
    code = finetune.main(["--run_dir", str(tmp_path / "run")])
    assert code == 130
    assert str(tmp_path / "run") in capsys.readouterr().err


def test_quickstart_begins_with_the_shipped_weights_at_a_higher_resolution():
    config = RECIPES / "configs" / "quickstart.yaml"
    recipe = parse(Recipe, ["--config", str(config)], "")
    assert recipe.data.name == "digits"
    assert recipe.overwrite  # it may be repeated
    trained_at = keras_vit.load_checkpoint(recipe.model.weights).input_shape
    assert recipe.model.image_size > trained_at[1]
