"""Training and inference steps that benchmarks/compiled.py compiles for TPUs.

A side traces the step of a `Program` and returns it lowered for the devices of
a topology, which need not be there.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from speed_case import LEARNING_RATE, keras_hub_model

POLICY = "mixed_bfloat16"


class Program(NamedTuple):
    """What is compiled."""

    config: Any  # a `ViTConfig`
    task: str  # "training" or "inference"
    batch: int  # images on all devices together
    distribution: str = "single"


class Side(NamedTuple):
    """One of the compared."""

    library: str  # to be imported, or the side is left out
    lower: Callable[[Program, list], Any]


def prepare(devices: int) -> None:
    """Sets what JAX and libtpu read once, before JAX is imported.

    Args:
        devices: int, of the topology; as many virtual ones hold the weights.
    """
    flag = f"--xla_force_host_platform_device_count={devices}"
    os.environ.update(
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        TPU_SKIP_MDS_QUERY="1",
        TPU_WORKER_HOSTNAMES="localhost",
        TPU_ACCELERATOR_TYPE="v5litepod-8",
        XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {flag}",
    )


def ours(program: Program, devices: list):
    import keras

    from keras_vit.models.vit import VisionTransformer

    keras.config.set_dtype_policy(POLICY)
    return keras_step(
        lambda: VisionTransformer(program.config), program, devices
    )


def keras_hub(program: Program, devices: list):
    import keras

    keras.config.set_dtype_policy(POLICY)
    return keras_step(lambda: keras_hub_model(program.config), program, devices)


def keras_step(make: Callable, program: Program, devices: list):
    """The step of a Keras model, lowered for devices of a topology.

    Its variables lie on as many virtual devices of the CPU, and tell how they
    would be shared.
    """
    import jax
    import keras

    from keras_vit.training.distribution import setup

    chosen = setup(program.distribution, batch_size=program.batch)
    # As on a TPU, where the fused kernel of Keras takes no 197 tokens.
    keras.config.disable_flash_attention()
    with chosen.scope():
        model = make()
        model.compile(
            keras.optimizers.AdamW(LEARNING_RATE),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        batch = abstract_batch(program)
        model._symbolic_build(data_batch=batch)  # What `fit` does first.
        model.optimizer.build(model.trainable_variables)
        place = functools.partial(placed, devices=devices)
        images, labels = (
            placed_batch(x, chosen.native, devices) for x in batch
        )
        weights = [
            [place(variable.value) for variable in group]
            for group in (
                model.trainable_variables,
                model.non_trainable_variables,
            )
        ]
        if program.task == "inference":

            def infer(weights, images):
                return model.stateless_call(*weights, images, training=False)[0]

            return jax.jit(infer).lower(weights, images)
        state = (
            *weights,
            [place(x.value) for x in model.optimizer.variables],
            [place(x.value) for x in model.metrics_variables],
        )
        kept = jax.tree.map(lambda x: x.sharding, state)
        return jax.jit(
            model.train_step, donate_argnums=0, out_shardings=(None, kept)
        ).lower(state, (images, labels))


def abstract_batch(program):
    import jax

    shape = (program.batch, *program.config.image_size, 3)
    return (
        jax.ShapeDtypeStruct(shape, "float32"),
        jax.ShapeDtypeStruct((program.batch,), "int32"),
    )


def placed(value, devices):
    """The shape of an array, shared by the devices as it is by virtual ones."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding

    sharding = value.sharding
    if isinstance(sharding, NamedSharding):
        virtual: Any = sharding.mesh
        grid = np.reshape(devices, virtual.devices.shape)
        mesh = Mesh(grid, virtual.axis_names)
        sharding = NamedSharding(mesh, sharding.spec)
    else:
        sharding = SingleDeviceSharding(devices[0])
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)


def placed_batch(value, native, devices):
    """The shape of images or labels, of which each replica has a share."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if native is None:
        mesh = Mesh(np.array(devices[:1]), ["batch"])
    else:
        grid = np.reshape(devices, native.device_mesh.shape)
        mesh = Mesh(grid, native.device_mesh.axis_names)
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)


def plain(program: Program, devices: list):
    """`plain_vit`, on one device."""
    import jax
    import plain_vit
    from jax.sharding import SingleDeviceSharding

    one = SingleDeviceSharding(devices[0])

    def place(shape, dtype="float32"):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=one)

    if program.distribution != "single":
        raise ValueError("The plain JAX side is of one device.")
    weights = jax.tree.map(
        place,
        plain_vit.shapes(program.config),
        is_leaf=lambda x: isinstance(x, tuple),
    )
    images, labels = (place(x.shape, x.dtype) for x in abstract_batch(program))
    step = plain_vit.programs(program.config, LEARNING_RATE)[program.task]
    if program.task == "inference":
        return jax.jit(step).lower(weights, images)
    state = (place((), "int32"), weights, weights, weights)
    return jax.jit(step, donate_argnums=0).lower(state, images, labels)


SIDES = {
    "keras_vit": Side("jax", ours),
    "plain JAX": Side("jax", plain),
    "keras-hub": Side("keras_hub", keras_hub),
}
