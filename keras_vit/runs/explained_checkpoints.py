"""What a model looks at in images, over the checkpoints of its training.

Axes: M images, S checkpoints, H and W height and width, R and C rows and
columns of patches.
"""

import datetime
import os
import pathlib
from typing import Any

import numpy as np

from keras_vit.analysis import (
    attention_rollout,
    patch_pca,
    plot_images,
    report,
)
from keras_vit.analysis.features import features
from keras_vit.explanation import (
    COMPONENTS,
    FEWEST,
    check_attention,
    check_folder,
    enlarged,
    file_names,
    overlays,
    read_images,
)
from keras_vit.io.atomic_files import printable
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.io.run_folder import folder_of
from keras_vit.prediction import load_classifier
from keras_vit.training.checkpoint_files import (
    FOLDER,
    checkpoint_steps,
    restore_model,
)

__all__ = ["explain_checkpoints"]

DOTS_PER_INCH = 120


def explain_checkpoints(
    run: str | os.PathLike, source: Any, folder: str | os.PathLike
) -> pathlib.Path:
    """Draw what a run's model looked at in images, checkpoint by checkpoint.

    Writes index.html, which works offline, and for each image a strip of
    pictures, NAME_checkpoints.png: the attention rollout over the image after
    each step, and below it the first three principal components of its
    patches, of all checkpoints together, so that one colour is the same thing
    in all of them. Runs keep their last checkpoints; set
    `training.keep_checkpoints` and `training.checkpoint_every_steps` to keep
    more.

    Args:
        run: a run folder with checkpoints.
        source: images, see `keras_vit.explain`.
        folder: where to write; files of the same names are replaced.

    Returns:
        The path of index.html.

    Raises:
        ValueError: when there is no such run, it has no checkpoints or no
            attention, or an image cannot be read. Nothing is written then.

    Example:
        >>> explain_checkpoints("runs/flowers", "photo.jpg", "out")
        PosixPath('out/index.html')
    """
    out = check_folder(folder)
    check_installed("The page of the attention", *EXTRAS["plots"])
    place = folder_of(run)
    steps = [] if place is None else checkpoint_steps(place / FOLDER)
    if place is None or not steps:
        raise ValueError(
            "Checkpoints are in the folder of a run that keeps them. Received: "
            f"{str(run)!r}, which {'has none' if place else 'is no run'}. "
            "Train with --training.keep_checkpoints 100 to keep more of them."
        )
    classifier = load_classifier(place, needs_classes=False)
    network = classifier.model
    check_attention(network)
    titles, images = read_images(classifier, source)
    inputs = classifier.inputs(images)
    rollouts, maps = [], []
    for step in steps:
        restore_model(place / FOLDER, step, network)
        rollouts.append(attention_rollout(network, inputs))
        maps.extend(features(network, inputs))
    pictures = enlarged(images)
    shown = np.stack([overlays(network, pictures, x) for x in rollouts])
    tokens = _colours(np.stack(maps), pictures.shape[1:3])
    names = [f"step {step:,}" for step in steps]
    numbered = list(enumerate(names))
    out.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(file_names(titles)):
        strip = np.concatenate([shown[:, i], tokens[:, i]])
        titled = [*names, *["patches"] * len(tokens)]
        figure = plot_images(strip, titled, columns=len(names))
        figure.savefig(out / f"{name}_checkpoints.png", dpi=DOTS_PER_INCH)
    rows = []
    for i, title in enumerate(titles):
        cells = [(x, "attention rollout", shown[s, i]) for s, x in numbered]
        cells += [
            (x, "patches", tokens[s, i]) for s, x in numbered if len(tokens)
        ]
        rows.append((title, cells))
    path = out / "index.html"
    report.write_rows(
        path,
        f"What {printable(place.resolve().name)} saw",
        "Over the training",
        rows,
        kind="explained",
        facts=(
            f"{len(steps)} checkpoints",
            report.date_of(datetime.datetime.now()),
        ),
    )
    return path


def _colours(maps, size):
    """Colour the patches (S, M, R, C, D) of all checkpoints and images."""
    count, images, rows, columns, width = maps.shape
    # The mean moves more in a training than what makes the patches differ.
    maps = maps - maps.mean(axis=(1, 2, 3), keepdims=True)
    flat = maps.reshape(count * images, rows, columns, width)
    if width < COMPONENTS or flat[..., 0].size < FEWEST:
        return np.zeros((0, images, *size, 3), "uint8")
    colours, _ = patch_pca(flat)
    pixels = np.rint(255 * colours).astype("uint8")
    down = np.arange(size[0]) * rows // size[0]
    right = np.arange(size[1]) * columns // size[1]
    pixels = pixels[:, down][:, :, right]  # (S * M, H, W, 3)
    return pixels.reshape(count, images, *size, 3)
