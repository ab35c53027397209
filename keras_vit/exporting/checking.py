"""Checks of an exported file against its model, and the images for them.

Axes: B images of a batch, H and W height and width, C channels, K scores.
"""

import importlib
import importlib.metadata
import itertools
import os
import pathlib
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit.data import (
    Examples,
    evaluation_batches,
    open_dataset,
)
from keras_vit.data.config import data_of_run
from keras_vit.data.resizing import evaluation_crop, resize
from keras_vit.data.seeds import order
from keras_vit.exporting.runtimes_table import TOLERANCES
from keras_vit.io.run_folder import folder_of, read_config
from keras_vit.prediction import Classifier, images_of
from keras_vit.prediction.exported_model import ExportedModel

__all__ = [
    "CALIBRATION",
    "Compared",
    "compared_run",
    "check",
    "images_in",
    "images_of_run",
    "seeded_images",
    "size_of",
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


def compared_run(
    model: Any, images: Any, validation_images: int
) -> pathlib.Path | None:
    """Return the folder of the run whose images are compared, or None.

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
    """Read some of a run's validation images, and training images.

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
    # What read the images there may not be here.
    config = data_of_run(read_config(folder), reader="auto")
    try:
        dataset = open_dataset(config)
    except ValueError as error:
        raise ValueError(
            f"The data of the run cannot be opened. {error} Or give images=."
        ) from error
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


def check(
    classifier: Classifier,
    exported: ExportedModel,
    compared: Compared | None = None,
    largest_change: float = 1.0,
) -> dict[str, Any]:
    """Runs a file beside its model: differences, classes and time."""
    record = exported.record
    shape = classifier.model.input_shape
    if exported.resizes:
        shape = (None, shape[1] * 4 // 3, shape[2] * 3 // 2, shape[3])
    seeded = seeded_images(shape)
    error, largest, wanted = 0.0, 0.0, np.zeros(())
    for rows in (1, 3):
        scores, wanted = _both(classifier, exported, seeded[:rows])
        scale = np.sqrt(np.mean(np.square(wanted))) or 1.0
        off = np.sqrt(np.mean(np.square(scores - wanted))) / scale
        error = max(error, float(np.nan_to_num(off, nan=np.inf)))
        largest = max(largest, float(np.abs(scores - wanted).max()))
    if np.ptp(wanted) == 0:
        warnings.warn(
            "The model gives all images and classes one score, as with a new "
            "head: the file is compared in this alone. Load weights first.",
            stacklevel=3,
        )
    computed = classifier.model.dtype_policy.compute_dtype
    tolerance = max(
        TOLERANCES[record["precision"]],
        TOLERANCES.get(computed, 0.0),  # A mixed one is rounded itself.
    )
    if not error <= tolerance:
        raise ValueError(
            f"The {record['format']} file gives other scores than the model: "
            f"they differ by {error:.2g} of their size, and {tolerance:g} is "
            f"allowed in {record['precision']}. No file was written."
        )
    found = {
        "largest_difference": largest,
        "relative_error": error,
        "tolerance": tolerance,
        "runtime": _version_of(exported),
        **_seconds(classifier, exported, seeded),
    }
    if compared is not None and classifier.class_names:
        found |= _agreement(classifier, exported, compared, largest_change)
    return found


def seeded_images(shape) -> np.ndarray:
    """Three images (3, H, W, C) in [0, 255] with coarse and fine structure."""
    random = np.random.default_rng(0)
    height, width, channels = shape[1:]
    coarse = random.integers(0, 256, (3, 5, 5, channels)).astype("uint8")
    fine = random.normal(0, 16, (3, height, width, channels))
    smooth = [resize(x, (height, width), rounding="float32") for x in coarse]
    return np.clip(np.stack(smooth) + fine, 0, 255).astype("float32")


def _both(classifier, exported, images):
    given, inputs = _inputs(classifier, exported, images)
    wanted = classifier.model.predict_on_batch(inputs)
    wanted = keras.ops.convert_to_numpy(keras.ops.cast(wanted, "float32"))
    return exported.predict_on_batch(given), wanted


def _inputs(classifier, exported, images):
    """Return the inputs of the file and of the model for some images."""
    inputs = classifier.inputs(images)
    if not exported.resizes:
        return inputs, inputs
    crops = [evaluation_crop(x, classifier.geometry) for x in images]
    return inputs, classifier.inputs(np.stack(crops))


def _agreement(classifier, exported, compared, largest_change):
    images, labels = compared
    inputs = np.array_split(images, -(-len(images) // 8))
    pairs = [_both(classifier, exported, x) for x in inputs]
    found, wanted = (
        np.concatenate(x).argmax(-1) for x in zip(*pairs, strict=True)
    )
    same = float(np.mean(found == wanted))
    if 1 - same > largest_change:
        raise ValueError(
            f"{1 - same:.1%} of {len(images)} images change their class, and "
            f"{largest_change:.1%} may: no file was written. Allow more with "
            "largest_change, or take another precision."
        )
    measured = {"images": len(images), "same_class": same}
    if labels is not None:
        measured["accuracy"] = float(np.mean(found == labels))
        measured["model_accuracy"] = float(np.mean(wanted == labels))
    return measured


def _seconds(classifier, exported, images, rounds=5):
    """Median seconds of one image, file and model in turns."""
    given, inputs = _inputs(classifier, exported, images[:1])
    sides: dict[str, Callable] = {
        "seconds": lambda: exported.predict_on_batch(given),
        "model_seconds": lambda: classifier.model.predict_on_batch(inputs),
    }
    found = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            begin = time.perf_counter()
            run()
            found[name].append(time.perf_counter() - begin)
    return {name: statistics.median(x) for name, x in found.items()}


def size_of(path: pathlib.Path) -> int:
    """Return the bytes of a folder, or of a file and its companions."""
    if path.is_dir():
        return sum(x.stat().st_size for x in path.rglob("*") if x.is_file())
    return sum(x.stat().st_size for x in path.parent.glob(f"{path.stem}.*"))


def _version_of(exported):
    runtime = exported.runtime
    module = importlib.import_module(runtime.module)
    version = getattr(module, "__version__", None)
    version = version or importlib.metadata.version(runtime.install)
    return f"{runtime.name} {version}"
