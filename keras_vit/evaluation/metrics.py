"""Metrics of predictions, and the files that an evaluation writes.

Also by ImageNet-ReaL, and of data sets that name ImageNet's classes in other
ways.

Axes: N images, M of them to look at, H and W height and width, C channels, K
classes or numbers.
"""

import dataclasses
import difflib
import json
import math
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit import preprocessing
from keras_vit.evaluation.predictions import (
    TOP,
    Predictions,
    of_three,
    predict_classes,
)
from keras_vit.evaluation.scores_of_classes import class_metrics, of_answers
from keras_vit.io.atomic_files import replacing, write_csv
from keras_vit.io.checks import (
    check_classes,
    check_installed,
    check_kind,
    check_whole,
)

__all__ = [
    "Numbers",
    "confusion_rows",
    "evaluate",
    "images_at",
    "match_classes",
    "multi_hot",
    "per_class",
    "predict_numbers",
    "read_real_labels",
    "summarise",
    "summarise_numbers",
    "summarise_real",
    "top_k_accuracy",
    "worst_rows",
    "write_evaluation",
    "write_numbers",
]

SCORES = ("precision", "recall", "f1")
# Of the cells of a confusion matrix; 16 MiB are 111 images of 224x224.
MAX_CELL_PICTURES = 400
MAX_CELL_BYTES = 2**24
RIGHT_SHARE = 4  # One of so many images may be left to right answers.
IMAGENET_CLASSES = 1000
# ILSVRC2012_val_00000001.JPEG is the first image of the validation set.
FILE_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\b")


def evaluate(model, batches, **options) -> dict[str, float | int]:
    """Compute the accuracy of a model on every image of a split.

    Args:
        model: a Keras model from images to scores.
        batches: padded batches of (images, labels, mask), see
            `predict_classes`.
        **options: `activation`, `class_map` and `verbose` of
            `predict_classes`.

    Returns:
        Dict of "top1" and "top5", shares in [0, 1], and "num_examples", the
        images that they are shares of; see `summarise`.

    Raises:
        ValueError: as `predict_classes`.

    Example:
        >>> batch = (images, labels, np.ones(len(images), bool))
        >>> evaluate(model, [batch])["top1"]
    """
    return summarise(predict_classes(model, batches, top=5, **options))


def summarise(predictions: Predictions) -> dict[str, float | int]:
    """Compute top-1 and top-5 accuracy, and what weighs all classes alike.

    Args:
        predictions: `Predictions` of at least one image with a label.

    Returns:
        Dict of "top1" and "top5", the shares of the images with a label whose
        label, or one of whose labels, is the most probable class, or among
        the five most probable ones; "num_examples", the number of images with
        a label; "num_unlabelled", of those that are left out of these for
        having none; and what `class_metrics` returns, as far as the classes
        that were kept tell it: "auc", "average_precision" and all of several
        classes per image need all K.

    Raises:
        ValueError: no image has a label.

    Example:
        >>> summarise(predict_classes(model, batches))["num_examples"]
        10000
    """
    check_kind(Predictions, predictions=predictions)
    num_examples = int(predictions.labelled.sum())
    return {
        "top1": top_k_accuracy(predictions, 1),
        "top5": top_k_accuracy(predictions, 5),
        "num_examples": num_examples,
        "num_unlabelled": len(predictions) - num_examples,
        **_class_metrics(predictions),
    }


def _class_metrics(predictions) -> dict[str, float | int]:
    labels, classes = predictions.labels, predictions.classes
    found = {}
    if classes.shape[1] == predictions.num_classes:
        found = class_metrics(labels, predictions.by_class())
    if labels.ndim == 1:
        # Two probabilities may be 1.0 where one score is the higher.
        found |= of_answers(labels, classes[:, 0], predictions.num_classes)
    return found


def top_k_accuracy(predictions: Predictions, k: int) -> float:
    """Compute the share of images with a label among the k most probable.

    With several labels per image this is ImageNet-ReaL's accuracy (arXiv
    2006.07159, section 3): any of them is right, and images without labels
    are left out.

    Args:
        predictions: `Predictions` of at least k classes per image.
        k: int, from 1.

    Returns:
        float in [0, 1].

    Raises:
        ValueError: no image has a label, or fewer than k classes per image
            were kept (and fewer than there are).

    Example:
        >>> top_k_accuracy(predictions, 5)
    """
    check_kind(Predictions, predictions=predictions)
    check_whole(1, k=k)
    kept = predictions.classes.shape[1]
    if k > kept < predictions.num_classes:
        raise ValueError(
            f"The predictions keep {kept} of {predictions.num_classes} classes "
            f"of an image. Received: k={k}. Give a smaller k, or predict with "
            f"top={k}."
        )
    num_labelled = int(predictions.labelled.sum())
    if not num_labelled:
        raise ValueError(
            "No image has a label. Received: predictions of "
            f"{len(predictions)} images."
        )
    right = predictions.right[:, :k].max(axis=1)
    return int(right.sum()) / num_labelled  # Without a label none is right.


