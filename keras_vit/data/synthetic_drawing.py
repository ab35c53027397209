"""From iterated function systems to grey images.

Axes: B images of a batch, M maps, T steps, P points that move at once, F
fine pixels a side, H pixels a side.
"""

import numpy as np

from keras_vit.data.synthetic_systems import BYTES, LETTERS, Systems

__all__ = ["draw", "points_of", "walk_shape"]

# Steps until a point that begins anywhere is on the attractor, and steps that
# are drawn. Many points take few steps at once, which suits NumPy.
SETTLING, DRAWN = 20, 32
POINTS_PER_PIXEL = 2
# Fine pixels a side for a pixel of the image: with 2, images of 32 pixels are
# silhouettes; with 4, what is inside of them shows.
FINENESS = 4
MARGIN = 1  # Fine pixels that stay black at each side.


def walk_shape(image_size: int) -> tuple[int, int]:
    """Sizes of the random walks of an image.

    Args:
        image_size: int, pixels a side, H.

    Returns:
        Steps, and points that walk at once, P, a multiple of 8.
    """
    walkers = -(-POINTS_PER_PIXEL * image_size**2 // (8 * DRAWN)) * 8
    return SETTLING + DRAWN, walkers


def points_of(systems: Systems, draws: np.ndarray):
    """Lets points go from map to map (the chaos game).

    Args:
        systems: `Systems`, B of them.
        draws: uint8 array of shape (B, steps, P), random bytes that choose
            the maps.

    Returns:
        x and y, float32 arrays of shape (B, T * P): the points of all steps
        but the first SETTLING ones.
    """
    batch, steps, walkers = draws.shape
    first = np.arange(batch)[:, None, None]
    chosen = systems.choices.reshape(-1)[first * BYTES + draws]
    maps = systems.maps.shape[1]
    chosen = np.moveaxis(chosen + first * maps, 1, 0).copy()  # (steps, B, P)
    letters = systems.maps.reshape(-1, LETTERS).T.copy()  # (6, B * M)
    x = np.zeros((batch, walkers), np.float32)
    y = np.zeros((batch, walkers), np.float32)
    shape = (steps - SETTLING, batch, walkers)
    xs, ys = np.empty(shape, np.float32), np.empty(shape, np.float32)
    for step in range(steps):
        a, b, c, d, e, f = np.take(letters, chosen[step], axis=1)  # (B, P)
        x, y = a * x + b * y + e, c * x + d * y + f
        if step >= SETTLING:
            xs[step - SETTLING], ys[step - SETTLING] = x, y
    return [np.moveaxis(part, 0, 1).reshape(batch, -1) for part in (xs, ys)]


def draw(x, y, brushes, flips, image_size: int) -> np.ndarray:
    """Draws points with a brush.

    Args:
        x: float32 array of shape (B, points).
        y: the same.
        brushes: int array of shape (B,), 1 to 511: which of the 3x3 fine
            pixels around a point become white.
        flips: int array of shape (B,), 0 to 3: bit 0 mirrors, bit 1 turns
            upside down.
        image_size: int, H.

    Returns:
        uint8 array of shape (B, H, H), 0 to 255.
    """
    fine = image_size * FINENESS
    space = fine + 2  # Room for the brush.
    canvas = np.zeros((len(x), space, space), np.uint8)
    first = np.arange(len(x))[:, None] * space
    rows, columns = _fitted(y, fine) + 1, _fitted(x, fine) + 1
    canvas.reshape(-1)[(first + rows) * space + columns] = 1
    whites = _counted(_brushed(canvas, brushes, fine))  # (B, H, H)
    images = (whites.astype(np.uint16) * 255 // FINENESS**2).astype(np.uint8)
    mirrored, upside_down = flips & 1 == 1, flips & 2 == 2
    images[mirrored] = images[mirrored, :, ::-1]
    images[upside_down] = images[upside_down, ::-1]
    return images


def _fitted(values: np.ndarray, fine: int) -> np.ndarray:
    """Scales the points of each image to its picture, as int (B, points)."""
    low = values.min(axis=1, keepdims=True)
    extent = values.max(axis=1, keepdims=True) - low
    room = np.float32(fine - 1 - 2 * MARGIN)
    scaled = (values - low) / np.maximum(extent, np.float32(1e-6))
    return (scaled * room + np.float32(MARGIN + 0.5)).astype(np.int64)


def _brushed(canvas: np.ndarray, brushes: np.ndarray, fine: int) -> np.ndarray:
    """Grows each point to the pixels of the brush, (B, F, F)."""
    image = np.zeros((len(canvas), fine, fine), np.uint8)
    for bit in range(9):
        i, j = divmod(bit, 3)
        used = (brushes >> bit & 1).astype(np.uint8)[:, None, None]
        image |= canvas[:, i : i + fine, j : j + fine] * used
    return image


def _counted(image: np.ndarray) -> np.ndarray:
    """Counts the white fine pixels of each pixel, (B, H, H)."""
    batch, fine, _ = image.shape
    side = fine // FINENESS
    rows = image.reshape(batch, side, FINENESS, fine)
    rows = rows.sum(axis=2, dtype=np.uint8)  # (B, H, F)
    counts = np.zeros((batch, side, side), np.uint8)
    for i in range(FINENESS):  # Ten times as fast as a sum over four.
        counts += rows[:, :, i::FINENESS]
    return counts
