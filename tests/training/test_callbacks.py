import json
import time

import keras
import numpy as np
import pytest

from keras_vit.training.checkpointing import collect_states, restore_states
from keras_vit.training.stages import Plan
from keras_vit.training.training_run import Progress, StopAtTotal


class Wait(keras.callbacks.Callback):
    """Makes training steps and validation take at least a known time."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)

    def on_test_begin(self, logs=None):
        time.sleep(0.5)


def fitted(callbacks, **options):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.25), "mse")
    images, labels = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    return model.fit(
        images,
        labels,
        batch_size=2,
        epochs=2,
        verbose=0,
        callbacks=callbacks,
        **options,
    )


PLAN = Plan(
    total=6,
    steps_per_epoch=4,
    batch_size=2,
    checkpoint_every=4,
    evaluate_every=4,
)


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(dict(logs or {}))


def test_the_last_stretch_ends_where_the_run_does():
    steps = Steps()
    fitted([StopAtTotal(PLAN), steps])
    assert len(steps.seen) == 6


def test_the_bar_has_the_speed_and_the_time_left():
    waiting, steps = Wait(), Steps()
    fitted([StopAtTotal(PLAN), waiting, Progress(PLAN), steps])
    last = steps.seen[-2]  # the second stretch compiles nothing: 50 ms a step
    assert 1 < last["images_per_second"] <= 2 / 0.05
    # Keras shows less than 0.001 as 5.4929e-04.
    assert 0.01 <= last["minutes_left"] < 1
    assert steps.seen[-1]["minutes_left"] == 0.01


def test_minutes_left_are_those_of_the_steps_to_come(monkeypatch):
    progress, logs = Progress(PLAN), {}
    clock = iter([0.0, 30.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    progress.on_epoch_begin(0)
    progress.on_train_batch_end(0, logs)
    assert logs["minutes_left"] == 2.5


def test_callbacks_remember_what_they_had_seen():
    stopping = keras.callbacks.EarlyStopping("loss", patience=5)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", min_delta=1e9)
    fitted([stopping, Wait(), plateau])
    states = collect_states([stopping, Wait(), plateau])
    assert [state["class"] for state in states] == [
        "EarlyStopping",
        "ReduceLROnPlateau",
    ]
    assert states[0]["best"] is not None
    assert states[1]["wait"] == 1
    others = [
        keras.callbacks.EarlyStopping("loss"),
        keras.callbacks.ReduceLROnPlateau("loss"),
    ]
    restore_states(others, json.loads(json.dumps(states)))
    assert collect_states(others) == states


def test_other_callbacks_than_before_are_refused():
    states = collect_states([keras.callbacks.EarlyStopping()])
    with pytest.raises(ValueError, match="EarlyStopping.*Received"):
        restore_states([], states)
