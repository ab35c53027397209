"""Batches of masked patches: which are hidden, and the answers about them.

Axes: B images of a batch, H and W height and width, C channels, R and G rows
and columns of the grid of patches, N = R * G patches, S cells along a side
that a patch is downsized to, M answers per patch.
"""

import dataclasses

from keras_vit.data.array_ops import ops_of
from keras_vit.training.tasks.numbered_batches import (
    HiddenPatches,
    patch_pixels,
)
from masked_patch.config import CELLS, MaskedPatchConfig

__all__ = [
    "LEVELS",
    "MaskedBatches",
    "check_grid",
    "colour_classes",
    "corruption",
    "num_hidden",
    "patch_colours",
]

LEVELS = 8  # 3 bits
LEVEL = 256 // LEVELS


@dataclasses.dataclass(frozen=True)
class MaskedBatches(HiddenPatches):
    """Turns images into the sources of embeddings, and what to predict.

    Example:
        >>> batches.enumerate(step).map(MaskedBatches(
        ...     config, (14, 14), seed=0, batch_size=64).training)
    """

    name = "corruption"
    draws = 3

    @staticmethod
    def config_of(recipe) -> MaskedPatchConfig:
        """See `HiddenPatches`."""
        return recipe.masked_patch

    def hide(self, drawn, images) -> tuple:
        """See `HiddenPatches`."""
        source, hidden = corruption(drawn, self.config)
        cells = CELLS[self.config.target]
        if cells is None:
            answers = patch_pixels(images, self.grid)
        else:
            answers = colour_classes(patch_colours(images, self.grid, cells))
        count = num_hidden(self.grid[0] * self.grid[1], self.config)
        return {"source": source}, answers, hidden, count


def corruption(draws, config: MaskedPatchConfig):
    """Draw which patches are hidden, and what replaces their embeddings.

    Args:
        draws: float32 tensor or array (B, N, 3) of numbers in [0, 1).
        config: a `MaskedPatchConfig`: which patches, and the target.

    Returns:
        Two of shape (B, N): source, int32, the number of the patch
        of the same image whose embedding each patch gets, or -1 for the
        [mask] embedding; and hidden, bool, the patches to predict, the same
        number in each image.
    """
    tf = ops_of(draws)
    patches = draws.shape[1]
    places = tf.argsort(tf.argsort(draws[..., 0], stable=True), stable=True)
    hidden = places < num_hidden(patches, config)  # (B, N)
    own = tf.range(patches)[None]  # (1, N)
    shift = 1 + tf.cast(draws[..., 2] * (patches - 1), tf.int32)
    other = (own + tf.minimum(shift, patches - 1)) % patches  # never itself
    kind = draws[..., 1]
    replaced = tf.where(
        kind < config.mask_rate + config.random_rate, other, own
    )
    replaced = tf.where(kind < config.mask_rate, -1, replaced)
    return tf.where(hidden, replaced, own), hidden


def num_hidden(patches: int, config: MaskedPatchConfig) -> int:
    """Return the number of hidden patches of each image, at least one."""
    return max(1, round(config.corruption_rate * patches))


def patch_colours(images, grid: tuple, cells: int):
    """Mean colours of the patches, or of equal cells of each patch.

    Args:
        images: tensor or array (B, H, W, C).
        grid: (rows, columns) of the patches.
        cells: S, rows and columns of cells in a patch.

    Returns:
        float32 (B, N, S * S, C); the cells go row by row.
    """
    tf = ops_of(images)
    rows, columns = grid
    height, width, channels = images.shape[1:]
    images = tf.cast(images, tf.float32)
    shape = [
        *(-1, rows, cells, height // (rows * cells)),
        *(columns, cells, width // (columns * cells), channels),
    ]
    means = tf.reduce_mean(tf.reshape(images, shape), (3, 6))  # (B,R,S,G,S,C)
    means = tf.transpose(means, [0, 1, 3, 2, 4, 5])  # (B, R, G, S, S, C)
    return tf.reshape(
        means, [-1, rows * columns, cells**2, channels]
    )  # (B, N, S * S, C)


def colour_classes(colours):
    """Return the classes of colours in 3 bits per channel.

    Args:
        colours: float32 tensor or array (..., C) in [0, 255].

    Returns:
        int32 (...): for red, green and blue 64 r + 8 g + b with levels
        from 0 to 7; for grey the level.
    """
    tf = ops_of(colours)
    levels = tf.clip_by_value(
        tf.cast(colours // LEVEL, tf.int32), 0, LEVELS - 1
    )
    digits = [LEVELS**place for place in range(colours.shape[-1])][::-1]
    return tf.reduce_sum(levels * tf.constant(digits, tf.int32), axis=-1)


def check_grid(image_size: tuple, grid: tuple, target: str) -> None:
    """Raise a ValueError unless the patches have whole cells, and others."""
    if grid[0] * grid[1] < 2:
        raise ValueError(
            "There is nothing to tell a hidden patch from. Received: images "
            f"of {image_size} pixels that are one patch. Lower "
            "model.patch_size."
        )
    cells = CELLS[target] or 1
    for size, patches in zip(image_size, grid, strict=True):
        if size % (patches * cells):
            raise ValueError(
                f"Patches must be a multiple of {cells} pixels high and wide "
                f"for masked_patch.target={target!r}. Received: images of "
                f"{image_size} pixels in {grid} patches. Choose another "
                "model.patch_size, model.image_size or target."
            )
