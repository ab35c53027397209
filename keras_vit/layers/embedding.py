"""Patches, class token and position embedding: from an image to tokens.

Axes: B batch, R and C rows and columns of the grid of patches, N = R * C patch
tokens, P prefix tokens (such as the class token), T = P + N tokens, D hidden
dimension.
"""

import keras
import numpy as np
from keras import ops

from keras_vit.io.checks import check_choice, check_divisible
from keras_vit.layers.configured_layer import ConfiguredLayer

__all__ = [
    "AddPositionEmbedding",
    "ClassToken",
    "PatchEmbed",
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

    def __init__(self, hidden_dim, patch_size, *, patch_bias=True, **kwargs):
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

    def __init__(self, num_tokens=1, **kwargs):
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
            rows * columns + num_prefix_tokens, or, with "sincos2d", for a D
            that is not a multiple of 4 above 4.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> AddPositionEmbedding((14, 14), num_prefix_tokens=1)(tokens).shape
    (2, 197, 768)
    """

    def __init__(
        self,
        grid,
        *,
        num_prefix_tokens=0,
        kind="learned",
        stddev=0.02,
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
    half = hidden_dim // 2
    frequencies = 10_000.0 ** (-np.arange(half) / max(half - 1, 1))
    angles = np.outer(np.arange(grid[0] * grid[1]), frequencies)  # (N, D / 2)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # (N, D)
    return table[None].astype("float32")
