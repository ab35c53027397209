"""A picture of images, what the network sees of them, and what it predicts.

Axes: M images, H and W height and width, C channels, R and G rows and columns
of the grid, N = R * G patches, S cells along a side of a patch.
"""

import numpy as np

from keras_vit.analysis.plots import as_pictures, mosaic, new_figure
from keras_vit.runs.reporting import batches_of, save_figure
from keras_vit.training import Run
from keras_vit.training.tasks.masked_patch import (
    CELLS,
    LEVELS,
    MaskedBatches,
)

__all__ = [
    "hidden_pixels",
    "painted",
    "seen",
    "write_columns",
    "write_masked_patches",
]

NUM_IMAGES = 8
GREY = 0.5


def write_masked_patches(run: Run, recipe) -> None:
    """Draw masked_patch.png: images, their masked version, the prediction.

    Patches with the [mask] embedding are grey; patches with the embedding of
    another patch show that patch. The prediction covers the hidden patches.

    Example:
        >>> write_masked_patches(train(recipe, task=MASKED_PATCH), recipe)
    """
    images, source, hidden = _sample(run, recipe)
    inputs = {"image": images.astype("float32"), "source": source}
    answers = run.network.predict(inputs, batch_size=NUM_IMAGES, verbose=0)
    grid, target = run.model.config.grid, recipe.masked_patch.target
    predicted = painted(answers, grid, images.shape[1:], target)
    pictures = images / 255
    covered = hidden_pixels(hidden, grid, images.shape)
    columns = {
        "image": pictures,
        "masked": seen(pictures, source, grid),
        "predicted": np.where(covered, predicted, pictures),
    }
    write_columns(columns, run.folder / "masked_patch.png")


def write_columns(columns: dict, path) -> None:
    """Write a figure with a row for each image.

    Args:
        columns: dict from what stands below a column to its pictures, float
            arrays (M, H, W, C) in [0, 1].
        path: of the figure.
    """
    tiles = [as_pictures(2 * x - 1) for x in columns.values()]
    figure = new_figure(1.2 * len(tiles), 1.2 * len(tiles[0]))
    axis = figure.subplots()
    mosaic(axis, np.stack(tiles, axis=1))
    axis.set_xticks(range(len(tiles)), columns)
    axis.set_yticks([])
    save_figure(figure, path)


def _sample(run, recipe):
    """Images (M, H, W, C), and the source and the hidden of them (M, N)."""
    part = "validation" if run.dataset.validation else "train"
    size = recipe.training.micro_batch_size
    hiding = MaskedBatches.of_run(recipe, run.model, batch_size=size)

    def hide(number, batch):
        images, labels, mask = batch
        weights = np.ones(size, "float32")
        inputs, _, hidden = hiding.evaluation(number, (images, labels, weights))
        return images, inputs["source"], hidden[..., 0] > 0, mask

    found = batches_of(run, recipe, part).enumerate().map(hide)
    images, source, hidden, mask = map(np.asarray, next(iter(found)))
    rows = np.flatnonzero(mask)[:NUM_IMAGES]
    return images[rows], source[rows], hidden[rows]


def seen(pictures, source, grid: tuple):
    """Return the pictures with each patch replaced as its embedding is."""
    images, height, width, channels = pictures.shape
    rows, columns = grid
    pixels = pictures.reshape(
        images, rows, height // rows, columns, width // columns, channels
    )
    patches = pixels.swapaxes(2, 3).reshape(images, rows * columns, -1)
    taken = np.take_along_axis(
        patches, np.maximum(source, 0)[..., None], axis=1
    )
    taken = np.where(source[..., None] < 0, GREY, taken)
    return _joined(taken, grid, pictures.shape[1:])


def painted(answers, grid: tuple, shape: tuple, target: str) -> np.ndarray:
    """Return the predictions of the network as pictures.

    Args:
        answers: float array, see `masked_network`.
        grid: (rows, columns) of the patches.
        shape: (H, W, C).
        target: see `MaskedPatchConfig`.

    Returns:
        float array (M, H, W, C) in [0, 1]; a colour is the middle of its
        class.
    """
    cells = CELLS[target]
    if cells is None:
        return np.clip((_joined(answers, grid, shape) + 1) / 2, 0, 1)
    height, width, channels = shape
    classes = answers.argmax(axis=-1)  # (M, N, S * S)
    levels = [classes // LEVELS**place % LEVELS for place in range(channels)][
        ::-1
    ]
    colours = (np.stack(levels, axis=-1) + 0.5) / LEVELS  # (M, N, S * S, C)
    size = height // (grid[0] * cells), width // (grid[1] * cells)
    colours = colours.reshape(*classes.shape[:2], cells, cells, channels)
    patches = colours.repeat(size[0], axis=2).repeat(size[1], axis=3)
    return _joined(patches.reshape(*classes.shape[:2], -1), grid, shape)


def hidden_pixels(hidden, grid, shape):
    """Hidden patches (M, N) as pixels (M, H, W, 1)."""
    height, width = shape[1] // grid[0], shape[2] // grid[1]
    cells = hidden.reshape(-1, *grid)
    return cells.repeat(height, axis=1).repeat(width, axis=2)[..., None]


def _joined(patches, grid, shape):
    """Patches (M, N, pixels of a patch) as pictures (M, H, W, C)."""
    height, width, channels = shape
    rows, columns = grid
    pixels = patches.reshape(
        -1, rows, columns, height // rows, width // columns, channels
    )
    return pixels.swapaxes(2, 3).reshape(-1, *shape)
