"""A model with what its weights ask for: preprocessing and class names.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_vit.data import PreprocessingConfig
from keras_vit.data.preprocess import Geometry
from keras_vit.experiments.prediction.resampling import evaluation_crop
from keras_vit.experiments.prediction.sources import read_pixels
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.preprocessing import LABEL_FILES
from keras_vit.preprocessing import class_names as public_class_names
from keras_vit.variants import VariantTransformer

__all__ = ["Classifier", "classifier_of"]

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
