"""Which model is trained, and from which weights it starts."""

import dataclasses

from keras_vit.models.base import check_choice, check_rates, check_size
from keras_vit.models.sizes import BIT, MIXER, VIT
from keras_vit.training.architectures import config_of
from keras_vit.training.checks import check_positive
from keras_vit.variants import VariantConfig

__all__ = ["ModelConfig"]

CHOICES = {
    "name": (*VIT, *MIXER, *BIT),
    "head": ("new", "keep"),
    # One answer an image; all tokens would be many.
    "pooling": ("token", "mean", "max", "map"),
    "position_embedding": ("learned", "sincos2d"),
    "size": ("full", "tiny"),
}
WIDTHS = ("hidden_dim", "num_layers", "mlp_dim", "num_heads", "resnet_width")
SIZES = (*WIDTHS, "resnet_units")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model, by the name of an application of keras_vit or by its sizes.

    What is null is as in the named model, or in the weights.
    """

    name: str | None = None
    """Application of keras_vit, such as ViT_B16, ViT_R50_B16, Mixer_B16 or
    BiT_R50x1; null is the small Vision Transformer of the quick start, or
    what the weights hold."""

    weights: str | None = None
    """What the model starts from: a run folder, a file of any known format,
    a name of `keras-vit weights list`, or "fractals", a small model that comes
    with the package; null draws all weights."""

    head: str = "new"
    """"new" replaces the classification layer of the weights, and the layer
    before it, by zeros as the paper does; "keep" goes on with it."""

    image_size: int | tuple[int, int] | None = None
    """Images are resized to this; one side or [height, width], in pixels.
    Position embeddings of weights for another size are resampled."""

    channels: int | None = None
    """1 for grey images, 3 for colour."""

    patch_size: int | tuple[int, int] | None = None
    """Size of a patch; one side or [height, width], in pixels."""

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
    is its root block alone. The patches of a hybrid are of cells of its
    feature map, whose side is a quarter of the image's, halved by each stage
    after the first."""

    resnet_width: int | None = None
    """Channels of the root block of that ResNet, a multiple of 32."""

    pooling: str | None = None
    """What the classification layer sees: "token" for the class token,
    "mean" or "max" of the patch tokens, "map" for attention pooling."""

    position_embedding: str | None = None
    """"learned", or "sincos2d" for fixed sines and cosines."""

    representation_dim: int | None = None
    """Size of a tanh layer before the classification layer, which the paper
    pre-trains with; 0 for none."""

    dropout_rate: float = 0.0
    """Probability to drop a feature in training."""

    stochastic_depth_rate: float = 0.0
    """Probability to skip the last block in training; it grows linearly from
    0 for the first."""

    variant: VariantConfig = VariantConfig()
    """What a Vision Transformer does otherwise than the plain one; weights
    bring their own variant."""

    size: str = "full"
    """"tiny" is the smallest model of the named kind, to try a recipe out."""

    def __post_init__(self):
        if self.channels not in (1, 3, None):
            raise ValueError(
                "channels must be 1 (grey) or 3 (colour). Received: "
                f"channels={self.channels!r}."
            )
        for name, choices in CHOICES.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), choices)
        for name in ("image_size", "patch_size"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        check_positive(self, *WIDTHS)
        if any(units < 1 for units in self.resnet_units or ()):
            raise ValueError(
                "Each stage of a ResNet has one unit at least. Received: "
                f"resnet_units={self.resnet_units}. Leave the stage out."
            )
        check_rates(self, "dropout_rate", "stochastic_depth_rate")
        self._check_weights()
        if self.weights is None:
            self.vit(num_classes=1)

    def _check_weights(self):
        given = [x for x in SIZES if getattr(self, x) is not None]
        if self.weights is not None and given:
            raise ValueError(
                "Weights bring their own sizes. Received: weights="
                f"{self.weights!r} and {', '.join(given)}. Leave those out."
            )
        if self.weights is None and self.head == "keep":
            raise ValueError(
                "There is no head to keep without weights. Received: head="
                '"keep", weights=None.'
            )

    def vit(self, num_classes: int):
        """The config of the model whose weights are drawn.

        Args:
            num_classes: int, number of classes.

        Returns:
            A `ViTConfig`, `VariantTransformerConfig`, `MixerConfig` or
            `BiTConfig`.

        Raises:
            ValueError: for values that do not fit together.

        Example:
            >>> ModelConfig(image_size=32, patch_size=8).vit(10).grid
            (4, 4)
        """
        return config_of(self, num_classes)
