"""How devices share a model under JAX: what each of them holds of it.

Axes: B images of a batch, D hidden dimension, M width of an MLP.
"""

import re

import keras

__all__ = ["data_parallel", "fsdp", "model_parallel"]

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
        layout = getattr(variable, "_layout", None)
        return layout or keras.distribution.TensorLayout(
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
