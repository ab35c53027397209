"""Classification of images with the preprocessing and classes of the weights.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.data import PreprocessingConfig
from keras_vit.data.config import evaluation_of
from keras_vit.data.resizing import TTA, Geometry, evaluation_crop, views
from keras_vit.io.checks import (
    check_choice,
    check_kind,
    check_own_size,
    check_whole,
    numbers_of,
)
from keras_vit.prediction.exported_model import ExportedModel, runtime_of
from keras_vit.prediction.images import (
    images_of,
    read_batches,
    read_pixels,
    scaled,
)
from keras_vit.preprocessing import LABEL_FILES
from keras_vit.preprocessing import class_names as public_class_names
from keras_vit.trained_as import TrainedAs

# What is Keras's is imported where a model of it is given.
if TYPE_CHECKING:
    import keras

__all__ = [
    "Classifier",
    "Prediction",
    "as_classifier",
    "load_classifier",
    "most_probable",
    "names_of",
    "predict",
    "predictions",
]


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _sigmoid(scores):
    return np.exp(-np.logaddexp(0, -scores))


UNKNOWN = TrainedAs()
ACTIVATIONS = {
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "linear": lambda scores: scores,
}
# Views of images (B, H, W, C) whose scores are averaged.


class Prepared:
    """A model with how its images are prepared."""

    model: Any
    geometry: Geometry

    def __post_init__(self):
        if self.resizes:
            self._check_resizing()

    def _check_resizing(self):
        record = TrainedAs(preprocessing=self.model.record["preprocessing"])
        inside = evaluation_of(record, self.geometry.image_size)
        wrong = [f"preprocessing={self.geometry.config}"]
        wrong = wrong if self.geometry.config != inside else []
        wrong += ["tta='crops'"] if getattr(self, "tta", "") == "crops" else []
        if wrong:
            raise ValueError(
                "The file resizes and crops images by itself, as its model "
                f"was evaluated: {inside}. Received: {', '.join(wrong)}. Leave "
                "it out, or export the model without include_resizing."
            )

    @property
    def resizes(self) -> bool:
        """Whether the model, an exported file, resizes images by itself."""
        return isinstance(self.model, ExportedModel) and self.model.resizes

    def read(self, image: Any, changes: list[str] | None = None) -> np.ndarray:
        """Reads, resizes and crops an image as for the model's evaluation.

        Args:
            image: a path, a Pillow image or an array (H, W[, C]).
            changes: gets what becomes of the image's colours, see
                `keras_vit.data.image_reader.colour_change`.

        Raises:
            ValueError: when it cannot be read.
        """
        pixels = read_pixels(image, self.geometry.channels, changes)
        if self.resizes:
            return pixels
        return evaluation_crop(pixels, self.geometry)


@dataclasses.dataclass(frozen=True)
class Classifier(Prepared):
    """A model with its preprocessing and the names of its classes.

    Attributes:
        model: a Keras model from (B, H, W, C) to scores (B, K).
        class_names: K names; none of an encoder without classes.
        geometry: a `Geometry`, how images are resized and cropped.
        activation: str, from scores to probabilities: "softmax", "sigmoid",
            or "linear" where the model itself returns probabilities, or
            numbers.
        problem: str, "classification", "multilabel" or "regression", whose
            answers are numbers in the place of probabilities.
        tta: "flip" for the mean of the scores of each image and of its mirror
            image (test-time augmentation), "crops" for that of ten crops, see
            `keras_vit.data.resizing`, or None.

    Example:
        >>> load_classifier("runs/quickstart").class_names[:3]
        ('0', '1', '2')
    """

    model: "keras.Model"
    class_names: tuple[str, ...]
    geometry: Geometry
    activation: str = "softmax"
    problem: str = "classification"
    tta: str | None = None

    def __post_init__(self):
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("tta", self.tta, TTA)
        super().__post_init__()

    def inputs(self, images: np.ndarray) -> np.ndarray:
        """Return the float32 input of the model, from images in [0, 255]."""
        return scaled(self.model.config, images)

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Computes the probability of each class.

        Args:
            images: array (B, H, W, C) in [0, 255], of what `read` returns.

        Returns:
            float32 array (B, K).

        Raises:
            ValueError: when the model returns NaN.
        """
        if not self.class_names:
            return np.zeros((len(images), 0), "float32")
        found = [
            self.model.predict_on_batch(self.inputs(np.ascontiguousarray(x)))
            for x in views(images, self.tta)
        ]
        # NumPy has no bfloat16, which a model may compute in.
        found = [np.asarray(scores).astype("float32") for scores in found]
        scores = sum(found) / np.float32(len(found))
        with np.errstate(invalid="ignore"):
            found = ACTIVATIONS[self.activation](scores)
        if np.isnan(found).any():
            raise ValueError("The model returns NaN. Check its weights.")
        return found


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The most probable classes of one image.

    Attributes:
        image: path of the file; or for an image in memory its position among
            all images, from 0.
        classes: (class name, probability) of the most probable classes, most
            probable first; of a regression (name, number), all of them in the
            order of the data's columns.
        error: None, or why the image could not be read.

    Example:
        >>> keras_vit.predict("runs/quickstart", "digit.png")[0].classes[0]
        ('3', 0.98)
    """

    image: str | int
    classes: tuple[tuple[str, float], ...] = ()
    error: str | None = None


def predict(
    model: "str | os.PathLike | keras.Model | Classifier",
    source: Any,
    top: int = 5,
    *,
    class_names: tuple[str, ...] | None = None,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    batch_size: int = 32,
    tta: str | None = None,
    labels: Any = None,
    template: str | Sequence[str] | None = None,
) -> list[Prediction]:
    """Classifies images, resized and cropped as for the model's evaluation.

    Args:
        model: a name of `keras-vit weights list` such as "ViT_B16/imagenet",
            a run folder, a file or folder of weights, or what
            `keras_vit.export` wrote. To predict more than once, a model of
            keras_vit, or what `keras_vit.prediction.load_classifier` returns.
        source: path of an image, or of a folder for all images below it; a
            Pillow image; an array or tensor (H, W), (H, W, C) or
            (B, H, W, C) in [0, 255], of any size; or a list of all these.
        top: int, how many classes to return per image; all of a model that
            has fewer.
        class_names: the names, where they are not those of the weights.
        image_size: see `keras_vit.prediction.load_classifier`; a model in
            memory has its own, but for a BiT of any size.
        preprocessing: how images are resized and cropped, where it is not as
            the weights were evaluated: `keras_vit.data.PreprocessingConfig`.
        batch_size: int, images per step.
        tta: "flip" for the mean of the scores of each image and of its mirror
            image (test-time augmentation), "crops" for that of ten crops.
        labels: classes by words, of an image-text model: a list of them, the
            path of a text file with one a line, or embeddings of classes
            (`keras_vit.text.class_embeddings`) or their file.
        template: a sentence with {} for the class, several, or "openai" or
            "openai_best" for those of CLIP's authors; "a photo of a {}." by
            default.

    Returns:
        A list with a `Prediction` per image, in their order; those of a
        folder in the order of their paths.

    Raises:
        ValueError: when there is no such model, an image cannot be read,
            there is none, or an argument is out of range.
        OSError: when weights cannot be fetched.

    Example:
        >>> for found in keras_vit.predict("ViT_B16/imagenet", "photos"):
        ...     print(found.image, found.classes[0])
    """
    if labels is not None:
        if class_names is not None:
            raise ValueError(
                "The labels are the names of the classes. Received: "
                f"class_names={str(class_names)[:100]!r} beside labels. Leave "
                "one of the two out."
            )
        from keras_vit.prediction.by_labels import load_zero_shot

        model = load_zero_shot(
            model,
            labels,
            template,
            image_size=image_size,
            preprocessing=preprocessing,
        )
        image_size = preprocessing = None
    elif template is not None:
        raise ValueError(
            "A template is a sentence about labels. Received: template="
            f"{str(template)[:100]!r} without labels. Give labels, too."
        )
    classifier = as_classifier(model, class_names, preprocessing, image_size)
    if tta is not None:
        classifier = dataclasses.replace(classifier, tta=tta)
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


def predictions(
    classifier: Classifier,
    images: Iterable[Any],
    *,
    top: int = 5,
    batch_size: int = 32,
) -> Iterator[Prediction]:
    """Classifies images one batch at a time, and skips those that are broken.

    Args:
        classifier: what `load_classifier` returned.
        images: what `images_of` yields, any number; one batch is in memory.
        top: int, how many classes to return per image.
        batch_size: int, images per step.

    Yields:
        A `Prediction` per image, in their order.

    Raises:
        ValueError: when `top` or `batch_size` is no positive int, an image is
            of no known type, or the model returns NaN.
    """
    check_kind(Classifier, classifier=classifier)
    check_whole(1, top=top, batch_size=batch_size)
    return _predictions(classifier, images, top, batch_size)


def _predictions(classifier, images, top, batch_size):
    for read, batch in read_batches(classifier, images, batch_size):
        readable = sum(error is None for _, error in read)
        answers = iter(_answers(classifier, batch, readable, top))
        for image, error in read:
            classes = next(answers) if error is None else ()
            yield Prediction(image, classes, error)


def _answers(classifier, batch, count, top):
    """Return (name, probability) of the top classes of `count` images."""
    if not count:
        return []
    found = classifier.probabilities(batch)[:count]
    if classifier.problem == "regression":
        names = classifier.class_names
        return [tuple(zip(names, map(float, x), strict=True)) for x in found]
    return [
        tuple((classifier.class_names[i], float(row[i])) for i in indices)
        for row, indices in zip(found, most_probable(found, top), strict=True)
    ]


def most_probable(probabilities: np.ndarray, top: int) -> np.ndarray:
    """Return the classes (B, min(top, K)) of the largest probabilities.

    Raises:
        ValueError: for another number of axes, or a top that is no int above 0.
    """
    check_whole(1, top=top)
    probabilities = numbers_of("probabilities", probabilities, "float64")
    if probabilities.ndim != 2:
        raise ValueError(
            "probabilities have the shape (B, K). Received: an array of shape "
            f"{probabilities.shape}."
        )
    # Of equals the first class comes first.
    return np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]


def as_classifier(
    model: "str | os.PathLike | keras.Model | Classifier",
    class_names: tuple[str, ...] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    image_size: int | tuple[int, int] | None = None,
    *,
    needs_classes: bool = True,
) -> Classifier:
    """Makes a `Classifier` of what `predict` takes as a model."""
    if isinstance(model, (str, os.PathLike)):
        model = load_classifier(
            model,
            image_size,
            preprocessing=preprocessing,
            needs_classes=needs_classes,
        )
    if not isinstance(model, Classifier):
        known = getattr(model, "trained_as", TrainedAs())
        return _classifier(
            model, class_names, preprocessing, needs_classes, known, image_size
        )
    check_own_size(tuple(model.geometry.image_size), image_size)
    changes = class_names is not None or preprocessing is not None
    if not changes and (model.class_names or not needs_classes):
        return model
    changed = _classifier(
        model.model,
        class_names or model.class_names,
        preprocessing or model.geometry.config,
        needs_classes,
        image_size=model.geometry.image_size,
    )
    return dataclasses.replace(
        changed,
        activation=model.activation,
        problem=model.problem,
        tta=model.tta,
    )


def _classifier(
    model,
    class_names,
    preprocessing,
    needs_classes,
    known=UNKNOWN,
    image_size=None,
) -> Classifier:
    """Build a classifier of a model, and of what it was trained on."""
    if isinstance(model, ExportedModel):
        sides = model.image_size
    else:
        from keras_vit.prediction.networks import check_network, size_of

        check_network(model)
        sides = size_of(model, image_size)
    config = model.config
    class_names = class_names or known.class_names
    scores = _other_scores(config, class_names)
    if needs_classes and (scores or not config.num_classes):
        found = scores or "num_classes=0"
        raise ValueError(
            f"A model needs a classification layer. Received: {found}. Load "
            "it with other arguments, give labels to an image-text model, or "
            "embed images with `keras_vit.embed`."
        )
    return Classifier(
        model,
        names_of(config, class_names),
        Geometry(
            sides,
            model.input_shape[3],
            preprocessing or evaluation_of(known, sides),
        ),
        "linear" if config.classifier_activation else known.answers_by,
        known.problem,
    )


def _other_scores(config, class_names) -> str:
    """Return what the last layer gives in place of classes of an image.

    A projection, as CLIP's, has no bias.
    """
    if getattr(config, "pooling", "") == "none":
        return "scores of each patch (pooling='none')"
    projects = getattr(config, "head_bias", 0.0) is None
    return "a projection" if projects and class_names is None else ""


def names_of(config: Any, class_names=None) -> tuple[str, ...]:
    """Return the class names of a model, () of one without classes.

    Args:
        config: the config of a model of keras_vit.
        class_names: sequence of str, or None for those of ImageNet where
            there are as many, else for numbers.

    Raises:
        ValueError: when there is not one name per class.
    """
    scores = _other_scores(config, class_names)
    num_classes = 0 if scores else config.num_classes
    if class_names is None and num_classes in LABEL_FILES:
        return public_class_names(num_classes)
    if class_names is None:
        return tuple(map(str, range(num_classes)))
    if hasattr(class_names, "tolist"):
        class_names = class_names.tolist()
    check_kind(tuple[str, ...], class_names=class_names)
    if len(class_names) != num_classes:
        raise ValueError(
            f"The model has {num_classes} classes. Received: "
            f"{len(class_names)} class names."
        )
    return tuple(class_names)


def load_classifier(
    source: str | os.PathLike,
    image_size: int | tuple[int, int] | None = None,
    *,
    preprocessing: PreprocessingConfig | None = None,
    needs_classes: bool = True,
) -> Classifier:
    """Loads a model with the preprocessing and the class names of its weights.

    They are in the model's `trained_as`: of a run as it was validated, of the
    files of others as their own processor or config says, of public weights
    as their accuracy was measured. Where nothing says it, images are prepared
    as is usual for the publisher, and a warning says so.

    Args:
        source: a name of `keras-vit weights list` such as "ViT_B16/imagenet",
            a run folder, a file or folder of weights, or what
            `keras_vit.export` wrote.
        image_size: pixels, one side or (height, width), where it is not that
            of the weights.
        preprocessing: how images are resized and cropped, where it is not as
            the source says.
        needs_classes: bool; False takes an encoder without classification
            layer as a `Classifier` of no classes.

    Returns:
        A `Classifier`.

    Raises:
        ValueError: when there are no such weights, they cannot be loaded,
            their classification layer is missing or all zeros, or their
            images cannot be prepared as the source does it.
        OSError: when they cannot be fetched.
    """
    check_kind(str | os.PathLike, source=source)
    check_kind(PreprocessingConfig | None, preprocessing=preprocessing)
    if os.path.exists(source) and runtime_of(source):
        return _exported_classifier(
            source, image_size, preprocessing, needs_classes
        )
    from keras_vit.prediction.networks import load_prepared

    loaded = load_prepared(source, image_size, preprocessing)
    known = loaded.model.trained_as
    return _classifier(
        loaded.model, None, loaded.preprocessing, needs_classes, known
    )


def _exported_classifier(source, image_size, preprocessing, needs_classes):
    """Load a classifier that `keras_vit.export` wrote."""
    model = ExportedModel(source)
    model.check_image_size(image_size)
    known = TrainedAs(
        preprocessing=model.record["preprocessing"],
        problem=model.record.get("problem", UNKNOWN.problem),
        activation=model.record["activation"],
        class_names=tuple(model.record["class_names"]) or None,
        source=f"the record of {os.fspath(source)!r}",
    )
    return _classifier(model, None, preprocessing, needs_classes, known)
