"""Predictions of a model for every image of a split, each counted once.

Axes: N images, H and W height and width, C channels, K classes.
"""

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Sequence

import keras
import numpy as np
from keras import ops

from keras_vit.data.resizing import TTA, views
from keras_vit.io.checks import (
    check_choice,
    check_classes,
    check_installed,
    check_kind,
    check_whole,
    numbers_of,
)
from keras_vit.models.configured_model import keeping
from keras_vit.runtime.platforms import compile_predictions

__all__ = [
    "TOP",
    "Predictions",
    "Ranking",
    "Together",
    "accuracy",
    "classes_to_keep",
    "load_predictions",
    "nearest_neighbour_predictions",
    "of_three",
    "predict_classes",
    "unread",
]

TOP = 5  # classes of an image that are kept in files
# Probabilities of all classes that an evaluation holds: those of 67,000 images
# of ImageNet's 1000 classes, half a gigabyte with their order.
MAX_PROBABILITIES = 2**26


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The labels of N images and the classes that a model finds most probable.

    Attributes:
        labels: integer array of shape (N,), the true classes; or boolean
            array of shape (N, K) where an image may have several or none.
        classes: integer array of shape (N, T), most probable first; equally
            probable ones in their order, as in `np.argmax`.
        probabilities: float array of shape (N, T), of these classes.
        num_classes: int, K.
        names: text array of shape (N,), the file of each image; None where
            they are in no files.

    Example:
        >>> predictions = predict_classes(model, batches)
        >>> predictions.classes[predictions.labels == 3, 0]
    """

    labels: np.ndarray
    classes: np.ndarray
    probabilities: np.ndarray
    num_classes: int
    names: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def right(self) -> np.ndarray:
        """Whether each class is a label of its image, boolean (N, T)."""
        if self.labels.ndim == 1:
            return np.asarray(self.labels[:, np.newaxis] == self.classes)
        return np.take_along_axis(self.labels, self.classes, axis=1)

    @property
    def labelled(self) -> np.ndarray:
        """Whether each image has a label at all, boolean (N,)."""
        if self.labels.ndim == 1:
            return np.ones(len(self), bool)
        return self.labels.max(axis=1)

    def of_one_class(self) -> "Predictions":
        """Return the same with labels (N,), of those (N, K) with one each."""
        return dataclasses.replace(self, labels=self.labels.argmax(axis=1))

    def by_class(self) -> np.ndarray:
        """Return the probabilities in the order of the classes, (N, K).

        Of predictions that keep all K.
        """
        found = np.empty(self.classes.shape)
        np.put_along_axis(found, self.classes, self.probabilities, axis=1)
        return found

    def most_probable(self, top: int) -> "Predictions":
        """Return the same with no more than so many classes per image."""
        return dataclasses.replace(
            self,
            classes=self.classes[:, :top],
            probabilities=self.probabilities[:, :top],
        )

    def save(self, path: str | os.PathLike, **more: np.ndarray) -> None:
        """Write an .npz file that NumPy reads without pickle.

        Args:
            path: the file; its arrays have the names of the attributes.
            **more: further arrays to write with them.

        Example:
            >>> predictions.save("predictions.npz")
        """
        arrays = {**dataclasses.asdict(self), **more}
        if self.names is None:
            del arrays["names"]
        with open(path, "wb") as file:
            np.savez_compressed(file, **arrays)


def load_predictions(path: str | os.PathLike) -> Predictions:
    """Read what `Predictions.save` wrote.

    Args:
        path: the file.

    Returns:
        `Predictions`.

    Raises:
        ValueError: an array is missing.

    Example:
        >>> load_predictions("runs/evaluate/predictions.npz").classes[:, 0]
    """
    check_kind(str | os.PathLike, path=path)
    fields = {field.name for field in dataclasses.fields(Predictions)}
    with np.load(path, allow_pickle=False) as arrays:
        if missing := fields - {"names", *arrays}:
            raise ValueError(
                f"{os.fspath(path)!r} holds no predictions: it lacks "
                f"{sorted(missing)}. Write it with Predictions.save."
            )
        return Predictions(
            labels=arrays["labels"],
            classes=arrays["classes"],
            probabilities=arrays["probabilities"],
            num_classes=int(arrays["num_classes"]),
            names=arrays["names"] if "names" in arrays else None,
        )


@dataclasses.dataclass(frozen=True)
class Together:
    """Puts together what the processes of an evaluation have found.

    Args:
        stacked: function that all call with arrays of one shape, and that
            gives each of them the arrays of all on a new first axis.
        size: int, the images of a batch that one process has.

    Example:
        >>> Together(keras_vit.training.distribution.processes.stacked, 32)
    """

    stacked: Callable[[np.ndarray], np.ndarray]
    size: int

    def rows(self, array: np.ndarray) -> np.ndarray:
        """Rows (N, ...) of the shares of batches, in the order of images."""
        found = self.stacked(np.asarray(array))  # (processes, N, ...)
        shape = (len(found), -1, self.size, *found.shape[2:])
        return found.reshape(shape).swapaxes(0, 1).reshape(-1, *shape[3:])

    def total(self, array: np.ndarray) -> np.ndarray:
        """Return the sum of the arrays of all processes."""
        return self.stacked(np.asarray(array)).sum(axis=0)


def predict_classes(
    model: keras.Model,
    batches,
    *,
    top: int = TOP,
    activation: str = "softmax",
    class_map: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    verbose: int = 0,
    together: Together | None = None,
    tta: str | None = None,
) -> Predictions:
    """Predict the classes of every image where the mask is True.

    Args:
        model: a Keras model of known input from images (B, H, W, C) to
            scores (B, K), or a `Ranking` of one, which has its own top and
            activation. Under tf.distribute, call this in its scope.
        batches: a tf.data.Dataset or an iterable of (images, labels, mask):
            images (B, H, W, C); labels integers (B,), or of any kind (B, K)
            and above 0 where the image has the class; mask boolean (B,),
            False in rows that only fill up a batch.
        top: int, T: how many classes to keep, at most K.
        activation: str, what makes probabilities of the scores, a name of
            `keras.activations`: "softmax", "sigmoid", or "linear" where the
            model gives probabilities.
        class_map: integer array, label i of the batches is class
            `class_map[i]` of the model, see `match_classes`; None where they
            are the same.
        names: the file of each image of the batches but for the padding at
            their end, those that the mask leaves out among them; None where
            they are in no files. See `keras_vit.data.file_names`.
        verbose: int, as for Keras's `predict`.
        together: in several processes, of which each has its share of each
            batch, what puts the shares together; see `Together`.
        tta: the views whose scores are averaged, see `keras_vit.data.resizing`;
            None for the image alone.

    Returns:
        `Predictions`, in the order of the batches; of all images in all
        processes.

    Raises:
        ValueError: there is no image, a label is not a class of the model, or
            the model gives NaN.

    Example:
        >>> batch = (images, labels, np.ones(len(images), bool))
        >>> predict_classes(model, [batch]).classes[:, 0]
    """
    check_kind(tuple[str, ...] | None, names=names)
    check_kind(Together | None, together=together)
    check_kind(Iterable, batches=batches)
    if isinstance(batches, (list, tuple, dict)) and not batches:
        raise ValueError("There is no image to evaluate. Received: no batches.")
    known = isinstance(model, Ranking)
    ranking = model if known else Ranking(model, top, activation, tta)
    with warnings.catch_warnings():
        # Keras says so at the end of any data whose length it cannot know.
        warnings.filterwarnings("ignore", message="Your input ran out of data")
        found = ranking.predict(_as_one_input(batches), verbose=verbose)
    if together is not None:
        found = {name: together.rows(found[name]) for name in sorted(found)}
    mask = found.pop("mask")
    rows = {name: array[mask] for name, array in found.items()}
    num_classes = ranking.model.output_shape[-1]
    if class_map is not None:
        rows["labels"] = _map_labels(rows["labels"], class_map, num_classes)
    files = None if names is None else _files(names, mask)
    predictions = Predictions(num_classes=num_classes, names=files, **rows)
    _check(predictions)
    return predictions


def classes_to_keep(num_images: int, num_classes: int) -> int:
    """Return `top` of `predict_classes` for all metrics of a split.

    Args:
        num_images: int, N.
        num_classes: int, K.

    Returns:
        K, or 5 where the probabilities of all would take too much memory.

    Example:
        >>> classes_to_keep(50_000, 1000), classes_to_keep(50_000, 21_843)
        (1000, 5)
    """
    check_whole(0, num_images=num_images, num_classes=num_classes)
    affordable = num_images * num_classes <= MAX_PROBABILITIES
    return num_classes if affordable else TOP


def unread(predictions: Predictions, names: Sequence[str] | None) -> list[str]:
    """List the files of a split that could not be read, so without predictions.

    Args:
        predictions: `Predictions` with names.
        names: those that `predict_classes` was given.

    Returns:
        Texts in the order of names; none where there are no names.

    Example:
        >>> unread(predictions, ["a/1.jpg", "a/2.jpg"])
        ['a/2.jpg']
    """
    if names is None or predictions.names is None:
        return []
    read = set(predictions.names.tolist())
    return [name for name in names if name not in read]


class Ranking(keras.Model):
    """The top classes of a model; labels and mask are passed through.

    `predict_classes` makes one and compiles it. Who predicts with the same
    model again keeps it.

    Args:
        model: as of `predict_classes`.
        top: as of `predict_classes`.
        activation: as of `predict_classes`.
        tta: as of `predict_classes`.
    """

    predict = keeping("predict")

    def __init__(self, model, top, activation, tta=None):
        check_whole(1, top=top)
        check_choice("tta", tta, TTA)
        if not hasattr(model, "output_shape"):
            raise ValueError(f"model is a Keras model. Received: {model!r}.")
        super().__init__(name="ranking")
        self.model = model
        self.top = min(top, model.output_shape[-1])
        self.activation = keras.activations.get(activation)
        self.tta = tta
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True
        compile_predictions(self)

    def call(self, inputs):
        images, labels, mask = inputs
        images = ops.cast(images, "float32") if self.tta else images
        scores = [
            ops.cast(self.model(view, training=False), "float32")
            for view in views(images, self.tta, ops)
        ]
        scores = sum(scores) / len(scores)  # (B, K)
        # A stable sort: top_k leaves the order of equal scores to the backend.
        classes = ops.argsort(-scores, axis=-1)[:, : self.top]  # (B, T)
        probabilities = self.activation(scores)  # (B, K)
        return {
            "classes": classes,
            "probabilities": ops.take_along_axis(
                probabilities, classes, axis=-1
            ),  # (B, T)
            "labels": labels if len(labels.shape) == 1 else labels > 0,
            "mask": mask,
        }


def _as_one_input(batches):
    """Pack each batch into the input; `predict` drops labels and masks."""
    if map_elements := getattr(batches, "map", None):  # tf.data
        return map_elements(lambda *batch: (batch,))
    return ((of_three(batch),) for batch in batches)


def of_three(batch) -> tuple:
    """Return a batch of (images, labels, mask), or raise a ValueError."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 3:
        raise ValueError(
            "batches are of (images, labels, mask). Received: one that is a "
            f"{type(batch).__name__}: {batch!r:.80}."
        )
    return tuple(batch)


