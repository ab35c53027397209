"""Classification of images with the preprocessing and classes of the weights.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_vit import applications
from keras_vit.checkpoints.formats.configure import configure
from keras_vit.checkpoints.keras_files import class_names_of
from keras_vit.checkpoints.loading import load_checkpoint, open_source
from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.fetch import resolve
from keras_vit.data import PreprocessingConfig
from keras_vit.data.image_reader import Geometry
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.prediction.images import (
    evaluation_crop,
    images_of,
    read_pixels,
)
from keras_vit.preprocessing import LABEL_FILES, rescale
from keras_vit.preprocessing import class_names as public_class_names
from keras_vit.variants import VariantTransformer

if TYPE_CHECKING:
    from keras_vit.evaluation.config import ModelSource

__all__ = [
    "Classifier",
    "Prediction",
    "as_classifier",
    "load_classifier",
    "load_model",
    "load_network",
    "most_probable",
    "predict",
    "predictions",
    "weights_path",
]

MODELS = (BiT, Mixer, VisionTransformer, VariantTransformer)
# Resizing in an entry of the catalogue -> in `PreprocessingConfig`.
RESIZES = {"squash": "squash", "shorter_side": "resize_small_central_crop"}
HEAD_OF_ZEROS = "The classification layer in"  # begins a warning.
ANY_SIZE = (
    "{} takes images of any size. Give one, such as 224: image_size= in "
    "Python, --image_size of a command, --model.image_size of a recipe."
)


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A model with its preprocessing and the names of its classes.

    Attributes:
        model: a Keras model from (B, H, W, C) to scores (B, K).
        class_names: K names.
        geometry: a `Geometry`, how images are resized and cropped.
        activation: str, from scores to probabilities: "softmax", "sigmoid",
            or "linear" where the model itself returns probabilities.
        scaled: bool, whether the model takes [-1, 1] instead of [0, 255].

    Example:
        >>> load_classifier("runs/quickstart").class_names[:3]
        ('0', '1', '2')
    """

    model: keras.Model
    class_names: tuple[str, ...]
    geometry: Geometry
    activation: str = "softmax"
    scaled: bool = False

    def read(self, image: Any) -> np.ndarray:
        """Reads, resizes and crops an image as for the model's evaluation.

        Args:
            image: a path, a Pillow image or an array (H, W[, C]).

        Raises:
            ValueError: when it cannot be read.
        """
        pixels = read_pixels(image, self.geometry.channels)
        return evaluation_crop(pixels, self.geometry)

    def inputs(self, images: np.ndarray) -> np.ndarray:
        """The float32 input of the model, from images in [0, 255]."""
        images = images.astype("float32")
        return rescale(images) if self.scaled else images

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Computes the probability of each class.

        Args:
            images: array (B, H, W, C) in [0, 255], of what `read` returns.

        Returns:
            float32 array (B, K).

        Raises:
            ValueError: when the model returns NaN.
        """
        scores = self.model.predict_on_batch(self.inputs(images))
        scores = keras.ops.cast(scores, "float32")
        found = keras.activations.get(self.activation)(scores)
        found = keras.ops.convert_to_numpy(found)
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
    """Classifies images, resized and cropped as for the model's evaluation.

    Args:
        model: a name of `keras-vit weights list` such as "ViT_B16/imagenet",
            a run folder, or a file or folder of weights. To predict more than
            once, a model of keras_vit, or what
            `keras_vit.prediction.load_classifier` returns.
        source: path of an image, or of a folder for all images below it; a
            Pillow image; an array or tensor (H, W), (H, W, C) or
            (B, H, W, C) in [0, 255], of any size; or a list of all these.
        top: int, how many classes to return per image; all of a model that
            has fewer.
        class_names: the names, where they are not those of the weights.
        preprocessing: how images are resized and cropped, where it is not as
            the weights were evaluated: `keras_vit.data.PreprocessingConfig`.
        batch_size: int, images per step.

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
            read = list(threads.map(_read, itertools.repeat(classifier), chunk))
            pixels = [content for _, content, error in read if error is None]
            answers = iter(_answers(classifier, pixels, rows, top))
            for image, _, error in read:
                classes = next(answers) if error is None else ()
                yield Prediction(image, classes, error)


