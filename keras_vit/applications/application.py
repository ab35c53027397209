"""The models of the papers by name, called as in `keras.applications`.

Their arguments and docstrings stand in signatures.py, which
tools/make_applications.py makes from the options of the models.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_vit.applications import signatures
from keras_vit.checkpoints import check_weights, load_checkpoint, load_weights
from keras_vit.checkpoints.engine.configure import (
    adapted_fields,
    check_input_shape,
    configure,
)
from keras_vit.checkpoints.engine.loading import open_source
from keras_vit.checkpoints.engine.recognition import Checkpoint
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.models.configured_model import ConfiguredModel
from keras_vit.sizes import BIT, MIXER, VIT

__all__ = ["APPLICATIONS"]


class Family(NamedTuple):
    """Models of one class, and the function with their arguments."""

    model_class: type[ConfiguredModel]
    sizes: dict[str, dict[str, Any]]
    arguments: Callable[..., dict[str, Any]]


FAMILIES = {
    "vit": Family(VisionTransformer, VIT, signatures.vit),
    "mixer": Family(Mixer, MIXER, signatures.mixer),
    "bit": Family(BiT, BIT, signatures.bit),
}

REFERENCES = {
    "vit": "[An Image Is Worth 16x16 Words: Transformers for Image "
    "Recognition at Scale](https://arxiv.org/abs/2010.11929) (ICLR 2021)",
    "hybrid": "[How to train your ViT? Data, Augmentation, and Regularization "
    "in Vision Transformers](https://arxiv.org/abs/2106.10270)",
    "mixer": "[MLP-Mixer: An all-MLP Architecture for Vision]"
    "(https://arxiv.org/abs/2105.01601) (NeurIPS 2021)",
    "bit": "[Big Transfer (BiT): General Visual Representation Learning]"
    "(https://arxiv.org/abs/1912.11370) (ECCV 2020)",
}


class Arguments(NamedTuple):
    """The arguments that all applications share, but those of the config."""

    include_top: bool
    weights: Any
    input_tensor: Any
    input_shape: tuple | None
    classes: int | None
    name: str
    dtype: Any


def application(variant: str, family: str) -> Callable[..., keras.Model]:
    """Return the application of a name in the sizes of a family."""
    arguments_of = FAMILIES[family].arguments

    def build(*args, **kwargs):
        try:
            options = arguments_of(*args, **kwargs)
        except TypeError as error:
            message = str(error).replace(f"{family}()", f"{variant}()", 1)
            raise TypeError(message) from None
        options["name"] = options["name"] or variant.lower()
        names = Arguments.__annotations__
        shared = Arguments(**{name: options.pop(name) for name in names})
        return instantiate(variant, family, shared, options)

    hybrid = "resnet_units" in FAMILIES[family].sizes[variant]
    build.__name__ = build.__qualname__ = variant
    build.__module__ = "keras_vit.applications"
    build.__doc__ = inspect.cleandoc(arguments_of.__doc__ or "").format(
        variant=variant,
        default_name=variant.lower(),
        reference=REFERENCES["hybrid" if hybrid else family],
    )
    vars(build)["__signature__"] = inspect.signature(arguments_of).replace(
        return_annotation=keras.Model
    )
    return build


def instantiate(
    variant: str, family: str, arguments: Arguments, options: dict
) -> keras.Model:
    """Builds the model of an application, with its weights.

    Args:
        variant: name of the application.
        family: key of `FAMILIES`.
        arguments: what all applications share.
        options: fields of the config; None is what the weights have, or the
            default, but for classifier_activation, where it is that.

    Raises:
        ValueError: for arguments or weights that do not fit together.
    """
    check_weights(arguments.weights, variant)
    activation = options["classifier_activation"]
    options = {k: v for k, v in options.items() if v is not None}
    options["classifier_activation"] = activation
    if not arguments.include_top:
        options.pop("representation_dim", None)
    if options.get("pooling") == "avg":
        options["pooling"] = "mean"
    weights = arguments.weights
    is_opened = isinstance(weights, Checkpoint)
    if weights is None or not is_opened and str(weights).endswith(".h5"):
        model = _fresh(variant, family, arguments, options)
        return load_weights(model, weights)
    return _loaded(variant, family, arguments, options)


def _fresh(variant, family, arguments, options):
    model_class, sizes, _ = FAMILIES[family]
    config_class = model_class.config_class
    defaults = vars(config_class(**sizes[variant]))
    if not options.get("class_token", True):
        defaults = {**defaults, "pooling": "mean"}
    fields = adapted_fields(
        defaults,
        family,
        classes=arguments.classes,
        input_shape=_input_shape(arguments),
        include_top=arguments.include_top,
        keep_representation=True,
        overrides={},
    )
    config = config_class(**fields | options)
    if arguments.input_tensor is None:
        return model_class(config, name=arguments.name, dtype=arguments.dtype)
    return _on_tensor(model_class, config, arguments)


def _loaded(variant, family, arguments, options):
    model_class, sizes, _ = FAMILIES[family]
    source = arguments.weights
    if not isinstance(source, Checkpoint):
        source = open_source(source, variant)
    shape = _input_shape(arguments)
    if shape is not None:
        shape = check_input_shape(shape, family)
    _check_architecture(source, variant, sizes[variant], shape, options)
    model = load_checkpoint(
        source,
        classes=arguments.classes,
        input_shape=shape,
        include_top=arguments.include_top,
        num_heads=sizes[variant].get("num_heads"),
        name=arguments.name,
        dtype=arguments.dtype,
        **options,
    )
    if arguments.input_tensor is None:
        return model
    on_tensor = _on_tensor(model_class, model.config, arguments)
    weights = {weight.path: weight for weight in on_tensor.weights}
    for weight in model.weights:
        weights[weight.path].assign(weight)
    return on_tensor


def _on_tensor(model_class, config, arguments):
    # The layers before input_tensor are part of the model and in no config:
    # a plain functional model saves them all.
    tensor = arguments.input_tensor
    policy = keras.dtype_policies.get(arguments.dtype)
    outputs = model_class.build_outputs(config, tensor, policy)
    inputs = keras.utils.get_source_inputs(tensor)
    return keras.Model(inputs, outputs, name=arguments.name)


def _input_shape(arguments):
    """The shape of an image from either argument, None without one."""
    tensor, shape = arguments.input_tensor, arguments.input_shape
    if tensor is None:
        return shape
    if not keras.utils.is_keras_tensor(tensor):
        raise ValueError(
            "input_tensor must be a Keras tensor, such as what keras.Input() "
            f"returns. Received: {type(tensor).__name__}. For images at hand "
            "build the model without input_tensor and call it."
        )
    if shape is not None and tuple(shape) != tuple(tensor.shape[1:]):
        raise ValueError(
            "input_shape and input_tensor contradict each other. Received: "
            f"input_shape={tuple(shape)} and an input_tensor of shape "
            f"{tuple(tensor.shape[1:])}. Leave out input_shape."
        )
    return tuple(tensor.shape[1:])


def _check_architecture(source, variant, sizes, shape, given):
    image_size = shape and shape[:2]
    heads = sizes.get("num_heads")
    told = {"image_size": image_size, "given": given}
    try:
        found = configure(source, heads, **told)
    except ValueError:  # The file says another number of heads.
        found = configure(source, None, **told)
    fields = found.fields
    wrong = [
        f"{name}={fields.get(name)} instead of {expected}"
        for name, expected in sizes.items()
        if fields.get(name) != expected
    ]
    if wrong:
        raise ValueError(
            f"The weights in {source.file.path!r} are not those of {variant}: "
            f"they have {', '.join(wrong)}. Use keras_vit.load_checkpoint, "
            "which builds the model that a file holds."
        )


APPLICATIONS = {
    variant: application(variant, family)
    for family, (_, sizes, _) in FAMILIES.items()
    for variant in sizes
}
