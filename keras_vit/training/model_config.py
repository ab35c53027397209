"""The model of a run and the weights that it starts from.

A field's docstring is its text in `python recipes/finetune.py --help`.
"""

import dataclasses
from typing import Any

from keras_vit.io.checks import (
    check_choice,
    check_limits,
    check_size,
    check_unread,
)
from keras_vit.models import BiTConfig, MixerConfig, ViTConfig
from keras_vit.sizes import BIT, DIGITS, MIXER, TINY, TINY_MIXER, VIT, VIT_SIZES
from keras_vit.text.templates import templates_of
from keras_vit.variants import VariantConfig, VariantTransformerConfig

__all__ = [
    "ModelConfig",
    "config_class_of",
    "config_of",
    "options_of",
]

MODEL_CHOICES = {
    "name": (*VIT, *MIXER, *BIT),
    "head": ("new", "probe", "keep", "words"),
    # One prediction per image; all tokens would be many.
    "pooling": ("token", "mean", "max", "map"),
    "position_embedding": ("learned", "sincos2d"),
    "size": ("full", "tiny"),
}
# Fields that weights have their own of.
SIZES = (*VIT_SIZES["B"], "resnet_width", "resnet_units")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model, by the name of an application of keras_vit or by its sizes.

    Null fields are as in the named model, or as in the weights.
    """

    name: str | None = None
    """Application of keras_vit, such as ViT_B16, ViT_R50_B16, Mixer_B16 or
    BiT_R50x1; null is the small Vision Transformer of the quick start, or the
    model of the weights."""

    weights: str | None = None
    """Initial weights: a run folder, a file of any known format, a name of
    `keras-vit weights list`, or "fractals", a small model that comes with the
    package; null initializes all weights at random."""

    head: str | None = None
    """"new" replaces the classification layer of the weights, and the layer
    before it, by zeros as the paper does; "probe" by a linear probe of the
    training images, from which all is trained (arXiv:2202.10054); "keep" keeps
    it; "words" makes one of the names of the classes, by the text half of an
    image-text model (arXiv:2109.01903). Null is "probe" where it can be
    fitted, and "new" for very many images, batches of your own, several
    processes or a head_bias."""

    template: str | None = None
    """With head "words", the sentence that the names are put in, or "openai"
    or "openai_best" for those of CLIP; null is "a photo of a {}."."""

    image_size: int | tuple[int, int] | None = None
    """Size of the images, one side or [height, width] in pixels; if null with
    weights, that which their publisher prepares images in, 224 for DINOv2.
    Position embeddings of weights for another size are resampled."""

    channels: int | None = None
    """1 for grey images, 3 for colour."""

    patch_size: int | tuple[int, int] | None = None
    """Size of a patch, one side or [height, width] in pixels."""

    hidden_dim: int | None = None
    """Size of a token."""

    num_layers: int | None = None
    """Number of transformer blocks."""

    mlp_dim: int | None = None
    """Hidden size of the MLPs."""

    num_heads: int | None = None
    """Attention heads; they divide hidden_dim."""

    resnet_units: tuple[int, ...] | None = None
    """Bottleneck units in each stage of the ResNet of a hybrid or a BiT; []
    is the root block alone. The patches of a hybrid are cut from its feature
    map, whose side is a quarter of the image's, halved by each stage after the
    first."""

    resnet_width: int | None = None
    """Channels of the root block of that ResNet, a multiple of 32."""

    pooling: str | None = None
    """Input of the classification layer: "token" for the class token, "mean"
    or "max" of the patch tokens, "map" for attention pooling."""

    position_embedding: str | None = None
    """"learned", or "sincos2d" for fixed sines and cosines."""

    representation_dim: int | None = None
    """Size of a tanh layer before the classification layer, which the paper
    pre-trains with; 0 for none."""

    dropout_rate: float = 0.0
    """Probability to drop a feature in training."""

    stochastic_depth_rate: float = 0.0
    """Probability to skip the last block in training; it increases linearly
    from 0 for the first."""

    variant: VariantConfig = VariantConfig()
    """Differences from the plain Vision Transformer; weights have a variant of
    their own."""

    size: str = "full"
    """"tiny" is the smallest model of the named kind, to try a recipe out."""

    def __post_init__(self):
        if self.weights == "":
            raise ValueError(
                "weights is not empty; an unset variable of the shell is. "
                "Received: weights=''. Leave it out to train from scratch."
            )
        if self.channels not in (1, 3, None):
            raise ValueError(
                "channels must be 1 (grey) or 3 (colour). Received: "
                f"channels={self.channels!r}."
            )
        for name, choices in MODEL_CHOICES.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), choices)
        for name in ("image_size", "patch_size"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if any(units < 1 for units in self.resnet_units or ()):
            raise ValueError(
                "Each stage of a ResNet has at least one unit. Received: "
                f"resnet_units={self.resnet_units}. Leave the stage out."
            )
        check_limits(self, 1, "dropout_rate", "stochastic_depth_rate")
        self._check_weights()
        if self.weights is None:
            self.vit(num_classes=1)

    def _check_weights(self):
        given = [x for x in SIZES if getattr(self, x) is not None]
        if self.weights is not None and given:
            raise ValueError(
                "Weights have sizes of their own. Received: weights="
                f"{self.weights!r} and {', '.join(given)}. Leave those out."
            )
        if self.weights is not None:
            check_unread(self, f"weights={self.weights!r}", "size")
        if self.weights is None and self.head not in (None, "new"):
            raise ValueError(
                "There is no head to take without weights. Received: head="
                f"{self.head!r}, weights=None."
            )
        if self.head != "words":
            check_unread(self, f"head={self.head!r}", "template")
            return
        check_unread(self, 'head="words"', "name", "representation_dim")
        if self.template is not None:
            templates_of(self.template)

    def vit(self, num_classes: int):
        """Return the config of the model, see `config_of`.

        Example:
            >>> ModelConfig(image_size=32, patch_size=8).vit(10).grid
            (4, 4)
        """
        return config_of(self, num_classes)


TINY_WIDTH = 32  # GroupNormalization has 32 groups.

# Fields of ModelConfig with another name in the config of a BiT.
OF_BIT = {"resnet_units": "units", "resnet_width": "width"}

# Fields of ModelConfig that are not fields of the model.
ABOUT_WEIGHTS = ("name", "weights", "head", "template", "size")


def config_class_of(
    name: str | None, variant: VariantConfig | None = None
) -> type:
    """Return the class of the config of a named model.

    Args:
        name: an application; None is a Vision Transformer.
        variant: None is the plain model.

    Example:
        >>> config_class_of("Mixer_B16").__name__
        'MixerConfig'
    """
    if name in MIXER or name in BIT:
        return MixerConfig if name in MIXER else BiTConfig
    plain = variant in (None, VariantConfig())
    return ViTConfig if plain else VariantTransformerConfig


def options_of(model, config_class: type) -> dict:
    """Return the options that differ from the default, as fields of a config.

    Args:
        model: the `ModelConfig` of the recipe.
        config_class: the class of the model's config.

    Raises:
        ValueError: for an option that models of this family do not have.

    Example:
        >>> options_of(ModelConfig(num_heads=2), ViTConfig)
        {'num_heads': 2}
    """
    known = {field.name for field in dataclasses.fields(config_class)}
    options = {}
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        if field.name in ABOUT_WEIGHTS or value == field.default:
            continue
        name = field.name if field.name in known else OF_BIT.get(field.name)
        if name not in known:
            raise ValueError(
                f"{model.name} is a "
                f"{config_class.__name__.removesuffix('Config')}, which has no "
                f"{field.name}. Received: model.{field.name}={value!r}."
            )
        options[name] = value
    return options


def config_of(model, num_classes: int, **options) -> Any:
    """Build the config of a model from its name and its options.

    Args:
        model: the `ModelConfig` of the recipe.
        num_classes: number of classes.
        **options: more fields of the config, such as head_bias.

    Returns:
        A `ViTConfig`, `VariantTransformerConfig`, `MixerConfig` or
        `BiTConfig`, for images in [0, 255] and logits.

    Raises:
        ValueError: for values that do not fit together.

    Example:
        >>> config_of(ModelConfig(image_size=32, patch_size=8), 10).grid
        (4, 4)
    """
    config_class = config_class_of(model.name, model.variant)
    fields = {**VIT, **MIXER, **BIT, None: DIGITS}[model.name]
    if model.size == "tiny":
        fields = {**fields, **tiny_fields(fields)}
    fields = {**fields, **options_of(model, config_class), **options}
    if "resnet_width" in fields and fields.get("resnet_units") is None:
        raise ValueError(
            "There is no ResNet before this model. Received: resnet_width="
            f"{fields['resnet_width']}, resnet_units=None. Give both, or "
            "leave it out."
        )
    if issubclass(config_class, ViTConfig):
        pooling = fields.setdefault("pooling", "token")
        fields["class_token"] = pooling == "token"
    return config_class(
        **fields, num_classes=num_classes, include_preprocessing=True
    )


def tiny_fields(fields: dict) -> dict:
    """Return the sizes of the smallest model of the same kind."""
    if "units" in fields:
        return {"units": (1,) * len(fields["units"]), "width": TINY_WIDTH}
    if "resnet_units" in fields:
        units = (1,) * len(fields["resnet_units"])
        return {**TINY, "resnet_units": units, "resnet_width": TINY_WIDTH}
    if "tokens_mlp_dim" in fields:
        return TINY_MIXER
    return {**TINY, "patch_size": (8, 8)}
