"""Which function a platform computes: JAX decides where a program is lowered.

What traces a program need not be what runs it: a step is compiled for TPUs, and
a model exported for GPUs, on machines that have neither.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_vit.io.checks import cpu_flags
from keras_vit.runtime.workarounds import backend_is, has_strategy, layout_of

__all__ = [
    "WIDE_HEADS",
    "WIDE_MLP",
    "by_platform",
    "compile_predictions",
    "gathering",
    "has_fused_attention",
    "optimization_barrier",
    "recomputed",
    "sharding_of",
    "split_batch",
    "with_gradients",
]

# Features above which TPUs predict faster with the heads of attention, or the
# hidden layer of the MLP, computed before what reads them; and bytes of the
# weights of attention that they have at a time, half of the memory on the chip
# (docs/decisions/tpu-parts.md, docs/decisions/tpu-programs.md).
WIDE_HEADS = 1024
WIDE_MLP = 512
MICROBATCH_BYTES = 64 * 2**20


def by_platform(
    *tensors, cpu: Callable, other: Callable, gpu: Callable | None = None
) -> Any:
    """Calls the function of the platform that the program is lowered for.

    All of them are traced, and one is part of the program. They return the same
    shapes and dtypes, and change no variable. On other backends than JAX it is
    that of the CPU.

    Args:
        *tensors: what the functions are called with.
        cpu: function for CPUs.
        other: function for TPUs and all else.
        gpu: function for GPUs, `other` if there is none.

    Returns:
        What the function returns.
    """
    if not backend_is("jax"):
        return cpu(*tensors)
    import jax
    from jax.core import Tracer

    gpu = gpu or other
    arrays = [x for x in tensors if isinstance(x, jax.Array)]
    if not any(map(_is_abstract, arrays)):
        # Outside of a program, where each call would compile one. What is
        # differentiated there has no device of its own.
        known = (x for x in arrays if not isinstance(x, Tracer))
        found = {device.platform for x in known for device in x.devices()}
        platform = found.pop() if found else jax.default_backend()
        paths = {"cpu": cpu, "gpu": gpu, "cuda": gpu, "rocm": gpu}
        return paths.get(platform, other)(*tensors)
    return jax.lax.platform_dependent(
        *tensors, cpu=cpu, cuda=gpu, rocm=gpu, default=other
    )


def has_fused_attention() -> bool:
    """Whether Keras has fused attention on the GPUs of JAX.

    It finds it only where there is one.
    """
    devices = keras.distribution.list_devices()  # such as "gpu:0"
    return any(device.startswith("gpu") for device in devices)


def with_gradients(fused: Callable, explicit: Callable) -> Callable:
    """Gives fused attention gradients, whatever the number of tokens.

    On GPUs and in half precision JAX differentiates it for even numbers of
    tokens alone: for odd ones cuDNN has no gradient of a bias, which JAX takes
    a placeholder for. For 196 patches and a class token the gradient is that
    of explicit attention. Until `test_jax_differentiates_even_tokens_alone`.

    Args:
        fused: function of query, key and value, each (B, N, H, d).
        explicit: function of the same, with the same result.

    Returns:
        A function of the same.
    """

    def attend(query, key, value):
        if not backend_is("jax") or not has_fused_attention():
            return fused(query, key, value)
        counts = (query.shape[1], key.shape[1])
        even = all(isinstance(n, int) and n % 2 == 0 for n in counts)
        kind = keras.backend.standardize_dtype(query.dtype)
        if even or kind not in {"float16", "bfloat16"}:
            return fused(query, key, value)
        import jax

        both = jax.custom_vjp(fused)
        both.defvjp(
            lambda *heads: jax.vjp(explicit, *heads),
            lambda gradient, upstream: gradient(upstream),
        )
        return both(query, key, value)

    return attend


def _is_abstract(tensor):
    """Whether it is of a program, and has no values yet."""
    from jax.core import Tracer

    return isinstance(tensor, Tracer) and tensor.to_concrete_value() is None


def recomputed(*tensors) -> tuple:
    """Hides from XLA that what is computed of the tensors is there already.

    XLA would keep it from the forward to the backward pass. It is computed
    after all of the tensors are known.
    """
    import jax

    return jax.lax.optimization_barrier(tensors)


def optimization_barrier(x):
    """The tensor, computed before what reads it where XLA is for TPUs.

    XLA would make one fusion of both dense layers of an MLP, which reads their
    kernels again for each few images.

    Args:
        x: tensor.

    Returns:
        The tensor.
    """

    def same(x):
        return x

    return by_platform(x, cpu=same, gpu=same, other=lambda x: recomputed(x)[0])


def split_batch(
    function: Callable,
    images,
    size: int,
    layer: keras.Layer,
) -> Any:
    """Computes a batch in parts, one after the other, where XLA is for TPUs.

    What a TPU computes of a part stays on the chip. Of a batch that does not
    fit there, it goes through the slowest memory in each layer.

    Args:
        function: of a batch, which computes each image alone and changes no
            variable; it returns a tensor whose first axis is the batch.
        images: tensor (B, ...).
        size: bytes that an image takes at a time.
        layer: whose variables the function reads.

    Returns:
        What the function returns of the batch.
    """
    count = parts_of(images, size, layer)
    if count == 1:
        return function(images)
    import jax

    def in_parts(images):
        # Each device has its share of each part.
        parts = ops.reshape(images, (-1, count, *images.shape[1:]))
        one = jax.jit(function)  # It is traced once.
        found: list = []
        for i in range(count):
            x = parts[:, i]  # (B / count, ...)
            if found:
                x, found[-1] = recomputed(x, found[-1])
            found.append(one(x))
        x = ops.stack(found, axis=1)  # (B / count, count, ...)
        return ops.reshape(x, (-1, *x.shape[2:]))

    return by_platform(images, cpu=function, gpu=function, other=in_parts)


def parts_of(images, size: int, layer: keras.Layer) -> int:
    """How many parts of a batch stay on the chip, the fewest of one size.

    It is 1 outside of a program, for a batch of unknown size, where each part
    would gather the variables again, and where the batch has no parts of more
    than half of what fits.
    """
    if not backend_is("jax") or not _is_abstract(images):
        return 1
    shardings = [x for x in map(sharding_of, layer.variables) if x is not None]
    if any("batch" in x.spec for x in shardings):
        return 1
    devices = shardings[0].mesh.size if shardings else 1
    batch = images.shape[0]
    if not isinstance(batch, int) or batch % devices:
        return 1
    share = batch // devices
    fewest = math.ceil(share * size / MICROBATCH_BYTES)
    counts = range(fewest, min(2 * fewest, share + 1))
    return next((n for n in counts if share % n == 0), 1)


def compile_predictions(model: keras.Model) -> None:
    """Lets XLA compile what a model predicts, where that is faster.

    On machines with CPUs alone, Keras leaves TensorFlow without XLA. On a CPU
    with AVX2 and without AVX-512, XLA predicts 1.1 times as many images; with
    AVX-512 as many (docs/speed.md). Nothing changes on other backends, beside
    an accelerator or in the scope of a strategy of tf.distribute.

    Args:
        model: its batches have one size, as each size is compiled anew.
    """
    if not backend_is("tensorflow") or has_strategy():
        return
    import tensorflow as tf

    devices = {
        device.device_type for device in tf.config.list_physical_devices()
    }
    flags = cpu_flags()
    if devices == {"CPU"} and "avx2" in flags and "avx512f" not in flags:
        model.jit_compile = True


def sharding_of(variable: keras.Variable):
    """JAX's sharding that a variable was given; None without one."""
    layout = layout_of(variable)
    # Keras 3.12 keeps JAX's own.
    return getattr(layout, "backend_layout", layout)


