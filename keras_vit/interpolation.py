"""Kernels of interpolation, for arrays and for tensors.

They are functions of distances in pixels, or in other steps of a grid, and of
the library that computes: NumPy, or `keras.ops`, whose functions have the same
names.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["cubic", "lanczos3", "triangle"]


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


def _sinc(x, ops):
    angle = math.pi * ops.where(x == 0, 1e-20, x)
    return ops.sin(angle) / angle
