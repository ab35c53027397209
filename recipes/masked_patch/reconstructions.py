"""A picture of images, their visible patches, and what an autoencoder predicts.

Axes: I images, H and W height and width, C channels, N patches.
"""

import keras
import numpy as np

from keras_vit.runs.reporting import batches_of
from keras_vit.training import Run
from keras_vit.training.tasks.hidden_patches import patch_pixels
from keras_vit.training.tasks.mae import EPSILON, MAEBatches
from masked_patch.completions import (
    NUM_IMAGES,
    hidden_pixels,
    painted,
    seen,
    write_columns,
)

__all__ = ["in_pixels", "write_reconstructions"]


def write_reconstructions(run: Run, recipe) -> None:
    """Draw mae.png: images, their visible patches, the reconstruction.

    The reconstruction covers the hidden patches, and has the mean and the
    deviation of the true ones where the network predicts normalised pixels.
    """
    part = "validation" if run.dataset.validation else "train"
    images, _, mask = next(iter(batches_of(run, recipe, part)))
    images, mask = (keras.ops.convert_to_numpy(x) for x in (images, mask))
    batches = MAEBatches.of_run(recipe, run.model, batch_size=len(images))
    ones = np.ones(len(images), "float32")
    inputs, _, hidden = batches.evaluation(0, (images, None, ones))
    found = run.network.predict(inputs, batch_size=NUM_IMAGES, verbose=0)
    rows, grid = np.flatnonzero(mask)[:NUM_IMAGES], run.model.config.grid
    images, hidden = images[rows], hidden[rows, :, 0] > 0
    if batches.config.normalize_pixels:
        found = in_pixels(found[rows], patch_pixels(images, grid))
    else:
        found = found[rows]
    pictures = images / 255
    source = np.where(hidden, -1, np.arange(hidden.shape[1]))
    reconstructed = np.where(
        hidden_pixels(hidden, grid, images.shape),
        painted(found, grid, images.shape[1:], "pixels"),
        pictures,
    )
    columns = {
        "image": pictures,
        "visible": seen(pictures, source, grid),
        "reconstructed": reconstructed,
    }
    write_columns(columns, run.folder / "mae.png")


def in_pixels(normalized, true):
    """Return normalised patches with the mean and deviation of true ones."""
    deviation = np.sqrt(true.var(-1, ddof=1, keepdims=True) + EPSILON)
    return normalized * deviation + true.mean(-1, keepdims=True)
