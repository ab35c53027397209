"""Pixels to the input of a model, and its output to class names.

Axes: B batch, H and W image height and width, N predictions, K classes.
"""

import functools
import importlib.resources
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.io.checks import check_kind

__all__ = [
    "MID_GREY",
    "class_names",
    "decode_predictions",
    "preprocess_input",
    "rescale",
]

MID_GREY = 127.5  # The pixel value that a model sees as 0.

DATA_FORMATS = (None, "channels_last", "channels_first")
# Number of classes -> file in keras_vit/labels.
LABEL_FILES = {1000: "imagenet.txt", 21843: "imagenet21k.txt"}


def preprocess_input(
    images: Any, data_format: str | None = None, model: Any = None
) -> Any:
    """Scales pixels from [0, 255] to the [-1, 1] that the models expect.

    `x / 127.5 - 1`, as vision_transformer's `vit_jax/input_pipeline.py` and
    mode "tf" of keras.applications; it never writes into its input.

    Args:
        images: pixel values in [0, 255], integers or floating point, of an
            image (H, W, channels) or a batch (B, H, W, channels), or with the
            channels first. A NumPy array, nested lists, a PIL image, a list of
            PIL images of one size, a tensor (eager or traced, in a tf.data
            pipeline whatever the backend is) or a `keras.KerasTensor`.
        data_format: None, "channels_last" or "channels_first". The result is
            the same for all; here for the signature of keras.applications.
        model: a model of keras_vit, which may be trained on another mean and
            deviation, or scale pixels itself. Images are neither resized nor
            cropped: `keras_vit.predict` and `embed` do that as well.

    Returns:
        Values in [-1, 1], or those that `model` expects, of the shape of
        `images`: a tensor for a tensor, a NumPy array for anything else.
        Floating point keeps its dtype, integers become
        `keras.config.floatx()`.

    Raises:
        ValueError: `data_format`, rank or dtype are none of the above; the
            channels are not those of the model; or the
            values, where they can be inspected (not in a traced tensor), are
            not finite, not in [0, 255], or look scaled to [0, 1].

    Example:
        >>> keras_vit.preprocess_input(np.array([[[0.0, 127.5, 255.0]]]))
        array([[[-1.,  0.,  1.]]])
    """
    if data_format not in DATA_FORMATS:
        raise ValueError(
            f"Expected data_format in {DATA_FORMATS}. Received: {data_format!r}"
        )
    if model is not None and not hasattr(model, "config"):
        raise ValueError(
            "model is a model of keras_vit, whose pixels are scaled as its "
            f"config says. Received: model={model!r}."
        )
    images = _as_array_or_tensor(images)
    _check_rank(images)
    _check_dtype(images, "Decode files to pixels; multiply a mask by 255.")
    values = _as_floating_point(images)
    if "uint8" not in str(images.dtype):  # A byte is in [0, 255] anyway.
        _check_values(values)
    return rescale(values) if model is None else _scaled(values, model.config)


def _scaled(values, config):
    """Scale pixels, channels last, as a model was trained on them."""
    if config.include_preprocessing:
        return values
    mean = getattr(config, "pixel_mean", None)
    if values.shape[-1] != config.channels:
        raise ValueError(
            f"The model takes {config.channels} channels, the last axis. "
            f"Received: images of shape {tuple(values.shape)}."
        )
    return standardize(values, mean, mean and config.pixel_std)


def rescale(pixels):
    """Scales floating-point pixels from [0, 255] to [-1, 1]."""
    return pixels / MID_GREY - 1.0


def standardize(pixels, mean=None, deviation=None):
    """Scales float32 pixels in [0, 255] to a mean and deviation of channels.

    Both are of pixels in [0, 1]; without them the result is in [-1, 1].
    """
    if mean is None:
        return rescale(pixels)
    mean, deviation = (np.array(x, "float32") for x in (mean, deviation))
    return (pixels / 255 - mean) / deviation


def decode_predictions(
    predictions: Any, top: int = 5, class_names: Sequence[str] | None = None
) -> list[list[tuple[str, str, float]]]:
    """Decodes the best classes of each prediction to their names, offline.

    As `keras.applications.imagenet_utils.decode_predictions`, with the same
    names for the 1,000 classes of ImageNet, and with ImageNet-21k.

    Args:
        predictions: scores (N, K), probabilities or logits, an array or a
            tensor. Without `class_names` K is 1000 (ImageNet) or 21843
            (ImageNet-21k in the order of Google's checkpoints).
        top: int in 1..K, how many classes to return for each prediction.
        class_names: the K names of the classes of a model of your own.

    Returns:
        N lists of `top` tuples `(wordnet_id, name, score)`, best first, the
        lower class first among equals. With `class_names` the tuples are
        `(name, name, score)`, since such classes have no WordNet id.

    Raises:
        ValueError: the shape of `predictions` does not fit the classes,
            scores are not numbers, or `top` is not an int in 1..K.

    Example:
        >>> scores = keras.utils.to_categorical([386], 1000)
        >>> keras_vit.decode_predictions(scores, top=1)
        [[('n02504458', 'African_elephant', 1.0)]]
    """
    scores = _as_scores(predictions)  # (N, K)
    classes = _classes(scores.shape, class_names)
    if isinstance(top, bool | float) or top not in range(1, len(classes) + 1):
        raise ValueError(
            f"Expected top to be an int in 1..{len(classes)}, the number of "
            f"classes. Received: {top!r}"
        )
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :top]  # (N, top)
    return [
        [(*classes[index], float(row[index])) for index in indices]
        for row, indices in zip(scores, best, strict=True)
    ]


