"""The models of the papers by name, called as in `keras.applications`.

Signature and docstring of an application come from `Arguments`, which all of
them share, and from the config of its model: each field that is neither a
size nor one of `NO_OPTIONS` is an option, with the text of the config.
"""

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras

from keras_vit.checkpoints import check_weights, load_checkpoint, load_weights
from keras_vit.checkpoints.engine.adaptation import (
    adapted_fields,
    check_input_shape,
)
from keras_vit.checkpoints.engine.configure import configure
from keras_vit.checkpoints.engine.loading import open_source
from keras_vit.checkpoints.engine.recognition import Checkpoint
from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.models.configured_model import ConfiguredModel
from keras_vit.sizes import BIT, MIXER, VIT

__all__ = ["APPLICATIONS"]


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments that all applications share, with their defaults."""

    include_top: bool = True
    weights: Any = "imagenet"
    input_tensor: Any = None
    input_shape: tuple | None = None
    pooling: str | None = None
    classes: int | None = None
    classifier_activation: Any = "softmax"
    include_preprocessing: bool = False
    name: str | None = None
    dtype: Any = dataclasses.field(default=None, kw_only=True)


# Fields of a config that an application does not take: they follow from the
# arguments above, the size or the weights.
NO_OPTIONS = re.compile(
    "image_size|channels|num_classes|"
    "patch_size|hidden_dim|num_layers|num_heads|.*mlp_dim|units|width|"
    "resnet_.*|standardization.*|group_norm_.*|unit|stem|patch_stem.*|root_padding|"
    "downsampling|"
    "distillation_token|norm_after_pooling|"
    "rope.*|relative_position.*|key_bias|projection_bias|qk_norm|"
    "talking_heads|class_attention_layers|"
    "differential_attention|mlp_placement|key_value_heads|mlp_layer_scale|"
    "window_size|global_attention_blocks|neck_dim|"
    ".*_inner_norm|gated_mlp|normalization|norm_placement|final_norm|"
    "patch_norm|pool_(prefix_tokens|num_heads|mlp_dim)"
)

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

TEMPLATE = """Instantiates the {variant} architecture.

Reference:
- {reference}

Images are channels last and scaled to [-1, 1]: pass them through
`keras_vit.preprocess_input` first, or give `include_preprocessing=True`. Some
weights, such as `"dinov2"`, were trained on pixels of another mean and
deviation: for these give `include_preprocessing=True`.