def multi_hot(
    label_sets: Iterable[Iterable[int]], num_classes: int
) -> np.ndarray:
    """Encode several labels per image, or none, for `Predictions`.

    Args:
        label_sets: for each image the numbers of its classes.
        num_classes: int, K.

    Returns:
        Boolean array of shape (N, K).

    Raises:
        ValueError: a label is not in 0..K-1.

    Example:
        >>> multi_hot([[0, 2], []], num_classes=3).astype(int).tolist()
        [[1, 0, 1], [0, 0, 0]]
    """
    check_whole(1, num_classes=num_classes)
    try:
        label_sets = [list(labels) for labels in label_sets]
    except TypeError as error:
        raise ValueError(
            "label_sets are the classes of each image, as [[0, 2], []]. "
            f"Received: {label_sets!r:.80}."
        ) from error
    array = np.zeros((len(label_sets), num_classes), bool)
    for i, labels in enumerate(label_sets):
        check_classes(num_classes, **{f"label_sets[{i}]": labels})
        array[i, labels] = True
    return array


def per_class(labels, predicted, class_names) -> list[dict]:
    """Compute precision, recall and F1 of each class.

    Args:
        labels: integer array of shape (N,), the true classes.
        predicted: integer array of shape (N,).
        class_names: K names.

    Returns:
        A dict per class: "class", its name; "images", how many there are;
        "predicted", how often it was predicted; "precision", "recall" and
        "f1", None where they are not defined.

    Example:
        >>> per_class([0, 1, 1], [0, 0, 1], ["cat", "dog"])[1]["recall"]
        0.5
    """
    check_installed("A table of classes", "sklearn")
    from sklearn.metrics import precision_recall_fscore_support

    check_kind(tuple[str, ...], class_names=class_names)
    check_classes(len(class_names), labels=labels, predicted=predicted)
    numbers = np.arange(len(class_names))
    *scores, images = precision_recall_fscore_support(
        labels, predicted, labels=numbers, zero_division=math.nan
    )
    answers = np.bincount(predicted, minlength=len(numbers))
    return [
        {"class": class_names[i], "images": int(images[i])}
        | {"predicted": int(answers[i])}
        | {
            name: None if math.isnan(score[i]) else float(score[i])
            for name, score in zip(SCORES, scores, strict=True)
        }
        for i in numbers
    ]


def write_evaluation(
    folder: str | os.PathLike,
    predictions: Predictions,
    batches: Iterable,
    class_names: Sequence[str],
    *,
    num_pictures: int = 24,
) -> None:
    """Write predictions.npz, predictions.csv and per_class.csv.

    predictions.npz holds the arrays of `Predictions` and the images of
    `worst_rows`: `pictures`, uint8 of shape (M, H, W, C), and `picture_rows`
    of shape (M,), which of the N images they are. Where images have one label,
    it also has the images of `confusion_rows` as `cell_pictures` and
    `cell_rows`; where they have several, there is no per_class.csv.
    predictions.csv has a line per image: its file (its number where it is in
    none), its true class, the most probable class and its probability.

    Args:
        folder: the run folder.
        predictions: `Predictions` of N images.
        batches: the padded batches that they were made on.
        class_names: K names, in the order of the model's outputs.
        num_pictures: int, M at most.

    Raises:
        ValueError: the class names or the batches are not those of the
            predictions.

    Example:
        >>> predictions = predict_classes(model, batches)
        >>> write_evaluation("runs/a", predictions, batches, class_names)
    """
    check_kind(str | os.PathLike, folder=folder)
    check_kind(Predictions, predictions=predictions)
    check_kind(tuple[str, ...], class_names=class_names)
    check_kind(Iterable, batches=batches)
    if len(class_names) != predictions.num_classes:
        raise ValueError(
            f"The model has {predictions.num_classes} classes. Received: "
            f"{len(class_names)} class names."
        )
    folder = pathlib.Path(folder)
    rows = worst_rows(predictions, num_pictures)
    more = np.zeros(0, int)
    if predictions.labels.ndim == 1:
        images, _, _ = of_three(next(iter(batches), None))
        affordable = MAX_CELL_BYTES // math.prod(images.shape[1:])
        cells = confusion_rows(predictions, min(MAX_CELL_PICTURES, affordable))
        more = cells[~np.isin(cells, rows)]
    pictures = images_at(batches, [*rows, *more])
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "predictions.npz") as path:
        predictions.most_probable(TOP).save(
            path,
            pictures=pictures[: len(rows)],
            picture_rows=rows,
            cell_pictures=pictures[len(rows) :],
            cell_rows=more,
        )
    write_csv(folder / "predictions.csv", _lines(predictions, class_names))
    if predictions.labels.ndim == 1:
        predicted = predictions.classes[:, 0]
        table = per_class(predictions.labels, predicted, class_names)
        write_csv(folder / "per_class.csv", table)


