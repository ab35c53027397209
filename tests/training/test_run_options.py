"""Runs with early ends, parts of batches, several batches a call."""

import dataclasses
import json

import numpy as np
import pytest
from tiny_runs import DATASET, files, recipe

from keras_vit.runtime.interrupts import TimeIsUp
from keras_vit.training import (
    OptimizerConfig,
    checkpointing,
    metrics_log,
    train,
)
from keras_vit.training.run import files as run_folder


def test_wrong_data_leaves_an_earlier_run_alone(tmp_path):
    run_folder.begin(tmp_path, {}, {})
    run_folder.write_result(tmp_path, {})
    wrong = recipe(tmp_path, training={"batch_size": 41}, overwrite=True)
    with pytest.raises(ValueError, match="batch_size=41"):
        train(wrong, dataset=DATASET)
    assert len(files(tmp_path)) == 4


@pytest.mark.once
def test_patience_ends_the_training_for_good(tmp_path):
    # Learning nothing, no evaluation is better than the first.
    patient = {
        "epochs": 9,
        "early_stopping_patience": 2,
        "best_metric": "val_loss",
    }
    still = dataclasses.replace(
        recipe(tmp_path, training=patient),
        optimizer=OptimizerConfig(
            name="sgd", learning_rate=1e-30, warmup_steps=1
        ),
    )
    for _ in range(2):
        run = train(still, dataset=DATASET)
        assert run.history["step"] == [5, 10, 15]


def test_accumulated_parts_make_the_step_of_the_whole_batch(run, tmp_path):
    parts = train(
        recipe(tmp_path, training={"accumulation_steps": 2}), dataset=DATASET
    )
    assert list(parts.history["step"]) == [5, 10]
    np.testing.assert_allclose(
        parts.history["loss"], run.history["loss"], rtol=1e-4
    )
    rows = (tmp_path / metrics_log.METRICS).read_text().splitlines()
    assert json.loads(rows[-1])["gradient_norm"] == pytest.approx(
        last_line(run)["gradient_norm"], rel=1e-3
    )


def last_line(run):
    text = (run.folder / metrics_log.METRICS).read_text()
    return json.loads(text.splitlines()[-1])


def test_several_batches_a_call_train_the_same(run, tmp_path, backend):
    calls = recipe(tmp_path, training={"steps_per_execution": 5})
    if backend == "torch":
        with pytest.raises(ValueError, match="steps_per_execution=5"):
            train(calls, dataset=DATASET)
        return
    other = train(calls, dataset=DATASET)
    assert other.history["step"] == [5, 10]
    assert other.history["loss"] == pytest.approx(run.history["loss"])


@pytest.mark.once
def test_without_validation_images_it_trains(tmp_path):
    dataset = dataclasses.replace(DATASET, validation=None)
    run = train(recipe(tmp_path), dataset=dataset)
    assert "val_loss" not in run.history
    assert checkpointing.checkpoint_steps(tmp_path / "checkpoints") == [
        5,
        10,
    ]


def test_patience_needs_validation_images(tmp_path):
    dataset = dataclasses.replace(DATASET, validation=None)
    patient = recipe(tmp_path, training={"early_stopping_patience": 2})
    with pytest.raises(ValueError, match="early_stopping_patience=2"):
        train(patient, dataset=dataset)
    assert not files(tmp_path)


@pytest.mark.once
def test_the_hours_of_a_recipe_end_it_with_a_checkpoint(tmp_path):
    short = recipe(tmp_path, training={"max_hours": 1e-9})
    with pytest.raises(TimeIsUp):
        train(short, dataset=DATASET)
    assert len(checkpointing.checkpoint_steps(tmp_path / "checkpoints")) == 1
