import dataclasses
import json

import keras
import numpy as np
import pytest
import tiny_training as tiny
import yaml
from tiny_runs import (
    DATASET,
    Interrupt,
    files,
    recipe,
    values,
)
from whole_runs import Unlabelled

import keras_vit
from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.training import train
from keras_vit.training.run import files as run_folder
from keras_vit.training.run import resume
from keras_vit.training.tasks import MaskedPatchConfig

RUN = "keras_vit_run.json"


def interrupted(folder, **options):
    with pytest.raises(KeyboardInterrupt):
        train(
            recipe(folder, **options), dataset=DATASET, callbacks=[Interrupt()]
        )


def test_the_run_folder_holds_the_run(run):
    events = {name for name in files(run.folder) if "tensorboard/" in name}
    assert files(run.folder) - events == {
        RUN,
        "environment.json",
        "config.yaml",
        "class_names.json",
        "images.csv.gz",
        "data.txt",
        "metrics.jsonl",
        "history.csv",
        "model.keras",
        "checkpoints/step-000000005.npz",
        "checkpoints/step-000000010.npz",
        f"checkpoints/best-{int(run.kept['step']):09d}.npz",
    }


def test_the_config_is_the_recipe(run):
    written = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert resume.differences(written, recipe(run.folder)) == []
    assert written["training"]["batch_size"] == 8


def test_a_run_that_did_not_know_an_option_had_its_default(run):
    written = yaml.safe_load((run.folder / "config.yaml").read_text())
    del written["training"]["image_sizes"]
    assert resume.differences(written, recipe(run.folder)) == []
    now = Unlabelled(**vars(recipe(run.folder)))
    assert resume.differences(written, now) == []
    now = dataclasses.replace(now, masked_patch=MaskedPatchConfig("pixels"))
    assert resume.differences(written, now) == [
        "masked_patch.target: was 'mean_colour', now 'pixels'"
    ]


def test_a_run_of_a_version_that_knew_the_options_of_other_recipes(run):
    """Groups of other recipes are no difference, unknown fields are."""
    written = yaml.safe_load((run.folder / "config.yaml").read_text())
    written["sweep"] = {"learning_rates": [], "train_split": None}
    written["noisy_student"] = {"networks": [{}, {"hidden_dim": 96}]}
    written["masked_patch"] = {"target": "mean_colour", "mask_rate": 0.8}
    now = recipe(run.folder)
    assert resume.differences(written, now) == []
    assert resume.differences(written, Unlabelled(**vars(now))) == []
    written["training"]["unknown"] = 1
    assert resume.differences(written, now) == [
        "training.unknown: was 1, now not there"
    ]


def test_the_model_in_the_folder_is_the_trained_one(run):
    model, names = load_model(run.folder / "model.keras")
    assert names == tiny.CLASS_NAMES
    for one, other in zip(values(model), values(run.model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_keras_loads_a_model_that_knows_its_classes(run):
    path = run.folder / "model.keras"
    image = np.random.default_rng(0).integers(0, 256, (30, 20, 3), "uint8")
    if DATASET.train.contents[0].shape[-1] == 1:
        image = image[..., :1]
    expected = keras_vit.predict(run.folder, image)[0].classes
    assert {name for name, _ in expected} <= set(tiny.CLASS_NAMES)
    for model in (keras.saving.load_model(path), run.model):
        assert keras_vit.predict(model, image)[0].classes == expected
    renamed = tuple(f"new {x}" for x in tiny.CLASS_NAMES)
    found = keras_vit.predict(run.model, image, class_names=renamed)[0].classes
    assert [x for x, _ in found] == [f"new {x}" for x, _ in expected]


def test_the_history_has_a_value_a_checkpoint(run):
    assert [int(step) for step in run.history["step"]] == [5, 10]
    assert len(run.history["val_accuracy"]) == 2
    assert run.images_per_second > 0
    # The cosine ends at zero.
    assert run.history["learning_rate"][-1] == pytest.approx(0, abs=1e-9)


def test_a_finished_run_is_kept(run, tmp_path):
    run_folder.begin(tmp_path, {}, {})
    run_folder.write_result(tmp_path, {})
    with pytest.raises(ValueError, match="holds a finished run"):
        train(recipe(tmp_path), dataset=DATASET)
    assert len(files(tmp_path)) == 4


@pytest.mark.once
def test_another_config_is_refused_with_the_difference(tmp_path):
    interrupted(tmp_path)
    before = files(tmp_path)
    other = recipe(tmp_path, seed=1, training={"batch_size": 4})
    with pytest.raises(ValueError) as refusal:
        train(other, dataset=DATASET)
    assert "training.batch_size: was 8, now 4" in str(refusal.value)
    assert "seed: was 0, now 1" in str(refusal.value)
    assert "run_dir" not in str(refusal.value).split(":")[1]
    assert files(tmp_path) == before


def test_the_same_command_continues(run, tmp_path, capsys):
    interrupted(tmp_path)
    assert "Continuing" not in capsys.readouterr().out
    assert (tmp_path / "model.keras").is_file()  # the best so far
    (tmp_path / ".partial-history-1.csv").touch()  # of a killed process
    # What is shown and kept may change; the run is the same.
    other = {"log_every_steps": 1, "keep_checkpoints": 1}
    continued = train(recipe(tmp_path, training=other), dataset=DATASET)
    for one, other in zip(
        values(continued.model), values(run.model), strict=True
    ):
        assert one.tobytes() == other.tobytes()
    assert continued.history["loss"] == run.history["loss"]
    environment = json.loads((tmp_path / "environment.json").read_text())
    (part,) = environment["continued"]
    assert part["step"] == 5
    line = f"Continuing the run in {tmp_path} from step 5\n"
    assert line in capsys.readouterr().out
    assert part["backend"] == keras.backend.backend()
    assert not list(tmp_path.glob(".partial*"))


BEGUN = {RUN, "environment.json", "config.yaml"}


def opened(folder, **options):
    """The checkpoint that a run would continue from."""
    with resume.open_run(recipe(folder, **options)) as (_, checkpoint):
        return checkpoint


def test_killed_before_anything_was_written_it_begins(tmp_path):
    (tmp_path / ".partial-keras_vit_run.json").write_text("{")
    assert opened(tmp_path) is None
    assert files(tmp_path) == BEGUN


@pytest.mark.parametrize("missing", [["config.yaml"], BEGUN - {RUN}])
def test_killed_before_the_config_was_written_it_begins(tmp_path, missing):
    run_folder.begin(tmp_path, {}, {})
    for name in missing:
        (tmp_path / name).unlink()
    assert opened(tmp_path) is None
    assert files(tmp_path) == BEGUN


@pytest.mark.once
def test_a_run_whose_config_is_gone_is_kept(tmp_path):
    interrupted(tmp_path)
    (tmp_path / "config.yaml").unlink()
    before = files(tmp_path)
    with pytest.raises(ValueError, match="config.yaml' is gone.*--overwrite"):
        train(recipe(tmp_path), dataset=DATASET)
    assert files(tmp_path) == before
    assert opened(tmp_path, overwrite=True) is None
    assert files(tmp_path) == BEGUN


@pytest.mark.once
@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000])
def test_a_damaged_environment_does_not_end_a_run(tmp_path, text):
    interrupted(tmp_path)
    (tmp_path / "environment.json").write_text(text)
    assert opened(tmp_path) is not None
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert [x["step"] for x in environment["continued"]] == [5]
