"""From a `ModelConfig` to the config of a model of keras_vit."""

import dataclasses

from keras_vit.models import BiT, Mixer, VisionTransformer
from keras_vit.models.sizes import BIT, MIXER, VIT
from keras_vit.variants import VariantConfig, VariantTransformer

__all__ = ["DIGITS", "TRANSFORMERS", "config_of", "family_of", "options_of"]

TRANSFORMERS = (VisionTransformer, VariantTransformer)

# The model without a name, of the quick start; found on validation images.
DIGITS = {
    "image_size": (16, 16),
    "channels": 1,
    "patch_size": (4, 4),
    "hidden_dim": 64,
    "num_layers": 4,
    "mlp_dim": 128,
    "num_heads": 4,
    "pooling": "mean",
}

# The smallest model of each kind, for images of 32x32.
TINY_WIDTH = 32  # GroupNormalization has 32 groups.
TINY = {"hidden_dim": 8, "num_layers": 2, "mlp_dim": 8, "num_heads": 2}
TINY_MIXER = {
    "hidden_dim": 8,
    "num_layers": 2,
    "tokens_mlp_dim": 4,
    "channels_mlp_dim": 8,
}

# Fields of ModelConfig by the names that a BiT has for them.
OF_BIT = {"resnet_units": "units", "resnet_width": "width"}

# Fields of ModelConfig that are not fields of the model.
ABOUT_WEIGHTS = ("name", "weights", "head", "size")


def family_of(name: str | None, variant: VariantConfig | None = None) -> type:
    """The class of a named model.

    Args:
        name: str, an application; None is a Vision Transformer.
        variant: a `VariantConfig`; None is the plain model.

    Returns:
        `VisionTransformer`, `VariantTransformer`, `Mixer` or `BiT`.

    Example:
        >>> family_of("Mixer_B16").__name__
        'Mixer'
    """
    if name in MIXER or name in BIT:
        return Mixer if name in MIXER else BiT
    plain = variant in (None, VariantConfig())
    return VisionTransformer if plain else VariantTransformer


def options_of(model, family: type) -> dict:
    """What a user asks of a model, as fields of its config.

    Args:
        model: a `ModelConfig`.
        family: the class of the model.

    Returns:
        Name to value, without what is as the model has it.

    Raises:
        ValueError: for a field that models of this family do not have.

    Example:
        >>> options_of(ModelConfig(num_heads=2), VisionTransformer)
        {'num_heads': 2}
    """
    known = {field.name for field in dataclasses.fields(family.config_class)}
    options = {}
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if field.name in ABOUT_WEIGHTS or value == field.default:
            continue
        name = field.name if field.name in known else OF_BIT.get(field.name)
        if name not in known:
            raise ValueError(
                f"{model.name} is a {family.__name__}, which has no "
                f"{field.name}. Received: model.{field.name}={value!r}."
            )
        options[name] = value
    return options


def config_of(model, num_classes: int, **options):
    """The config of a model whose weights are drawn.

    Args:
        model: a `ModelConfig`.
        num_classes: int.
        **options: more fields, such as head_bias.

    Returns:
        A `ViTConfig`, `VariantTransformerConfig`, `MixerConfig` or
        `BiTConfig`, for images in [0, 255] and logits.

    Raises:
        ValueError: for values that do not fit together.

    Example:
        >>> config_of(ModelConfig(image_size=32, patch_size=8), 10).grid
        (4, 4)
    """
    family = family_of(model.name, model.variant)
    fields = {**VIT, **MIXER, **BIT, None: DIGITS}[model.name]
    if model.size == "tiny":
        fields = {**fields, **tiny_fields(fields)}
    fields = {**fields, **options_of(model, family), **options}
    if "resnet_width" in fields and fields.get("resnet_units") is None:
        raise ValueError(
            "There is no ResNet before this model. Received: resnet_width="
            f"{fields['resnet_width']}, resnet_units=None. Give both, or "
            "leave it out."
        )
    if family in TRANSFORMERS:
        pooling = fields.setdefault("pooling", "token")
        fields["class_token"] = pooling == "token"
    return family.config_class(
        **fields, num_classes=num_classes, include_preprocessing=True
    )


def tiny_fields(fields: dict) -> dict:
    """What makes a model of the same kind the smallest one."""
    if "units" in fields:
        return {"units": (1,) * len(fields["units"]), "width": TINY_WIDTH}
    if "resnet_units" in fields:
        units = (1,) * len(fields["resnet_units"])
        return {**TINY, "resnet_units": units, "resnet_width": TINY_WIDTH}
    sizes = TINY_MIXER if "tokens_mlp_dim" in fields else TINY
    return {**sizes, "patch_size": (8, 8)}