def _read(classifier, numbered):
    """Name, pixels and error of one image."""
    number, image = numbered
    is_path = isinstance(image, str)
    name = image if is_path else number
    try:
        return name, classifier.read(image), None
    except ValueError as error:
        return name, None, str(error) if is_path else f"Image {number}: {error}"


def _answers(classifier, pixels, rows, top):
    """(name, probability) of the most probable classes of each image."""
    if not pixels:
        return []
    batch = np.stack(pixels)  # (B, H, W, C)
    padding = [(0, rows - len(batch)), (0, 0), (0, 0), (0, 0)]
    found = classifier.probabilities(np.pad(batch, padding))[: len(batch)]
    return [
        tuple((classifier.class_names[i], float(row[i])) for i in indices)
        for row, indices in zip(found, most_probable(found, top), strict=True)
    ]


def most_probable(probabilities: np.ndarray, top: int) -> np.ndarray:
    """The classes (B, min(top, K)) of the largest of (B, K) probabilities."""
    # Of equals the first class comes first.
    return np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]


def as_classifier(
    model: str | os.PathLike | keras.Model | Classifier,
    class_names: tuple[str, ...] | None = None,
    preprocessing: PreprocessingConfig | None = None,
) -> Classifier:
    """Makes a `Classifier` of what `predict` takes as a model."""
    if isinstance(model, (str, os.PathLike)):
        model = load_classifier(model)
    if not isinstance(model, Classifier):
        return _classifier(model, class_names, preprocessing)
    changed = _classifier(
        model.model,
        class_names or model.class_names,
        preprocessing or model.geometry.config,
    )
    return dataclasses.replace(changed, activation=model.activation)


def _classifier(model, class_names, preprocessing) -> Classifier:
    if not isinstance(model, MODELS):
        raise ValueError(
            "A model is the name or path of its weights, or a model of "
            f"keras_vit. Received: {model!r} of type {type(model).__name__}."
        )
    config = model.config
    if not config.num_classes or None in model.input_shape[1:]:
        raise ValueError(
            "A model needs a classification layer and a size of images. "
            f"Received: num_classes={config.num_classes} and "
            f"input_shape={model.input_shape}. Load it with other arguments."
        )
    return Classifier(
        model,
        _checked_names(class_names, config.num_classes),
        Geometry(
            model.input_shape[1:3],
            model.input_shape[3],
            preprocessing or PreprocessingConfig(),
        ),
        "linear" if config.classifier_activation else "softmax",
        not config.include_preprocessing,
    )


def _checked_names(class_names, num_classes):
    if class_names is None and num_classes in LABEL_FILES:
        return public_class_names(num_classes)
    if class_names is None:
        return tuple(map(str, range(num_classes)))
    if len(class_names) != num_classes:
        raise ValueError(
            f"The model has {num_classes} classes. Received: "
            f"{len(class_names)} class names."
        )
    return tuple(class_names)