def gathering(function: Callable, variable: keras.Variable) -> Callable:
    """The function of x and kernel, for a kernel that the replicas share.

    Each has a part of it under "fsdp". They gather the whole for this function
    alone, and once more for its gradient, of whose sum each gets its part.

    Args:
        function: of x, whose first axis is the batch, and a kernel, with one
            output of the same batch.
        variable: the kernel, which tells whether it is shared.

    Returns:
        A function of x and the kernel.
    """
    sharding = sharding_of(variable)
    if sharding is None or "batch" not in sharding.spec:
        return function
    import jax
    from jax.sharding import PartitionSpec

    mesh, part = sharding.mesh, sharding.spec
    cuts = [(axis, name) for axis, name in enumerate(part) if name]
    batch = PartitionSpec(mesh.axis_names)

    def on_each(function, inputs, outputs):
        return jax.shard_map(
            function,
            mesh=mesh,
            in_specs=inputs,
            out_specs=outputs,
            check_vma=False,
        )

    def gathered(kernel):
        for axis, name in cuts:
            kernel = jax.lax.all_gather(kernel, name, axis=axis, tiled=True)
        return kernel

    def forward(x, kernel):
        return function(x, gathered(kernel))

    def backward(x, kernel, upstream):
        kernel, upstream = recomputed(kernel, upstream)
        of_x, total = jax.vjp(function, x, gathered(kernel))[1](upstream)
        for axis, name in cuts:
            total = scattered(total, name, axis)
        return of_x, total

    def scattered(total, name, axis):
        # Shares that fill no tiles are scattered along a first axis alone.
        cut = (mesh.shape[name], total.shape[axis] // mesh.shape[name])
        shape = (*total.shape[:axis], *cut, *total.shape[axis + 1 :])
        shares = jax.numpy.moveaxis(total.reshape(shape), axis, 0)
        return jax.lax.psum_scatter(shares, name)

    @ops.custom_gradient
    def shared(x, kernel):
        def gradient(upstream):
            inputs = (batch, part, batch)
            return on_each(backward, inputs, (batch, part))(x, kernel, upstream)

        return on_each(forward, (batch, part), batch)(x, kernel), gradient

    replicas = mesh.size
    # A batch that the replicas cannot share is one of a symbolic call, too.
    return lambda x, kernel: (function if x.shape[0] % replicas else shared)(
        x, kernel
    )
