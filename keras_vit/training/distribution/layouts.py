"""How devices share a model under JAX: what each of them holds of it.

On JAX a TPU needs nothing of this: its cores are devices like any other.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_vit.checks import DISTRIBUTIONS, check_choice
from keras_vit.training.distribution import processes, tf_distribute
from keras_vit.training.distribution.machine import devices
from keras_vit.training.distribution.processes import place
from keras_vit.workarounds import (
    layout_of,
    leave_out_tpu_attention,
    loop_reduction,
)

__all__ = [
    "Distribution",
    "data_parallel",
    "fsdp",
    "mirrored",
    "model_parallel",
    "setup",
    "tpu",
]

# A share of every kernel of the blocks. The rest stays whole: it is small, and
# XLA, given a share of the position embedding, distributes activations anew.
FULLY_SHARDED = {r".*\bblock_\d+/.*kernel": (-1, "batch")}

# The columns of a first projection and the rows of the one that reads them:
# Megatron-LM (arXiv:1909.08053), section 3. The columns of qkv are ordered by
# head, so that a share of them is whole heads.
TENSOR_PARALLEL = {
    r".*\bblock_\d+/attention/qkv/kernel": (-1, "model"),  # (D, 3 * D)
    r".*\bblock_\d+/attention/qkv/bias": (-1, "model"),  # (3 * D,)
    r".*\bblock_\d+/attention/out/kernel": (0, "model"),  # (D, D)
    r".*\bblock_\d+/(mlp|\w+_mixing)/dense/kernel": (-1, "model"),  # (D, M)
    r".*\bblock_\d+/(mlp|\w+_mixing)/dense/bias": (-1, "model"),  # (M,)
    r".*\bblock_\d+/(mlp|\w+_mixing)/dense_1/kernel": (0, "model"),  # (M, D)
}


def data_parallel(devices: list[str], model_axis: int):
    """Each device holds the whole model and computes a share of the batch.

    Args:
        devices: names of devices, as `keras.distribution.list_devices` has
            them.
        model_axis: not used.

    Returns:
        A Keras distribution.
    """
    return keras.distribution.DataParallel(
        devices=devices, auto_shard_dataset=False
    )


def fsdp(devices: list[str], model_axis: int):
    """As `data_parallel`, with a share of the blocks' kernels on each device.

    The slots of the optimizer are shared like the weights they belong to.
    Zhao et al., "PyTorch FSDP" (arXiv:2304.11277).

    Args:
        devices: names of devices.
        model_axis: not used.

    Returns:
        A Keras distribution.
    """
    mesh = keras.distribution.DeviceMesh((len(devices),), ["batch"], devices)
    return Sharded(mesh, FULLY_SHARDED)


def model_parallel(devices: list[str], model_axis: int):
    """Some devices share each layer, the others the batch.

    Args:
        devices: names of devices.
        model_axis: int, devices that share a layer; it divides their number,
            the heads and the widths of the MLPs.

    Returns:
        A Keras distribution.

    Raises:
        ValueError: when model_axis does not divide the number of devices.
    """
    if model_axis < 2 or len(devices) % model_axis:
        raise ValueError(
            "Layers must be shared by two or more devices, a number that "
            f"divides all. Received: model_axis={model_axis}, {len(devices)} "
            "devices. Choose another model_axis, or data_parallel."
        )
    shape = (len(devices) // model_axis, model_axis)
    mesh = keras.distribution.DeviceMesh(shape, ["batch", "model"], devices)
    return Sharded(mesh, TENSOR_PARALLEL)


class Sharded(keras.distribution.ModelParallel):
    """Cuts the variables of a table along one of their axes.

    Keras's LayoutMap wants the rank of each; kernels of convolutions and of
    dense layers have different ones, and the same last axis.

    Args:
        mesh: a Keras device mesh with an axis "batch".
        table: pattern of a path to (axis of the variable, axis of the mesh).
    """

    def __init__(self, mesh, table):
        super().__init__(
            layout_map=keras.distribution.LayoutMap(mesh),
            batch_dim_name="batch",
            # Each process reads its own share.
            auto_shard_dataset=False,
        )
        self.table = table

    def get_variable_layout(self, variable):
        return layout_of(variable) or keras.distribution.TensorLayout(
            self._axes(variable.path, variable.shape), self.device_mesh
        )

    def _axes(self, path, shape):
        axes: list[str | None] = [None] * len(shape)
        for pattern, (axis, name) in self.table.items():
            if re.fullmatch(pattern, path):
                self._check(path, shape, shape[axis], name)
                axes[axis] = name
        return axes

    def _check(self, path, shape, size, name):
        parts = dict(
            zip(
                self.device_mesh.axis_names, self.device_mesh.shape, strict=True
            )
        )[name]
        if size % parts:
            raise ValueError(
                f"{path!r} of shape {tuple(shape)} cannot be cut into {parts} "
                "equal shares. Use data_parallel, or a number of devices that "
                f"divides {size}."
            )


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

    reduction = loop_reduction(steps_per_execution)
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


MODEL_AXIS = 2  # devices that share a layer under model_parallel


@dataclasses.dataclass(frozen=True)
class Distribution:
    """Where a model computes, as `setup` chose it.

    Args:
        choice: what was taken, never "auto".
        devices: names of the devices that take part.
        replicas: int, the shares that a batch is cut into.
        batch_size: int, images in a batch on all devices together; None where
            it is not known.
        native: Keras's distribution or TensorFlow's strategy, None for one
            device.

    Example:
        >>> print(setup("auto", batch_size=64))
        single: 1 device (cpu:0), 1 replica, batch 64 (64 on each)
    """

    choice: str
    devices: tuple[str, ...]
    replicas: int
    batch_size: int | None = None
    native: Any = None

    def scope(self) -> contextlib.AbstractContextManager:
        """The context to build, compile and train a model in.

        Example:
            >>> with setup("data_parallel").scope():
            ...     model = ViT_S16(weights=None)
            ...     model.compile("sgd", "categorical_crossentropy")
            ...     model.fit(images, labels)
        """
        if self.native is None:
            return contextlib.nullcontext()
        return self.native.scope()

    def __str__(self):
        text = (
            f"{self.choice}: {_counted(len(self.devices), 'device')} "
            f"({', '.join(self.devices)}), "
            f"{_counted(self.replicas, 'replica')}"
        )
        if (count := processes.place()[1]) > 1:
            text += f" in {count} processes"
        if self.batch_size is None:
            return text
        share = self.batch_size // self.replicas
        return f"{text}, batch {self.batch_size} ({share} on each)"


def setup(
    choice: str = "auto",
    *,
    batch_size: int | None = None,
    model_axis: int = MODEL_AXIS,
    steps_per_execution: int = 1,
) -> Distribution:
    """Chooses the devices that a model is trained on, and how they share it.

    The batch size is that of all devices together, so that the result does
    not depend on their number.

    Args:
        choice: "auto" takes all devices that divide the batch. "single" is
            one. "data_parallel" (JAX), "mirrored" and "tpu" (TensorFlow) cut
            the batch; "fsdp" (JAX) the kernels of the blocks as well, and
            "model_parallel" (JAX) attention and MLPs. "multiworker"
            (TensorFlow) is "mirrored" for the processes of TF_CONFIG. Those
            of JAX are found by the variables of `keras.distribution`, or in
            a cluster, with each choice of several devices.
        batch_size: int, images that the model sees at once, None if unknown.
        model_axis: int, devices that share a layer under "model_parallel".
        steps_per_execution: int, what the model is compiled with.

    Returns:
        A `Distribution`; str() of it says in a line what was taken.

    Raises:
        ValueError: for a choice that the backend does not have, a batch that
            the devices cannot share, or a TPU that is not there.

    Example:
        >>> chosen = setup("data_parallel", batch_size=512)
        >>> print(chosen)
        data_parallel: 2 devices (gpu:0, gpu:1), 2 replicas, batch 512 (256
        on each)
        >>> with chosen.scope():
        ...     model = ViT_B16(classes=10)
        ...     model.compile("sgd", "categorical_crossentropy")
        ...     model.fit(batches)
    """
    check_choice("distribution", choice, DISTRIBUTIONS)
    processes.start(choice)
    # To ask for the devices before a TPU is set up would leave it out.
    found = processes.by_process([] if choice == "tpu" else devices())
    leave_out_tpu_attention(found[0])
    if choice == "auto":
        choice, found = _automatic(found, batch_size)
    _check_processes(choice)
    found = sum(found, [])
    if choice == "single":
        return Distribution(choice, (found[0],), 1, batch_size)
    native, replicas = _maker(choice)(found, model_axis, steps_per_execution)
    if batch_size is not None and batch_size % replicas:
        raise ValueError(
            f"{choice} cuts a batch into {replicas} equal shares. Received: "
            f"a batch of {batch_size} (in training, batch_size divided by "
            f"accumulation_steps). Make it a multiple of {replicas}, or use "
            "auto, which takes as many devices as divide it."
        )
    names = tuple(found or devices())
    return Distribution(choice, names, replicas, batch_size, native)


def _automatic(found, batch_size):
    """The backend's plain choice, with as many devices as divide a batch.

    As many of each process: none may be without.
    """
    shares = [n * len(found) for n in range(len(found[0]), 0, -1)]
    taken = next(
        (n for n in shares if not batch_size or batch_size % n == 0), shares[-1]
    )
    found = [names[: taken // len(found)] for names in found]
    backend = keras.backend.backend()
    if len(found) > 1:
        return SEVERAL_PROCESSES[backend][0], found
    return (PLAIN[backend] if taken > 1 else "single"), found


def _check_processes(choice):
    """Raises unless a choice is of all processes, where there are several."""
    index, count = processes.place()
    known = SEVERAL_PROCESSES[keras.backend.backend()]
    if count > 1 and choice not in known:
        raise ValueError(
            f"This is process {index} of {count}, and {choice!r} is of one "
            f"process. Use {', '.join(known)} or auto."
        )


def _maker(choice) -> Callable:
    backend = keras.backend.backend()
    if choice not in MAKERS[backend]:
        known = ", ".join(("auto", "single", *MAKERS[backend]))
        raise ValueError(
            f"There is no {choice!r} on the {backend} backend. Use "
            f"{PLAIN[backend]!r}; it has {known}. KERAS_BACKEND is another "
            "way: jax has data_parallel, fsdp and model_parallel, tensorflow "
            "mirrored, multiworker and tpu."
        )
    return MAKERS[backend][choice]


def _counted(number, noun):
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _on_jax(layout):
    def make(devices, model_axis, steps_per_execution):
        native = layout(devices, model_axis)
        return native, native.device_mesh.shape[0]

    return make


def _on_tensorflow(strategy):
    def make(devices, model_axis, steps_per_execution):
        native = strategy(devices, steps_per_execution)
        return native, native.num_replicas_in_sync

    return make


# Where there are several processes; the first is the plain one.
SEVERAL_PROCESSES = {
    "jax": ("data_parallel", "fsdp", "model_parallel"),
    "tensorflow": ("multiworker",),
    "torch": (),
}
PLAIN = {"jax": "data_parallel", "tensorflow": "mirrored", "torch": "single"}
MAKERS = {
    "jax": {
        "data_parallel": _on_jax(data_parallel),
        "fsdp": _on_jax(fsdp),
        "model_parallel": _on_jax(model_parallel),
    },
    "tensorflow": {
        "mirrored": _on_tensorflow(mirrored),
        "multiworker": _on_tensorflow(tf_distribute.multiworker),
        "tpu": _on_tensorflow(tpu),
    },
    "torch": {},
}


@contextlib.contextmanager
def on_devices(choice: str, batch_size: int) -> Iterator[None]:
    """Where to load a model and to predict with it, told in a line.

    Args:
        choice: as for `keras_vit.training.distribution.setup`.
        batch_size: int, images in a step on all devices together.

    Raises:
        ValueError: for a choice that the backend does not have, or a batch
            that the devices cannot share, or in one of several processes.

    Example:
        >>> with on_devices("auto", batch_size=256):
        ...     model = load_model(ModelSource(weights="runs/quickstart"))
        ...     predictions = predict_classes(model, batches)
    """
    chosen = setup(choice, batch_size=batch_size)
    index, count = place()
    if count > 1:
        raise ValueError(
            "One process predicts for all. Received: the environment of "
            f"process {index} of {count}. Unset it."
        )
    print(f"Distribution {chosen}", flush=True)
    with chosen.scope():
        yield
