"""Where a model computes: the devices of a run, and how they share it.

JAX's devices share a model and a batch by keras.distribution, TensorFlow's by
the strategies of tf.distribute.
"""

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_vit.data import Share
from keras_vit.io.checks import DISTRIBUTIONS, check_choice
from keras_vit.runtime.machine import devices
from keras_vit.runtime.workarounds import (
    has_strategy,
    layout_of,
    leave_out_tpu_attention,
    loop_reduction,
)
from keras_vit.training.distribution import processes

__all__ = [
    "Distribution",
    "MAKERS",
    "MODEL_AXIS",
    "PLAIN",
    "Sharded",
    "data_parallel",
    "mean_of_replicas",
    "multiworker",
    "on_devices",
    "placed",
    "rows_of_replicas",
    "setup",
]

MODEL_AXIS = 2  # devices that share a layer under model_parallel
# A share of every kernel of the blocks. The rest stays whole: it is small, and
# XLA, given a share of the position embedding, distributes activations anew.
# Rows, where the devices divide them: XLA for TPUs scatters no sums of columns.
FULLY_SHARDED = {
    r".*\bblock_\d+/.*kernel": (((0, -1), "batch"), ((-1,), "columns"))
}
# Devices that cut rows; more cut columns. Of 1,024 rows each of 256 devices
# would have half a tile, and XLA gathers all kernels of a model at once.
ROWS = 16
# The columns of a first projection and the rows of the one that reads them:
# Megatron-LM (arXiv:1909.08053), section 3. The columns of qkv are ordered by
# head, so that a share of them is whole heads.
FIRST, SECOND = (((-1,), "model"),), (((0,), "model"),)
TENSOR_PARALLEL = {
    r".*\bblock_\d+/attention/qkv/kernel": FIRST,  # (D, 3 * D)
    r".*\bblock_\d+/attention/qkv/bias": FIRST,  # (3 * D,)
    r".*\bblock_\d+/attention/out/kernel": SECOND,  # (D, D)
    r".*\bblock_\d+/(mlp|\w+_mixing)/dense/kernel": FIRST,  # (D, M)
    r".*\bblock_\d+/(mlp|\w+_mixing)/dense/bias": FIRST,  # (M,)
    r".*\bblock_\d+/(mlp|\w+_mixing)/dense_1/kernel": SECOND,  # (M, D)
}
LAST_WITH_TPUS = "2.20.0"  # of tensorflow-tpu, on 2026-11-21


def data_parallel(devices):
    """Keep the model on each device, which computes a share of a batch."""
    return keras.distribution.DataParallel(
        devices=devices, auto_shard_dataset=False
    )


def fsdp(devices):
    """Do as `data_parallel`, and cut the kernels of the blocks as well.

    The slots of the optimizer are shared like the weights they belong to.
    Zhao et al., "PyTorch FSDP" (arXiv:2304.11277).
    """
    shape = (len(devices),)
    if len(devices) > ROWS and len(devices) % ROWS == 0:
        shape = (ROWS, len(devices) // ROWS)
    names = ["batch", "columns"][: len(shape)]
    mesh = keras.distribution.DeviceMesh(shape, names, devices)
    return Sharded(mesh, FULLY_SHARDED, batch=names)


def model_parallel(devices, model_axis):
    """`model_axis` devices share each layer, the others the batch.

    It divides the heads and the widths of the MLPs.
    """
    if model_axis < 2 or len(devices) % model_axis:
        raise ValueError(
            "Layers must be shared by two or more devices, a number that "
            f"divides all. Received: model_axis={model_axis}, {len(devices)} "
            "devices. Choose another model_axis, or data_parallel."
        )
    shape = (len(devices) // model_axis, model_axis)
    mesh = keras.distribution.DeviceMesh(shape, ["batch", "model"], devices)
    return Sharded(mesh, TENSOR_PARALLEL, batch=["batch"])


class Sharded(keras.distribution.ModelParallel):
    """Cuts the variables of a table along their axes, and the batch.

    Keras's LayoutMap needs the rank of each, which differs between kernels of
    convolutions and of dense layers; their last axis is the same.

    Args:
        mesh: a Keras device mesh with an axis "batch".
        table: pattern of a path to cuts: axes of the variable and an axis of
            the mesh. It is cut along the first of them that the devices divide.
            Axes that the mesh does not have are left out.
        batch: axes of the mesh that share a batch.
    """

    def __init__(self, mesh, table, batch):
        super().__init__(
            layout_map=keras.distribution.LayoutMap(mesh),
            batch_dim_name="batch",
            # Each process reads its own share.
            auto_shard_dataset=False,
        )
        self.table = table
        self.batch = tuple(batch)
        self.sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))

    @property
    def replicas(self) -> int:
        """The shares that a batch is cut into."""
        return math.prod(self.sizes[name] for name in self.batch)

    def get_data_layout(self, data_shape):
        axes = ["batch", *[None] * (len(data_shape) - 1)]
        return BatchLayout(axes, self.device_mesh, self.batch)

    def get_variable_layout(self, variable):
        return layout_of(variable) or keras.distribution.TensorLayout(
            self._axes(variable.path, variable.shape), self.device_mesh
        )

    def _axes(self, path, shape):
        axes: list[str | None] = [None] * len(shape)
        for pattern, cuts in self.table.items():
            if re.fullmatch(pattern, path):
                for candidates, name in cuts:
                    if name in self.sizes:
                        axis = self._cut(path, shape, candidates, name)
                        axes[axis % len(shape)] = name
        return axes

    def _cut(self, path, shape, candidates, name):
        parts = self.sizes[name]
        for axis in candidates:
            if shape[axis] % parts == 0:
                return axis
        sizes = " or ".join(str(shape[axis]) for axis in candidates)
        raise ValueError(
            f"{path!r} of shape {tuple(shape)} cannot be cut into {parts} "
            "equal shares. Use data_parallel, or a number of devices that "
            f"divides {sizes}."
        )


