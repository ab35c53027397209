"""What a variant of the Vision Transformer has in place of its parts.

Read without Keras.
"""

import dataclasses

from keras_vit.io.checks import check_choice, check_types
from keras_vit.models.options import ViTConfig, changed, options_of

__all__ = ["VariantConfig", "VariantTransformerConfig"]

# Where the position embedding can be, by kind; the first is the default.
PLACES = {
    "none": (None,),
    "1d": ("stem", "every_layer", "every_layer_shared"),
    "2d": ("stem", "every_layer", "every_layer_shared"),
    "relative": ("every_layer", "every_layer_shared"),
}
CHOICES = {
    "position": tuple(PLACES),
    "attention": ("full", "axial"),
    "mlp": ("dense", "local"),
}


@dataclasses.dataclass(frozen=True)
class VariantConfig:
    """A variant of the Vision Transformer; the default is the plain model.

    The comparisons of appendix D of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), and an MLP with locality.
    """

    position: str = "1d"
    """Position embedding (Table 8): "none"; "1d", that of the plain model;
    "2d", a table of columns and one of rows, concatenated; "relative", a key
    for each offset between two tokens, which adds to the attention."""

    position_at: str | None = None
    """Where it is added: at the "stem", which is the input of the first
    block, to the input of "every_layer", a table each, or of every layer the
    same ("every_layer_shared"). null is the stem; of relative positions,
    which act in the attention, every layer."""

    attention: str = "full"
    """"full", or "axial": attention within each row and an MLP, then within
    each column and another MLP (appendix D.6); without a class token."""

    mlp: str = "dense"
    """"dense", or "local": a depth-wise convolution of 3x3 patches between
    the dense layers (LocalViT, arXiv:2104.05707), which the class token
    skips."""

    def __post_init__(self):
        check_types(self)
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        places = PLACES[self.position]
        if self.position_at not in (None, *places):
            raise ValueError(
                f'A position embedding of kind "{self.position}" cannot be '
                f"at {self.position_at!r}. Expected position_at to be one of "
                f"{', '.join(map(repr, dict.fromkeys([*places, None])))}."
            )
        # One record of one model: null and what it means are equal.
        object.__setattr__(self, "position_at", self.position_at or places[0])


@dataclasses.dataclass(frozen=True)
class VariantTransformerConfig(ViTConfig):
    """Everything that defines a variant: a `ViTConfig` with one field more.

    It can be used wherever a `ViTConfig` can.

    Args:
        variant: a `VariantConfig`, or a dictionary of its fields.

    Raises:
        ValueError: for values that do not fit together, with what would.

    Example:

    >>> config = VariantTransformerConfig(
    ...     variant=VariantConfig(position="2d"), num_classes=10
    ... )
    >>> config.variant.position_at
    'stem'
    """

    variant: VariantConfig = VariantConfig()

    def __post_init__(self):
        if isinstance(self.variant, dict):
            variant = VariantConfig(**self.variant)
            object.__setattr__(self, "variant", variant)
        super().__post_init__()
        self._check_position()
        self._check_attention()
        self._check_blocks()

    def _check_blocks(self):
        rows = options_of(self)
        found = {x: y for x, y in changed(self).items() if x in rows}
        shown = {x: y for x, y in found.items() if rows[x].later}
        if shown:
            raise ValueError(
                "The variants are those of the paper, with its blocks. "
                f"Received: {shown}. Leave these out, or use a ViTConfig."
            )

    def _check_attention(self):
        if self.variant.attention != "axial":
            return
        if self.num_prefix_tokens:
            raise ValueError(
                "Axial attention is within the rows and the columns of the "
                "patches, and a class token is in none of them. Received: "
                f"class_token={self.class_token}, pooling={self.pooling!r}. "
                'Set pooling to "mean", "max" or "map", and class_token to '
                "False."
            )
        if self.variant.position == "relative":
            raise ValueError(
                "Relative positions are offsets between any two tokens, which "
                'axial attention does not compare. Received: attention="axial"'
                ' with position="relative". Choose another of them.'
            )

    def _check_position(self):
        position = self.variant.position
        if position != "1d" and self.position_embedding != "learned":
            raise ValueError(
                f"A {self.position_embedding!r} table takes the place of the "
                f'learned one of position="1d". Received: position='
                f'{position!r}. Set position_embedding to "learned".'
            )
        if position == "2d" and self.hidden_dim % 2:
            raise ValueError(
                "Half of a 2-D position embedding is the column's, half the "
                f"row's. Received: hidden_dim={self.hidden_dim}. Choose an "
                "even one."
            )
        if position == "relative" and self.flash_attention:
            raise ValueError(
                "Relative positions add logits that depend on the query, "
                "which no fused kernel does. Received: flash_attention=True "
                'with position="relative". Set flash_attention to None.'
            )
