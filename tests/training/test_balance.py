"""Weights of classes and balanced sampling in a run."""

import dataclasses
import json

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight
from tiny_runs import DATASET, Interrupt, recipe, values

from keras_vit.data import DataConfig, TrainingStream
from keras_vit.training import train
from keras_vit.training.build import make_stream

# 14 circles, 13 squares and one line.
UNBALANCED = dataclasses.replace(
    DATASET,
    train=DATASET.train.subset([x for x in range(40) if x % 3 < 2] + [2]),
)
WEIGHTED = {"training": {"class_weight": "balanced"}}
SAMPLED = {"data": DataConfig(sampling="balanced")}


def run(folder, options, **more):
    return train(recipe(folder, **options), dataset=UNBALANCED, **more)


def test_the_loss_has_the_weights_of_scikit_learn(tmp_path):
    options = {"training": {**WEIGHTED["training"], "log_every_steps": 1}}
    chosen = recipe(tmp_path, **options)
    trained = train(chosen, dataset=UNBALANCED)
    stream = make_stream(chosen, UNBALANCED, trained.model)
    assert isinstance(stream, TrainingStream)
    order = stream.examples.order(seed=0, epoch=0, batch_size=8)[:8]
    weights = compute_sample_weight("balanced", UNBALANCED.train.labels)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    # The new classification layer is zero: all classes are equally probable.
    expected = np.log(3) * weights[order].mean()
    assert json.loads(lines[0])["loss"] == pytest.approx(expected, rel=1e-5)
    assert weights[order].mean() != 1


@pytest.mark.once
@pytest.mark.parametrize("options", [WEIGHTED, SAMPLED])
def test_a_run_that_was_stopped_ends_with_the_same_weights(options, tmp_path):
    whole = run(tmp_path / "whole", options)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", options, callbacks=[Interrupt()])
    resumed = run(tmp_path / "stopped", options)
    pairs = zip(values(whole.model), values(resumed.model), strict=True)
    assert all((x == y).all() for x, y in pairs)


@pytest.mark.once
def test_parts_of_a_batch_have_their_weights(tmp_path):
    whole = run(tmp_path / "whole", WEIGHTED)
    parts = {"training": {**WEIGHTED["training"], "accumulation_steps": 2}}
    found = run(tmp_path / "parts", parts)
    np.testing.assert_allclose(
        found.history["loss"], whole.history["loss"], rtol=1e-4
    )


@pytest.mark.once
def test_both_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Leave one of them out"):
        recipe(tmp_path, **WEIGHTED, **SAMPLED)


@pytest.mark.once
@pytest.mark.parametrize("options", [WEIGHTED, SAMPLED])
def test_several_classes_are_refused(options, tmp_path):
    labels = np.ones((len(UNBALANCED.train), 3), "uint8")
    labels[0] = 0
    train_part = dataclasses.replace(UNBALANCED.train, labels=labels)
    dataset = dataclasses.replace(UNBALANCED, train=train_part)
    chosen = recipe(tmp_path, **options)
    training = dataclasses.replace(chosen.training, loss="sigmoid")
    chosen = dataclasses.replace(chosen, training=training)
    with pytest.raises(ValueError, match="several classes.*balanced"):
        train(chosen, dataset=dataset)
    assert not (tmp_path / "config.yaml").exists()