class BatchLayout(keras.distribution.TensorLayout):
    """A first axis that several axes of the mesh cut, which Keras has not."""

    def __init__(self, axes, device_mesh, batch):
        super().__init__(axes, device_mesh)
        self.batch = batch

    @property
    def backend_layout(self):
        from jax.sharding import NamedSharding, PartitionSpec

        mesh = self.device_mesh.backend_mesh
        return NamedSharding(mesh, PartitionSpec(self.batch))


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


@dataclasses.dataclass(frozen=True)
class Distribution:
    """The devices that a model computes on, as `setup` chose them.

    Args:
        choice: what was taken, never "auto".
        devices: names of the devices that take part.
        replicas: the shares that a batch is cut into.
        batch_size: images per batch on all devices together; None where it is
            not known.
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
        """Return the context to build, compile and train a model in.

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
    """Choose the devices to train a model on, and how they share it.

    The batch size is that of all devices together, so that the result does
    not depend on their number.

    Args:
        choice: "auto" takes all devices that divide the batch. "single" is
            one. "data_parallel" (JAX), "mirrored" and "tpu" (TensorFlow) cut
            the batch; "fsdp" (JAX) the kernels of the blocks as well, and
            "model_parallel" (JAX) attention and MLPs. "multiworker"
            (TensorFlow) is "mirrored" for the processes of TF_CONFIG. The
            processes of JAX are found by the variables of
            `keras.distribution`, or in a cluster.
        batch_size: images that the model sees at once, None if unknown.
        model_axis: devices that share a layer under "model_parallel".
        steps_per_execution: what the model is compiled with.

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
    """Choose what the backend has, with as many devices as divide a batch.

    Each process has as many as the others.
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
    """Raise for a choice of one process where there are several."""
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


@contextlib.contextmanager
def on_devices(choice: str, batch_size: int) -> Iterator[Share]:
    """Return the scope to load a model and predict in; prints the devices.

    Each of several processes predicts for itself, on its own devices: on JAX
    on all that divide its share of a batch, on TensorFlow on the first.

    Yields:
        The `Share` of each batch that this process predicts.

    Raises:
        ValueError: as `setup`, or for a choice of one process, or one that
            cuts the model, in one of several processes.
    """
    processes.start(choice)
    index, count = processes.place()
    chosen = (
        setup(choice, batch_size=batch_size)
        if count == 1
        else _of_this_process(choice, batch_size, index, count)
    )
    if index == 0:
        print(f"Distribution {chosen}", flush=True)
    with chosen.scope():
        yield Share(index, count)


def _of_this_process(choice, batch_size, index, count) -> Distribution:
    known = ("auto", SEVERAL_PROCESSES[keras.backend.backend()][0])
    if choice not in known or batch_size % count:
        raise ValueError(
            f"Each of {count} processes predicts an equal share of a batch, "
            "with the whole model. Received: "
            f"distribution={choice!r}, batch_size={batch_size}. Use "
            f"{' or '.join(known)} and a multiple of {count}, or one process."
        )
    own = processes.by_process(devices())[index]
    share = batch_size // count
    taken = next(n for n in range(len(own), 0, -1) if share % n == 0)
    several = taken > 1 and keras.backend.backend() == "jax"
    taken = own[: taken if several else 1]
    native = data_parallel(taken) if several else None
    replicas = len(taken) * count
    name = f"{known[1]}, each process for itself"
    return Distribution(name, tuple(taken), replicas, batch_size, native)


def _counted_mesh(native):
    return native, native.replicas


def _counted_strategy(native):
    return native, native.num_replicas_in_sync


# What makes Keras's distribution or TensorFlow's strategy, and counts its
# replicas, from devices, model_axis and steps_per_execution.
MAKERS: dict[str, dict[str, Callable]] = {
    "tensorflow": {
        "mirrored": lambda devices, axis, steps: _counted_strategy(
            mirrored(devices, steps)
        ),
        "multiworker": lambda devices, axis, steps: _counted_strategy(
            multiworker(steps)
        ),
        "tpu": lambda devices, axis, steps: _counted_strategy(tpu()),
    },
    "jax": {
        "data_parallel": lambda devices, axis, steps: (
            data_parallel(devices),
            len(devices),
        ),
        "fsdp": lambda devices, axis, steps: _counted_mesh(fsdp(devices)),
        "model_parallel": lambda devices, axis, steps: _counted_mesh(
            model_parallel(devices, axis)
        ),
    },
    "torch": {},
}

# What "auto" takes on several devices, and, first, in several processes.
PLAIN = {"jax": "data_parallel", "tensorflow": "mirrored", "torch": "single"}

SEVERAL_PROCESSES = {
    "jax": ("data_parallel", "fsdp", "model_parallel"),
    "tensorflow": ("multiworker",),
    "torch": (),
}
