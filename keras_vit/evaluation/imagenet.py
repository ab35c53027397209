"""ImageNet-ReaL, and data sets that name ImageNet's classes in other ways.

Axes: N images, K classes.
"""

import dataclasses
import difflib
import json
import os
import re
from collections.abc import Sequence

import numpy as np

from keras_vit import preprocessing
from keras_vit.evaluation.metrics import multi_hot, summarise
from keras_vit.evaluation.predictions import Predictions

__all__ = ["match_classes", "read_real_labels", "summarise_real"]

IMAGENET_CLASSES = 1000
# ILSVRC2012_val_00000001.JPEG is the first image of the validation set.
FILE_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\b")


def read_real_labels(
    path: str | os.PathLike, file_names: Sequence[str]
) -> list[list[int]]:
    """Read the labels of ImageNet-ReaL for images in any order.

    Args:
        path: real.json of github.com/google-research/reassessed-imagenet: a
            list of classes for each image of the validation set, in the order
            of the file names.
        file_names: N names or paths with ILSVRC2012_val_<number> in them.

    Returns:
        N lists of classes; an empty one where the image has no label.

    Raises:
        ValueError: the file is something else, or a name has no such number.

    Example:
        >>> read_real_labels("real.json", ["ILSVRC2012_val_00000001.JPEG"])
    """
    with open(path, encoding="utf-8") as file:
        labels = json.load(file)
    if not isinstance(labels, list) or not all(
        isinstance(row, list) for row in labels
    ):
        raise ValueError(
            f"{os.fspath(path)!r} is not real.json, which is a list of lists "
            "of classes. It is at github.com/google-research/"
            "reassessed-imagenet."
        )
    return [labels[_number(name, len(labels)) - 1] for name in file_names]


def summarise_real(
    predictions: Predictions,
    path: str | os.PathLike,
    file_names: Sequence[str],
) -> dict[str, float | int]:
    """Compute the accuracy of predictions on ImageNet-ReaL's labels.

    Args:
        predictions: `Predictions` of N images by a model of ImageNet's 1000
            classes.
        path: real.json, see `read_real_labels`.
        file_names: N names of the images, in the order of the predictions.

    Returns:
        What `summarise` returns, "real_" before each key.

    Raises:
        ValueError: as `read_real_labels`, and when there is not one name per
            prediction, as when broken images were skipped.

    Example:
        >>> summarise_real(predictions, "real.json", file_names)["real_top1"]
    """
    if len(file_names) != len(predictions):
        raise ValueError(
            "ReaL labels need the name of every image. Received: "
            f"{len(file_names)} names and {len(predictions)} predictions."
        )
    labels = multi_hot(
        read_real_labels(path, file_names), predictions.num_classes
    )
    real = summarise(dataclasses.replace(predictions, labels=labels))
    return {f"real_{name}": value for name, value in real.items()}


def _number(file_name, num_images):
    found = FILE_NAME.search(file_name)
    number = int(found[1]) if found else 0
    if not 1 <= number <= num_images:
        raise ValueError(
            "ReaL labels are found by file names with ILSVRC2012_val_00000001 "
            f"to ILSVRC2012_val_{num_images:08} in them. Received: "
            f"{file_name!r}."
        )
    return number


def match_classes(
    names: Sequence[str], model_names: Sequence[str]
) -> np.ndarray:
    """Find the classes of a data set among those of a model.

    A data set may have its classes in another order than the model, have fewer
    (Imagenette), or name them by WordNet id or by number. The folders of
    ImageNet-V2, in alphabetical order 0, 1, 10, 100, ..., would give most
    classes a wrong number unless their names are read.

    Args:
        names: the classes of the data set, in the order of its labels: names
            of the model's, whatever the case and with spaces or underscores;
            WordNet ids such as "n02504458" for ImageNet's 1000 classes; or
            numbers from 0 to K-1.
        model_names: the K classes of the model, in the order of its outputs.

    Returns:
        Integer array: label i of the data set is class `array[i]`.

    Raises:
        ValueError: a class is not among the model's, or is more than one.

    Example:
        >>> match_classes(["dog", "cat"], ["cat", "cow", "dog"]).tolist()
        [2, 0]
    """
    if list(names) == list(model_names):
        return np.arange(len(names))
    for known in _spellings(model_names):
        if all(_plain(name) in known for name in names):
            return np.array([known[_plain(name)] for name in names])
    raise ValueError(_unmatched(names, model_names))


def _plain(name):
    return name.lower().replace("_", " ")


def _spellings(model_names):
    """Yield dicts from the spellings of the classes to their numbers."""
    yield _unique(map(_plain, model_names))
    if len(model_names) == IMAGENET_CLASSES:
        scores = np.eye(IMAGENET_CLASSES)
        best = preprocessing.decode_predictions(scores, top=1)
        wordnet_ids = [wordnet_id for ((wordnet_id, _, _),) in best]
        yield _unique(wordnet_ids)
    yield {str(number): number for number in range(len(model_names))}


def _unique(names):
    """Return the number of each name, without names that two classes share."""
    found, repeated = {}, set()
    for number, name in enumerate(names):
        repeated |= {name} & found.keys()
        found[name] = number
    return {name: i for name, i in found.items() if name not in repeated}


def _unmatched(names, model_names):
    known = _unique(map(_plain, model_names))
    unknown = [name for name in names if _plain(name) not in known]
    near = difflib.get_close_matches(unknown[0], model_names, n=1, cutoff=0)
    return (
        f"The model has {len(model_names)} classes, which do not include "
        f"{len(unknown)} of the data set's {len(names)}, for example "
        f"{unknown[0]!r} (the nearest is {near[0]!r}). Evaluate on data whose "
        "classes the model has."
    )
