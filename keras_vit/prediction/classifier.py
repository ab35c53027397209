"""Weights by name, with the preprocessing and the classes they ask for.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import dataclasses
import json
import os
import pathlib
import warnings
from typing import Any

import keras
import numpy as np

from keras_vit import applications, checkpoints
from keras_vit.checkpoints.public import catalog
from keras_vit.checkpoints.public.fetch import resolve
from keras_vit.data import PreprocessingConfig
from keras_vit.data.decoding import Geometry
from keras_vit.evaluation.config import ModelSource
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.prediction.images import evaluation_crop, read_pixels
from keras_vit.preprocessing import LABEL_FILES
from keras_vit.preprocessing import class_names as public_class_names
from keras_vit.training.run_folder import class_names_of, located
from keras_vit.variants import VariantTransformer

__all__ = [
    "Classifier",
    "classifier_of",
    "load_classifier",
    "load_network",
]

# Entry of the catalogue -> how `keras_vit.data` calls it.
RESIZES = {"squash": "squash", "shorter_side": "resize_small_central_crop"}


MODELS = (BiT, Mixer, VisionTransformer, VariantTransformer)


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A model, and how images become its input and its output names.

    Attributes:
        model: a Keras model from (B, H, W, C) to scores (B, K).
        class_names: K names.
        geometry: a `Geometry`, how images are resized and cropped.
        activation: str, what makes probabilities of the scores: "softmax",
            "sigmoid", or "linear" where the model does so itself.
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
        """One image as the model is evaluated on it.

        Args:
            image: a path, a Pillow image or an array (H, W[, C]).

        Returns:
            Array of the size and the channels of the model, in [0, 255].

        Raises:
            ValueError: when it cannot be read.
        """
        pixels = read_pixels(image, self.geometry.channels)
        return evaluation_crop(pixels, self.geometry)

    def inputs(self, images: np.ndarray) -> np.ndarray:
        """A batch as the model takes it.

        Args:
            images: array (B, H, W, C) in [0, 255].

        Returns:
            float32 array (B, H, W, C).
        """
        images = images.astype("float32")
        return images / 127.5 - 1.0 if self.scaled else images

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """What the model makes of a batch.

        Args:
            images: array (B, H, W, C) in [0, 255], of what `read` returns.

        Returns:
            float32 array (B, K).

        Raises:
            ValueError: when the model gives NaN.
        """
        scores = self.model.predict_on_batch(self.inputs(images))
        scores = keras.ops.cast(scores, "float32")
        found = keras.activations.get(self.activation)(scores)
        found = keras.ops.convert_to_numpy(found)
        if np.isnan(found).any():
            raise ValueError("The model gives NaN. See its weights.")
        return found


def classifier_of(
    model: keras.Model,
    *,
    class_names: tuple[str, ...] | None = None,
    preprocessing: PreprocessingConfig | None = None,
) -> Classifier:
    """A classifier of a model that is there already.

    Args:
        model: a model of keras_vit with a classification layer.
        class_names: K names; by default those of ImageNet for 1,000 classes
            and of ImageNet-21k for 21,843, else the numbers of the classes.
        preprocessing: how images are resized and cropped; by default
            `PreprocessingConfig()`.

    Returns:
        A `Classifier`.

    Raises:
        ValueError: for other models, no classes, or other class names.

    Example:
        >>> classifier_of(keras_vit.ViT_B16()).class_names[0]
        'tench'
    """
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

    A run says in its config.yaml how it was validated, the catalogue how the
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
            they have no classification layer that tells anything.
        OSError: when they cannot be fetched.

    Example:
        >>> classifier = load_classifier("ViT_B16/imagenet")
    """
    text = os.fspath(source)
    run = _run_config(text)
    weights = _model_source(text, image_size=image_size)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The classification layer in")
        try:
            model = load_model(weights)
        except UserWarning as warning:
            raise ValueError(str(warning)) from None
    classifier = classifier_of(
        model,
        class_names=_class_names(weights_path(weights)),
        preprocessing=_preprocessing(text, run, image_size),
    )
    loss = run.get("training", {}).get("loss", classifier.activation)
    return dataclasses.replace(classifier, activation=loss)


