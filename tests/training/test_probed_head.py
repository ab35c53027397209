"""A fine-tuning begins with a linear probe of its frozen features."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tiny_training as tiny
from sklearn.linear_model import LogisticRegression, Ridge
from tiny_runs import DATASET, Interrupt, recipe, values

from keras_vit import data
from keras_vit.evaluation.few_shot import feature_model
from keras_vit.io.run_folder import read_config
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    build,
    defaults,
    train,
)
from keras_vit.training.build import CLASSIFICATION, make_model
from keras_vit.training.distribution import processes
from keras_vit.training.run import files as run_folder

FRACTALS = ModelConfig(weights="fractals", image_size=8)
STILL = OptimizerConfig(learning_rate=1e-12, warmup_steps=1)
RUINOUS = OptimizerConfig(
    learning_rate=3.0, schedule="constant", warmup_steps=0, clip_norm=None
)
# The last class has few images.
ROWS = [*np.flatnonzero(DATASET.train.labels < 2), 2, 5, 8]
IMAGES = DATASET.train.contents[ROWS]
LABELS = DATASET.train.labels[ROWS]
SEVERAL = np.stack([LABELS == 0, LABELS > 0, LABELS == 2], 1).astype("uint8")
NUMBERS = np.stack([LABELS * 3.0, IMAGES.mean((1, 2, 3)), LABELS - 1.0], 1)


def probed(folder, *, optimizer=RUINOUS, model=FRACTALS, **training):
    """A recipe that starts from the weights of the package."""
    found = recipe(folder)
    return dataclasses.replace(
        found,
        model=model,
        optimizer=optimizer,
        training=dataclasses.replace(found.training, **training),
    )


def answers(model):
    found = model(IMAGES.astype("float32"))
    return keras.ops.convert_to_numpy(found).astype("float64")


@functools.cache
def features():
    """Those of the weights as they are, each with mean 0 and deviation 1."""
    model = make_model(probed("unused"), tiny.CLASS_NAMES)
    found = answers(feature_model(model))
    return (found - found.mean(0)) / (found.std(0) + 1e-5)


def logistic(labels, **options):
    fit = LogisticRegression(C=1.0, tol=1e-9, max_iter=9999, **options)
    return fit.fit(features(), labels).decision_function(features())


def ridge(numbers):
    mean, deviation = numbers.mean(0), numbers.std(0)
    fit = Ridge(alpha=30.0).fit(features(), (numbers - mean) / deviation)
    return fit.predict(features()) * deviation + mean


ONCE = pytest.mark.once
BALANCED = {"class_weight": "balanced"}


@pytest.mark.parametrize(
    ("labels", "training", "expected"),
    [
        (LABELS, {}, logistic),
        pytest.param(
            LABELS,
            BALANCED,
            functools.partial(logistic, **BALANCED),
            marks=ONCE,
        ),
        pytest.param(
            SEVERAL,
            {},
            lambda x: np.stack([logistic(y) for y in x.T], axis=1),
            marks=ONCE,
        ),
        pytest.param(NUMBERS, {}, ridge, marks=ONCE),
    ],
    ids=["classes", "balanced", "several", "numbers"],
)
def test_the_first_head_is_that_of_scikit_learn(
    tmp_path, labels, training, expected
):
    task = "regression" if labels is NUMBERS else None
    examples = data.Examples(IMAGES, labels)
    dataset = data.Dataset(examples, None, None, tiny.CLASS_NAMES, task=task)
    chosen = probed(tmp_path, optimizer=STILL, **training)
    found = answers(train(chosen, dataset=dataset).model)
    wanted = expected(labels)
    if labels is LABELS:  # The same for all classes changes nothing.
        found, wanted = (x - x.mean(1, keepdims=True) for x in (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-3)
    assert read_config(tmp_path)["model"]["head"] == "probe"


def head_of(model):
    return [
        keras.ops.convert_to_numpy(x)
        for x in model.get_layer("predictions").weights
    ]


def same(one, other):
    return all(map(np.array_equal, one, other))


@ONCE
@pytest.mark.parametrize("training", [{"steps": 1}, {"ema_decay": 0.5}])
def test_no_training_is_worse_than_the_probe(tmp_path, capsys, training):
    run = train(probed(tmp_path, **training), dataset=DATASET)
    begun = train(
        probed(tmp_path / "still", optimizer=STILL, keep="last"),
        dataset=DATASET,
    )
    best, last = (run.evaluations[x] for x in ("best", "last"))
    assert best["step"] == 0 == run.kept["step"]
    assert best["val_accuracy"] > last["val_accuracy"]
    assert run.images_per_second > 0
    np.testing.assert_allclose(
        head_of(run.model)[0], head_of(begun.model)[0], atol=1e-6
    )
    saved = keras.saving.load_model(tmp_path / "model.keras")
    assert same(values(saved), values(run.model))
    said = f"was {best['val_accuracy']:.4f} before the first step, the last"
    assert said in capsys.readouterr().out


@ONCE
def test_a_run_that_was_stopped_keeps_the_probe(tmp_path, monkeypatch):
    whole = train(probed(tmp_path / "whole"), dataset=DATASET)
    with pytest.raises(KeyboardInterrupt):  # after the first epoch
        train(
            probed(tmp_path / "part"),
            dataset=DATASET,
            callbacks=[Interrupt()],
        )
    with monkeypatch.context() as patched:  # The head is in the checkpoint.
        patched.delattr(build, "FeatureStream")
        part = train(probed(tmp_path / "part"), dataset=DATASET)
    with pytest.raises(KeyboardInterrupt):  # before there is a checkpoint
        train(probed(tmp_path / "again"), dataset=DATASET, callbacks=[AtOnce()])
    again = train(probed(tmp_path / "again"), dataset=DATASET)
    for run in (part, again):
        assert run.history["step"] == [0, 5, 10]
        assert run.history["loss"][1:] == whole.history["loss"][1:]
        assert run.evaluations == whole.evaluations
        assert same(values(run.model), values(whole.model))
    lines = (tmp_path / "again" / "metrics.jsonl").read_text().splitlines()
    assert sum('"step": 0,' in x for x in lines) == 1


class AtOnce(keras.callbacks.Callback):
    """Ends a run in its first step, as a kill does."""

    def on_train_batch_begin(self, batch, logs=None):
        raise KeyboardInterrupt


def batches_of_ones():
    images = np.ones((16, 8, 8, 1), "float32")
    labels = np.eye(3, dtype="float32")[np.arange(16) % 3]
    return data.FitStream((images, labels), batch_size=8)


@ONCE
def test_several_processes_begin_with_zeros(tmp_path, monkeypatch):
    made = probed(tmp_path / "run")
    model = make_model(made, tiny.CLASS_NAMES)
    monkeypatch.setattr(processes, "place", lambda: (0, 2))
    made, line = defaults.choose_head(made, DATASET, model, learns=True)
    assert made.model.head == "new"
    assert "each of several processes has a share" in line


@ONCE
@pytest.mark.parametrize(
    ("patched", "train_part", "words"),
    [
        (
            {"MOST_PRODUCTS": 9},
            DATASET.train,
            "a linear probe of 40 images, 96 feat",
        ),
        ({"MOST_FEATURES": 9}, DATASET.train, "takes long"),
        ({}, batches_of_ones(), "batches of your own"),
    ],
)
def test_where_no_probe_is_fitted_the_head_begins_with_zeros(
    tmp_path, monkeypatch, capsys, patched, train_part, words
):
    for name, value in patched.items():
        monkeypatch.setattr(defaults, name, value)
    dataset = data.Dataset(train_part, None, None, tiny.CLASS_NAMES)
    run = train(probed(tmp_path / "a", optimizer=STILL), dataset=dataset)
    assert words in capsys.readouterr().out
    np.testing.assert_allclose(head_of(run.model)[0], 0, atol=1e-9)
    assert read_config(tmp_path / "a")["model"]["head"] == "new"
    wanted = dataclasses.replace(FRACTALS, head="probe")
    with pytest.raises(ValueError, match=words):
        train(probed(tmp_path / "b", model=wanted), dataset=dataset)
    assert not (tmp_path / "b").exists()


@ONCE
def test_a_task_without_the_head_is_refused(tmp_path):
    wanted = probed(tmp_path, model=dataclasses.replace(FRACTALS, head="probe"))
    task = dataclasses.replace(CLASSIFICATION, begins_from_probe=False)
    with pytest.raises(ValueError, match="learns no classes with it"):
        train(wanted, dataset=DATASET, task=task)


@ONCE
def test_zeros_stay_on_request(tmp_path):
    zeros = dataclasses.replace(FRACTALS, head="new")
    runs = [
        probed(tmp_path / "new", model=zeros, optimizer=STILL),
        probed(tmp_path / "b", optimizer=STILL, head_bias=-2.0),
    ]
    for chosen, bias in zip(runs, (0.0, -2.0), strict=True):
        run = train(chosen, dataset=DATASET)
        np.testing.assert_allclose(head_of(run.model)[1], bias, atol=1e-6)
        assert run.history["step"] == [5, 10]


@ONCE
def test_a_run_that_began_with_zeros_goes_on(tmp_path):
    """Runs of before there were probes have it in their config."""
    zeros = dataclasses.replace(FRACTALS, head="new")
    with pytest.raises(KeyboardInterrupt):
        train(
            probed(tmp_path, model=zeros),
            dataset=DATASET,
            callbacks=[Interrupt()],
        )
    run = train(probed(tmp_path), dataset=DATASET)
    assert run.history["step"] == [5, 10]
    run_folder.write_result(tmp_path, {})
    longer = train(probed(tmp_path, epochs=3), dataset=DATASET)
    assert longer.history["step"] == [5, 10, 15]
    anew = dataclasses.replace(probed(tmp_path), overwrite=True)
    run_folder.write_result(tmp_path, {})
    assert train(anew, dataset=DATASET).history["step"] == [0, 5, 10]
