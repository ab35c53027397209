"""What defines a Vision Transformer."""

import dataclasses
import math

from keras_vit.io.checks import (
    check_at_least,
    check_choice,
    check_fraction,
    check_limits,
    check_size,
)
from keras_vit.layers.attention import check_heads
from keras_vit.layers.attention_positions import (
    AXES,
    BIAS_KINDS,
    PAIRS,
    ROPES,
)
from keras_vit.layers.embedding import check_divisible
from keras_vit.layers.kernels import NORMALIZATIONS
from keras_vit.layers.transformer_block import MLP_PLACEMENTS, NORM_PLACEMENTS
from keras_vit.models.resnet import check_width, stem_grid

__all__ = ["ATTENTION_POOLINGS", "ViTConfig", "modern_options"]

# Those that read the class token, and the others.
TOKEN_POOLINGS = ("token", "prefix", "prefix_mean", "token_and_mean")
# Those by a learned query that attends to the tokens.
ATTENTION_POOLINGS = ("map", "attention")
POOLINGS = (*TOKEN_POOLINGS, *ATTENTION_POOLINGS, "mean", "max", "none")
CHOICES = {
    "pooling": POOLINGS,
    "rope": ROPES,
    "rope_axes": AXES,
    "rope_pairs": PAIRS,
    "relative_position_kind": (*BIAS_KINDS, "decomposed"),
    "normalization": NORMALIZATIONS,
    "norm_placement": NORM_PLACEMENTS,
    "mlp_placement": MLP_PLACEMENTS,
}
# Options of the block that came after the paper.
MODERN = (
    *("rope", "relative_position_bias", "key_bias", "projection_bias"),
    *("qk_norm", "attention_inner_norm", "mlp_inner_norm", "gated_mlp"),
    *("talking_heads", "normalization", "norm_placement", "key_value_heads"),
    *("class_attention_layers", "differential_attention", "mlp_placement"),
    *("mlp_layer_scale", "window_size", "neck_dim"),
)
# What an option of the blocks excludes.
EXCLUDED = {
    "differential_attention": {
        **{"qk_norm": False, "talking_heads": False, "rope": None},
        "relative_position_bias": False,
    },
    "mlp_placement": {
        **{"norm_placement": "before", "projection_bias": True},
        "class_attention_layers": 0,
    },
    "key_value_heads": {
        **{"key_bias": True, "talking_heads": False},
        **{"differential_attention": False, "mlp_placement": "after"},
        "class_attention_layers": 0,
    },
    "mlp_layer_scale": {
        **{"mlp_placement": "after", "class_attention_layers": 0},
    },
    "window_size": {"class_token": False, "register_tokens": 0, "rope": None},
    "neck_dim": {
        **{"class_token": False, "register_tokens": 0},
        "norm_after_pooling": False,
    },
}
DECOMPOSED = {
    **{"class_token": False, "register_tokens": 0},
    "relative_positions_shared": False,
}
# What the blocks may have that class attention has not.
NOT_OF_CLASS_ATTENTION = {
    **{"distillation_token": False, "register_tokens": 0},
    **{"key_bias": True, "qk_norm": False, "attention_inner_norm": False},
    "differential_attention": False,
}


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """Everything that defines a Vision Transformer; the defaults are B/16.

    Args:
        image_size: int or (height, width) in pixels.
        channels: int, channels of an image.
        patch_size: int or (height, width), in pixels, or in cells of the
            feature map for a hybrid.
        hidden_dim: int, D, size of a token.
        num_layers: int, number of blocks.
        mlp_dim: int, hidden size of the MLPs.
        num_heads: int, attention heads.
        key_value_heads: None, or the number of heads of keys and values in
            each block, see `SelfAttention`; Sapiens2 (arXiv:2604.21681) has
            fewer in the blocks between its first and last eight.
        pooling: what the head sees: the class "token", the "mean" or "max"
            of the patch tokens, attention pooling ("map", or "attention" for
            that of AIMv2, arXiv:2411.14402, without MLP), class and
            distillation token one after the other ("prefix"), the mean of all
            tokens before the patches ("prefix_mean"), class token and mean of
            the patch tokens one after the other ("token_and_mean", as
            DINOv2's linear head), or all tokens ("none").
        class_token: bool, whether there is a class token.
        class_attention_layers: int, number of `ClassAttentionBlock`s after
            the other blocks. The class token is put in front of the patches
            between the two, as in CaiT (arXiv:2103.17239), so that the other
            blocks and the position embedding are of patches alone.
        distillation_token: bool, whether DeiT's distillation token follows
            the class token.
        register_tokens: int, learned tokens after these ("Vision Transformers
            Need Registers", arXiv:2309.16588), which "prefix_mean" alone reads.
        position_embedding: "learned", "sincos2d" for fixed sines and
            cosines, or "none".
        rope: None, or rotary positions in the attention: "axial",
            "centered" or "mixed", see `RotaryEmbedding` for this and the
            other options of rope.
        rope_temperature: float, how far its frequencies are apart.
        rope_offset: float, added to rows and columns.
        rope_axes: "row_first" or "column_first".
        rope_reference_grid: None, or the (rows, columns) that other grids
            are stretched to.
        rope_pairs: "neighbors" or "halves".
        relative_position_bias: bool, whether each block has a
            `RelativePositionBias`, as BEiT has.
        relative_position_kind: "table", "mlp" or "mlp_swin", what it is
            computed by, see `RelativePositionBias`; "decomposed" for a
            `DecomposedPositionBias`, which the queries are multiplied with.
        relative_position_dim: int, hidden size of that MLP.
        relative_positions_shared: bool, whether all blocks have the same one,
            as timm's srelpos models.
        window_size: int, patches on a side of the windows that attention is
            within, see `WindowAttention`; 0 for attention to all tokens.
        global_attention_blocks: numbers of the blocks, from 0, that attend to
            all tokens beside a window_size.
        num_classes: int, 0 for features instead of a classification layer.
        classifier_activation: activation of the classification layer, None
            for logits.
        representation_dim: int, size of a tanh layer before the
            classification layer (the paper's pre-training head), 0 for none.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes. None for no bias,
            as CLIP's projection.
        dropout_rate: float, after the position embedding, the attention and
            each dense layer of the MLPs.
        attention_dropout_rate: float, on the softmax weights.
        stochastic_depth_rate: float, probability that a sample skips a
            residual branch of the last block in training; it grows linearly
            from 0 in the first block.
        layer_norm_epsilon: float, added to the variance.
        layer_scale_init: float that the factors of `LayerScale` on the
            residual branches start at; None for no `LayerScale`.
        mlp_layer_scale: bool, whether the branches of the MLPs have them too.
        patch_bias: bool, whether the projection of the patches has a bias.
        qkv_bias: bool, whether query, key and value have biases.
        key_bias: bool, whether that of the key is learned; False keeps it at
            zero.
        projection_bias: bool, whether the last projection of the attention
            and the MLPs have biases.
        qk_norm: bool, whether query and key are normalised in each head.
        attention_inner_norm: bool, whether the attention normalises what its
            last projection reads.
        talking_heads: bool, whether the heads exchange their scores and
            their weights, see `SelfAttention`.
        differential_attention: bool, whether each head takes the difference
            of two softmaxes, see `SelfAttention`.
        mlp_placement: "after" the attention, or "beside" it: a
            `ParallelBlock`.
        mlp_inner_norm: bool, whether the MLPs normalise their hidden layer.
        gated_mlp: bool, whether the MLPs are `GatedMLP`s: SwiGLU with
            activation="silu".
        normalization: "layer_norm", or "rms_norm" everywhere in its place.
        norm_placement: "before" normalises what attention and MLP read,
            "after" what they return.
        final_norm: bool; False leaves out the normalisation after the last
            block.
        patch_norm: bool, whether each patch is normalised after its
            projection, as in AIMv2 (arXiv:2411.14402).
        neck_dim: int, channels of the `Neck` that follows, as in SAM
            (arXiv:2304.02643), 0 for none.
        norm_before_blocks: bool; True normalises the tokens before the first
            block, as CLIP does (arXiv:2103.00020).
        norm_after_pooling: bool; True normalises the pooled token instead of
            all tokens before pooling, as timm's models with average pooling.
        pool_prefix_tokens: bool, whether pooling by mean, maximum and
            attention reads the tokens in front of the patches too.
        pool_num_heads: int, heads of the attention pooling, 0 for those of
            the blocks.
        pool_mlp_dim: int, likewise its MLP.
        activation: of the MLPs: "gelu_tanh" as in the original code, "gelu"
            for the exact form as in Hugging Face and timm, "quick_gelu" as
            in CLIP, or any activation of Keras by name.
        patch_stem: None, or the strides of convolutions that read the image
            before the projection of the patches, each as large as its stride
            and followed by batch normalisation and the activation; (4, 2) in
            MobileCLIP (arXiv:2311.17049). They divide patch_size, which is
            that of the image.
        patch_stem_dim: int, channels that these make.
        resnet_units: None, or for a hybrid the number of bottleneck units in
            each stage of its ResNet; () is the root block alone.
        resnet_width: int, channels of the ResNet's root block.
        resnet_standardization: where the epsilon of weight standardisation
            goes, see `StandardizedConv2D`.
        resnet_standardization_epsilon: float, that epsilon.
        resnet_group_norm_epsilon: float, added to the variance of a group.
        include_preprocessing: bool; True takes images in [0, 255].
        pixel_mean: None, or the mean of each channel, 1 for white, that
            `include_preprocessing` subtracts: (0.485, 0.456, 0.406) for most
            models trained on ImageNet with torch. None scales to [-1, 1].
        pixel_std: None, or the deviation of each channel that it divides by.
        flash_attention: None takes a fused attention kernel where it can be
            used, True demands one, False forbids it.
        rematerialize: bool, whether blocks compute their activations again in
            the backward pass to save memory.

    Raises:
        ValueError: for values that do not fit together, with what would.
    """

    image_size: tuple = (224, 224)
    channels: int = 3
    patch_size: tuple = (16, 16)
    hidden_dim: int = 768
    num_layers: int = 12
    mlp_dim: int = 3072
    num_heads: int = 12
    key_value_heads: tuple | None = None
    pooling: str = "token"
    class_token: bool = True
    class_attention_layers: int = 0
    distillation_token: bool = False
    register_tokens: int = 0
    position_embedding: str = "learned"
    rope: str | None = None
    rope_temperature: float = 10_000.0
    rope_offset: float = 0.0
    rope_axes: str = "row_first"
    rope_reference_grid: tuple | None = None
    rope_pairs: str = "neighbors"
    relative_position_bias: bool = False
    relative_position_kind: str = "table"
    relative_position_dim: int = 128
    relative_positions_shared: bool = False
    window_size: int = 0
    global_attention_blocks: tuple = ()
    num_classes: int = 1000
    classifier_activation: str | None = None
    representation_dim: int = 0
    head_bias: float | None = 0.0
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    layer_norm_epsilon: float = 1e-6
    layer_scale_init: float | None = None
    mlp_layer_scale: bool = True
    patch_bias: bool = True
    qkv_bias: bool = True
    key_bias: bool = True
    projection_bias: bool = True
    qk_norm: bool = False
    attention_inner_norm: bool = False
    talking_heads: bool = False
    differential_attention: bool = False
    mlp_placement: str = "after"
    mlp_inner_norm: bool = False
    gated_mlp: bool = False
    normalization: str = "layer_norm"
    norm_placement: str = "before"
    final_norm: bool = True
    patch_norm: bool = False
    neck_dim: int = 0
    norm_before_blocks: bool = False
    norm_after_pooling: bool = False
    pool_prefix_tokens: bool = False
    pool_num_heads: int = 0
    pool_mlp_dim: int = 0
    activation: str = "gelu_tanh"
    patch_stem: tuple | None = None
    patch_stem_dim: int = 192
    resnet_units: tuple | None = None
    resnet_width: int = 64
    resnet_standardization: str = "deviation"
    resnet_standardization_epsilon: float = 1e-5
    resnet_group_norm_epsilon: float = 1e-6
    include_preprocessing: bool = False
    pixel_mean: tuple | None = None
    pixel_std: tuple | None = None
    flash_attention: bool | None = None
    rematerialize: bool = False

    def __post_init__(self):
        fields: dict[str, tuple | None] = {
            "image_size": check_size("image_size", self.image_size),
            "patch_size": check_size("patch_size", self.patch_size),
        }
        for name in ("resnet_units", "rope_reference_grid", "patch_stem"):
            if getattr(self, name) is not None:
                fields[name] = tuple(getattr(self, name))
        if self.key_value_heads is not None:
            fields["key_value_heads"] = self._checked_groups()
        fields["global_attention_blocks"] = self._checked_blocks()
        for name in ("pixel_mean", "pixel_std"):
            fields[name] = self._checked_pixels(name)
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        for name, choices in CHOICES.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), choices)
        needs_token = self.pooling in TOKEN_POOLINGS
        if not self.class_token and (needs_token or self.distillation_token):
            raise ValueError(
                f"pooling={self.pooling!r} with distillation_token="
                f"{self.distillation_token} needs the class token. Received: "
                "class_token=False. Use class_token=True or another pooling, "
                'such as pooling="mean".'
            )
        if self.register_tokens and self.pooling == "prefix":
            raise ValueError(
                f"pooling={self.pooling!r} reads the class and distillation "
                "tokens. Received: register_tokens="
                f"{self.register_tokens}. Use another pooling."
            )
        check_heads(self.hidden_dim, self.num_heads)
        if self.resnet_units is None:
            check_divisible(self.image_size, self.patch_size)
        else:
            check_width(self.resnet_width)
            check_divisible(
                self._patched_size,
                self.patch_size,
                f"The ResNet's feature maps (for images of {self.image_size})",
                "cells",
            )
        self._check_stem()
        if self.norm_after_pooling and not self.final_norm:
            raise ValueError(
                "norm_after_pooling=True is where the last normalisation is. "
                "Received: final_norm=False. Set one of the two."
            )
        check_at_least(
            self,
            0,
            *("register_tokens", "pool_num_heads", "pool_mlp_dim"),
            *("window_size", "neck_dim"),
        )
        check_at_least(self, 1, "relative_position_dim")
        self._check_class_attention()
        self._check_excluded()
        if not self.mlp_layer_scale and self.layer_scale_init is None:
            raise ValueError(
                "mlp_layer_scale=False leaves out one of two LayerScales. "
                "Received: layer_scale_init=None. Set layer_scale_init, or "
                "mlp_layer_scale=True."
            )
        check_fraction(
            self,
            "layer_norm_epsilon",
            "resnet_standardization_epsilon",
            "resnet_group_norm_epsilon",
        )
        check_limits(
            self,
            1,
            "dropout_rate",
            "attention_dropout_rate",
            "stochastic_depth_rate",
        )

    def _check_excluded(self):
        for option, others in self._exclusions():
            for name, value in others.items():
                if getattr(self, name) != value:
                    raise ValueError(
                        f"{option}={getattr(self, option)!r} needs {name}="
                        f"{value!r}. Received: {name}="
                        f"{getattr(self, name)!r}. Change one of the two."
                    )

    def _exclusions(self):
        """Pairs of an option that is set and the values of others with it."""
        for option, others in EXCLUDED.items():
            if getattr(self, option) != getattr(ViTConfig, option):
                yield option, others
        kind = "relative_position_kind"
        if self.relative_position_bias and self.window_size:
            yield "window_size", {kind: "decomposed"}
        if self.relative_position_bias and getattr(self, kind) == "decomposed":
            yield kind, DECOMPOSED

    def _check_class_attention(self):
        check_at_least(self, 0, "class_attention_layers")
        wanted = {"class_token": True, **NOT_OF_CLASS_ATTENTION}
        wrong = [x for x, y in wanted.items() if getattr(self, x) != y]
        if self.class_attention_layers and self.pooling in ATTENTION_POOLINGS:
            raise ValueError(
                "The class token reads all patches itself. Received: "
                f"class_attention_layers={self.class_attention_layers} with "
                f'pooling={self.pooling!r}. Use pooling="token".'
            )
        if self.class_attention_layers and wrong:
            raise ValueError(
                f"class_attention_layers={self.class_attention_layers} needs "
                f"{wrong[0]}={wanted[wrong[0]]}. Received: {wrong[0]}="
                f"{getattr(self, wrong[0])}. Change one of the two."
            )

    def _checked_groups(self):
        """A number per block that divides the heads, None for the heads."""
        groups = tuple(self.key_value_heads or ())
        right = [x > 0 and self.num_heads % x == 0 for x in groups]
        if len(groups) != self.num_layers or not all(right):
            raise ValueError(
                "key_value_heads must have a number for each of "
                f"{self.num_layers} blocks that divides num_heads="
                f"{self.num_heads}, or be None. Received: key_value_heads="
                f"{self.key_value_heads}."
            )
        return None if set(groups) == {self.num_heads} else groups

    def _checked_blocks(self):
        """Numbers of blocks in their order, none without windows."""
        blocks = tuple(sorted(set(self.global_attention_blocks)))
        if blocks and not (
            self.window_size and 0 <= blocks[0] <= blocks[-1] < self.num_layers
        ):
            raise ValueError(
                "global_attention_blocks are numbers of blocks, from 0 to "
                f"{self.num_layers - 1}, beside a window_size. Received: "
                f"global_attention_blocks={self.global_attention_blocks}, "
                f"window_size={self.window_size}."
            )
        return blocks

    def _checked_pixels(self, name):
        """A number per channel, or None for both."""
        if self.pixel_mean is None and self.pixel_std is None:
            return None
        values = getattr(self, name) or ()
        wrong = len(values) != self.channels
        if wrong or name == "pixel_std" and min(values) <= 0:
            raise ValueError(
                "pixel_mean and pixel_std must have a number for each of "
                f"{self.channels} channels, and deviations above 0, or both "
                f"be None. Received: {name}={values!r}."
            )
        return tuple(map(float, values))

    def _check_stem(self):
        stride = math.prod(self.patch_stem or ())
        wrong = stride < 1 or any(x % stride for x in self.patch_size)
        if wrong or self.patch_stem is not None and self.resnet_units:
            raise ValueError(
                "patch_stem must be strides whose product divides patch_size, "
                "in a model without a ResNet. Received: patch_stem="
                f"{self.patch_stem}, patch_size={self.patch_size}, "
                f"resnet_units={self.resnet_units}. MobileCLIP has (4, 2) for "
                "patches of 16 pixels."
            )

    @property
    def projected_size(self) -> tuple:
        """(height, width) of the kernel that projects a patch."""
        stride = math.prod(self.patch_stem or ())
        return tuple(x // stride for x in self.patch_size)

    @property
    def grid(self) -> tuple:
        """(rows, columns) of the patches."""
        height, width = self._patched_size
        return height // self.patch_size[0], width // self.patch_size[1]

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the patches in the blocks."""
        if self.class_attention_layers:
            return 0
        return self.num_pooled_prefix_tokens

    @property
    def num_pooled_prefix_tokens(self) -> int:
        """Tokens in front of the patches where they are pooled."""
        tokens = int(self.class_token) + int(self.distillation_token)
        return tokens + self.register_tokens

    @property
    def _patched_size(self):
        if self.resnet_units is None:
            return self.image_size
        return stem_grid(self.image_size, self.resnet_units)


def modern_options(config: ViTConfig) -> dict:
    """The options of the block that the paper does not have, if set."""
    found = {name: getattr(config, name) for name in MODERN}
    return {x: y for x, y in found.items() if y != getattr(ViTConfig, x)}
