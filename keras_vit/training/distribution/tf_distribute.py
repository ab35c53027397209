"""The processes of a run on TensorFlow: strategy, batches and texts."""

import functools

import keras
import numpy as np

from keras_vit.training.distribution.start import place_in_tf_config
from keras_vit.workarounds import mend_reduce

__all__ = [
    "multiworker",
    "placed",
    "shared_text",
    "strategy",
]


def multiworker(devices: list[str], steps_per_execution: int):
    """Each device of each process holds the model and computes a share.

    Args:
        devices: not used, all take part.
        steps_per_execution: int, what the model is compiled with.

    Returns:
        A tf.distribute.MultiWorkerMirroredStrategy.

    Raises:
        ValueError: for several steps in a call, or without TF_CONFIG.
    """
    if steps_per_execution > 1:
        raise ValueError(
            "The processes of TensorFlow cannot meet in a loop of steps. "
            f"Received: training.steps_per_execution={steps_per_execution}. "
            "Set it to 1, or KERAS_BACKEND to jax."
        )
    return strategy()


@functools.cache
def strategy():
    """The strategy of the processes in TF_CONFIG.

    TensorFlow makes it before anything else, and once.

    Returns:
        A mended tf.distribute.MultiWorkerMirroredStrategy.

    Raises:
        ValueError: without TF_CONFIG, or after TensorFlow has computed.
    """
    import tensorflow as tf

    if place_in_tf_config() is None:
        raise ValueError(
            "multiworker needs the processes in the environment variable "
            "TF_CONFIG, which is not set. On one host, use mirrored."
        )
    try:
        made = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise ValueError(
            "The processes of a run must find each other before TensorFlow "
            "computes anything. Call keras_vit.training.distribution.setup "
            "first of all, or unset TF_CONFIG for a run of one process."
        ) from None
    mend_reduce(made)
    return made


def placed(batches):
    """Gives the batches of this process to the replicas of `fit`.

    Args:
        batches: tf.data.Dataset of the share of this process, or None. All
            is returned as it is where no strategy of several processes is in
            use.

    Returns:
        What `fit` takes.

    Raises:
        ValueError: when the share cannot be cut into one for each replica,
            or is no tf.data.Dataset.
    """
    if keras.backend.backend() != "tensorflow":
        return batches
    import tensorflow as tf

    used = tf.distribute.get_strategy()
    several = isinstance(used, tf.distribute.MultiWorkerMirroredStrategy)
    if not several or batches is None:
        return batches
    if not isinstance(batches, tf.data.Dataset):
        raise ValueError(
            "The processes of TensorFlow take batches of a tf.data.Dataset. "
            f"Received: {type(batches).__name__}."
        )
    replicas = len(used.extended.worker_devices)
    if replicas > 1:
        size = keras.tree.flatten(batches.element_spec)[0].shape[0]
        if not size or size % replicas:
            raise ValueError(
                f"The {replicas} devices of a process share its images of a "
                f"batch. Received: {size} images. Give batches of one size, "
                f"a multiple of {replicas}."
            )
        batches = batches.rebatch(size // replicas)
    return used.distribute_datasets_from_function(lambda context: batches)


def shared_text(text: str | None) -> str:
    """Gives a text of the first process to all.

    Args:
        text: the text; None in the other processes.

    Returns:
        The text.
    """
    content = np.frombuffer((text or "").encode(), np.uint8).astype("int32")
    (size,) = _sum_over_processes(np.array([len(content)], "int32"))
    content = content if len(content) else np.zeros(size, "int32")
    return bytes(_sum_over_processes(content).astype("uint8")).decode()


def _sum_over_processes(array):
    """The sum over the processes, of which all but one give zeros."""
    import tensorflow as tf

    def one_replica():
        context = tf.distribute.get_replica_context()
        first = tf.equal(context.replica_id_in_sync_group, 0)
        value = tf.where(first, tf.constant(array), 0)
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    found = strategy().run(tf.function(one_replica))
    return strategy().experimental_local_results(found)[0].numpy()