def _files(names, mask):
    """Return the files of the images that the mask has."""
    kept = np.flatnonzero(mask)
    if not kept.max(initial=-1) < len(names) <= len(mask):
        raise ValueError(
            "names are the files of all images, those that the mask leaves "
            f"out among them. Received: {len(names)} names for batches of "
            f"{len(mask)} rows, of which the mask has {len(kept)}."
        )
    return np.array(names)[kept]


def _map_labels(labels, class_map, num_classes):
    class_map = numbers_of("class_map", class_map, None)
    check_classes(num_classes, class_map=class_map)
    if class_map.ndim != 1:
        raise ValueError(
            "class_map has the class of the model for each label. Received: "
            f"an array of shape {class_map.shape}."
        )
    problem = _label_problem(labels, len(class_map))
    if problem:
        raise ValueError(
            f"class_map is of {len(class_map)} classes. Received: {problem}."
        )
    if labels.ndim == 1:
        return class_map[labels]
    mapped = np.zeros((len(labels), num_classes), bool)
    mapped[:, class_map] = labels
    return mapped


def _check(predictions):
    if not len(predictions):
        raise ValueError(
            "There is no image to evaluate. Received: batches whose masks are "
            "all False."
        )
    without_answer = np.isnan(predictions.probabilities).any(axis=1)
    if without_answer.any():
        raise ValueError(
            f"The model gives NaN, first for image {without_answer.argmax()}. "
            "See the weights and the images."
        )
    problem = _label_problem(predictions.labels, predictions.num_classes)
    if problem:
        raise ValueError(
            f"The model has {predictions.num_classes} classes. Received: "
            f"{problem}. Evaluate on the data set whose classes the model has."
        )


