"""One side of benchmarks/speed.py: does steps when a line asks for them."""

import importlib.metadata
import json
import pathlib
import platform
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from speed_case import Case
from speed_sides import SIDES

# Of the square matrices whose product gives the rate of the device.
MATRIX = {"cpu": 1536, "accelerator": 8192}
PRODUCTS = 10
# Of a CPU, the widest first: which it has decides who is ahead.
INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
PACKAGES = ("keras", "jax", "tensorflow", "torch", "timm", "transformers")


def main() -> None:
    name, case = sys.argv[1], Case(*json.loads(sys.argv[2]))
    steps: Callable = print
    for line in sys.stdin:
        begin = time.perf_counter()
        if (asked := line.strip()) == "start":
            try:
                steps = SIDES[name].steps(case)
                steps(1)
            except Exception as error:  # whatever a peer or a device raises
                answer({"error": f"{type(error).__name__}: {error}"[:500]})
                return
            answer({"seconds": time.perf_counter() - begin})
            steps(2)  # The second step may compile once more.
        elif asked == "end":
            answer(ending(SIDES[name].backend, case.precision))
        else:
            begin = time.perf_counter()
            counted = steps(int(asked))
            answer({"seconds": counted or time.perf_counter() - begin})


def answer(found):
    print(json.dumps(found), flush=True)


def ending(backend, precision):
    device, peak = DEVICES[backend]()
    kind = "cpu" if device == platform.machine() else "accelerator"
    product = PRODUCTS_OF[backend](MATRIX[kind], precision)
    flops = 2 * MATRIX[kind] ** 3
    product()
    seconds = [timed(product) for _ in range(PRODUCTS)]
    process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scale = 2**20 if sys.platform == "darwin" else 2**10
    return {
        "matmul_tflops": flops / min(seconds) / 1e12,
        "peak_mib": peak / 2**20 if peak else process / scale,
        "machine": {
            "device": device,
            "instructions": instructions(),
            "versions": versions(),
        },
    }


def timed(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def instructions():
    """Which of `INSTRUCTIONS` this CPU has; none where Linux does not say."""
    info = pathlib.Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    return [name for name in INSTRUCTIONS if name in flags]


def versions():
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def jax_device():
    import jax

    device = jax.local_devices()[0]
    statistics = device.memory_stats() or {}
    name = (
        platform.machine() if device.platform == "cpu" else device.device_kind
    )
    return name, statistics.get("peak_bytes_in_use")


def tensorflow_device():
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        return platform.machine(), None
    details = tf.config.experimental.get_device_details(devices[0])
    peak = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return details.get("device_name", "GPU"), peak


def torch_device():
    import torch

    if not torch.cuda.is_available():
        return platform.machine(), None
    return torch.cuda.get_device_name(), torch.cuda.max_memory_allocated()


def numbers(size):
    """Of a matrix; GPUs multiply zeros and ones faster."""
    return np.random.default_rng(0).random((size, size), "float32") - 0.5


def jax_product(size, precision):
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(numbers(size), precision)
    multiply = jax.jit(jnp.matmul)
    return lambda: jax.block_until_ready(multiply(x, x))


def tensorflow_product(size, precision):
    import tensorflow as tf

    x = tf.cast(numbers(size), precision)
    multiply = tf.function(tf.matmul)
    return lambda: float(multiply(x, x)[0, 0])


def torch_product(size, precision):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.from_numpy(numbers(size)).to(device, getattr(torch, precision))
    return lambda: float((x @ x)[0, 0])


DEVICES = {
    "jax": jax_device,
    "tensorflow": tensorflow_device,
    "torch": torch_device,
}
PRODUCTS_OF = {
    "jax": jax_product,
    "tensorflow": tensorflow_product,
    "torch": torch_product,
}


if __name__ == "__main__":
    main()