def load_network(
    source: str,
    *,
    image_size: int | tuple[int, int] | None = None,
    precision: str = "float32",
) -> keras.Model:
    """Loads a model to look at or to time, whatever it predicts.

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

    Example:
        >>> load_network("ViT_B16").count_params()
        86567656
    """
    options: dict = {"image_size": image_size, "precision": precision}
    if source not in applications.__all__ or os.path.exists(source):
        return load_model(_model_source(source, **options), with_head=False)
    size = image_size or 224
    sides = (size, size) if isinstance(size, int) else tuple(size)
    return getattr(applications, source)(
        weights=None,
        input_shape=(*sides, 3),
        include_preprocessing=True,
        dtype=precision,
    )


def _entry(source):
    """What the catalogue knows of a source, None of what it does not list."""
    if os.path.exists(source):
        return None
    try:
        return catalog.find(None, source)
    except ValueError:
        return None  # Who opens it says what is wrong.


def _model_source(source, *, image_size, **options):
    entry = _entry(source)
    if entry is None:
        return ModelSource(source, image_size=image_size, **options)
    if entry.image_size is None and image_size is None:
        raise ValueError(
            f"{entry.key} takes images of any size. Give one, such as 224: "
            "--image_size of a command, image_size= of load_classifier."
        )
    return ModelSource(
        entry.name, entry.model, image_size=image_size, **options
    )


def _run_config(source):
    """config.yaml beside a model that a run wrote; {} of any other."""
    path = pathlib.Path(located(source)).with_name("config.yaml")
    if not path.is_file() or class_names_of(source) is None:
        return {}
    import yaml

    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def _preprocessing(source, run, image_size):
    if "preprocessing" in run:
        return PreprocessingConfig(**run["preprocessing"])
    entry = _entry(source)
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


def _class_names(path):
    """The names in a `.keras` file of a run or a config of Hugging Face."""
    if (names := class_names_of(path)) is not None:
        return names
    config = pathlib.Path(path, "config.json")
    if not config.is_file():
        return None
    labels = json.loads(config.read_text(encoding="utf-8")).get("id2label")
    return labels and tuple(labels[key] for key in sorted(labels, key=int))


def load_model(source: ModelSource, *, with_head: bool = True) -> keras.Model:
    """Loads a model with its own classification layer.

    Args:
        source: a `ModelSource`.
        with_head: bool, whether the classification layer matters; where it
            does not, nothing is said of one that is all zeros.

    Returns:
        A Keras model from images in [0, 255] to logits.

    Raises:
        ValueError: when there are no such weights, or they do not say for
            which size of images.
        OSError: when they cannot be fetched.

    Example:
        >>> load_model(ModelSource(weights="runs/quickstart")).output_shape
        (None, 10)
    """
    file = weights_path(source)
    with warnings.catch_warnings():
        if not with_head:
            warnings.filterwarnings("ignore", "The classification layer in")
        options = {
            "input_shape": _input_shape(source, checkpoints.read_info(file)),
            "classifier_activation": None,
            "include_preprocessing": True,
            "dtype": source.precision,
        }
        if source.name is None:
            return checkpoints.load_checkpoint(file, **options)
        application = getattr(applications, source.name)
        return application(weights=file, classes=None, **options)


def weights_path(source: ModelSource) -> str:
    """The file or run folder of weights, downloaded if need be.

    Args:
        source: a `ModelSource`.

    Returns:
        A path.

    Raises:
        ValueError: when there are no such weights.
        OSError: when they cannot be fetched.
    """
    return resolve(located(str(source.weights)), source.name)


def _input_shape(source: ModelSource, info) -> tuple[int, int, int]:
    """Height, width and channels that weights are evaluated at."""
    size = source.image_size or info.fields["image_size"]
    if size is None or None in np.atleast_1d(size):
        raise ValueError(
            f"{source.weights!r} takes images of any size. Give "
            "--model.image_size."
        )
    height, width = (size, size) if isinstance(size, int) else size
    return height, width, info.fields["channels"]
