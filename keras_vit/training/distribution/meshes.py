"""How JAX's devices share a model and a batch, by keras.distribution."""

import math
import re

import keras

from keras_vit.runtime.workarounds import layout_of

__all__ = ["MESHES", "MODEL_AXIS", "Sharded", "data_parallel"]

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


def _counted(native):
    return native, native.replicas


# From devices, model_axis and steps_per_execution to Keras's distribution and
# its replicas.
MESHES = {
    "data_parallel": lambda devices, axis, steps: (
        data_parallel(devices),
        len(devices),
    ),
    "fsdp": lambda devices, axis, steps: _counted(fsdp(devices)),
    "model_parallel": lambda devices, axis, steps: _counted(
        model_parallel(devices, axis)
    ),
}
