"""Checks of an exported file beside the model that it was written of.

Axes: B images of a batch, H and W height and width, C channels, K scores.
"""

import importlib
import importlib.metadata
import pathlib
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit.data.resizing import evaluation_crop, resize
from keras_vit.exporting.compared_images import Compared
from keras_vit.exporting.runtimes_table import TOLERANCES
from keras_vit.prediction import Classifier
from keras_vit.prediction.exported_model import ExportedModel

__all__ = ["check", "seeded_images", "size_of"]


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
    """What the file and what the model gets of images."""
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
    """Bytes of a folder, or of a file and those of its name beside it."""
    if path.is_dir():
        return sum(x.stat().st_size for x in path.rglob("*") if x.is_file())
    return sum(x.stat().st_size for x in path.parent.glob(f"{path.stem}.*"))


def _version_of(exported):
    runtime = exported.runtime
    module = importlib.import_module(runtime.module)
    version = getattr(module, "__version__", None)
    version = version or importlib.metadata.version(runtime.install)
    return f"{runtime.name} {version}"
