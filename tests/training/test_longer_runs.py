"""A run trains longer by a higher number of epochs, as if begun with it."""

import dataclasses
import shlex

import pytest
import yaml
from tiny_runs import DATASET, recipe, values

from keras_vit.runs.script import parse
from keras_vit.training import OptimizerConfig, Recipe, train
from keras_vit.training.run import files as run_folder

CONSTANT = OptimizerConfig(schedule="constant", warmup_steps=1)


def of(folder, epochs, optimizer=CONSTANT, **training):
    options = {"epochs": epochs, **training}
    found = recipe(folder, training=options)
    return dataclasses.replace(found, optimizer=optimizer)


def finished(folder, *arguments, **options):
    run = train(of(folder, *arguments, **options), dataset=DATASET)
    run_folder.write_result(folder, {})
    return run


@pytest.mark.parametrize("length", ["epochs", "steps"])
def test_a_longer_run_is_the_same_to_the_bit(tmp_path, length):
    more = {"epochs": (2, 4), "steps": (10, 20)}[length]
    if length == "steps":
        runs = [
            of(tmp_path / "a", 9, steps=more[0]),
            of(tmp_path / "a", 9, steps=more[1]),
            of(tmp_path / "b", 9, steps=more[1]),
        ]
    else:
        runs = [
            of(tmp_path / "a", more[0]),
            of(tmp_path / "a", more[1]),
            of(tmp_path / "b", more[1]),
        ]
    train(runs[0], dataset=DATASET)
    run_folder.write_result(tmp_path / "a", {})
    longer, whole = (train(x, dataset=DATASET) for x in runs[1:])
    assert longer.history["loss"] == whole.history["loss"]
    assert longer.history["step"] == [5, 10, 15, 20]
    for one, other in zip(
        values(longer.model), values(whole.model), strict=True
    ):
        assert one.tobytes() == other.tobytes()
    assert not (tmp_path / "a" / "result.json").exists()
    # Killed before its result, the same command goes on.
    again = train(runs[1], dataset=DATASET)
    assert again.history["loss"] == whole.history["loss"]
    config = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert config["training"][length] == more[1]


def test_a_schedule_of_its_length_is_refused_with_the_command(tmp_path):
    cosine = OptimizerConfig(warmup_steps=1)
    finished(tmp_path, 1, cosine)
    with pytest.raises(ValueError, match="cannot train longer") as refusal:
        train(of(tmp_path, 3, cosine), dataset=DATASET)
    assert "(cosine, warm-up and cool-down)" in str(refusal.value)
    assert (tmp_path / "result.json").exists()
    # The command is one that the recipe takes.
    words = shlex.split(str(refusal.value).partition("weights: ")[2])
    assert words[:2] == ["keras-vit", "finetune"]
    found = parse(Recipe, words[2:], "")
    assert found.training.epochs == 2
    assert found.run_dir == f"{tmp_path}-longer"
    run = train(found, dataset=DATASET)
    assert len(run.history["step"]) == 2


def test_a_cooldown_that_has_begun_is_refused(tmp_path):
    falling = dataclasses.replace(CONSTANT, cooldown_steps=3)
    finished(tmp_path, 2, falling)
    with pytest.raises(ValueError, match="cannot train longer"):
        train(of(tmp_path, 3, falling), dataset=DATASET)


def test_a_run_that_ended_early_is_not_longer(tmp_path):
    still = dataclasses.replace(CONSTANT, learning_rate=1e-30)
    patient = {"early_stopping_patience": 1, "best_metric": "val_loss"}
    finished(tmp_path, 9, still, **patient)
    with pytest.raises(ValueError, match="its early stopping ended it"):
        train(of(tmp_path, 20, still, **patient), dataset=DATASET)


def test_fewer_epochs_or_other_options_are_refused(tmp_path):
    finished(tmp_path, 2)
    for other in (of(tmp_path, 1), of(tmp_path, 3, batch_size=4)):
        with pytest.raises(ValueError, match="holds a finished run"):
            train(other, dataset=DATASET)
