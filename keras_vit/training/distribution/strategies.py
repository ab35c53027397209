"""How TensorFlow's devices share a batch: the strategies of tf.distribute."""

import os

import keras

from keras_vit.runtime.workarounds import has_strategy, loop_reduction
from keras_vit.training.distribution import processes

__all__ = [
    "STRATEGIES",
    "mean_of_replicas",
    "multiworker",
    "placed",
    "rows_of_replicas",
]

LAST_WITH_TPUS = "2.20.0"  # of tensorflow-tpu, on 2026-11-21


def mirrored(devices, steps_per_execution):
    """Keep the model on each device of this machine, which computes a share."""
    import tensorflow as tf

    reduction = loop_reduction(steps_per_execution)
    return tf.distribute.MirroredStrategy(devices, reduction)


def multiworker(steps_per_execution):
    """Keep the model on each device of each process, which computes a share."""
    if steps_per_execution > 1:
        raise ValueError(
            "The processes of TensorFlow cannot meet in a loop of steps. "
            f"Received: training.steps_per_execution={steps_per_execution}. "
            "Set it to 1, or KERAS_BACKEND to jax."
        )
    return processes.strategy()


def tpu():
    """Return a strategy of all cores of the TPU that TPU_NAME names.

    That is the name or the grpc:// address of a TPU; without it, or when it is
    "local", the one of this machine.
    """
    import tensorflow as tf

    name = os.environ.get("TPU_NAME") or "local"
    resolve = tf.distribute.cluster_resolver.TPUClusterResolver
    try:
        resolver = resolve(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        # It clears the memory of the TPU: nothing may be computed before.
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise ValueError(_no_tpu(name, tf.__version__, error)) from error


def _no_tpu(name, version, error):
    reason = str(error).strip().partition("\n")[0]
    return (
        f"TensorFlow {version} finds no TPU {name!r}: {reason}. Let TPU_NAME "
        "be the name or grpc:// address of a TPU, or, on a machine that has "
        f"one, install tensorflow-tpu {LAST_WITH_TPUS}. Kaggle and Colab have "
        "none: set KERAS_BACKEND to jax there, with data_parallel."
    )


def placed(batches):
    """Cut the batches of this process into those of its replicas, for `fit`.

    Without a strategy of several processes, they are returned as they are.
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


def mean_of_replicas(x):
    """Return the mean of a tensor over the replicas of tf.distribute.

    Each computes its share of a batch there. Elsewhere, on JAX too, the tensor
    is of the whole batch, and is returned as it is.
    """
    context = _replica()
    if context is None:
        return x
    import tensorflow as tf

    return context.all_reduce(tf.distribute.ReduceOp.MEAN, x)


def rows_of_replicas(x) -> tuple:
    """Return the rows of all replicas, and the place of this one's first.

    Their gradient is that of what all replicas make of them. Elsewhere the
    tensor is of the whole batch, as in `mean_of_replicas`.

    Args:
        x: tensor (B, D), of as many rows on each replica.
    """
    context = _replica()
    if context is None:
        return x, 0
    import tensorflow as tf

    first = context.replica_id_in_sync_group * tf.shape(x)[0]
    rows = context.all_gather(x, axis=0)
    # Its gradient fails for the slices that `take` has, unlike a reshape's.
    return tf.reshape(rows, (-1, x.shape[-1])), first


def _replica():
    """Return the replica that computes, None without or where it is built."""
    if not has_strategy():
        return None
    import tensorflow as tf

    return tf.distribute.get_replica_context()


def _counted(strategy):
    return strategy, strategy.num_replicas_in_sync


# From devices, model_axis and steps_per_execution to a strategy and its
# replicas.
STRATEGIES = {
    "mirrored": lambda devices, axis, steps: _counted(mirrored(devices, steps)),
    "multiworker": lambda devices, axis, steps: _counted(multiworker(steps)),
    "tpu": lambda devices, axis, steps: _counted(tpu()),
}
