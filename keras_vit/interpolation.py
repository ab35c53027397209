"""Interpolation of arrays and of tensors, along an axis.

Kernels are functions of distances in pixels, or in other steps of a grid. The
library that computes is NumPy, or `keras.ops`, whose functions have the same
names.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "RESAMPLINGS",
    "SQUARE",
    "axis_weights",
    "cubic",
    "hamming",
    "lanczos3",
    "resize_matrix",
    "triangle",
]


def triangle(x: Any, ops: Any = np) -> Any:
    """The kernel of linear interpolation."""
    return ops.maximum(1 - ops.abs(x), 0.0)


def cubic(a: float) -> Callable:
    """The cubic convolution kernel of Keys (1981) with parameter a."""

    def kernel(x, ops=np):
        x = ops.abs(x)
        near = ((a + 2) * x - (a + 3)) * x**2 + 1
        far = a * (((x - 5) * x + 8) * x - 4)
        return ops.where(x <= 1, near, ops.where(x < 2, far, 0.0))

    return kernel


def lanczos3(x: Any, ops: Any = np) -> Any:
    """The kernel of Lanczos, three steps wide to each side."""
    value = _sinc(x, ops) * _sinc(x / 3, ops)
    return ops.where(ops.abs(x) < 3, value, 0.0)


def hamming(x: Any, ops: Any = np) -> Any:
    """The kernel of Pillow's HAMMING, one step wide to each side."""
    near = _sinc(x, ops) * (0.54 + 0.46 * ops.cos(math.pi * x))
    return ops.where(ops.abs(x) < 1, near, 0.0)


def _sinc(x, ops):
    angle = math.pi * ops.where(x == 0, 1e-20, x)
    return ops.sin(angle) / angle


# How positions are resampled: the kernel, and whether it grows where the grid
# shrinks, so that what is outside of the grid has no weight. torch's bicubic
# has a = -0.75; antialiased, like Pillow's, -0.5.
RESAMPLINGS = {
    "linear_aligned": (triangle, False),
    "linear": (triangle, False),
    "linear_antialiased": (triangle, True),
    "bicubic": (cubic(-0.75), False),
    "bicubic_antialiased": (cubic(-0.5), True),
}
# At the end of the name of one: to a square grid as large as the longer side.
SQUARE = "_square"


def resize_matrix(old: int, new: int, method: str) -> np.ndarray:
    """Return the linear map that resamples one axis of `old` entries to `new`.

    Returns:
        float64 array (new, old) whose rows sum to 1.
    """
    if old == new:
        return np.eye(old)
    places, sides = np.arange(new, dtype="float64"), np.array([new])
    return axis_weights(places, sides, old, method, np)


def axis_weights(places: Any, sides: Any, old: int, method: str, ops: Any):
    """Return the weights of `old` entries at places of an axis of any length.

    Args:
        places: float array or tensor (..., N), places on the axis from 0.
        sides: array or tensor (..., 1), the length of the axis.
        old: int, how many entries there are.
        method: one of `RESAMPLINGS`.
        ops: the library that computes.

    Returns:
        Array or tensor (..., N, old) whose last axis sums to 1.
    """
    kernel, antialias = RESAMPLINGS[method]
    scale = old / sides
    points = (places + 0.5) * scale - 0.5  # (..., N), centre on centre
    if method == "linear_aligned":  # corner on corner
        points = places * (old - 1) / ops.maximum(sides - 1, 1)
    width = ops.maximum(scale, 1.0) if antialias else ops.ones_like(scale)
    # Without antialias the edge is repeated as far as a kernel reaches.
    reach = 0 if antialias else 2
    sources = np.arange(-reach, old + reach, dtype="float32")  # (S,)
    offsets = ops.subtract(points[..., None], sources)  # (..., N, S)
    weights = kernel(offsets / width[..., None], ops)
    nearest = np.clip(sources, 0, old - 1)[:, None]
    repeated = (nearest == np.arange(old)).astype("float32")  # (S, old)
    weights = ops.matmul(weights, repeated)  # (..., N, old)
    return weights / ops.sum(weights, axis=-1, keepdims=True)
