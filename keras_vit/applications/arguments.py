"""From the arguments of keras.applications to the fields of a config."""

import keras

__all__ = ["head_fields", "input_fields", "pooling_of"]

IMAGE_SIZE = (224, 224)
NUM_CLASSES = 1000


def input_fields(input_shape, input_tensor, any_size=False):
    """The config's image_size and channels, from either argument."""
    if input_tensor is not None:
        shape = _tensor_shape(input_tensor)
        if input_shape is not None and tuple(input_shape) != shape:
            raise ValueError(
                "input_shape and input_tensor contradict each other. "
                f"Received: input_shape={tuple(input_shape)} and an "
                f"input_tensor of shape {shape}. Leave out input_shape."
            )
        input_shape = shape
    shape = tuple(input_shape or (*IMAGE_SIZE, 3))
    known = shape[2:] if any_size else shape
    if len(shape) != 3 or not all(isinstance(x, int) for x in known):
        raise ValueError(
            "input_shape must be (height, width, channels), all known, "
            "channels last, because the position embeddings and patches "
            f"depend on it. Received: input_shape={shape}. Give for example "
            "input_shape=(384, 384, 3)."
        )
    return {"image_size": shape[:2], "channels": shape[2]}


def _tensor_shape(input_tensor):
    if not keras.utils.is_keras_tensor(input_tensor):
        raise ValueError(
            "input_tensor must be a Keras tensor, such as what keras.Input() "
            f"returns. Received: {type(input_tensor).__name__}. For images "
            "at hand build the model without input_tensor and call it."
        )
    return tuple(input_tensor.shape[1:])


def head_fields(include_top, classes, classifier_activation):
    """The config's num_classes and activation."""
    classes = NUM_CLASSES if classes is None else classes
    if not isinstance(classes, int) or classes < 0:
        raise ValueError(
            "classes must be the number of classes, or 0 for features. "
            f"Received: classes={classes!r}."
        )
    return {
        "num_classes": classes if include_top else 0,
        "classifier_activation": classifier_activation,
    }


def pooling_of(pooling, include_top, default):
    """None is the model's own with a head and all tokens without one."""
    if pooling is None:
        return default if include_top else "none"
    return "mean" if pooling == "avg" else pooling
