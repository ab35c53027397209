"""Iterated function systems: the formulas that classes of fractals are.

A system is two to seven affine maps of the plane. Points that go from map to
map at random gather on its attractor, a fractal (Barnsley, "Fractals
Everywhere", 1988). A class of FractalDB is a system that is drawn at random
and fills enough of its picture (Kataoka et al., "Pre-training without Natural
Images", arXiv:2101.08515, section 3).

Numbers come from the words of the Philox generator, a counter of which nothing
but its definition decides the output, and go through additions,
multiplications, divisions and square roots of single numbers alone, which
IEEE 754 fixes to the last bit: the same formula, everywhere.

Axes: S systems, M maps, always 7, of which those that are missing are not
chosen.
"""

import dataclasses

import numpy as np

__all__ = ["BYTES", "LETTERS", "Systems", "random_words", "unit_interval"]

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