def class_names(num_classes: int) -> tuple[str, ...]:
    """Returns the class names of public checkpoints, in their order.

    The first lemma of each WordNet synset, with underscores for spaces. Names
    repeat: "crane" is both a bird and a machine.

    Args:
        num_classes: int, 1000 (ImageNet) or 21843 (ImageNet-21k in the order
            of Google's checkpoints).

    Returns:
        A tuple of `num_classes` names.

    Raises:
        ValueError: there is no list for this number of classes.

    Example:
        >>> keras_vit.preprocessing.class_names(1000)[:3]
        ('tench', 'goldfish', 'great_white_shark')
    """
    if num_classes not in LABEL_FILES:
        raise ValueError(
            f"Expected num_classes in {tuple(LABEL_FILES)}. Received: "
            f"{num_classes!r}. Give the names of other classes yourself."
        )
    return tuple(name for _, name in _wordnet_classes(num_classes))


def _as_array_or_tensor(images):
    if hasattr(images, "shape") and hasattr(images, "dtype"):
        return images
    try:
        return np.asarray(images)  # Lists and PIL images.
    except ValueError as error:
        raise ValueError(
            "Expected images of one size. Resize them or preprocess each "
            f"alone. Received: a {type(images).__name__}; NumPy says: {error}"
        ) from error


def _check_rank(images):
    try:
        rank = len(images.shape)
    except ValueError:
        return  # In tf.data the rank may be unknown.
    if rank not in (3, 4):
        raise ValueError(
            "Expected an image of rank 3 or a batch of rank 4, with an axis "
            f"of channels. Received: shape {tuple(images.shape)}. For a grey "
            'image give image[..., np.newaxis], or image.convert("RGB") of PIL.'
        )


def _check_dtype(array, advice):
    # All libraries name it alike: "uint8", "torch.uint8", "<dtype: 'uint8'>".
    if not any(kind in str(array.dtype) for kind in ("int", "float")):
        raise ValueError(
            "Expected integers or floating point. Received: dtype "
            f"{array.dtype}. {advice}"
        )


def _as_floating_point(images):
    """Casts integers to floatx; leaves floating point as it is."""
    if isinstance(images, np.ndarray) and "float" in str(images.dtype):
        return images
    import keras  # Only here: an exported model is run without it.
    from keras import ops

    dtype = keras.backend.standardize_dtype(images.dtype)
    if "float" not in dtype:
        dtype = keras.config.floatx()
    if isinstance(images, np.ndarray):
        return images.astype(dtype, copy=False)
    if ops.is_tensor(images) or isinstance(images, keras.KerasTensor):
        return ops.cast(images, dtype)
    # Of another library than the backend: what Keras has for it, tf.data
    # included, are its preprocessing layers.
    return keras.layers.Rescaling(1.0, dtype=dtype)(images)


def _check_values(values):
    library = np
    if not isinstance(values, np.ndarray):
        from keras import ops as library

        if not library.is_tensor(values):
            return  # A KerasTensor, or in tf.data with another backend.
    try:
        problem = None if 0 in values.shape else _problem(values, library)
    except (TypeError, ValueError, RuntimeError):
        return  # A traced tensor has no values, maybe no shape, to inspect.
    if problem:
        raise ValueError(f"Expected pixel values in [0, 255]. {problem}")


def _problem(values, library):
    """What is wrong with the values and how to fix it, or None."""
    if library is not np:
        values = library.stop_gradient(values)
    if not bool(library.all(library.isfinite(values))):
        return "Received: NaN or infinity. See how the images were read."
    lowest, highest = float(library.min(values)), float(library.max(values))
    advice = None
    if lowest < 0:
        advice = "Do not preprocess twice; clip what a bicubic resize gave."
    elif highest > 255:
        advice = "Divide 16 bits by 257; clip what a bicubic resize gave."
    elif highest <= 1 and bool(library.any(library.floor(values) != values)):
        advice = "Multiply images in [0, 1] by 255; round really dark ones."
    return advice and f"Received: {lowest:g} to {highest:g}. {advice}"


def _as_scores(predictions):
    scores = predictions
    if not isinstance(scores, np.ndarray):
        from keras import ops

        scores = ops.convert_to_numpy(scores)
    _check_dtype(scores, "Give what model.predict returned.")
    scores = scores.astype("float64")
    if np.isnan(scores).any():
        raise ValueError(
            "Expected scores. Received: NaN. See the weights and the input."
        )
    return scores


def _classes(shape, names):
    """What to return of each class: (WordNet id, name) or (name, name)."""
    expected = f"(N, K), K one of {tuple(LABEL_FILES)}, or `class_names`"
    classes = ()
    if names is not None:
        check_kind(tuple[str, ...], class_names=names)
        classes = tuple((name, name) for name in names)
        expected = f"(N, {len(classes)}), a score for each of `class_names`"
    elif shape and shape[-1] in LABEL_FILES:
        classes = _wordnet_classes(shape[-1])
    if len(shape) != 2 or shape[1] != len(classes):
        advice = "Make a batch of one prediction: predictions[np.newaxis]."
        if len(shape) == 2:
            advice = f"Give class_names=[...], the names of all {shape[1]}."
        raise ValueError(
            f"Expected predictions of shape {expected}. Received: shape "
            f"{shape}. {advice}"
        )
    return classes


@functools.cache
def _wordnet_classes(num_classes):
    """((WordNet id, name), ...) of the list with so many classes."""
    labels = importlib.resources.files("keras_vit") / "labels"
    text = (labels / LABEL_FILES[num_classes]).read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return tuple(
        (wordnet_id, lemmas.split(",")[0].replace(" ", "_"))
        for wordnet_id, lemmas in rows
    )