def _lines(predictions, class_names) -> list[dict]:
    """Return the lines of predictions.csv."""
    names, right = predictions.names, predictions.right[:, 0]
    return [
        {
            "image": i if names is None else str(names[i]),
            "true": _label_names(predictions.labels[i], class_names),
            "predicted": class_names[predictions.classes[i, 0]],
            "probability": float(predictions.probabilities[i, 0]),
            "right": int(right[i]),
        }
        for i in range(len(predictions))
    ]


def _label_names(label, class_names) -> str:
    """Return the class of a label, or those of an image with several."""
    found = np.flatnonzero(label) if label.ndim else [label]
    return " ".join(class_names[k] for k in found)


def worst_rows(predictions: Predictions, count: int) -> np.ndarray:
    """Find the most confident mistakes.

    Where there are fewer than count, the least confident right predictions
    follow. Images without a label are left out.

    Args:
        predictions: `Predictions` of N images.
        count: int, how many to choose at most.

    Returns:
        Integer array of shape (M,) of numbers from 0 to N-1, M <= count.

    Example:
        >>> rows = worst_rows(predictions, count=24)
    """
    check_kind(Predictions, predictions=predictions)
    check_whole(0, count=count)
    right = predictions.right[:, 0]
    confidence = predictions.probabilities[:, 0]
    # Mistakes first; among them the confident, among the others the unsure.
    order = np.lexsort((np.where(right, confidence, -confidence), right))
    return order[predictions.labelled[order]][:count]


