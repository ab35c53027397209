"""The model of a run is that of its best evaluation, or by request the last."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
from tiny_runs import DATASET, recipe, values

from keras_vit.analysis.report import write_report
from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.runs import facts
from keras_vit.training import TrainingConfig, train
from keras_vit.training.training_run import compare_evaluations

EPOCHS = 3
SPOILED = 2  # from this epoch on, counted from 0, the answers are wrong


class Spoil(keras.callbacks.Callback):
    """Answers one class alone, and keeps the weights of each evaluation."""

    def __init__(self, stop_at=None, end_after=None, spoiled=SPOILED):
        super().__init__()
        self.evaluated, self.spoiled = [], spoiled
        self.stop_at, self.end_after = stop_at, end_after

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.end_after:
            raise KeyboardInterrupt

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.stop_at:
            raise KeyboardInterrupt
        if epoch >= self.spoiled:
            bias = self.model.get_layer("predictions").bias
            bias.assign([0.0, 0.0, 1000.0])

    def on_test_end(self, logs=None):
        self.evaluated.append(values(self.model))


class SeeAverages(Spoil):
    """Keeps the weights before the moving averages are put back."""

    def on_test_end(self, logs=None):
        pass

    def on_test_batch_begin(self, batch, logs=None):
        if batch == 0:
            self.evaluated.append(values(self.model))


def trained(folder, callback=None, **training):
    options = {"epochs": EPOCHS, **training}
    callbacks = [Spoil() if callback is None else callback]
    return train(
        recipe(folder, training=options), dataset=DATASET, callbacks=callbacks
    )


def accuracy(model):
    examples = DATASET.validation
    answers = keras.ops.convert_to_numpy(model(examples.contents)).argmax(-1)
    return (answers == examples.labels).mean()


def same(one, other):
    return all(
        x.tobytes() == y.tobytes() for x, y in zip(one, other, strict=True)
    )


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory):
    seen = Spoil()
    return trained(tmp_path_factory.mktemp("spoiled"), seen), seen


def best_of(run):
    """The number of the best epoch, by the numbers in history.csv."""
    rows = zip(
        *(run.history[x] for x in ("val_accuracy", "val_loss")), strict=True
    )
    ranks = [(score, -loss) for score, loss in rows]
    return ranks.index(max(ranks))


@pytest.mark.once
def test_the_model_is_that_of_the_best_evaluation(spoiled):
    run, seen = spoiled
    assert best_of(run) < EPOCHS - 1, "the last epoch was to be spoiled"
    assert same(values(run.model), seen.evaluated[best_of(run)])
    saved, _ = load_model(run.folder / "model.keras")
    assert same(values(saved), values(run.model))
    assert accuracy(saved) == pytest.approx(max(run.history["val_accuracy"]))
    assert run.kept["step"] == 5 * (best_of(run) + 1)


@pytest.mark.once
def test_the_last_model_is_kept_on_request(tmp_path):
    seen = Spoil()
    run = trained(tmp_path, seen, keep="last")
    assert same(values(run.model), seen.evaluated[-1])
    saved, _ = load_model(run.folder / "model.keras")
    assert same(values(saved), seen.evaluated[-1])
    assert run.evaluations["kept"] == "last"
    assert run.kept["step"] == 5 * EPOCHS
    assert not list(tmp_path.glob("checkpoints/best*"))


@pytest.mark.once
def test_without_validation_images_the_last_model_is_kept(tmp_path):
    dataset = dataclasses.replace(DATASET, validation=None)
    whole = train(recipe(tmp_path / "a"), dataset=dataset)
    last = train(
        recipe(tmp_path / "b", training={"keep": "last"}), dataset=dataset
    )
    assert whole.evaluations == {}
    assert "evaluations" not in facts(whole)
    assert same(values(whole.model), values(last.model))


@pytest.mark.once
@pytest.mark.parametrize("stop_at", [1, SPOILED])
def test_a_stopped_run_keeps_the_same_model(spoiled, tmp_path, stop_at):
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, Spoil(stop_at))
    # So far: for who cannot go on.
    saved, _ = load_model(tmp_path / "model.keras")
    assert np.isfinite(accuracy(saved))
    for _ in range(2):  # stopped before its result, too
        run = trained(tmp_path)
        assert same(values(run.model), values(spoiled[0].model))
        assert run.evaluations == spoiled[0].evaluations
        saved, _ = load_model(tmp_path / "model.keras")
        assert same(values(saved), values(run.model))


@pytest.mark.once
def test_killed_before_the_checkpoint_the_best_before_is_there(tmp_path):
    """A better evaluation may be written that the run then has no more."""
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, Spoil(end_after=1))
    assert len(list(tmp_path.glob("checkpoints/best-*.npz"))) == 2
    seen = Spoil(spoiled=1)  # As on another machine, where it is worse.
    run = trained(tmp_path, seen)
    assert best_of(run) == 0
    first = Spoil(stop_at=1)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "again", first)
    assert same(values(run.model), first.evaluated[0])


def test_the_moving_average_of_the_best_evaluation_is_kept(tmp_path):
    seen = SeeAverages()
    run = trained(tmp_path, seen, ema_decay=0.5)
    assert best_of(run) < EPOCHS - 1
    assert same(values(run.model), seen.evaluated[best_of(run)])


ROWS = [
    {"step": 5, "epoch": 1.0, "val_accuracy": 0.5, "val_loss": 1.0},
    {"step": 10, "epoch": 2.0, "val_accuracy": 0.75, "val_loss": 0.9},
    {"step": 15, "epoch": 3.0, "val_accuracy": 0.75, "val_loss": 0.7},
    {"step": 20, "epoch": 4.0, "val_accuracy": 0.75, "val_loss": 0.7},
    {"step": 25, "epoch": 5.0, "val_accuracy": 0.25, "val_loss": 0.6},
    {"step": 30, "epoch": 6.0, "val_accuracy": 0.5, "val_loss": math.nan},
]


@pytest.mark.parametrize(
    ("metric", "begin", "expected"),
    [
        # Of equal accuracies the lower loss, of equal losses the earlier one.
        ("val_accuracy", 0, 15),
        ("val_loss", 0, 25),
        ("val_accuracy", 20, 30),
    ],
)
def test_the_best_evaluation_of_a_history(metric, begin, expected):
    found = compare_evaluations(ROWS, TrainingConfig(best_metric=metric), begin)
    assert found["best"]["step"] == expected
    assert found["metric"] == metric
    if metric == "val_accuracy":
        assert found["last"] == ROWS[-1]


@pytest.mark.once
def test_a_run_says_which_epoch_is_kept(tmp_path, capsys):
    run = trained(tmp_path, early_stopping_patience=2, epochs=9)
    words = capsys.readouterr().out.splitlines()[-1]
    ended, last = len(run.history["step"]), run.history["val_accuracy"][-1]
    assert ended < 9
    assert words == (
        f"Ended early, to epoch {ended}. The best val_accuracy was "
        f"{max(run.history['val_accuracy']):.4f} after epoch "
        f"{best_of(run) + 1}, the last one {last:.4f}; model.keras is the best "
        "model"
    )


@pytest.mark.once
def test_result_and_report_have_the_best_and_the_last(spoiled):
    run, _ = spoiled
    result = json.loads(json.dumps(facts(run)))
    best, last = (result["evaluations"][x] for x in ("best", "last"))
    assert best["epoch"] == best_of(run) + 1
    assert best["val_accuracy"] == max(run.history["val_accuracy"])
    assert last["epoch"] == EPOCHS
    assert last["val_loss"] == run.history["val_loss"][-1]
    assert result["validation_accuracy"] == best["val_accuracy"]
    (run.folder / "result.json").write_text(json.dumps(result))
    write_report(run.folder, result)
    page = (run.folder / "report.html").read_text()
    rows = page.split("On the validation images")[1].split("</table>")[0]
    for found, model in ((best, "model.keras"), (last, "")):
        cells = [
            f"{found['epoch']:.4g}",
            f"{100 * found['val_accuracy']:.2f}\N{NARROW NO-BREAK SPACE}%",
            f"{found['val_loss']:.4f}",
            model,
        ]
        assert "".join(f"<td>{cell}</td>" for cell in cells) in rows
