"""Patches, class token and positions: from an image to tokens, each at a place.

Positions are added to the tokens, or attention reads them itself: as rotations,
or as biases of its scores.

Axes: B batch, R and C rows and columns of the grid of patches, N = R * C patch
tokens, P prefix tokens (such as the class token), T = P + N tokens, D hidden
dimension; in attention H heads, d head dimension.
"""

import functools

import keras
import numpy as np
from keras import ops

from keras_vit.io.checks import (
    AXES,
    BIAS_KINDS,
    PAIRS,
    ROPES,
    check_choice,
    check_divisible,
)
from keras_vit.layers.common import ConfiguredLayer

__all__ = [
    "AddPositionEmbedding",
    "ClassToken",
    "PatchEmbed",
    "RelativePositionBias",
    "RotaryEmbedding",
    "sine_cosine_table",
]


@keras.saving.register_keras_serializable("keras_vit")
class PatchEmbed(ConfiguredLayer):
    """Cuts images into patches and projects each patch linearly to a token.

    `x_p E` of equation 1 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929): a convolution whose stride is its kernel size. Patches
    follow each other row by row.

    Args:
        hidden_dim: int, size D of a token.
        patch_size: int, or (height, width), of a patch in pixels.
        patch_bias: bool, whether the projection has a bias.

    Input shape:
        (B, H, W, channels), channels last; the patch divides H and W.

    Output shape:
        (B, N, D) with N = (H / patch height) * (W / patch width).

    Raises:
        ValueError: for images whose size is unknown, or is not a multiple of
            the patch when the layer is built.

    Example:

    >>> images = keras.random.uniform((2, 224, 112, 3))
    >>> PatchEmbed(hidden_dim=768, patch_size=16)(images).shape
    (2, 98, 768)
    """

    def __init__(
        self,
        hidden_dim: int,
        patch_size: int | tuple[int, int],
        *,
        patch_bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.patch_size = patch_size
        self.patch_bias = patch_bias
        self.projection = keras.layers.Conv2D(
            hidden_dim,
            kernel_size=patch_size,
            strides=patch_size,
            padding="valid",
            data_format="channels_last",
            use_bias=patch_bias,
            kernel_initializer="lecun_normal",
            bias_initializer="zeros",
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape):
        check_known(input_shape)
        check_divisible(input_shape[1:3], self.projection.kernel_size)
        self.projection.build(input_shape)

    def call(self, images):
        check_known(images.shape)
        x = self.projection(images)  # (B, R, C, D)
        return ops.reshape(
            x, (-1, x.shape[1] * x.shape[2], self.hidden_dim)
        )  # (B, N, D)

    def compute_output_shape(self, input_shape):
        batch, rows, columns, dim = self.projection.compute_output_shape(
            input_shape
        )
        return (batch, rows * columns, dim)


def check_known(input_shape) -> None:
    """Raises a ValueError for images whose size is not known.

    TensorFlow calls a model with such images when batches differ in size.
    """
    if len(input_shape) != 4 or None in tuple(input_shape)[1:]:
        raise ValueError(
            "PatchEmbed needs images of shape (batch, height, width, "
            "channels), the last three known. Received: "
            f"input_shape={tuple(input_shape)}. Give the size of the images, "
            "for example keras.Input((224, 224, 3)), and batches of that size "
            "alone."
        )


@keras.saving.register_keras_serializable("keras_vit")
class ClassToken(ConfiguredLayer):
    """Puts learned tokens in front of a sequence, the class token by default.

    `x_class` of equation 1 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929). It starts at zero, as in the original code.

    Args:
        num_tokens: int, P; 2 for DeiT's class and distillation tokens
            (arXiv:2012.12877), 5 for a class token and four registers
            (arXiv:2309.16588).

    Input shape:
        (B, N, D).

    Output shape:
        (B, P + N, D); the class token is at index 0.

    Example:

    >>> tokens = keras.random.normal((2, 196, 768))
    >>> ClassToken()(tokens).shape
    (2, 197, 768)
    """

    def __init__(self, num_tokens: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.num_tokens = num_tokens

    def build(self, input_shape):
        self.token = self.add_weight(
            name="token",
            shape=(1, self.num_tokens, input_shape[-1]),
            initializer="zeros",
        )

    def call(self, x):
        shape = (ops.shape(x)[0], self.num_tokens, x.shape[-1])
        token = ops.broadcast_to(self.token, shape)  # (B, P, D)
        return ops.concatenate([token, x], axis=1)  # (B, P + N, D)

    def compute_output_shape(self, input_shape):
        batch, tokens, dim = input_shape
        if tokens is not None:
            tokens += self.num_tokens
        return (batch, tokens, dim)


KINDS = ("learned", "sincos2d", "sincos1d", "none")


@keras.saving.register_keras_serializable("keras_vit")
class AddPositionEmbedding(ConfiguredLayer):
    """Adds a position embedding to each token.

    `E_pos` of equation 1 in "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929).

    Args:
        grid: (rows, columns) of the patches.
        num_prefix_tokens: int, tokens in front of the patches, such as the
            class token. Each has its own learned embedding; the fixed kind
            adds nothing to them.
        kind: "learned": a table with a vector per token (1-D, as in the paper).
            "sincos2d": fixed sines and cosines of row and column (as in
            "Better plain ViT baselines for ImageNet-1k", arXiv:2205.01580),
            not a weight. "sincos1d": likewise of the place in one row.
            "none" adds nothing.
        stddev: float, standard deviation of the normal distribution that a
            learned table starts from.

    Input shape:
        (B, T, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: for an unknown kind, for a sequence whose length is not
            rows * columns + num_prefix_tokens, or for a D that is odd with
            "sincos1d", or no multiple of 4 above 4 with "sincos2d".

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> AddPositionEmbedding((14, 14), num_prefix_tokens=1)(tokens).shape
    (2, 197, 768)
    """

    def __init__(
        self,
        grid: tuple[int, int],
        *,
        num_prefix_tokens: int = 0,
        kind: str = "learned",
        stddev: float = 0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("kind", kind, KINDS)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.kind = kind
        self.stddev = stddev

    def build(self, input_shape):
        check_grid(input_shape, self.grid, self.num_prefix_tokens)
        if self.kind == "learned":
            self.embedding = self.add_weight(
                name="embedding",
                shape=(1, *input_shape[1:]),
                initializer=keras.initializers.RandomNormal(stddev=self.stddev),
            )
        elif self.kind == "none":
            self.embedding = None
        else:
            make = {"sincos1d": sine_cosine_line}.get(
                self.kind, sine_cosine_table
            )
            table = make(self.grid, input_shape[-1])
            prefix = [(0, 0), (self.num_prefix_tokens, 0), (0, 0)]
            self.embedding = np.pad(table, prefix)  # (1, T, D)

    def call(self, x):
        if self.embedding is None:
            return x
        return x + ops.cast(self.embedding, x.dtype)


def check_grid(shape, grid, num_prefix_tokens: int = 0, hint: str = "") -> None:
    """Raises a ValueError unless tokens (B, T, D) are those of a grid."""
    rows, columns = grid
    length = rows * columns + num_prefix_tokens
    if shape[1] != length:
        raise ValueError(
            f"A grid of {rows}x{columns} patches with {num_prefix_tokens} "
            f"prefix tokens makes {length} tokens, but the sequence has "
            f"{shape[1]}. Received: input_shape={tuple(shape)}. Set grid and "
            f"num_prefix_tokens to what the layers before this one make.{hint}"
        )


def sine_cosine_table(grid: tuple, hidden_dim: int) -> np.ndarray:
    """Fixed position embedding of sines and cosines of column and row.

    A quarter of the D features each holds the sine and cosine of the column,
    then of the row, at frequencies from 1 down to 1/10000 in equal ratios
    (`posemb_sincos_2d` of big_vision, after MoCo v3). Returns a float32 array
    of shape (1, R * C, D), row by row.
    """
    if hidden_dim % 4 or hidden_dim <= 4:
        raise ValueError(
            "A sine-cosine position embedding needs a hidden_dim that is a "
            f"multiple of 4 above 4. Received: hidden_dim={hidden_dim}. Use "
            'another hidden_dim or kind="learned".'
        )
    quarter = hidden_dim // 4
    frequencies = 10_000.0 ** (-np.arange(quarter) / (quarter - 1))
    rows, columns = np.mgrid[: grid[0], : grid[1]]
    column_angles = np.outer(columns, frequencies)  # (R * C, D / 4)
    row_angles = np.outer(rows, frequencies)  # (R * C, D / 4)
    table = np.concatenate(
        [
            np.sin(column_angles),
            np.cos(column_angles),
            np.sin(row_angles),
            np.cos(row_angles),
        ],
        axis=1,
    )  # (R * C, D)
    return table[None].astype("float32")


def sine_cosine_line(grid: tuple, hidden_dim: int) -> np.ndarray:
    """Fixed position embedding of sines, then cosines, of places in a row.

    At frequencies from 1 down to 1/10000 in equal ratios, each for a half of
    the D features ("Attention Is All You Need", arXiv:1706.03762, as
    tensor2tensor computes it). Returns a float32 array of shape (1, N, D).
    """
    if hidden_dim % 2:
        raise ValueError(
            "Sines and cosines have half of the features each, so that "
            f"hidden_dim is even. Received: hidden_dim={hidden_dim}. Use "
            'another hidden_dim or kind="learned".'
        )
    half = hidden_dim // 2
    frequencies = 10_000.0 ** (-np.arange(half) / max(half - 1, 1))
    angles = np.outer(np.arange(grid[0] * grid[1]), frequencies)  # (N, D / 2)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # (N, D)
    return table[None].astype("float32")


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
            stretched to; "centered" positions have no such grid.
        rope_pairs: which features form a pair: "neighbors" for 0 and 1, 2 and
            3, ..., "halves" for each of the first half with one of the second.

    Input shape:
        (B, H, T, d), or (B, T, H, d) with `heads_first=False`.

    Output shape:
        That of the input.

    Raises:
        ValueError: for an unknown option, a reference grid of "centered"
            positions, or when built on another number of tokens, or a d that 4
            does not divide.

    Example:

    >>> queries = keras.random.normal((2, 12, 197, 64))
    >>> RotaryEmbedding((14, 14), num_prefix_tokens=1)(queries).shape
    (2, 12, 197, 64)
    """

    def __init__(
        self,
        grid: tuple[int, int],
        *,
        num_prefix_tokens: int = 0,
        rope: str = "axial",
        rope_temperature: float = 10_000.0,
        rope_offset: float = 0.0,
        rope_axes: str = "row_first",
        rope_reference_grid: tuple[int, int] | None = None,
        rope_pairs: str = "neighbors",
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
        if rope == "centered" and rope_reference_grid is not None:
            raise ValueError(
                "rope_reference_grid does nothing with rope='centered'. "
                f"Received: rope_reference_grid={rope_reference_grid!r}. Leave "
                "it out."
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

    A number for each head and each distance in rows and columns: learned one
    by one in a table, as in BEiT (arXiv:2106.08254), or computed from the
    distance by an MLP of two layers, as in Swin Transformer V2
    (arXiv:2111.09883, section 3.3). The table has three more for a class
    token: from it to patches, from patches to it, and to itself; the MLP adds
    nothing for tokens in front of the patches.

    Args:
        grid: (R, C), rows and columns of patches.
        num_heads: int, H.
        num_prefix_tokens: int; for a table 0, or 1 for the class token.
        relative_position_kind: "table"; "mlp" reads the logarithm of the
            distance in patches, as timm's relpos models; "mlp_swin" that of
            the distance as a share of the grid and gives numbers from 0 to
            16, as in Swin Transformer V2.
        relative_position_dim: int, M, hidden size of the MLP.

    Input shape:
        (B, H, T, T), the scores of each query (first) and key.

    Output shape:
        That of the input.

    Raises:
        ValueError: for an unknown kind, or a table for more than one token in
            front of the patches.

    Example:

    >>> scores = keras.random.normal((2, 12, 197, 197))
    >>> layer = RelativePositionBias((14, 14), 12, num_prefix_tokens=1)
    >>> layer(scores).shape
    (2, 12, 197, 197)
    """

    def __init__(
        self,
        grid: tuple[int, int],
        num_heads: int,
        *,
        num_prefix_tokens: int = 0,
        relative_position_kind: str = "table",
        relative_position_dim: int = 128,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice(
            "relative_position_kind", relative_position_kind, BIAS_KINDS
        )
        self._of_table = relative_position_kind == "table"
        if self._of_table and num_prefix_tokens not in (0, 1):
            raise ValueError(
                "Relative positions are those of patches and of a class token. "
                f"Received: num_prefix_tokens={num_prefix_tokens}. Leave out "
                "registers and the distillation token."
            )
        self.grid = tuple(grid)
        self.num_heads = num_heads
        self.num_prefix_tokens = num_prefix_tokens
        self.relative_position_kind = relative_position_kind
        self.relative_position_dim = relative_position_dim

    def build(self, input_shape):
        rows, columns = self.grid
        distances = (2 * rows - 1) * (2 * columns - 1)
        index = distance_index(self.grid)
        if self._of_table:
            self.table = self.add_weight(
                name="table",
                shape=(distances + 3 * self.num_prefix_tokens, self.num_heads),
                initializer="zeros",
            )
            self._index = with_class_token(index, self.num_prefix_tokens)
            return
        # The row after those of the distances is of zeros.
        prefix = [(self.num_prefix_tokens, 0)] * 2
        self._index = np.pad(index, prefix, constant_values=distances)
        self._logarithms = MLP_INPUTS[self.relative_position_kind](self.grid)
        # Not dense layers: LoRA and quantization are for those of tokens.
        dim, heads = self.relative_position_dim, self.num_heads
        self.hidden_weight = self._weight("hidden_weight", (2, dim))
        self.hidden_bias = self._weight("hidden_bias", (dim,))
        self.head_weight = self._weight("head_weight", (dim, heads))
        if self.relative_position_kind == "mlp":
            self.head_bias = self._weight("head_bias", (heads,))

    def call(self, scores, query=None):
        return scores + ops.cast(self.bias(), scores.dtype)

    def fused_bias(self, query):
        """What is added for any queries, a tensor (1, H, T, T)."""
        return self.bias()[None]

    def bias(self):
        """What is added, a tensor (H, T, T)."""
        tokens = len(self._index)
        rows = self.table if self._of_table else self._computed()
        bias = ops.take(rows, self._index.reshape(-1), axis=0)
        bias = ops.reshape(bias, (tokens, tokens, self.num_heads))
        return ops.transpose(bias, (2, 0, 1))  # (H, T, T)

    def _computed(self):
        """A row for each distance and one of zeros, in float32 at least."""
        precise = keras.backend.result_type(self.compute_dtype, "float32")
        x = ops.cast(self._logarithms, precise)  # ((2R - 1) (2C - 1), 2)
        x = ops.matmul(x, ops.cast(self.hidden_weight, precise))
        x = ops.relu(x + ops.cast(self.hidden_bias, precise))  # (..., M)
        x = ops.matmul(x, ops.cast(self.head_weight, precise))  # (..., H)
        if self.relative_position_kind == "mlp_swin":
            x = 16 * ops.sigmoid(x)
        else:
            x = x + ops.cast(self.head_bias, precise)
        return ops.cast(ops.pad(x, [(0, 1), (0, 0)]), self.compute_dtype)

    def _weight(self, name, shape):
        start = "zeros" if name.endswith("bias") else "glorot_uniform"
        return self.add_weight(name=name, shape=shape, initializer=start)


def distance_index(grid: tuple) -> np.ndarray:
    """(R * C, R * C): the number of the distance of each query and key."""
    rows, columns = np.mgrid[: grid[0], : grid[1]].reshape(2, -1)
    down = rows[:, None] - rows + grid[0] - 1  # (R * C, R * C), from 0
    right = columns[:, None] - columns + grid[1] - 1
    return down * (2 * grid[1] - 1) + right


def with_class_token(index: np.ndarray, num_prefix_tokens: int) -> np.ndarray:
    """(T, T): the index with the three distances of a class token."""
    if not num_prefix_tokens:
        return index
    distances = index.max() + 1
    index = np.pad(index, [(1, 0), (1, 0)])
    index[0, :], index[:, 0] = distances, distances + 1
    index[0, 0] = distances + 2
    return index


def distances_of(grid: tuple) -> np.ndarray:
    """((2R - 1) (2C - 1), 2): rows down and columns right, in patches."""
    down, right = np.mgrid[1 - grid[0] : grid[0], 1 - grid[1] : grid[1]]
    return np.stack([down, right], axis=-1).reshape(-1, 2)


def logarithms(distances: np.ndarray) -> np.ndarray:
    """Those of 1 + each distance, with its sign."""
    return np.sign(distances) * np.log1p(np.abs(distances))


def logarithms_in_grid(grid: tuple) -> np.ndarray:
    """Those of the distances in patches."""
    return logarithms(distances_of(grid))


def logarithms_of_shares(grid: tuple) -> np.ndarray:
    """To the base of 8, of distances of which the longest is 8."""
    longest = np.maximum(np.subtract(grid, 1), 1)
    return logarithms(8 * distances_of(grid) / longest) / np.log(8)


# By kind, what the MLP reads.
MLP_INPUTS = {
    "table": None,
    "mlp": logarithms_in_grid,
    "mlp_swin": logarithms_of_shares,
}


def bias_multiply_adds(config) -> int:
    """Multiply-adds of the MLP of a `RelativePositionBias`, 0 for a table.

    Args:
        config: the layer, or the config of a model.
    """
    if config.relative_position_kind == "table":
        return 0
    rows, columns = config.grid
    distances = (2 * rows - 1) * (2 * columns - 1)
    return distances * config.relative_position_dim * (2 + config.num_heads)
