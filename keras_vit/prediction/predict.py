"""From images to the names of what is in them.

Axes: B images of a batch, H and W height and width, C channels.
"""

import concurrent.futures
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_vit.data import PreprocessingConfig
from keras_vit.prediction.classifier import (
    Classifier,
    classifier_of,
    load_classifier,
)
from keras_vit.prediction.images import images_of

__all__ = [
    "Prediction",
    "as_classifier",
    "most_probable",
    "predict",
    "predictions",
]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a model says of one image.

    Attributes:
        image: path of the file; or for an image in memory its position among
            all images, from 0.
        classes: (class name, probability) of the most probable classes, most
            probable first.
        error: None, or why the image could not be read.

    Example:
        >>> keras_vit.predict("runs/quickstart", "digit.png")[0].classes[0]
        ('3', 0.98)
    """

    image: str | int
    classes: tuple[tuple[str, float], ...] = ()
    error: str | None = None


def predict(
    model: str | os.PathLike | keras.Model | Classifier,
    source: Any,
    top: int = 5,
    *,
    class_names: tuple[str, ...] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    batch_size: int = 32,
) -> list[Prediction]:
    """Names what is in images, prepared as for the model's evaluation.

    Args:
        model: a name of `keras-vit weights list` such as "ViT_B16/imagenet",
            a run folder, or a file or folder of weights. To predict more than
            once, a model of keras_vit, or what
            `keras_vit.prediction.load_classifier` returns.
        source: path of an image, or of a folder for all images below it; a
            Pillow image; an array or tensor (H, W), (H, W, C) or
            (B, H, W, C) in [0, 255], of any size; or a list of all these.
        top: int, how many classes to name; a model of fewer names all.
        class_names: the names, where they are not those of the weights.
        preprocessing: how images are resized and cropped, where it is not as
            the weights were evaluated: `keras_vit.data.PreprocessingConfig`.
        batch_size: int, images in a step.

    Returns:
        A list with a `Prediction` for each image, in their order; a folder's
        in the order of their paths.

    Raises:
        ValueError: when there is no such model, an image cannot be read,
            there is none, or an argument is out of range.
        OSError: when weights cannot be fetched.

    Example:
        >>> for found in keras_vit.predict("ViT_B16/imagenet", "photos"):
        ...     print(found.image, found.classes[0])
    """
    classifier = as_classifier(model, class_names, preprocessing)
    found = []
    for prediction in predictions(
        classifier, images_of(source), top=top, batch_size=batch_size
    ):
        if prediction.error is not None:
            raise ValueError(prediction.error)
        found.append(prediction)
    if not found:
        raise ValueError(f"There is no image. Received: source={source!r}.")
    return found


def as_classifier(
    model: str | os.PathLike | keras.Model | Classifier,
    class_names: tuple[str, ...] | None = None,
    preprocessing: PreprocessingConfig | None = None,
) -> Classifier:
    """What `predict` makes of its arguments.

    Args:
        model: see `predict`.
        class_names: see `predict`.
        preprocessing: see `predict`.

    Returns:
        A `Classifier`.

    Raises:
        ValueError: when there is no such model, or the names are not its own.
        OSError: when weights cannot be fetched.

    Example:
        >>> as_classifier("runs/quickstart").class_names[:2]
        ('0', '1')
    """
    if not isinstance(model, Classifier):
        is_name = isinstance(model, (str, os.PathLike))
        model = load_classifier(model) if is_name else classifier_of(model)
    changed = classifier_of(
        model.model,
        class_names=class_names or model.class_names,
        preprocessing=preprocessing or model.geometry.config,
    )
    return dataclasses.replace(changed, activation=model.activation)


def predictions(
    classifier: Classifier,
    images: Iterable[Any],
    *,
    top: int = 5,
    batch_size: int = 32,
) -> Iterator[Prediction]:
    """Predicts image by image, a batch in a step, and goes on past broken ones.

    Args:
        classifier: a `Classifier`.
        images: what `images_of` yields; as many as one likes, a batch is kept
            in memory.
        top: int, how many classes to name; a model of fewer names all.
        batch_size: int.

    Returns:
        An iterator of `Prediction` in the order of the images. One that
        cannot be read has an `error` and no classes.

    Raises:
        ValueError: top or batch_size is below 1, or the model gives NaN.

    Example:
        >>> for found in predictions(classifier, images_of("photos")):
        ...     print(found.image, found.error or found.classes[0])
    """
    for name, value in (("top", top), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"{name} must be an int above 0. Received: {name}={value!r}."
            )
    return _predictions(classifier, images, top, batch_size)


def _predictions(classifier, images, top, batch_size):
    numbered = enumerate(images)
    rows = 0
    with concurrent.futures.ThreadPoolExecutor() as threads:
        while chunk := list(itertools.islice(numbered, batch_size)):
            # Every size of a batch is compiled anew: the last is filled up.
            rows = max(rows, len(chunk))
            read = list(threads.map(_reader(classifier), chunk))
            pixels = [content for _, content, error in read if error is None]
            answers = iter(_answers(classifier, pixels, rows, top))
            for image, _, error in read:
                classes = next(answers) if error is None else ()
                yield Prediction(image, classes, error)


def _reader(classifier):
    """A function of (number, image) that returns its name, pixels, error."""

    def read(numbered):
        number, image = numbered
        name = image if isinstance(image, str) else number
        try:
            return name, classifier.read(image), None
        except ValueError as error:
            in_memory = "" if isinstance(image, str) else f"Image {number}: "
            return name, None, f"{in_memory}{error}"

    return read


def _answers(classifier, pixels, rows, top):
    """(name, probability) of the most probable classes of each image."""
    if not pixels:
        return []
    batch = np.stack(pixels)  # (B, H, W, C)
    padding = [(0, rows - len(batch)), (0, 0), (0, 0), (0, 0)]
    found = classifier.probabilities(np.pad(batch, padding))[: len(batch)]
    best = most_probable(found, top)
    return [
        tuple((classifier.class_names[i], float(row[i])) for i in indices)
        for row, indices in zip(found, best, strict=True)
    ]


def most_probable(probabilities: np.ndarray, top: int) -> np.ndarray:
    """The most probable classes, among equals the first class first.

    Args:
        probabilities: array (B, K).
        top: int, how many; of fewer classes all.

    Returns:
        Integer array (B, min(top, K)).

    Example:
        >>> most_probable(np.array([[0.1, 0.7, 0.2]]), 2)
        array([[1, 2]])
    """
    return np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
