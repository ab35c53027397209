"""The options of the models: for each field of a config, a row.

A row has the default of a field and what the rest of the package has to know
of it: its choices, what it needs or belongs to, where a file of trained weights
shows it. To add an option of the block, add its row and its line in the
docstring, have a layer read it, and give it a name in each publisher's dialect
that has it. A model whose config sets a field that no layer reads is refused.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from keras_vit.io.checks import (
    AXES,
    BIAS_KINDS,
    MIXER_NORMALIZATIONS,
    MIXINGS,
    MLP_PLACEMENTS,
    NORM_PLACEMENTS,
    NORMALIZATIONS,
    PAIRS,
    ROPES,
    STANDARDIZATIONS,
    check_at_least,
    check_choice,
    check_divisible,
    check_fraction,
    check_heads,
    check_limits,
    check_size,
    check_types,
    check_unread,
)

__all__ = [
    "AROUND",
    "ATTENTION_POOLINGS",
    "OPTIONS_OF_WEIGHTS",
    "PLACES",
    "BiTConfig",
    "GROUPS",
    "MixerConfig",
    "RECORD",
    "TENSORS",
    "TRAINING",
    "Option",
    "ViTConfig",
    "changed",
    "check_options",
    "check_width",
    "kinds_of",
    "option",
    "options_of",
    "stem_grid",
    "whole_grid",
    "without_unused",
]

# Where a trained model's file shows the value of a field.
TENSORS = "tensors"  # In the names or shapes of its tensors.
RECORD = "record"  # In no tensor: a record beside them has it.
TRAINING = "training"  # Nowhere: it changes nothing that the model computes.


@dataclasses.dataclass(frozen=True)
class Option:
    """What the package knows of a field of a config, beside its default.

    Args:
        shown: `TENSORS`, `RECORD` or `TRAINING`: where a file of trained
            weights shows its value.
        choices: the values that it may have; None for any.
        check: function of the config and the name of the field that raises a
            ValueError for a wrong value.
        needs: dict of other fields to the values that they must have where
            this field is not at its default.
        of: name of the option that it belongs to. Where that one is at its
            default, this one must be, too.
        unless: dict of other fields to the values with which this one does
            nothing, so that it must be at its default.
        idle: why it may be set where the model does not read it.
        weights: parts of the paths of the weights that are there for it.
        later: bool, whether it is an option of the block that came after the
            paper, which the variants of the paper do not have.
        application: bool, whether `keras_vit.ViT_B16` and the others take it
            as an argument of its own.
        planned: bool, whether `keras_vit.planning` has its memory.
        whole_grid: bool, whether the blocks must have all patches of a grid
            for it, each in its place: models that hide patches, or run on
            several grids, refuse it.
    """

    shown: str
    choices: tuple | None = None
    check: Callable[[Any, str], None] | None = None
    needs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    of: str | None = None
    unless: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    idle: str = ""
    weights: tuple[str, ...] = ()
    later: bool = False
    application: bool = False
    planned: bool = True
    whole_grid: bool = False


def option(default: Any, shown: str, **row: Any) -> Any:
    """Make a field of a config with its `Option`.

    Args:
        default: value of the field.
        shown: see `Option`; so are all others.
    """
    found = Option(shown, **row)
    return dataclasses.field(default=default, metadata={"option": found})


def options_of(config_class: Any) -> dict[str, Option]:
    """Return the `Option` of each field of a config, by name."""
    return {
        field.name: field.metadata["option"]
        for field in dataclasses.fields(config_class)
        if "option" in field.metadata
    }


def kinds_of(*configs: Any) -> dict[str, Any]:
    """Return the annotated type of each field of the configs, by name."""
    fields = itertools.chain(*map(dataclasses.fields, configs))
    return {field.name: field.type for field in fields}


def whole_grid(config: "ViTConfig") -> list[str]:
    """List the fields for which the blocks must have all patches of a grid."""
    rows = options_of(config)
    return [name for name in changed(config) if rows[name].whole_grid]


def changed(config: Any) -> dict[str, Any]:
    """Return the fields of a config that differ from their defaults."""
    return {
        field.name: value
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default
    }


def without_unused(fields: Mapping[str, Any], config_class: Any) -> dict:
    """Return the fields, but those that would do nothing beside the others.

    A publisher's config may have a value for each option, used or not.
    """
    rows = options_of(config_class)
    defaults = {x.name: x.default for x in dataclasses.fields(config_class)}
    values = {**defaults, **fields}

    def is_used(name):
        row = rows.get(name, Option(RECORD))
        if row.of and values[row.of] in (None, defaults[row.of]):
            return False
        return all(values[x] != idle for x, idle in row.unless.items())

    return {name: value for name, value in fields.items() if is_used(name)}


def check_options(config: Any) -> None:
    """Check each field of a config by its row.

    Raises:
        ValueError: for a value that is no choice or out of bounds, one that
            does nothing, and two that exclude each other.
    """
    rows, set_ = options_of(config), changed(config)
    for name, row in rows.items():
        if row.choices is not None and name in set_:
            check_choice(name, set_[name], row.choices)
        if row.check is not None:
            row.check(config, name)
    for name, value in set_.items():
        if name in rows:
            _check_related(config, name, value, rows[name])


def _check_related(config, name, value, row):
    parent = row.of
    if parent is not None and parent not in changed(config):
        raise ValueError(
            f"{name} does nothing without {parent}. Received: "
            f"{name}={value!r}, {parent}={getattr(config, parent)!r}. Set "
            f"{parent}, or leave out {name}."
        )
    for other, idle in row.unless.items():
        if getattr(config, other) == idle:
            check_unread(config, f"{other}={idle!r}", name)
    check_needed(config, name, row.needs)


def check_needed(config: Any, name: str, needed: Mapping[str, Any]) -> None:
    """Check that other fields have the values that a field needs."""
    for other, value in needed.items():
        if getattr(config, other) != value:
            raise ValueError(
                f"{name}={getattr(config, name)!r} needs {other}={value!r}. "
                f"Received: {other}={getattr(config, other)!r}. Change one of "
                "the two."
            )


def count(config: Any, name: str) -> None:
    """Check that a field is 0 or more."""
    check_at_least(config, 0, name)


def positive(config: Any, name: str) -> None:
    """Check that a field is 1 or more."""
    check_at_least(config, 1, name)


def counts(config: Any, name: str) -> None:
    """Check that each number of a field is 1 or more."""
    values = getattr(config, name)
    if any(x < 1 for x in values):
        raise ValueError(
            f"{name} must be numbers from 1 on. Received: {name}={values}."
        )


def rate(config: Any, name: str) -> None:
    """Check that a field is a probability below 1."""
    check_limits(config, 1, name)


GROUPS = 32  # of the group normalisation of a ResNet
# The channels of the convolutions of its stem, as eighths of its width; the
# first has a stride of 2.
STEMS = {"single": (8,), "deep": (4, 4, 8), "tiered": (3, 4, 8)}

# Those that read the class token, and the others.
TOKEN_POOLINGS = ("token", "prefix", "prefix_mean", "token_and_mean")
# Those by a learned query that attends to the tokens.
ATTENTION_POOLINGS = ("map", "attention")
POOLINGS = (*TOKEN_POOLINGS, *ATTENTION_POOLINGS, "mean", "max", "none")

POSITIONS = ("learned", "sincos2d", "none")

# Why a field may be set where nothing reads it.
OF_THE_HEAD = "it is of the head, which features have not"
OF_THE_POOLING = "it is of the pooling, which a model of all tokens has not"
OF_THE_PIXELS = "without include_preprocessing it says what the images are"


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
        representation_dim: int, size of a dense layer before the
            classification layer (the paper's pre-training head), 0 for none.
        representation_activation: of that layer, as `activation`; "tanh" in
            the paper.
        unit_features: bool, whether what the classification layer takes is
            scaled to length 1, as CLIP compares images with classes.
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

    image_size: tuple[int, int] = option((224, 224), RECORD)
    channels: int = option(3, TENSORS, check=positive)
    patch_size: tuple[int, int] = option((16, 16), TENSORS)
    hidden_dim: int = option(768, TENSORS, check=positive)
    num_layers: int = option(12, TENSORS, check=positive)
    mlp_dim: int = option(3072, TENSORS, check=positive)
    num_heads: int = option(12, RECORD)
    key_value_heads: tuple[int, ...] | None = option(
        None,
        TENSORS,
        later=True,
        planned=False,
        needs={
            "key_bias": True,
            "talking_heads": False,
            "differential_attention": False,
            "mlp_placement": "after",
            "class_attention_layers": 0,
        },
    )
    pooling: str = option("token", RECORD, choices=POOLINGS, weights=("pool/",))
    class_token: bool = option(
        True, TENSORS, weights=("class_token/",), application=True
    )
    class_attention_layers: int = option(
        0,
        TENSORS,
        check=count,
        later=True,
        weights=("class_block_",),
        needs={
            "class_token": True,
            "distillation_token": False,
            "register_tokens": 0,
            "key_bias": True,
            "qk_norm": False,
            "attention_inner_norm": False,
            "differential_attention": False,
        },
        whole_grid=True,
    )
    distillation_token: bool = option(False, TENSORS)
    register_tokens: int = option(0, TENSORS, check=count, application=True)
    position_embedding: str = option(
        "learned", TENSORS, choices=POSITIONS, application=True
    )
    rope: str | None = option(
        None,
        RECORD,
        choices=ROPES,
        later=True,
        weights=("attention/rotary",),
        whole_grid=True,
    )
    rope_temperature: float = option(10_000.0, RECORD, of="rope")
    rope_offset: float = option(0.0, RECORD, of="rope")
    rope_axes: str = option("row_first", RECORD, of="rope", choices=AXES)
    rope_reference_grid: tuple[int, int] | None = option(
        None, RECORD, of="rope", unless={"rope": "centered"}
    )
    rope_pairs: str = option("neighbors", RECORD, of="rope", choices=PAIRS)
    relative_position_bias: bool = option(
        False, TENSORS, later=True, weights=("position_bias/",), whole_grid=True
    )
    relative_position_kind: str = option(
        "table",
        TENSORS,
        of="relative_position_bias",
        choices=(*BIAS_KINDS, "decomposed"),
        weights=("position_bias/rows",),
    )
    relative_position_dim: int = option(
        128, TENSORS, of="relative_position_bias", check=positive
    )
    relative_positions_shared: bool = option(
        False, TENSORS, of="relative_position_bias"
    )
    window_size: int = option(
        0,
        RECORD,
        check=count,
        later=True,
        planned=False,
        needs={"class_token": False, "register_tokens": 0, "rope": None},
        whole_grid=True,
    )
    global_attention_blocks: tuple[int, ...] = option((), RECORD)
    num_classes: int = option(
        1000, TENSORS, check=count, weights=("predictions/",)
    )
    classifier_activation: str | Callable | None = option(
        None, RECORD, idle=OF_THE_HEAD
    )
    representation_dim: int = option(
        0, TENSORS, check=count, weights=("pre_logits/",), application=True
    )
    representation_activation: str = option(
        "tanh", RECORD, of="representation_dim", planned=False
    )
    unit_features: bool = option(False, RECORD, planned=False)
    head_bias: float | None = option(
        0.0, TRAINING, idle=OF_THE_HEAD, application=True
    )
    dropout_rate: float = option(0.0, TRAINING, check=rate, application=True)
    attention_dropout_rate: float = option(
        0.0, TRAINING, check=rate, application=True
    )
    stochastic_depth_rate: float = option(
        0.0, TRAINING, check=rate, application=True
    )
    layer_norm_epsilon: float = option(
        1e-6, RECORD, check=check_fraction, application=True
    )
    layer_scale_init: float | None = option(
        None, RECORD, weights=("_scale/gamma",), application=True
    )
    mlp_layer_scale: bool = option(
        True,
        TENSORS,
        later=True,
        needs={"mlp_placement": "after", "class_attention_layers": 0},
    )
    patch_bias: bool = option(True, TENSORS, application=True)
    qkv_bias: bool = option(True, TENSORS, application=True)
    key_bias: bool = option(
        True, TENSORS, later=True, unless={"qkv_bias": False}
    )
    projection_bias: bool = option(True, TENSORS, later=True)
    qk_norm: bool = option(
        False,
        TENSORS,
        later=True,
        weights=("attention/query_norm", "attention/key_norm"),
    )
    attention_inner_norm: bool = option(
        False, TENSORS, later=True, weights=("attention/inner_norm",)
    )
    talking_heads: bool = option(
        False, TENSORS, later=True, weights=("attention/logits_projection",)
    )
    differential_attention: bool = option(
        False,
        TENSORS,
        later=True,
        weights=("attention/lambdas", "attention/heads_norm"),
        needs={
            "qk_norm": False,
            "talking_heads": False,
            "rope": None,
            "relative_position_bias": False,
        },
    )
    mlp_placement: str = option(
        "after",
        TENSORS,
        later=True,
        choices=MLP_PLACEMENTS,
        needs={
            "norm_placement": "before",
            "projection_bias": True,
            "class_attention_layers": 0,
        },
    )
    mlp_inner_norm: bool = option(
        False, TENSORS, later=True, weights=("mlp/inner_norm",)
    )
    gated_mlp: bool = option(False, TENSORS, later=True)
    normalization: str = option(
        "layer_norm", TENSORS, later=True, choices=NORMALIZATIONS
    )
    norm_placement: str = option(
        "before", RECORD, later=True, choices=NORM_PLACEMENTS
    )
    final_norm: bool = option(True, TENSORS, weights=("encoder_norm/",))
    patch_norm: bool = option(False, TENSORS)
    neck_dim: int = option(
        0,
        TENSORS,
        check=count,
        later=True,
        planned=False,
        weights=("neck/",),
        needs={
            "class_token": False,
            "register_tokens": 0,
            "norm_after_pooling": False,
        },
        whole_grid=True,
    )
    norm_before_blocks: bool = option(
        False, TENSORS, weights=("first_norm/",), application=True
    )
    norm_after_pooling: bool = option(False, RECORD)
    pool_prefix_tokens: bool = option(False, RECORD, idle=OF_THE_POOLING)
    pool_num_heads: int = option(0, RECORD, check=count, idle=OF_THE_POOLING)
    pool_mlp_dim: int = option(0, TENSORS, check=count, idle=OF_THE_POOLING)
    activation: str = option("gelu_tanh", RECORD, application=True)
    patch_stem: tuple[int, ...] | None = option(
        None, TENSORS, planned=False, weights=("stem_",), whole_grid=True
    )
    patch_stem_dim: int = option(192, TENSORS, of="patch_stem", check=positive)
    resnet_units: tuple[int, ...] | None = option(
        None, TENSORS, planned=False, weights=("root_",), whole_grid=True
    )
    resnet_width: int = option(64, TENSORS, of="resnet_units")
    resnet_standardization: str = option(
        "deviation", RECORD, of="resnet_units", choices=STANDARDIZATIONS
    )
    resnet_standardization_epsilon: float = option(
        1e-5, RECORD, of="resnet_units", check=check_fraction
    )
    resnet_group_norm_epsilon: float = option(
        1e-6, RECORD, of="resnet_units", check=check_fraction
    )
    include_preprocessing: bool = option(False, RECORD)
    pixel_mean: tuple[float, ...] | None = option(
        None, RECORD, idle=OF_THE_PIXELS, application=True
    )
    pixel_std: tuple[float, ...] | None = option(
        None, RECORD, idle=OF_THE_PIXELS, application=True
    )
    flash_attention: bool | None = option(None, TRAINING, application=True)
    rematerialize: bool = option(False, TRAINING, application=True)

    def __post_init__(self):
        check_types(self, "image_size", "patch_size")
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
        check_options(self)
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
        if self.rope and self.hidden_dim // self.num_heads % 4:
            raise ValueError(
                "rope rotates pairs of features on two axes, so that a head "
                "has a multiple of 4. Received: "
                f"rope={self.rope!r}, hidden_dim={self.hidden_dim}, num_heads="
                f"{self.num_heads}. Change one of the three."
            )
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
        if self.class_attention_layers and self.pooling in ATTENTION_POOLINGS:
            raise ValueError(
                "The class token reads all patches itself. Received: "
                f"class_attention_layers={self.class_attention_layers} with "
                f'pooling={self.pooling!r}. Use pooling="token".'
            )
        self._check_relative_positions()
        if not self.mlp_layer_scale and self.layer_scale_init is None:
            raise ValueError(
                "mlp_layer_scale=False leaves out one of two LayerScales. "
                "Received: layer_scale_init=None. Set layer_scale_init, or "
                "mlp_layer_scale=True."
            )

    def _check_relative_positions(self):
        if not self.relative_position_bias:
            return
        if self.window_size:
            needed = {"relative_position_kind": "decomposed"}
            check_needed(self, "window_size", needed)
        if self.relative_position_kind == "table":
            needed = {"register_tokens": 0, "distillation_token": False}
            check_needed(self, "relative_position_bias", needed)
        if self.relative_position_kind == "decomposed":
            check_needed(
                self,
                "relative_position_kind",
                {
                    "class_token": False,
                    "register_tokens": 0,
                    "relative_positions_shared": False,
                },
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
        wrong = any(x < 1 for x in self.patch_stem or ()) or any(
            x % stride for x in self.patch_size
        )
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


@dataclasses.dataclass(frozen=True)
class MixerConfig:
    """Everything that defines an MLP-Mixer; the defaults are B/16.

    With other options ResMLP (arXiv:2105.03404), gMLP (arXiv:2105.08050) and
    gMixer of timm.

    Args:
        image_size: int or (height, width) in pixels. The number of patches
            is built into the weights.
        channels: int, channels of an image.
        patch_size: int or (height, width) in pixels.
        hidden_dim: int, D, size of a token.
        num_layers: int, number of blocks.
        tokens_mlp_dim: int, hidden size of the MLPs across tokens; 0 with
            another mixing than "mlp".
        channels_mlp_dim: int, hidden size of the MLPs across channels; with
            mixing="spatial_gating" half of it is the gate.
        mixing: how tokens are mixed: by an "mlp"; by a "linear" layer, as in
            ResMLP; or by "spatial_gating" inside the MLP across channels, as
            in gMLP.
        gated_mlp: bool, whether the MLPs are `GatedMLP`s, as in gMixer.
        normalization: "layer_norm", or "affine" for `Affine` in its place, as
            in ResMLP.
        layer_scale_init: float that the factors of `LayerScale` on the
            residual branches start at; None for no `LayerScale`.
        pooling: "mean" or "max" of the tokens, or "none" for all tokens.
        num_classes: int, 0 for features instead of a classification layer.
        classifier_activation: activation of the classification layer, None
            for logits.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes.
        stochastic_depth_rate: float, probability that a sample skips a
            residual branch of the last block in training; it grows linearly
            from 0 in the first block.
        layer_norm_epsilon: float, added to the variance.
        activation: of the MLPs: "gelu_tanh" as in the original code, "gelu"
            for the exact form as in timm, or any activation of Keras by name.
        include_preprocessing: bool; True takes images in [0, 255].

    Raises:
        ValueError: for values that do not fit together, with what would.
    """

    image_size: tuple[int, int] = option((224, 224), RECORD)
    channels: int = option(3, TENSORS, check=positive)
    patch_size: tuple[int, int] = option((16, 16), TENSORS)
    hidden_dim: int = option(768, TENSORS, check=positive)
    num_layers: int = option(12, TENSORS, check=positive)
    tokens_mlp_dim: int = option(384, TENSORS, idle="0 says that no MLP mixes")
    channels_mlp_dim: int = option(3072, TENSORS, check=positive)
    mixing: str = option(
        "mlp",
        TENSORS,
        choices=MIXINGS,
        weights=("/gate/", "/token_mixing/"),
        application=True,
    )
    gated_mlp: bool = option(False, TENSORS)
    normalization: str = option(
        "layer_norm", TENSORS, choices=MIXER_NORMALIZATIONS
    )
    layer_scale_init: float | None = option(
        None, RECORD, weights=("_scale/gamma",), application=True
    )
    pooling: str = option("mean", RECORD, choices=("mean", "max", "none"))
    num_classes: int = option(
        1000, TENSORS, check=count, weights=("predictions/",)
    )
    classifier_activation: str | Callable | None = option(
        None, RECORD, idle=OF_THE_HEAD
    )
    head_bias: float = option(0.0, TRAINING, idle=OF_THE_HEAD, application=True)
    stochastic_depth_rate: float = option(
        0.0, TRAINING, check=rate, application=True
    )
    layer_norm_epsilon: float = option(
        1e-6,
        RECORD,
        check=check_fraction,
        unless={"normalization": "affine"},
        application=True,
    )
    activation: str = option("gelu_tanh", RECORD, application=True)
    include_preprocessing: bool = option(False, RECORD)

    def __post_init__(self):
        check_types(self, "image_size", "patch_size")
        for name in ("image_size", "patch_size"):
            size = check_size(name, getattr(self, name))
            object.__setattr__(self, name, size)
        check_options(self)
        self._check_mixing()
        check_divisible(self.image_size, self.patch_size)

    def _check_mixing(self):
        if (self.mixing == "mlp") != (self.tokens_mlp_dim > 0):
            raise ValueError(
                "tokens_mlp_dim is the size of the MLPs across tokens that "
                'mixing="mlp" has, and 0 with another. Received: '
                f"mixing={self.mixing!r} and "
                f"tokens_mlp_dim={self.tokens_mlp_dim!r}."
            )
        if self.mixing != "spatial_gating":
            return
        others = {
            "gated_mlp": self.gated_mlp,
            "layer_scale_init": self.layer_scale_init is not None,
            "normalization": self.normalization != "layer_norm",
            "channels_mlp_dim": self.channels_mlp_dim % 2,
        }
        wrong = [x for x, is_wrong in others.items() if is_wrong]
        if wrong:
            raise ValueError(
                'mixing="spatial_gating" goes with LayerNorm, no gates of '
                "another kind, no LayerScale and an even channels_mlp_dim. "
                f"Received: {wrong[0]}={getattr(self, wrong[0])!r}."
            )

    @property
    def grid(self) -> tuple:
        """(rows, columns) of the patches."""
        height, width = self.image_size
        return height // self.patch_size[0], width // self.patch_size[1]


@dataclasses.dataclass(frozen=True)
class BiTConfig:
    """Everything that defines a BiT ResNet; the defaults are R50x1.

    Its relatives in timm are ResNets of the same units in the same order,
    without weight standardisation and with other normalisations.

    Args:
        image_size: int or (height, width) in pixels, or (None, None) for
            any size.
        channels: int, channels of an image.
        units: tuple of int, units of each stage.
        width: int, channels of the root block: 64 times the width factor.
        unit: "bottleneck", or "basic" for two convolutions of 3x3.
        stem: "single" for one convolution of 7x7, "deep" for three of 3x3,
            or "tiered" for three that grow ("Bag of Tricks",
            arXiv:1812.01187).
        root_padding: what surrounds the map that the root's max pool reads:
            "zeros" as in BiT, "lowest" for nothing that could be the maximum.
        downsampling: how the shortcut of a stage gets its size: by the
            stride of its "convolution", or by the "average" of 2x2 before.
        normalization: "group_norm"; "batch_norm", whose statistics training
            updates; "evolved", see `EvolvedNormalization`.
        activation: after each normalisation, by Keras's name; "evolved" has
            its own.
        pooling: "mean" or "max" over the image, or "none" for the feature
            map.
        num_classes: int, 0 for features instead of a classification layer.
        classifier_activation: activation of the classification layer, None
            for logits.
        head_bias: float that the bias of the classification layer starts at;
            -10 or -6.9 for sigmoid losses with many classes.
        standardization: None for kernels as they are, or where the epsilon
            of weight standardisation goes, see `StandardizedConv2D`.
        standardization_epsilon: float, that epsilon.
        group_norm_epsilon: float, added to the variance of a group or batch.
        include_preprocessing: bool; True takes images in [0, 255].

    Raises:
        ValueError: for values that do not fit together.
    """

    image_size: tuple[int, int] | tuple[None, None] = option((224, 224), RECORD)
    channels: int = option(3, TENSORS, check=positive)
    units: tuple[int, ...] = option((3, 4, 6, 3), TENSORS, check=counts)
    width: int = option(64, TENSORS)
    unit: str = option("bottleneck", TENSORS, choices=("bottleneck", "basic"))
    stem: str = option(
        "single",
        TENSORS,
        choices=(*STEMS,),
        weights=("root_conv1/", "root_norm1/"),
    )
    root_padding: str = option("zeros", RECORD, choices=("zeros", "lowest"))
    downsampling: str = option(
        "convolution", RECORD, choices=("convolution", "average")
    )
    normalization: str = option(
        "group_norm",
        TENSORS,
        choices=("group_norm", "batch_norm", "evolved"),
        weights=("/moving_", "norm1/gate"),
    )
    activation: str = option("relu", RECORD, application=True)
    pooling: str = option("mean", RECORD, choices=("mean", "max", "none"))
    num_classes: int = option(
        1000, TENSORS, check=count, weights=("predictions/",)
    )
    classifier_activation: str | Callable | None = option(
        None, RECORD, idle=OF_THE_HEAD
    )
    head_bias: float = option(0.0, TRAINING, idle=OF_THE_HEAD, application=True)
    standardization: str | None = option(
        "variance", RECORD, choices=(None, *STANDARDIZATIONS)
    )
    standardization_epsilon: float = option(
        1e-10, RECORD, check=check_fraction, unless={"standardization": None}
    )
    group_norm_epsilon: float = option(1e-5, RECORD, check=check_fraction)
    include_preprocessing: bool = option(False, RECORD)

    def __post_init__(self):
        check_types(self, "image_size")
        size = tuple(self.image_size) if self._any_size else self.image_size
        if not self._any_size:
            size = check_size("image_size", size)
        object.__setattr__(self, "image_size", size)
        object.__setattr__(self, "units", tuple(self.units))
        check_options(self)
        self._check_width()

    def _check_width(self):
        if self.normalization != "batch_norm":
            check_width(self.width, 8 // math.gcd(*STEMS[self.stem]))
        elif self.width < 8 or self.width % 8:
            raise ValueError(
                "The width of a ResNet must be a multiple of 8. Received: "
                f"width={self.width}. The published models have 64."
            )

    @property
    def _any_size(self):
        return isinstance(self.image_size, (tuple, list)) and (
            None in self.image_size
        )


def stem_grid(image_size: tuple, units: tuple) -> tuple:
    """Rows and columns of the feature map that `hybrid_stem` makes.

    The root divides the image size by 4 and each stage after the first by 2,
    rounded up.
    """
    stride = 4 * 2 ** max(len(units) - 1, 0)
    return tuple(-(-size // stride) for size in image_size)


def check_width(width: int, parts: int = 1) -> None:
    """Raises a ValueError unless the groups of the norms divide the channels.

    Args:
        width: int, of a ResNet.
        parts: int; the convolutions of its stem have multiples of width / parts
            channels.
    """
    unit = GROUPS * parts
    if width < unit or width % unit:
        raise ValueError(
            f"The width of a ResNet must be a multiple of {unit}, so that the "
            f"{GROUPS} groups of its normalisation divide the channels. "
            f"Received: {width}. The published models have 64 times the width "
            "factor."
        )


# Fields of what stands around a model, of which its weights say nothing.
AROUND = ("classifier_activation", "include_preprocessing")
CONFIGS = {"vit": ViTConfig, "mixer": MixerConfig, "bit": BiTConfig}
# By family, where a file shows each field.
PLACES = {
    family: {name: row.shown for name, row in options_of(config).items()}
    for family, config in CONFIGS.items()
}
# Parts of the paths of weights, and the option that these are there for.
OPTIONS_OF_WEIGHTS = {
    part: name
    for config in CONFIGS.values()
    for name, row in options_of(config).items()
    for part in row.weights
}