def _label_problem(labels, num_classes):
    """Return what is wrong with the labels, or None."""
    if labels.ndim == 2:
        num_labels = labels.shape[1]
        same = num_labels == num_classes
        return None if same else f"labels of {num_labels} classes"
    outside = (labels < 0) | (labels >= num_classes)
    if not outside.any():
        return None
    image = outside.argmax()
    return f"label {labels[image]} of image {image}"


def accuracy(labels, predictions) -> float:
    """Compute the share of images whose prediction is the label.

    Args:
        labels: integer array of shape (N,).
        predictions: integer array of shape (N,).

    Returns:
        float in [0, 1].

    Example:
        >>> accuracy([0, 1, 2, 2], [0, 1, 1, 2])
        0.75
    """
    check_installed("The accuracy", "sklearn")
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predictions))


def nearest_neighbour_predictions(
    known_images, known_labels, images
) -> np.ndarray:
    """Predict the label of the nearest training image, as a baseline.

    The distance is the Euclidean one of the pixels.

    Args:
        known_images: array of shape (M, H, W, C), M images of known labels.
        known_labels: integer array of shape (M,).
        images: array of shape (N, H, W, C).

    Returns:
        integer array of shape (N,).

    Example:
        >>> nearest_neighbour_predictions(images[:90], labels[:90], images[90:])
    """
    check_installed("A nearest-neighbour classifier", "sklearn")
    from sklearn.neighbors import KNeighborsClassifier

    known = _pixels("known_images", known_images)
    known_labels = numbers_of("known_labels", known_labels, None)
    if known_labels.shape != (len(known),):
        raise ValueError(
            f"known_labels are the classes of {len(known)} known_images. "
            f"Received: an array of shape {known_labels.shape}."
        )
    classifier = KNeighborsClassifier(n_neighbors=1)
    return classifier.fit(known, known_labels).predict(
        _pixels("images", images)
    )


def _pixels(name, images):
    if np.ndim(images) != 4 or not len(images):
        raise ValueError(
            f"{name} must be an array (N, height, width, channels). Received: "
            f"an array of shape {np.shape(images)}."
        )
    return np.reshape(images, (len(images), -1)).astype(np.float64)
