"""From the arguments of keras.applications to the fields of a config."""

import dataclasses
from typing import Any

import keras

from keras_vit.checkpoints import (
    check_weights,
    load_checkpoint,
    load_weights,
    read_info,
)
from keras_vit.checkpoints.public.fetch import resolve

__all__ = [
    "Common",
    "head_fields",
    "input_fields",
    "instantiate",
    "pooling_of",
]

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


@dataclasses.dataclass(frozen=True)
class Common:
    """The arguments that all applications share, as they were passed."""

    include_top: bool
    weights: Any
    input_tensor: Any
    input_shape: tuple | None
    pooling: str | None
    classes: int | None
    classifier_activation: Any
    include_preprocessing: bool
    name: str
    dtype: Any


def instantiate(
    model_class, variant: str, sizes: dict, common: Common, options: dict
) -> keras.Model:
    """Builds the model of an application.

    Args:
        model_class: `VisionTransformer`, `Mixer` or `BiT`.
        variant: str, name of the application.
        sizes: dict, the fields of the config that make the variant.
        common: the shared arguments.
        options: dict, other fields of the config; None is the weights' own,
            or the default.

    Returns:
        A Keras model.

    Raises:
        ValueError: for arguments or weights that do not fit together.
    """
    check_weights(common.weights, variant)
    options = {k: v for k, v in options.items() if v is not None}
    if common.weights is None or str(common.weights).endswith(".h5"):
        model = _fresh(model_class, sizes, common, options)
        return load_weights(model, common.weights)
    return _loaded(model_class, variant, sizes, common, options)


def _fresh(model_class, sizes, common, options):
    has_class_token = options.get("class_token", "num_heads" in sizes)
    config = model_class.config_class(
        **sizes,
        **options,
        **input_fields(
            common.input_shape,
            common.input_tensor,
            any_size="units" in sizes,
        ),
        **head_fields(
            common.include_top, common.classes, common.classifier_activation
        ),
        pooling=pooling_of(
            common.pooling,
            common.include_top,
            "token" if has_class_token else "mean",
        ),
        include_preprocessing=common.include_preprocessing,
    )
    if common.input_tensor is None:
        return model_class(config, name=common.name, dtype=common.dtype)
    return _on_tensor(model_class, config, common)


def _loaded(model_class, variant, sizes, common, options):
    path = resolve(common.weights, variant)
    _check_architecture(path, variant, sizes)
    shape = common.input_shape
    if common.input_tensor is not None:
        fields = input_fields(shape, common.input_tensor)
        shape = (*fields["image_size"], fields["channels"])
    if common.pooling is not None:
        options["pooling"] = pooling_of(common.pooling, True, None)
    model = load_checkpoint(
        path,
        classes=common.classes,
        input_shape=shape,
        include_top=common.include_top,
        num_heads=sizes.get("num_heads"),
        name=common.name,
        dtype=common.dtype,
        classifier_activation=common.classifier_activation,
        include_preprocessing=common.include_preprocessing,
        **options,
    )
    if common.input_tensor is None:
        return model
    on_tensor = _on_tensor(model_class, model.config, common)
    weights = {weight.path: weight for weight in on_tensor.weights}
    for weight in model.weights:
        weights[weight.path].assign(weight)
    return on_tensor


def _on_tensor(model_class, config, common):
    # The layers before input_tensor are part of the model, and no config
    # tells them: a plain functional model saves them all.
    outputs = model_class.outputs_of(
        config, common.input_tensor, keras.dtype_policies.get(common.dtype)
    )
    inputs = keras.utils.get_source_inputs(common.input_tensor)
    return keras.Model(inputs, outputs, name=common.name)


def _check_architecture(path, variant, sizes):
    try:
        found = read_info(path, num_heads=sizes.get("num_heads")).fields
    except ValueError:  # the file itself tells another number of heads
        found = read_info(path).fields
    wrong = [
        f"{name}={found.get(name)} instead of {expected}"
        for name, expected in sizes.items()
        if found.get(name) != expected
    ]
    if wrong:
        raise ValueError(
            f"The weights in {str(path)!r} are not those of {variant}: they "
            f"have {', '.join(wrong)}. Use keras_vit.load_checkpoint, which "
            "builds the model that a file holds."
        )
