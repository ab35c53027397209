"""How devices share a model under TensorFlow: its strategies of tf.distribute.

On JAX a TPU needs nothing of this: its cores are devices like any other.
"""

import os

__all__ = ["mirrored", "tpu"]

LAST_WITH_TPUS = "2.20.0"  # of tensorflow-tpu, on 2026-11-21
LOCAL = "local"  # the TPU that this machine itself has


def mirrored(devices: list[str], steps_per_execution: int):
    """Each device of this machine holds the model and computes a share.

    Args:
        devices: names of devices.
        steps_per_execution: int, what the model is compiled with.

    Returns:
        A `tf.distribute.MirroredStrategy`.

    Example:
        >>> with mirrored(["gpu:0", "gpu:1"], 1).scope():
        ...     model = keras_vit.ViT_S16(weights=None)
    """
    import tensorflow as tf

    # TensorFlow's own choice, its collectives, fails in a loop of steps.
    several = steps_per_execution > 1
    reduction = tf.distribute.HierarchicalCopyAllReduce() if several else None
    return tf.distribute.MirroredStrategy(devices, reduction)


def tpu(devices: list[str], steps_per_execution: int):
    """Makes the TPU of the environment variable TPU_NAME ready for training.

    TPU_NAME is the name or the grpc:// address of a TPU; without it, or when
    it is "local", it is the one of this machine.

    Args:
        devices: not used, all cores take part.
        steps_per_execution: not used.

    Returns:
        A `tf.distribute.TPUStrategy` of all cores of the TPU.

    Raises:
        ValueError: when there is no such TPU, or TensorFlow is one that knows
            none.

    Example:
        >>> with tpu([], 1).scope():
        ...     model = keras_vit.ViT_S16(weights=None)
    """
    import tensorflow as tf

    name = os.environ.get("TPU_NAME") or LOCAL
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
        "one, install tensorflow-tpu, whose last version is "
        f"{LAST_WITH_TPUS}. Kaggle and Colab do not have it: set KERAS_BACKEND "
        "to jax there, with the distribution data_parallel."
    )
