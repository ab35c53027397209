"""Weights by name, with the preprocessing and the classes they ask for."""

import dataclasses
import json
import os
import pathlib
import warnings

import keras

from keras_vit import applications
from keras_vit.checkpoints.public import catalog
from keras_vit.data import PreprocessingConfig
from keras_vit.evaluation.config import ModelSource
from keras_vit.experiments.models import load_model, weights_path
from keras_vit.experiments.prediction.classifier import (
    Classifier,
    classifier_of,
)
from keras_vit.training.run_weights import class_names_of, located

__all__ = ["load_classifier", "load_network"]

# Entry of the catalogue -> how `keras_vit.data` calls it.
RESIZES = {"squash": "squash", "shorter_side": "resize_small_central_crop"}


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
