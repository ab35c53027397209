"""Training and inference steps that benchmarks/compiled.py compiles.

A side traces the step of a `Program` and returns it lowered for the devices of
a topology, which need not be there.
"""

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


def prepare() -> None:
    """Sets what JAX and libtpu read once, before JAX is imported."""
    os.environ.update(
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        TPU_SKIP_MDS_QUERY="1",
        TPU_WORKER_HOSTNAMES="localhost",
        TPU_ACCELERATOR_TYPE="v5litepod-8",
        # On GPUs: what is launched together stands in the main part, and
        # products are cuBLAS's, as Triton's want to be tried out.
        XLA_FLAGS="--xla_gpu_enable_command_buffer= "
        "--xla_gpu_enable_triton_gemm=false",
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
    """The step of a Keras model, lowered for devices of a topology."""
    import keras

    from keras_vit.training.distribution.topologies import Step, lowered

    step = Step(
        make,
        program.batch,
        program.task,
        program.distribution,
        optimizer=lambda: keras.optimizers.AdamW(LEARNING_RATE),
    )
    return lowered(step, devices)


def abstract_batch(program):
    import jax

    shape = (program.batch, *program.config.image_size, 3)
    return (
        jax.ShapeDtypeStruct(shape, "float32"),
        jax.ShapeDtypeStruct((program.batch,), "int32"),
    )


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
