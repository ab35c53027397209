"""Iterated function systems: the formulas that classes of fractals are.

Axes: B images of a batch, M maps, T steps, P points that move at once, F
fine pixels a side, H pixels a side.
"""

import dataclasses

import numpy as np

__all__ = [
    "BYTES",
    "LETTERS",
    "Systems",
    "draw",
    "points_of",
    "random_words",
    "unit_interval",
    "walk_shape",
]

MIN_MAPS, MAX_MAPS = 2, 7
LETTERS = 6  # a to f, of (a x + b y + e, c x + d y + f).
# Largest factor that a map stretches by. Images change one of its letters by
# a fifth at most, so that it stays below 1 and every point stays near.
STRETCHES = (0.4, 0.8)
BYTES = 256  # Values of a byte.
SYSTEMS = 0  # The purpose of the words that systems are drawn from.


def random_words(
    seed: int, number: int, *, purpose: int, item: int, size: int
) -> np.ndarray:
    """Draws random 64-bit words, a function of the arguments.

    Philox4x64-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2,
    3", 2011). NumPy keeps the words of a bit generator the same in all
    versions (NEP 19), unlike what its `Generator` makes of them.

    Args:
        seed: int in [0, 2**64).
        number: int, of the class.
        purpose: int, what they are for.
        item: int, of the attempt or of the image.
        size: int, how many.

    Returns:
        uint64 array of shape (size,).
    """
    generator = np.random.Philox(
        counter=np.array([0, item, purpose, 0], np.uint64),
        key=np.array([seed, number], np.uint64),
    )
    return generator.random_raw(size)


def unit_interval(words: np.ndarray) -> np.ndarray:
    """Makes numbers in [0, 1) of random words.

    Args:
        words: uint64 array.

    Returns:
        float64 array of the same shape: the upper 53 bits.
    """
    return (words >> np.uint64(11)) * 2.0**-53


@dataclasses.dataclass(frozen=True)
class Systems:
    """Iterated function systems, a row each.

    Args:
        maps: float32 array of shape (S, M, 6), letters a to f of each map.
        choices: uint8 array of shape (S, 256): which map a random byte
            chooses, in proportion to the area that the map leaves.

    Example:
        >>> corners = [(0, 0), (1, 0), (0, 1)]  # Sierpinski's triangle
        >>> maps = [[0.5, 0, 0, 0.5, e, f] for e, f in corners]
        >>> Systems.of([maps]).maps.shape
        (1, 7, 6)
    """

    maps: np.ndarray
    choices: np.ndarray

    @classmethod
    def of(cls, systems) -> "Systems":
        """Makes systems of their maps.

        Args:
            systems: sequence of float arrays (maps, 6), 1 to 7 maps each.

        Returns:
            `Systems`.
        """
        maps = np.zeros((len(systems), MAX_MAPS, LETTERS))
        for row, system in zip(maps, systems, strict=True):
            row[: len(system)] = system
        a, b, c, d, _, _ = np.moveaxis(maps, -1, 0)  # (S, M) each
        areas = np.cumsum(np.abs(a * d - b * c), axis=1)  # (S, M)
        ends = np.floor(areas / areas[:, -1:] * BYTES + 0.5)  # (S, M)
        choices = (np.arange(BYTES)[:, None] >= ends[:, None]).sum(axis=-1)
        return cls(maps.astype(np.float32), choices.astype(np.uint8))

    @classmethod
    def drawn(cls, seed: int, numbers, attempt: int) -> "Systems":
        """Draws systems at random.

        As FractalDB does, from the uniform distribution on [-1, 1]; then each
        map is scaled to a contraction, which FractalDB does not: some of its
        systems throw points to infinity.

        Args:
            seed: int.
            numbers: ints, of the classes.
            attempt: int, of the draw.

        Returns:
            `Systems`, one for each number.
        """
        return cls.of(
            [_drawn_maps(seed, number, attempt) for number in numbers]
        )

    def __len__(self) -> int:
        return len(self.maps)

    def subset(self, numbers) -> "Systems":
        """Keeps some of the systems, or repeats them.

        Args:
            numbers: int or bool array.

        Returns:
            `Systems`.
        """
        return Systems(self.maps[numbers], self.choices[numbers])


def _drawn_maps(seed: int, number: int, attempt: int) -> np.ndarray:
    size = 1 + MAX_MAPS * (LETTERS + 1)
    words = random_words(seed, number, purpose=SYSTEMS, item=attempt, size=size)
    num_maps = MIN_MAPS + int(words[0] % np.uint64(MAX_MAPS - MIN_MAPS + 1))
    drawn = unit_interval(words[1:]).reshape(MAX_MAPS, LETTERS + 1)[:num_maps]
    maps = 2 * drawn[:, :LETTERS] - 1  # (maps, 6)
    low, high = STRETCHES
    stretch = low + (high - low) * drawn[:, LETTERS]  # (maps,)
    maps[:, :4] *= (stretch / _largest_stretch(maps))[:, None]
    return maps


def _largest_stretch(maps: np.ndarray) -> np.ndarray:
    """Largest singular value of the linear part, (maps,)."""
    a, b, c, d, _, _ = maps.T
    squares = a * a + b * b + c * c + d * d
    area = a * d - b * c
    root = np.sqrt(np.maximum(squares * squares - 4 * area * area, 0))
    return np.sqrt((squares + root) / 2)


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
