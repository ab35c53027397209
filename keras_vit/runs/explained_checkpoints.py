"""What a model looks at in images, over its training.

`explain_checkpoints` draws it of the checkpoints that a run kept, and a
`FeaturesOverTime` keeps small pictures of it as a run without labels goes on.

Axes: M images, S checkpoints, H and W height and width, R and C rows and
columns of patches, N images, D features, K neighbours.
"""

import dataclasses
import datetime
import functools
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
from keras_vit.analysis.attention_weights import attention_overview
from keras_vit.analysis.features import features
from keras_vit.analysis.report.pictures import thumbnail
from keras_vit.analysis.report.run_files import OVER_TIME
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
from keras_vit.io.atomic_files import printable, replacing
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.io.run_folder import folder_of
from keras_vit.prediction import load_classifier
from keras_vit.training.build import Task
from keras_vit.training.checkpointing import (
    FOLDER,
    checkpoint_steps,
    restore_model,
)
from keras_vit.training.run import files as run_folder
from keras_vit.training.tasks.feature_watch import FeatureStatistics

__all__ = ["FeaturesOverTime", "explain_checkpoints", "with_pictures"]

DOTS_PER_INCH = 120
TINY = 1e-12
NUM_IMAGES = 4  # of which a run keeps pictures
MAX_TIMES = 7  # before the last one
NEIGHBOURS = 4, 64  # K, and the side of their pictures in pixels


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


class FeaturesOverTime:
    """Keeps what a model makes of some images as it learns, for the report.

    Of the first images the attention of the last block, as the model's head
    reads it, the principal components of the patches, and the nearest of the
    others by the cosine of their features. Kept are the start, the last
    interval and at most six evenly between them, in one file that is the same
    after a resume. A model without attention has the neighbours alone.

    Args:
        model: the model that a run saves.
        folder: the run folder.
    """

    def __init__(self, model, folder: str | os.PathLike):
        self.model, self.path = model, pathlib.Path(folder) / OVER_TIME
        try:
            check_attention(model)
            self.has_attention = True
        except ValueError:
            self.has_attention = False

    def __call__(self, interval: int, step: int, images, features) -> None:
        """Write the file anew, see `FeatureStatistics`.

        Args:
            interval: int, the number of intervals so far.
            step: int, that of steps.
            images: array (N, H, W, C) in [0, 255].
            features: float array (N, D).
        """
        if len(images) < 2:
            return
        shown = images[:NUM_IMAGES]
        row = {
            "intervals": interval,
            "steps": step,
            "neighbours": _neighbours(images, features),
            **(self._maps(shown) if self.has_attention else {}),
        }
        rows: dict = {k: np.asarray(value)[None] for k, value in row.items()}
        if interval and self.path.is_file():
            with np.load(self.path, allow_pickle=False) as arrays:
                known = dict(arrays)
            kept = known["intervals"] < interval
            kept &= known["intervals"] % every(interval) == 0
            for name in rows:
                rows[name] = np.concatenate([known[name][kept], rows[name]])
        small = np.stack([thumbnail(x) for x in _bytes(shown)])
        with replacing(self.path) as path, open(path, "wb") as file:
            np.savez_compressed(file, images=small, **rows)

    def _maps(self, images):
        """Return attention over images (M, H, W, 3) and colours of patches."""
        grids = attention_overview(self.model, images).grids[-1]
        shown = overlays(self.model, enlarged(_bytes(images)), grids.mean(1))
        found = {"attention": np.stack([thumbnail(x) for x in shown])}
        (maps,) = features(self.model, images)  # (M, R, C, D)
        if maps.shape[-1] >= COMPONENTS and maps[..., 0].size >= FEWEST:
            colours, _ = patch_pca(maps)
            found["patches"] = np.rint(255 * colours).astype("uint8")
        return found


def every(interval: int) -> int:
    """Return the distance of the intervals that are kept before one.

    Example:
        >>> every(6), every(8), every(100)
        (1, 2, 16)
    """
    distance = 1
    while (interval - 1) // distance >= MAX_TIMES:
        distance *= 2
    return distance


def _bytes(images):
    return np.clip(np.rint(images), 0, 255).astype("uint8")


def _neighbours(images, features):
    """Return the nearest of the others, (M, K, h, w, C), grey where none is."""
    count, side = NEIGHBOURS
    x = np.asarray(features, "float64")
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), TINY)
    similar = x[:NUM_IMAGES] @ x.T  # (M, N)
    np.fill_diagonal(similar, -np.inf)
    order = np.argsort(-similar, axis=1, kind="stable")[:, :count]
    order = order[:, : len(images) - 1]
    small = [[thumbnail(_bytes(images[i]), side) for i in x] for x in order]
    found = np.full((*order.shape[:1], count, *small[0][0].shape), 128, "uint8")
    found[:, : order.shape[1]] = small
    return found


def with_pictures(task: Task, folder: str | os.PathLike) -> Task:
    """Return a task without labels that keeps a `FeaturesOverTime`.

    Args:
        task: a `Task` of `keras_vit.training.tasks`. What it has for
            `FeatureStatistics` is observed; a task without scores gets one.
        folder: the run folder.

    Example:
        >>> train(recipe, task=with_pictures(MAE, recipe.run_dir))
    """

    def make_scores(recipe, model):
        observe = FeaturesOverTime(model, run_folder.local(folder))

        def observed(make):
            def score(validation):
                made = make(validation)
                if isinstance(made, FeatureStatistics):
                    made.observe = observe
                return made

            return score

        made = task.make_scores(recipe, model)
        made = made or [functools.partial(FeatureStatistics, model)]
        return [observed(make) for make in made]

    return dataclasses.replace(task, make_scores=make_scores)
