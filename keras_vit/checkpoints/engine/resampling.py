"""Position embeddings on another grid of patches.

Axes: R and C rows and columns of a grid, D hidden dimension.
"""

import numpy as np

from keras_vit.interpolation import cubic, triangle
from keras_vit.io.checks import check_choice

__all__ = [
    "RESAMPLINGS",
    "geometric_matrix",
    "resample_position_embedding",
    "resize_matrix",
]


def resample_position_embedding(
    table: np.ndarray,
    old_grid: tuple,
    new_grid: tuple,
    method: str = "linear_aligned",
) -> np.ndarray:
    """Resample the embeddings of patches from one grid to another.

    Args:
        table: float array (1, P + R * C, D), those of P prefix tokens first;
            they are kept.
        old_grid: (rows, columns) of the table.
        new_grid: (rows, columns) that are wanted.
        method: "linear_aligned": linear, corners on corners, as the original
            code does it (`scipy.ndimage.zoom` of order 1). "bicubic",
            "linear": between the centres of patches, as torch does it.
            "bicubic_antialiased", "linear_antialiased": likewise, low-pass
            filtered where the grid shrinks.
            Each with "_square": to a square grid as large as the longer side,
            of which the upper left is taken, as NaFlexViTs do it.

    Returns:
        float32 array (1, P + new rows * new columns, D).

    Raises:
        ValueError: for an unknown method, or a table without the rows of the
            grid.
    """
    check_choice("resampling", method.removesuffix(SQUARE), RESAMPLINGS)
    prefix = table.shape[1] - old_grid[0] * old_grid[1]
    if prefix < 0:
        raise ValueError(
            f"A position embedding of shape {table.shape} is too short for a "
            f"grid of {old_grid[0]}x{old_grid[1]} patches."
        )
    side = max(new_grid) if method.endswith(SQUARE) else None
    method = method.removesuffix(SQUARE)
    rows, columns = (
        resize_matrix(old, side or new, method)[:new]
        for old, new in zip(old_grid, new_grid, strict=True)
    )
    grid = table[0, prefix:].reshape(*old_grid, -1)  # (R, C, D)
    grid = np.einsum("rR,cC,RCD->rcD", rows, columns, grid, optimize=True)
    patches = grid.reshape(1, -1, grid.shape[-1])  # (1, r * c, D)
    joined = np.concatenate([table[:, :prefix], patches], axis=1)
    return joined.astype("float32")


def resize_matrix(old: int, new: int, method: str) -> np.ndarray:
    """Return the linear map that resamples one axis of `old` entries to `new`.

    Returns:
        float64 array (new, old) whose rows sum to 1.
    """
    if old == new:
        return np.eye(old)
    return RESAMPLINGS[method](old, new)


def geometric_matrix(old: int, new: int) -> np.ndarray:
    """Return the linear map of distances along one axis, as BEiT does it.

    The old distances are put at 0, 1, 1 + q, 1 + q + q^2, ... to both sides,
    with a q above 1.01 by which the last one gets as far as the new ones go,
    and interpolated linearly: close to a token they stay as they are.

    Args:
        old: int, odd: the distances from -(old // 2) to old // 2.
        new: int, odd, likewise.

    Returns:
        float64 array (new, old) whose rows sum to 1.
    """
    left, right = 1.01, 1.5
    ratio = left
    while right - left > 1e-6:
        ratio = (left + right) / 2
        reach = (ratio ** (old // 2) - 1) / (ratio - 1)
        left, right = (left, ratio) if reach > new // 2 else (ratio, right)
    points = np.cumsum(ratio ** np.arange(old // 2))
    points = np.concatenate([-points[::-1], [0], points])
    wanted = np.arange(new) - new // 2
    each = np.eye(old)
    return np.stack([np.interp(wanted, points, x) for x in each], axis=1)


def _linear_aligned(old, new):
    """Interpolate at `new` points from the first to the last of `old`."""
    points = np.linspace(0, old - 1, new)
    return triangle(points[:, None] - np.arange(old))  # (new, old)


def _half_pixel(kernel, support, antialias=False):
    """Interpolate between centres of cells, as torch's `interpolate` does.

    With antialias the kernel is widened when the grid shrinks, and what is
    outside of the grid has no weight; without, the edge is repeated.
    """

    def matrix(old, new):
        scale = old / new
        points = (np.arange(new) + 0.5) * scale - 0.5
        width = max(scale, 1.0) if antialias else 1.0
        reach = int(np.ceil(support * width)) + 1
        sources = np.floor(points).astype(int)[:, None] + np.arange(
            -reach, reach + 1
        )
        weights = kernel((points[:, None] - sources) / width)
        if antialias:
            weights = weights * ((sources >= 0) & (sources < old))
        result = np.zeros((new, old))
        targets = np.repeat(np.arange(new)[:, None], sources.shape[1], axis=1)
        np.add.at(result, (targets, np.clip(sources, 0, old - 1)), weights)
        return result / result.sum(axis=1, keepdims=True)  # (new, old)

    return matrix


SQUARE = "_square"
# torch's bicubic has a = -0.75; antialiased, like Pillow's, -0.5.
RESAMPLINGS = {
    "linear_aligned": _linear_aligned,
    "linear": _half_pixel(triangle, 1),
    "linear_antialiased": _half_pixel(triangle, 1, antialias=True),
    "bicubic": _half_pixel(cubic(-0.75), 2),
    "bicubic_antialiased": _half_pixel(cubic(-0.5), 2, antialias=True),
}
