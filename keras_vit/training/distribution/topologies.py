"""Steps of a model lowered for devices that this machine does not have.

XLA compiles for TPUs wherever libtpu is installed, for GPUs wherever JAX's CUDA
plugin is, and for several CPUs in one process. The model is built of shapes
alone, so that one of any size takes no memory.
"""

import contextlib
import fcntl
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras

from keras_vit.runtime.platforms import sharding_of
from keras_vit.training.distribution.layouts import MAKERS, MODEL_AXIS

__all__ = [
    "Step",
    "devices_of",
    "lowered",
    "one_process",
]


class Step(NamedTuple):
    """What is lowered: a step on a batch of images."""

    make: Callable[[], keras.Model]
    """Builds the model, not compiled, with logits."""
    batch: int
    """Images on all devices together."""
    task: str = "training"
    """"training", "evaluation" or "inference"."""
    distribution: str = "single"
    """Of `setup`, for JAX."""
    model_axis: int = MODEL_AXIS
    optimizer: Callable[[], keras.optimizers.Optimizer] = keras.optimizers.AdamW
    loss: Callable[[], keras.losses.Loss] | None = None
    """Cross-entropy with classes by default."""
    answers: Callable[[keras.Model], tuple] | None = None
    """From the model to the shapes for an image of the answers, and of their
    weights if there are, in float32; by default the number of a class."""


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """Wait for its turn: a second process with libtpu ends with an error."""
    path = pathlib.Path(tempfile.gettempdir(), f"compiled-{os.getuid()}.lock")
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# What XLA's CUDA backend asks of a GPU: facts of NVIDIA's data sheets and of
# what the driver says of compute capability 9.0.
HOPPER = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 l2_cache_size: 52428800
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 clock_rate_ghz: 1.98
  cuda_compute_capability {{ major: 9 }}
  memory_bandwidth: {bandwidth} device_memory_size: {memory}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{name}"
"""
GPUS = {
    "h100": HOPPER.format(
        bandwidth=3_350_000_000_000, memory=80 << 30, name="NVIDIA H100 SXM"
    ),
    "h200": HOPPER.format(
        bandwidth=4_800_000_000_000, memory=141 << 30, name="NVIDIA H200 SXM"
    ),
}


def devices_of(topology: str) -> list:
    """Return the devices of a machine that need not be there.

    Args:
        topology: generation of a TPU and chips along each axis, "v5e:2x4" or
            "v5p:2x2x1"; or a GPU and a number of them in one machine, "h100:8".

    Returns:
        Devices of JAX that programs are compiled for and that run nothing.
    """
    from jax.experimental import topologies

    name, _, count = topology.partition(":")
    if name in GPUS:
        described = topologies.get_topology_desc(
            topology,
            "cuda",
            target_config=GPUS[name],
            topology=f"1x1x{count or 1}",
        )
    else:
        described = topologies.get_topology_desc(topology, "tpu")
    return list(described.devices)


def lowered(step: Step, devices: list) -> Any:
    """Lower a step of a Keras model for devices that need not be there.

    Args:
        step: a `Step`.
        devices: of JAX, such as those of `devices_of`.

    Returns:
        JAX's lowered program: `compile()` gives it to XLA.
    """
    import jax

    native = None
    if step.distribution != "single":
        maker = MAKERS["jax"][step.distribution]
        native, _ = maker(devices, step.model_axis, 1)
    # As on a TPU, where the fused kernel of Keras takes no 197 tokens.
    keras.config.disable_flash_attention()
    with native.scope() if native else contextlib.nullcontext():
        model = _traced(step)
        place = _Placement(native, devices)
        weights = (
            place.variables(model.trainable_variables),
            place.variables(model.non_trainable_variables),
        )
        images, *answers = place.batch(_batch(step, model))
        if step.task == "inference":

            def infer(weights, images):
                return model.stateless_call(*weights, images, training=False)[0]

            return jax.jit(infer).lower(weights, images)
        metrics = place.variables(model.metrics_variables)
        if step.task == "evaluation":
            state = (*weights, metrics)
            return jax.jit(model.test_step).lower(state, (images, *answers))
        slots = place.variables(model.optimizer.variables)
        state = (*weights, slots, metrics)
        kept = jax.tree.map(lambda x: x.sharding, state)
        train = jax.jit(
            model.train_step, donate_argnums=0, out_shardings=(None, kept)
        )
        return train.lower(state, (images, *answers))


def _traced(step):
    """Return a compiled Keras model whose variables hold no numbers."""
    import jax

    models = []

    def build():
        model = step.make()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(step.optimizer(), step.loss() if step.loss else loss)
        model.optimizer.build(model.trainable_variables)
        models.append(model)
        return 0

    jax.eval_shape(build)
    return models[0]


def _batch(step, model):
    """Return the shapes of the inputs, of answers and of their weights."""
    import jax

    def of_images(shape, dtype="float32"):
        return jax.ShapeDtypeStruct((step.batch, *shape), dtype)

    inputs = keras.tree.map_structure(
        lambda x: of_images(x.shape[1:], x.dtype), model.input
    )
    if step.answers is None:
        return inputs, of_images((), "int32")
    return inputs, *map(of_images, step.answers(model))


class _Placement:
    """The shapes of arrays, with the devices that hold them."""

    def __init__(self, native, devices):
        self.native = native
        self.devices = devices

    def variables(self, variables):
        """Return those of Keras's variables, where the layout puts them."""
        return [self._shape(x, sharding_of(x)) for x in variables]

    def batch(self, shapes):
        """Return those of a batch, of which each replica has a share."""
        return keras.tree.map_structure(self._data, shapes)

    def _data(self, shape):
        layout = self.native and self.native.get_data_layout(shape.shape)
        return self._shape(shape, layout and layout.backend_layout)

    def _shape(self, x, sharding):
        import jax

        one = jax.sharding.SingleDeviceSharding(self.devices[0])
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding or one)
