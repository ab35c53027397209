"""What Keras's callbacks leave out: the speed, and an end between epochs."""

import time

import keras

from keras_vit.training.plan import Plan

__all__ = [
    "Progress",
    "StopAtTotal",
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