Args:
    include_top: whether to include the classification layer. Defaults to
        `True`.
    weights: `"imagenet"` for the recommended public file of 1000 classes,
        another name that `keras-vit weights list --model {variant}` shows,
        a path or address of weights in any known format (Google's `.npz`,
        safetensors of Hugging Face or timm, Keras's own files), or `None`
        for random initialisation. Defaults to `"imagenet"`.
    input_tensor: optional Keras tensor (output of `keras.Input()` or of a
        layer) to use as image input for the model.
    input_shape: optional tuple (height, width, channels).
        {size_note}
        Defaults to that of the weights, or `(224, 224, 3)`.
    pooling: what is made of the {features} before the classification
        layer, or what is returned without it. `None`: {default_pooling} with
        `include_top`, {unpooled} without.
        `"avg"` or `"mean"`, `"max"`: the mean or maximum{pooling_note}.
    classes: optional number of classes, 0 for features; another number
        than that of the weights gives a new classification layer. Defaults
        to that of the weights, or 1000.
    classifier_activation: activation of the classification layer; `None`
        returns the logits. Defaults to `"softmax"`.
    include_preprocessing: whether the model itself scales images from
        [0, 255], as its weights were trained. Defaults to `False`.
    name: name of the model. Defaults to `"{default_name}"`.
{options}
    dtype: dtype policy of all layers, such as `"mixed_bfloat16"`. The
        classification layer stays in float32 under mixed policies. Defaults
        to `keras.config.dtype_policy()`.

Returns:
    A `keras.Model` from (batch, height, width, channels) to (batch, classes),
    or to features.

Raises:
    ValueError: for arguments that do not fit together, with what would.

Example:

>>> model = keras_vit.{variant}(weights=None, classes=10)
>>> images = keras_vit.preprocess_input(np.zeros((1, 224, 224, 3), "uint8"))
>>> model.predict(images).shape
(1, 10)
"""

PATCHES = (
    "The patches must divide height and width, which may differ; any such\n"
    "        size works."
)


class Family(NamedTuple):
    """Models of one class: their sizes, and what their docstrings say."""

    model_class: type[ConfiguredModel]
    sizes: dict[str, dict[str, Any]]
    texts: dict[str, str]


FAMILIES = {
    "vit": Family(
        VisionTransformer,
        VIT,
        {
            "size_note": PATCHES,
            "features": "encoded tokens",
            "default_pooling": "the class token",
            "unpooled": "all tokens, (batch, tokens, dim),",
            "pooling_note": ' of the patch\n        tokens. `"token"`: the '
            'class token. `"map"`: multi-head attention pooling.\n'
            '        `"none"`: all tokens',
        },
    ),
    "mixer": Family(
        Mixer,
        MIXER,
        {
            "size_note": PATCHES
            + "\n        The weights of one size do not fit another.",
            "features": "tokens",
            "default_pooling": "the mean",
            "unpooled": "all tokens, (batch, tokens, dim),",
            "pooling_note": ' of the tokens. `"none"`: all tokens',
        },
    ),
    "bit": Family(
        BiT,
        BIT,
        {
            "size_note": "Any size works, `(None, None, 3)` included.",
            "features": "feature map",
            "default_pooling": "the mean",
            "unpooled": "the map, (batch, rows, columns, channels),",
            "pooling_note": ' of the feature map. `"none"`: the map',
        },
    ),
}


def application(variant: str, family: str) -> Callable[..., keras.Model]:
    """Makes the application of a name in the sizes of a family."""
    signature = signature_of(family)

    def build(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{variant}() {error}") from None
        bound.apply_defaults()
        options = dict(bound.arguments)
        names = [field.name for field in dataclasses.fields(Arguments)]
        arguments = Arguments(**{name: options.pop(name) for name in names})
        if arguments.name is None:
            arguments = dataclasses.replace(arguments, name=variant.lower())
        return instantiate(variant, family, arguments, options)

    build.__name__ = build.__qualname__ = variant
    build.__module__ = "keras_vit.applications"
    build.__doc__ = docstring(variant, family)
    vars(build)["__signature__"] = signature
    return build


def options_of(family: str) -> Iterator[dataclasses.Field]:
    """Fields of the config that the applications of a family take."""
    shared = {field.name for field in dataclasses.fields(Arguments)}
    for field in dataclasses.fields(FAMILIES[family].model_class.config_class):
        if field.name not in shared and not NO_OPTIONS.fullmatch(field.name):
            yield field


def is_of_training(option: str) -> bool:
    """Whether no weights bring the option along, so that it has a default."""
    return option.endswith("_rate") or option in (
        "flash_attention",
        "rematerialize",
    )


@functools.cache
def signature_of(family: str) -> inspect.Signature:
    *shared, dtype = [
        x.replace(annotation=inspect.Parameter.empty)
        for x in inspect.signature(Arguments).parameters.values()
    ]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default if is_of_training(field.name) else None,
        )
        for field in options_of(family)
    ]
    return inspect.Signature(
        [*shared, *options, dtype], return_annotation=keras.Model
    )


def docstring(variant: str, family: str) -> str:
    hybrid = "resnet_units" in FAMILIES[family].sizes[variant]
    return TEMPLATE.format(
        variant=variant,
        default_name=variant.lower(),
        reference=REFERENCES["hybrid" if hybrid else family],
        options=described_options(family),
        **FAMILIES[family].texts,
    )


@functools.cache
def described_options(family: str) -> str:
    """The options, from the docstring of the config."""
    config_class = FAMILIES[family].model_class.config_class
    known = inspect.getdoc(config_class) or ""
    lines = []
    for field in options_of(family):
        entry = re.search(rf"^    {field.name}: (.*(\n     .*)*)", known, re.M)
        default = field.default
        default = f'`"{default}"`' if type(default) is str else f"`{default}`"
        if not is_of_training(field.name):
            default = f"what the weights have, or {default}"
        text = " ".join(entry[1].split()) if entry else ""
        lines += textwrap.wrap(
            f"{field.name}: {text} Defaults to {default}.",
            79,
            initial_indent=4 * " ",
            subsequent_indent=8 * " ",
        )
    return "\n".join(lines)


def instantiate(
    variant: str, family: str, arguments: Arguments, options: dict
) -> keras.Model:
    """Builds the model of an application, with its weights.

    Args:
        variant: name of the application.
        family: key of `FAMILIES`.
        arguments: what all applications share.
        options: other fields of the config; None is what the weights have,
            or the default.

    Raises:
        ValueError: for arguments or weights that do not fit together.
    """
    check_weights(arguments.weights, variant)
    options = {k: v for k, v in options.items() if v is not None}
    if not arguments.include_top:
        options.pop("representation_dim", None)
    options["classifier_activation"] = arguments.classifier_activation
    options["include_preprocessing"] = arguments.include_preprocessing
    if arguments.pooling is not None:
        average = arguments.pooling == "avg"
        options["pooling"] = "mean" if average else arguments.pooling
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
    outputs = model_class.outputs_of(config, tensor, policy)
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
