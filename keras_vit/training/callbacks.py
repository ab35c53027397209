"""What Keras's callbacks leave out: the speed, and one JSON an epoch."""

import json
import os
import pathlib
import time

import keras

__all__ = ["JSONLines", "Throughput"]


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