def load_classifier(
    source: str | os.PathLike, image_size: int | tuple[int, int] | None = None
) -> Classifier:
    """Loads a model with the preprocessing and the class names of its weights.

    A run has in its config.yaml how it was validated, the catalogue how the
    accuracy of public weights was measured; images for any other file are
    resized and cropped as big_vision evaluates, `PreprocessingConfig()`.

    Args:
        source: a name of `keras-vit weights list` such as "ViT_B16/imagenet",
            a run folder, or a file or folder of weights.
        image_size: pixels, one side or (height, width), where it is not that
            of the weights.

    Returns:
        A `Classifier`.

    Raises:
        ValueError: when there are no such weights, they cannot be loaded, or
            their classification layer is missing or all zeros.
        OSError: when they cannot be fetched.
    """
    entry, opened = _opened(os.fspath(source), image_size)
    path = opened.file.path
    names = class_names_of(path)
    run = {} if names is None else _run_config(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", HEAD_OF_ZEROS)
        try:
            model = _load(opened, entry and entry.model, image_size)
        except UserWarning as warning:
            raise ValueError(str(warning)) from None
    classifier = _classifier(
        model,
        names or _labels(path),
        _preprocessing(entry, run, image_size),
    )
    loss = run.get("training", {}).get("loss", classifier.activation)
    return dataclasses.replace(classifier, activation=loss)


def load_network(
    source: str,
    *,
    image_size: int | tuple[int, int] | None = None,
    precision: str = "float32",
) -> keras.Model:
    """Loads a model from images in [0, 255], with classes or without.

    Args:
        source: see `load_classifier`; or the name of an application alone,
            such as "ViT_B16", for random weights.
        image_size: see `load_classifier`.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".

    Returns:
        A Keras model from images in [0, 255].

    Raises:
        ValueError: when there are no such weights.
        OSError: when they cannot be fetched.
    """
    if source not in applications.__all__ or os.path.exists(source):
        entry, opened = _opened(source, image_size)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", HEAD_OF_ZEROS)
            return _load(opened, entry and entry.model, image_size, precision)
    size = image_size or 224
    sides = (size, size) if isinstance(size, int) else tuple(size)
    return getattr(applications, source)(
        weights=None,
        input_shape=(*sides, 3),
        include_preprocessing=True,
        dtype=precision,
    )


def _opened(source, image_size):
    """The entry of a source in the catalogue, or None, and its weights."""
    entry = None
    if not os.path.exists(source):
        with contextlib.suppress(ValueError):  # Opening it raises the error.
            entry = catalog.find(None, source)
    if entry is not None and entry.image_size is None and image_size is None:
        raise ValueError(ANY_SIZE.format(entry.key))
    return entry, open_source(source)


def _run_config(path):
    """config.yaml beside a model, {} where there is none."""
    import yaml

    config = pathlib.Path(path).parent / "config.yaml"
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    return yaml.safe_load(text) or {}


def _preprocessing(entry, run, image_size):
    if "preprocessing" in run:
        return PreprocessingConfig(**run["preprocessing"])
    if entry is None:
        return PreprocessingConfig()
    asked, size = entry.preprocessing, entry.image_size
    resize_size = None
    # At another size than its own the crop is left to PreprocessingConfig.
    if asked.resize == "shorter_side" and size and image_size in (None, size):
        resize_size = int(size / asked.crop_fraction)
    return PreprocessingConfig(
        evaluation=RESIZES[asked.resize],
        resize_size=resize_size,
        resize_method=asked.interpolation,
        antialias=asked.antialias,
        rounding="float32",
    )


def _labels(path):
    """The class names in a folder of Hugging Face."""
    config = pathlib.Path(path, "config.json")
    if not config.is_file():
        return None
    labels = json.loads(config.read_text(encoding="utf-8")).get("id2label")
    return labels and tuple(labels[key] for key in sorted(labels, key=int))


def load_model(source: "ModelSource", *, with_head: bool = True) -> keras.Model:
    """Loads a model with its own classification layer.

    Args:
        source: a `ModelSource`: the weights and how to read them.
        with_head: bool, whether to warn of a classification layer of zeros.

    Returns:
        A Keras model from images in [0, 255] to logits.

    Raises:
        ValueError: when there are no such weights, or they have no image
            size and none is given.
        OSError: when they cannot be fetched.
    """
    opened = open_source(weights_path(source))
    with warnings.catch_warnings():
        if not with_head:
            warnings.filterwarnings("ignore", HEAD_OF_ZEROS)
        return _load(opened, source.name, source.image_size, source.precision)


def weights_path(source: "ModelSource") -> str:
    """The file or folder of weights, downloaded if need be."""
    return resolve(str(source.weights), source.name)


def _load(opened, name, image_size, precision="float32"):
    fields = (opened.configured or configure(opened)).fields
    size = image_size or fields["image_size"]
    if size is None or None in np.atleast_1d(size):
        raise ValueError(ANY_SIZE.format(opened.file.path))
    height, width = (size, size) if isinstance(size, int) else size
    options = {
        "input_shape": (height, width, fields["channels"]),
        "classifier_activation": None,
        "include_preprocessing": True,
        "dtype": precision,
    }
    if name is None:
        return load_checkpoint(opened, **options)
    return getattr(applications, name)(weights=opened, classes=None, **options)