def confusion_rows(
    predictions: Predictions, count: int, *, per_cell: int = 4
) -> np.ndarray:
    """Find some images of each cell of the confusion matrix.

    The cells of the most frequent mistakes come first, of each the most
    confident predictions. However many mistakes there are, a quarter of the
    images are right predictions.

    Args:
        predictions: `Predictions` of N images with one label each.
        count: int, how many to choose at most.
        per_cell: int, how many per cell at most.

    Returns:
        Integer array of shape (M,) of numbers from 0 to N-1, M <= count.

    Example:
        >>> rows = confusion_rows(predictions, count=400)
    """
    right = predictions.right[:, 0]
    cells = predictions.labels * predictions.num_classes
    cells = cells + predictions.classes[:, 0]
    order = np.lexsort((-predictions.probabilities[:, 0], cells))
    _, places, sizes = np.unique(
        cells[order], return_inverse=True, return_counts=True
    )
    ranks = np.arange(len(order)) - (np.cumsum(sizes) - sizes)[places]
    kept = ranks < per_cell
    order, sizes = order[kept], sizes[places][kept]
    order = order[np.argsort(-sizes, kind="stable")]
    mistakes, others = order[~right[order]], order[right[order]]
    reserved = min(len(others), -(-count // RIGHT_SHARE))
    return np.concatenate([mistakes[: count - reserved], others])[:count]


def images_at(batches: Iterable, rows: Iterable[int]) -> np.ndarray:
    """Read some images of a split again.

    Args:
        batches: the padded batches of (images, labels, mask) that the
            predictions were made on, in the same order, with values in [0,
            255].
        rows: M numbers of images, counted from 0 and without padding.

    Returns:
        uint8 array of shape (M, H, W, C), in the order of rows.

    Raises:
        ValueError: there are fewer images than a row needs.

    Example:
        >>> images_at(batches, worst_rows(predictions, count=24))
    """
    check_kind(Iterable, batches=batches, rows=rows)
    rows = [int(row) for row in rows]
    wanted = set(rows)
    found, begin = {}, 0
    for images, _, mask in map(of_three, batches):
        if len(found) == len(wanted):
            break
        images = np.asarray(images)[np.asarray(mask)]
        here = wanted.intersection(range(begin, begin + len(images)))
        found |= {row: images[row - begin] for row in here}
        begin += len(images)
    if missing := wanted - found.keys():
        raise ValueError(
            f"There are {begin} images. Received: rows {sorted(missing)}. Give "
            "the batches that the predictions were made on."
        )
    pixels = np.rint([found[row] for row in rows])
    return np.clip(pixels, 0, 255).astype(np.uint8)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers of N images, and those that a model predicts.

    Attributes:
        true: float64 array of shape (N, K).
        predicted: float64 array of shape (N, K).
        names: N texts or numbers, the file of each image or which it is.
    """

    true: np.ndarray
    predicted: np.ndarray
    names: Sequence

    def __len__(self) -> int:
        return len(self.true)


def predict_numbers(
    model, batches, examples, names: Sequence[str] | None = None, **options
) -> Numbers:
    """Predict the numbers of every image that can be read.

    Args:
        model: a Keras model from images to (B, K) in the units of the labels.
        batches: `evaluation_batches` of the images.
        examples: the `Examples` themselves.
        names: of `keras_vit.data.file_names`.
        **options: `verbose`, `together` and `tta` of `predict_classes`.

    Returns:
        `Numbers`, in the order of the batches.

    Raises:
        ValueError: as `predict_classes`, or for labels that are no numbers of
            this model.

    Example:
        >>> found = predict_numbers(model, batches, dataset.test)
        >>> summarise_numbers(found)["mae"]
    """
    num_outputs = model.output_shape[-1]
    labels = examples.labels
    if labels.dtype.kind != "f" or labels.shape[1:] != (num_outputs,):
        raise ValueError(
            f"The model predicts {num_outputs} number(s) of an image. "
            f"Received: labels of {examples.source} that are {labels.dtype} of "
            f"shape {labels.shape}. Give the columns that it was trained on, "
            "as data.label_key, and data.label_kind number."
        )
    found = predict_classes(
        model,
        batches,
        top=num_outputs,
        activation="linear",
        names=[str(i) for i in range(len(examples))],
        **options,
    )
    rows = np.array(found.names, int)
    return Numbers(
        labels[rows].astype("float64"),
        found.by_class(),
        rows.tolist() if names is None else [names[row] for row in rows],
    )


def summarise_numbers(found: Numbers) -> dict[str, float | int | dict]:
    """Compute the mean absolute error and R2, as scikit-learn does.

    `mean_absolute_error` and `r2_score`: means over the K numbers.

    Args:
        found: `Numbers`.

    Returns:
        Dict of "mae", in the units of the labels, "r2" and "num_examples".

    Example:
        >>> summarise_numbers(Numbers(true, predicted, names))["r2"]
    """
    difference = found.true - found.predicted
    error = (difference**2).sum(axis=0)  # (K,)
    spread = ((found.true - found.true.mean(axis=0)) ** 2).sum(axis=0)
    # Of a number that is the same everywhere: 1 where it is met, else 0.
    constant = (error == 0).astype(float)
    r2 = np.where(spread > 0, 1 - error / np.where(spread, spread, 1), constant)
    return {
        "mae": float(np.abs(difference).mean()),
        "r2": float(r2.mean()),
        "num_examples": len(found),
    }


def write_numbers(
    folder: str | os.PathLike, found: Numbers, names: Sequence[str]
) -> None:
    """Write predictions.csv: of each image the true and predicted numbers.

    Args:
        folder: the run folder.
        found: `Numbers`.
        names: of the K numbers.

    Example:
        >>> write_numbers("runs/a", found, ["width", "height"])
    """
    rows = [
        {"image": str(image)}
        | {
            f"{kind} {name}": float(value)
            for kind, values in (("true", true), ("predicted", predicted))
            for name, value in zip(names, values, strict=True)
        }
        for image, true, predicted in zip(
            found.names, found.true, found.predicted, strict=True
        )
    ]
    write_csv(pathlib.Path(folder) / "predictions.csv", rows)


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
    check_kind(str | os.PathLike, path=path)
    check_kind(Iterable, file_names=file_names)
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
    check_kind(Predictions, predictions=predictions)
    check_kind(Iterable, file_names=file_names)
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
    check_kind(tuple[str, ...], names=names, model_names=model_names)
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
    near = f" (the nearest is {near[0]!r})" if near else ""
    return (
        f"The model has {len(model_names)} classes, which do not include "
        f"{len(unknown)} of the data set's {len(names)}, for example "
        f"{unknown[0]!r}{near}. Evaluate on data whose classes the model has."
    )
