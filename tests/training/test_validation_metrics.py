"""Metrics of the whole validation split, and the best model by them."""

import dataclasses

import keras
import numpy as np
import pytest
from sklearn import metrics
from tiny_runs import DATASET, recipe

from keras_vit import data
from keras_vit.evaluation.scores_of_classes import CLASS_METRICS
from keras_vit.training import train

SEVERAL = np.array([[1, 0, 1], [0, 1, 0]], "uint8")


def probabilities(model, activation):
    batches = data.evaluation_batches(
        DATASET.validation,
        image_size=8,
        channels=1,
        batch_size=len(DATASET.validation),
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
    )
    images, _, _ = next(iter(batches))
    scores = keras.activations.get(activation)(
        model(np.asarray(images), training=False)
    )
    return keras.ops.convert_to_numpy(scores)


def of_sklearn(labels, scores):
    truth = labels[:, None] == np.arange(3)
    answers = scores.argmax(axis=1)
    return {
        "balanced_accuracy": metrics.balanced_accuracy_score(labels, answers),
        "macro_f1": metrics.f1_score(labels, answers, average="macro"),
        "auc": metrics.roc_auc_score(truth, scores, average="macro"),
        "average_precision": metrics.average_precision_score(
            truth, scores, average="macro"
        ),
    }


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_they_are_those_of_scikit_learn_on_all_images(tmp_path, average):
    chosen = {"best_metric": "val_auc", "ema_decay": average}
    run = train(recipe(tmp_path, training=chosen), dataset=DATASET)
    expected = of_sklearn(
        DATASET.validation.labels, probabilities(run.model, "softmax")
    )
    found = {x: run.kept[f"val_{x}"] for x in CLASS_METRICS}
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.once
def test_of_several_labels(tmp_path):
    def several(examples):
        labels = SEVERAL[np.arange(len(examples)) % 2]
        return dataclasses.replace(examples, labels=labels)

    dataset = dataclasses.replace(
        DATASET,
        train=several(DATASET.train),
        validation=several(DATASET.validation),
    )
    chosen = {"best_metric": "val_average_precision", "loss": "sigmoid"}
    run = train(recipe(tmp_path, training=chosen), dataset=dataset)
    expected = metrics.average_precision_score(
        dataset.validation.labels,
        probabilities(run.model, "sigmoid"),
        average="macro",
    )
    found = run.kept["val_average_precision"]
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.once
def test_a_run_that_was_stopped_has_the_same(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    chosen = {"best_metric": "val_macro_f1", "epochs": 3}
    whole = train(recipe(tmp_path / "a", training=chosen), dataset=DATASET)
    stopped = recipe(tmp_path / "b", training=chosen)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, dataset=DATASET, callbacks=[Stop()])
    resumed = train(stopped, dataset=DATASET)
    for name in ("val_macro_f1", "val_auc", "val_loss"):
        assert resumed.history[name] == whole.history[name]


@pytest.mark.once
def test_the_best_is_kept_by_it(tmp_path):
    chosen = {"best_metric": "val_auc", "epochs": 4}
    run = train(recipe(tmp_path, training=chosen), dataset=DATASET)
    best = keras.saving.load_model(tmp_path / "model.keras")
    expected = of_sklearn(
        DATASET.validation.labels, probabilities(best, "softmax")
    )
    assert max(run.history["val_auc"]) == pytest.approx(expected["auc"])


def test_without_validation_images_it_is_refused(tmp_path):
    dataset = dataclasses.replace(DATASET, validation=None)
    with pytest.raises(ValueError, match="the data has none.*val_auc"):
        train(
            recipe(tmp_path, training={"best_metric": "val_auc"}),
            dataset=dataset,
        )
