"""What Keras's callbacks leave out: the speed, and an end between epochs."""

import json
import os
import pathlib
import time

import keras

from keras_vit.training.plan import Plan

__all__ = [
    "JSONLines",
    "Progress",
    "StopAtTotal",
    "Throughput",
]


class StopAtTotal(keras.callbacks.Callback):
    """Ends the last stretch where it is shorter than the others.

    Args:
        plan: a `Plan`.

    Example:
        >>> model.fit(batches, callbacks=[StopAtTotal(plan)])
    """

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def on_epoch_begin(self, epoch, logs=None):
        self._stretch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.plan.is_last_call(self._stretch, batch):
            self.model.stop_training = True  # after this call


class Progress(keras.callbacks.Callback):
    """Shows images per second and the time left in Keras's progress bar.

    Args:
        plan: a `Plan`.

    Example:
        >>> model.fit(batches, callbacks=[Progress(plan)], verbose=1)
    """

    # It reads the clock alone: Keras may call it beside the training.
    async_safe = True

    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan

    def on_epoch_begin(self, epoch, logs=None):
        self._stretch = epoch
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if logs is None:
            return
        done = batch + 1
        seconds = time.perf_counter() - self._begin
        left = self.plan.total * self.plan.batches_per_step
        left -= self._stretch * self.plan.batches + done
        images = self.plan.batch_size / self.plan.batches_per_step
        logs["images_per_second"] = done * images / seconds
        logs["minutes_left"] = left * seconds / done / 60


class Throughput(keras.callbacks.Callback):
    """Adds the speed and the learning rate to the logs of each epoch.

    `images_per_second` counts the training steps without the validation; the
    first epoch's includes the compilation. Callbacks that come after it in
    the list, such as `keras.callbacks.CSVLogger`, see the additions.

    Args:
        images_per_epoch: int, images that an epoch trains on.

    Example:
        >>> model.fit(images, labels, callbacks=[Throughput(len(images))])
    """

    def __init__(self, images_per_epoch: int):
        super().__init__()
        self.images_per_epoch = images_per_epoch

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = time.perf_counter()
        self._end: float | None = None

    def on_test_begin(self, logs=None):
        self._end = self._now()

    def on_epoch_end(self, epoch, logs=None):
        seconds = (self._end or self._now()) - self._begin
        logs = {} if logs is None else logs
        logs["learning_rate"] = float(self.model.optimizer.learning_rate)
        logs["images_per_second"] = self.images_per_epoch / seconds

    def _now(self):
        # JAX returns before a step is done; reading a weight waits for it.
        keras.ops.convert_to_numpy(self.model.trainable_variables[-1])
        return time.perf_counter()


class JSONLines(keras.callbacks.Callback):
    """Appends one JSON object an epoch to a file.

    Args:
        path: the file.

    Example:
        >>> model.fit(images, labels, callbacks=[JSONLines("metrics.jsonl")])
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__()
        self.path = pathlib.Path(path)

    def on_epoch_end(self, epoch, logs=None):
        values = {name: float(value) for name, value in (logs or {}).items()}
        with self.path.open("a") as file:
            file.write(json.dumps({"epoch": epoch, **values}) + "\n")
