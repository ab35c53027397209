"""Positions that attention reads itself: rotations, and biases of its scores.

Axes: B batch, T tokens, P of them in front of the patches, R and C rows and
columns of the grid of patches, H heads, d head dimension.
"""

import functools

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.layers.configured_layer import ConfiguredLayer

__all__ = ["RelativePositionBias", "RotaryEmbedding"]

ROPES = ("axial", "centered", "mixed")
PAIRS = ("neighbors", "halves")
AXES = ("row_first", "column_first")


@keras.saving.register_keras_serializable("keras_vit")
class RotaryEmbedding(ConfiguredLayer):
    """Rotates pairs of features by angles that tell where a token is.

    Rotary position embedding (arXiv:2104.09864) in two dimensions: half of
    the angles grow with the row of a patch and half with its column. Products
    of queries and keys then depend on how far apart two patches are. Tokens
    in front of the patches are not rotated.

    Args:
        grid: (R, C), rows and columns of patches.
        num_prefix_tokens: int, P, tokens in front of the patches.
        rope: "axial" counts rows and columns from 0, as EVA-02
            (arXiv:2303.11331) does; "centered" measures them from -1 to 1, as
            DINOv3 (arXiv:2508.10104); "mixed" learns for each head how the
            angles grow with row and column (arXiv:2403.13298).
        rope_temperature: float, how far the frequencies are apart.
        rope_offset: float, what is added to rows and columns.
        rope_axes: "row_first" when the first angles are those of the row,
            "column_first" when those of the column are.
        rope_reference_grid: None, or the (rows, columns) that other grids are
            stretched to.
        rope_pairs: which features form a pair: "neighbors" for 0 and 1, 2 and
            3, ..., "halves" for each of the first half with one of the second.

    Input shape:
        (B, H, T, d), or (B, T, H, d) with `heads_first=False`.

    Output shape:
        That of the input.

    Raises:
        ValueError: for an unknown option, or when built on another number of
            tokens, or a d that 4 does not divide.

    Example:

    >>> queries = keras.random.normal((2, 12, 197, 64))
    >>> RotaryEmbedding((14, 14), num_prefix_tokens=1)(queries).shape
    (2, 12, 197, 64)
    """

    def __init__(
        self,
        grid,
        *,
        num_prefix_tokens=0,
        rope="axial",
        rope_temperature=10_000.0,
        rope_offset=0.0,
        rope_axes="row_first",
        rope_reference_grid=None,
        rope_pairs="neighbors",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("rope", rope, ROPES)
        check_choice("rope_axes", rope_axes, AXES)
        check_choice("rope_pairs", rope_pairs, PAIRS)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.rope = rope
        self.rope_temperature = rope_temperature
        self.rope_offset = rope_offset
        self.rope_axes = rope_axes
        self.rope_reference_grid = (
            tuple(rope_reference_grid) if rope_reference_grid else None
        )
        self.rope_pairs = rope_pairs
        self._rotate = rotate_halves
        if rope_pairs == "neighbors":
            self._rotate = rotate_neighbors

    def build(self, input_shape):
        _, heads, tokens, dim = input_shape
        rows, columns = self.grid
        if tokens != rows * columns + self.num_prefix_tokens or dim % 4:
            raise ValueError(
                f"Rotations for {rows}x{columns} patches and "
                f"{self.num_prefix_tokens} other tokens need so many tokens, "
                "and heads of a multiple of 4 features. Received: "
                f"input_shape={tuple(input_shape)}."
            )
        if self.rope == "mixed":
            self.frequencies = self.add_weight(
                name="frequencies",
                shape=(2, heads, dim // 2),
                initializer=functools.partial(
                    mixed_frequencies, self.rope_temperature
                ),
            )
            self._places = places(self)  # (T, 2)
        else:
            self._angles = axial_angles(self, dim)  # (T, d / 2)

    def call(self, x, heads_first=True):
        angles = self._all_angles()  # (T, d / 2) or (H, T, d / 2)
        if not heads_first:
            angles = ops.reshape(angles, (-1, *angles.shape[-2:]))
            angles = ops.transpose(angles, (1, 0, 2))  # (T, 1 or H, d / 2)
        precise = keras.backend.result_type(x.dtype, "float32")
        rotated = self._rotate(
            ops.cast(x, precise),
            ops.cast(ops.cos(angles), precise),
            ops.cast(ops.sin(angles), precise),
        )
        return ops.cast(rotated, x.dtype)

    def _all_angles(self):
        if self.rope != "mixed":
            return ops.convert_to_tensor(self._angles)
        frequencies = ops.cast(self.frequencies, "float32")[:, :, None]
        places = ops.convert_to_tensor(self._places)[..., None]  # (T, 2, 1)
        first, second = places[:, 0], places[:, 1]  # (T, 1) each
        return first * frequencies[0] + second * frequencies[1]


def rotate_neighbors(x, cos, sin):
    """Rotates the pairs (0, 1), (2, 3), ... of the last axis."""
    pairs = ops.reshape(x, (*ops.shape(x)[:-1], x.shape[-1] // 2, 2))
    first, second = pairs[..., 0], pairs[..., 1]
    rotated = ops.stack(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )  # (..., d / 2, 2)
    return ops.reshape(rotated, ops.shape(x))


def rotate_halves(x, cos, sin):
    """Rotates the pairs (0, d / 2), (1, d / 2 + 1), ... of the last axis."""
    first, second = ops.split(x, 2, axis=-1)
    return ops.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1
    )


def places(layer: RotaryEmbedding) -> np.ndarray:
    """(T, 2) float32: where each token is, in the order of the angles.

    Tokens in front of the patches are at 0, which is no rotation.
    """
    axes = [np.arange(size) + layer.rope_offset for size in layer.grid]
    if layer.rope == "centered":
        axes = [
            2 * (axis + 0.5) / size - 1
            for axis, size in zip(axes, layer.grid, strict=True)
        ]
    elif layer.rope_reference_grid:
        stretch = np.divide(layer.rope_reference_grid, layer.grid)
        axes = [x * y for x, y in zip(axes, stretch, strict=True)]
    found = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)  # (R, C, 2)
    if layer.rope_axes == "column_first":
        found = found[..., ::-1]
    prefix = [(layer.num_prefix_tokens, 0), (0, 0)]
    return np.pad(found.reshape(-1, 2), prefix).astype("float32")


def axial_angles(layer: RotaryEmbedding, dim: int) -> np.ndarray:
    """(T, d / 2) float32: a quarter of d angles for each of the two axes."""
    exponents = np.arange(dim // 4) / (dim // 4)
    frequencies = layer.rope_temperature**-exponents  # (d / 4,)
    if layer.rope == "centered":
        frequencies = 2 * np.pi * frequencies
    angles = places(layer)[:, :, None] * frequencies  # (T, 2, d / 4)
    return angles.reshape(len(angles), -1).astype("float32")


def mixed_frequencies(temperature, shape, dtype=None):
    """Initial frequencies (2, H, d / 2): each head looks another way."""
    _, heads, dim = shape
    powers = np.arange(dim // 2) / (dim // 2)
    magnitudes = ops.convert_to_tensor(temperature**-powers, "float32")
    turns = keras.random.uniform((heads, 1), 0, 2 * np.pi, dtype="float32")
    # The second half of a head looks at a right angle to the first.
    shifts = np.repeat([0, np.pi / 2], dim // 2).astype("float32")
    turns = turns + ops.convert_to_tensor(shifts)  # (H, d / 2)
    sizes = ops.concatenate([magnitudes, magnitudes])
    frequencies = ops.stack([sizes * ops.cos(turns), sizes * ops.sin(turns)])
    return ops.cast(frequencies, dtype or "float32")


@keras.saving.register_keras_serializable("keras_vit")
class RelativePositionBias(ConfiguredLayer):
    """What is added to the scores for each distance between two tokens.

    A learned number for each head and each distance in rows and columns, as
    in BEiT (arXiv:2106.08254), and with a class token three more: from it to
    patches, from patches to it, and to itself.

    Args:
        grid: (R, C), rows and columns of patches.
        num_heads: int, H.
        num_prefix_tokens: int, 0 or 1 for the class token.

    Input shape:
        (B, H, T, T), the scores of each query (first) and key.

    Output shape:
        That of the input.

    Raises:
        ValueError: for more than one token in front of the patches.

    Example:

    >>> scores = keras.random.normal((2, 12, 197, 197))
    >>> layer = RelativePositionBias((14, 14), 12, num_prefix_tokens=1)
    >>> layer(scores).shape
    (2, 12, 197, 197)
    """

    def __init__(self, grid, num_heads, *, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        if num_prefix_tokens not in (0, 1):
            raise ValueError(
                "Relative positions are those of patches and of a class token. "
                f"Received: num_prefix_tokens={num_prefix_tokens}. Leave out "
                "registers and the distillation token."
            )
        self.grid = tuple(grid)
        self.num_heads = num_heads
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, input_shape):
        rows, columns = self.grid
        distances = (2 * rows - 1) * (2 * columns - 1)
        self.table = self.add_weight(
            name="table",
            shape=(distances + 3 * self.num_prefix_tokens, self.num_heads),
            initializer="zeros",
        )
        self._index = distance_index(self.grid, self.num_prefix_tokens)

    def call(self, scores):
        return scores + ops.cast(self.bias(), scores.dtype)

    def bias(self):
        """What is added, a tensor (H, T, T)."""
        tokens = len(self._index)
        bias = ops.take(self.table, self._index.reshape(-1), axis=0)
        bias = ops.reshape(bias, (tokens, tokens, self.num_heads))
        return ops.transpose(bias, (2, 0, 1))  # (H, T, T)


def distance_index(grid: tuple, num_prefix_tokens: int) -> np.ndarray:
    """(T, T): the row of the table for each query and key."""
    rows, columns = np.mgrid[: grid[0], : grid[1]].reshape(2, -1)
    down = rows[:, None] - rows + grid[0] - 1  # (R * C, R * C), from 0
    right = columns[:, None] - columns + grid[1] - 1
    index = down * (2 * grid[1] - 1) + right
    if not num_prefix_tokens:
        return index
    distances = (2 * grid[0] - 1) * (2 * grid[1] - 1)
    index = np.pad(index, [(1, 0), (1, 0)])
    index[0, :], index[:, 0] = distances, distances + 1
    index[0, 0] = distances + 2
    return index
