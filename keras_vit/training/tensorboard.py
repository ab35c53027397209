"""TensorBoard events of the lines of metrics, where a writer is installed."""

import importlib.util
import pathlib
from collections.abc import Callable

__all__ = ["FOLDER", "event_writer"]

FLUSH_SECONDS = 2
FOLDER = "tensorboard"
NOT_NUMBERS_OF_INTEREST = ("step", "epoch")


def event_writer(folder: pathlib.Path, step: int) -> Callable[[dict], None]:
    """Makes what writes each line of metrics as TensorBoard events.

    Args:
        folder: the run folder.
        step: int, the step that the run continues from; TensorBoard forgets
            what it had of later ones.

    Returns:
        A function of a line, a dictionary of numbers with "step" among them.
        Where no writer is installed, a line says so, and the function does
        nothing.

    Example:
        >>> write = event_writer(folder, step=0)
        >>> write({"step": 50, "loss": 2.3})
    """
    for needed, make in WRITERS.items():
        if all(map(importlib.util.find_spec, needed)):
            return _lines(make(folder / FOLDER, step))
    print("No TensorBoard events: pip install tensorboardX for them.")
    return lambda row: None


def _lines(scalar):
    def write(row: dict) -> None:
        for name, value in row.items():
            if name not in NOT_NUMBERS_OF_INTEREST and value is not None:
                scalar(name, value, row["step"])

    return write


def _tensorboardx(folder, step):
    import tensorboardX

    # A thread writes; its own flush() does not wait for what is in the queue.
    return tensorboardX.SummaryWriter(
        str(folder),
        purge_step=step + 1 if step else None,
        flush_secs=FLUSH_SECONDS,
    ).add_scalar


def _tensorflow(folder, step):
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(folder))

    def scalar(name, value, step):
        with writer.as_default():
            tf.summary.scalar(name, value, step=step)
        writer.flush()

    return scalar


# What each needs; the first that there is writes. TensorFlow's summaries live
# in the package tensorboard.
WRITERS = {
    ("tensorboardX",): _tensorboardx,
    ("tensorboard", "tensorflow"): _tensorflow,
}
