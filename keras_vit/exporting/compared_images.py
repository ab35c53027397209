"""The images that an export is compared and calibrated on.

Axes: N images, H and W height and width, C channels.
"""

import itertools
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np

from keras_vit.data import (
    DataConfig,
    Examples,
    evaluation_batches,
    open_dataset,
)
from keras_vit.data.seeds import order
from keras_vit.io.run_folder import folder_of, read_config
from keras_vit.prediction import Classifier, images_of

__all__ = [
    "CALIBRATION",
    "Compared",
    "asked_run",
    "images_in",
    "images_of_run",
]

CALIBRATION = 128  # images at most, as the runtimes' manuals advise
BATCH = 32


class Compared(NamedTuple):
    """Images, and the classes that they are of.

    Attributes:
        images: array (N, H, W, C) in [0, 255], as the model takes them but
            for scaling.
        labels: int array (N,), or None where they are unknown.
    """

    images: np.ndarray
    labels: np.ndarray | None = None


def asked_run(
    model: Any, images: Any, validation_images: int
) -> pathlib.Path | None:
    """The folder of the run whose images are asked for; None if none are.

    Raises:
        ValueError: when the model is no run, or images are given as well.
    """
    is_count = type(validation_images) is int and validation_images >= 0
    if not is_count:
        raise ValueError(
            "validation_images is a number of images. Received: "
            f"validation_images={validation_images!r}."
        )
    if not validation_images:
        return None
    if images is not None:
        raise ValueError(
            "Images are either given or a run's own. Received: "
            f"images={images!r} and validation_images={validation_images}."
        )
    is_path = isinstance(model, (str, os.PathLike))
    folder = folder_of(model) if is_path else None
    if folder is None:
        raise ValueError(
            "Validation images are those of a run, and the model is none. "
            f"Received: model={model!r} and validation_images="
            f"{validation_images}. Give images= instead."
        )
    return folder


def images_in(classifier: Classifier, source: Any) -> Compared:
    """At most 128 images of what `keras_vit.predict` takes."""
    found = itertools.islice(images_of(source), CALIBRATION)
    read = [classifier.read(x) for x in found]
    if not read:
        raise ValueError(f"There is no image. Received: images={source!r}.")
    return Compared(np.stack(read))


def images_of_run(
    classifier: Classifier, folder: pathlib.Path, count: int
) -> tuple[Compared, np.ndarray]:
    """A number of a run's validation images, and training images.

    Args:
        classifier: the model of the run.
        folder: of the run.
        count: int, of validation images at most, chosen at random.

    Returns:
        The validation images, and at most 128 training images (N, H, W, C)
        in [0, 255], cropped as for evaluation.

    Raises:
        ValueError: when the data of the run is gone or has no such images.
    """
    options = read_config(folder).get("data") or {}
    try:
        # What read the images there may not be here.
        config = DataConfig(**{**options, "reader": "auto"})
    except TypeError as error:
        raise ValueError(f"data in the config of the run: {error}") from None
    dataset = open_dataset(config)
    if not dataset.validation:
        raise ValueError(
            f"The data of the run has no validation images: {dataset.name!r}. "
            "Give images= instead."
        )
    validation = _read(classifier, dataset.validation, count)
    return validation, _read(classifier, dataset.train, CALIBRATION).images


def _read(classifier, examples, count) -> Compared:
    if isinstance(examples, Examples) and len(examples) > count:
        kept = order(0, 0, len(examples))[:count]
        examples = examples.subset(np.sort(kept))
    height, width, channels = classifier.model.input_shape[1:]
    batches = evaluation_batches(
        examples,
        image_size=(height, width),
        channels=channels,
        batch_size=min(BATCH, count),
        preprocessing=classifier.geometry.config,
    )
    first = itertools.islice(iter(batches), -(-count // BATCH))
    read = [[np.asarray(x) for x in batch] for batch in first]
    images, labels, mask = map(np.concatenate, zip(*read, strict=True))
    kept = np.flatnonzero(mask)[:count]
    # Of several classes an image, none is the one.
    known = labels[kept] if labels.ndim == 1 else None
    return Compared(images[kept].astype("float32"), known)
