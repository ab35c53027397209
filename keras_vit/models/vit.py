"""The Vision Transformer, of images and of sequences of patches.

Axes: B batch, N patches of the longest sequence, P prefix tokens, T = P + N
tokens, R and C rows and columns of the table of positions, D hidden dimension.
"""

import functools
import math

import keras
from keras import ops

from keras_vit.interpolation import RESAMPLINGS, SQUARE, axis_weights
from keras_vit.io.checks import check_choice
from keras_vit.layers import (
    AddPositionEmbedding,
    AttentionPooling,
    ClassAttentionBlock,
    ClassToken,
    DecomposedPositionBias,
    GatedMLP,
    Neck,
    ParallelBlock,
    PatchEmbed,
    RelativePositionBias,
    RotaryEmbedding,
    SelfAttention,
    TokenPooling,
    TokenRMSNormalization,
    TransformerBlock,
    WindowAttention,
)
from keras_vit.layers.attention import lambda_of_block
from keras_vit.layers.common import resolved_policy
from keras_vit.layers.transformer_block import GELUS, MLP
from keras_vit.models.configured_model import (
    ConfiguredModel,
    Fields,
    block_fields,
    head,
    keeping,
    preprocessing,
)
from keras_vit.models.options import ATTENTION_POOLINGS, ViTConfig, whole_grid
from keras_vit.models.resnet import NORMALIZATIONS, hybrid_stem
from keras_vit.runtime.platforms import split_batch

__all__ = [
    "NaFlexTransformer",
    "VisionTransformer",
]


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(ConfiguredModel):
    """Vision Transformer as a functional Keras model.

    Equations 1 to 4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929).
    Its blocks are the layers `block_0`, `block_1`, ...; the output of each is
    `model.get_layer("block_0").output`. Those of `class_attention_layers` are
    `class_block_0`, ...

    Where the head reads the class token alone, the last block is computed of
    that token alone, which reads all others. The output is the same, for a
    quarter of the block's work; `model.summary()` shows one token.
    `get_layer(...).output` has all tokens of every block.

    A program of JAX that predicts on TPUs computes a large batch in parts, one
    after the other, which stay in the memory on the chip.

    Args:
        config: a `ViTConfig`, which defines the whole model.
        name: str, name of the model.
        dtype: dtype policy of all layers, for example "mixed_bfloat16".
        trainable: bool, whether training changes the weights.

    Input shape:
        (B, height, width, channels), scaled to [-1, 1], or to [0, 255] with
        `include_preprocessing`.

    Output shape:
        (B, num_classes); without classes (B, D), or (B, representation_dim);
        with pooling "none" (B, T, D), or (B, T, num_classes).

    Example:

    >>> config = ViTConfig(image_size=(384, 256), num_classes=10)
    >>> model = VisionTransformer(config)
    >>> model.output_shape
    (None, 10)
    >>> block = model.get_layer("block_5").output
    >>> features = keras.Model(model.input, block)
    """

    config_class = ViTConfig
    config: ViTConfig

    def call(self, inputs, training=None, mask=None):
        options = {"training": training, "mask": mask}
        forward = functools.partial(super().call, **options)
        if training:
            return forward(inputs)
        size = attention_bytes(self.config, self.compute_dtype)
        return split_batch(forward, inputs, size, self)

    @staticmethod
    def outputs_of(config, images, dtype=None):
        x = tokens(config, images, dtype)  # (B, T, D)
        x = encoder(config, x, dtype)  # (B, T, D)
        return classified(config, x, dtype)


def num_tokens(config: ViTConfig | Fields) -> int:
    """T, patches and the tokens in front of them, in the blocks."""
    return math.prod(config.grid) + config.num_prefix_tokens


def attention_bytes(config: ViTConfig, dtype: str) -> int:
    """Bytes of a block's weights of attention for an image, on a TPU.

    There an array fills tiles of 8 rows and 128 columns.
    """
    count = num_tokens(config)
    rows, columns = (-(-count // tile) * tile for tile in (8, 128))
    size = 2 if dtype.endswith("float16") else 4
    return config.num_heads * rows * columns * size


def tokens(config: Fields, images, dtype=None):
    """From images to tokens (B, T, D) without position embedding."""
    x = preprocessing(config, images, dtype)
    if config.resnet_units is not None:
        x = hybrid_stem(config, x, dtype)
    x = PatchEmbed.from_fields(
        config,
        patch_size=config.projected_size,
        dtype=dtype,
        name="patch_embed",
    )(patch_stem(config, x, dtype))
    if config.patch_norm:
        x = encoder_norm(config, dtype, "patch_norm")(x)
    return prefixed(config, x, dtype) if config.num_prefix_tokens else x


def patch_stem(config: Fields, x, dtype=None):
    """Convolutions before the projection of the patches, where it has some."""
    for i, stride in enumerate(config.patch_stem or (), 1):
        x = keras.layers.Conv2D(
            config.patch_stem_dim,
            stride,
            strides=stride,
            use_bias=False,
            data_format="channels_last",
            dtype=dtype,
            name=f"stem_conv{i}",
        )(x)
        x = NORMALIZATIONS["batch_norm"](
            epsilon=1e-5, dtype=dtype, name=f"stem_norm{i}"
        )(x)
        x = keras.layers.Activation(
            GELUS.get(config.activation, config.activation),
            dtype=dtype,
            name=f"stem_activation{i}",
        )(x)
    return x


def prefixed(config: Fields, x, dtype=None):
    """Puts class token, distillation token and registers in front."""
    count = config.num_pooled_prefix_tokens
    return ClassToken(count, dtype=dtype, name="class_token")(x)


def encoder(config: Fields, x, dtype=None):
    """From tokens (B, T, D) to encoded tokens (equations 1 to 3).

    They are layer-normalised unless that comes after pooling, and have the
    channels of the neck where there is one.
    """
    x = positioned(config, x, dtype)
    x = keras.layers.Dropout(config.dropout_rate, dtype=dtype, name="dropout")(
        x
    )
    x = first_norm(config, x, dtype)
    shared = shared_positions(config, dtype)
    *others, last = (
        block(config, i, dtype, shared) for i in range(config.num_layers)
    )
    for layer in others:
        x = layer(x)
    norm = final_norm(config, dtype)
    if queries := last_queries(config):
        norm(last(x))  # What `layer.output` is, and no part of the model.
        return norm(last(x, queries=queries))  # (B, Q, D)
    x = last(x)
    if config.class_attention_layers:
        x = class_stage(config, x, dtype)
    x = norm(x)
    if not config.neck_dim:
        return x
    return Neck(config.neck_dim, config.grid, dtype=dtype, name="neck")(x)


def last_queries(config: ViTConfig | Fields) -> int | None:
    """How many tokens of the last block the head reads, or None for all.

    The block is computed of these alone: the others answer to nobody. Not
    where its attention has a part that is of all tokens.
    """
    whole = (
        config.class_attention_layers
        or config.neck_dim
        or config.relative_position_bias
        or config.flash_attention
    )
    reads_patches = config.pooling not in ("token", "prefix", "prefix_mean")
    if whole or reads_patches:
        return None
    first = config.pooling == "token"
    return 1 if first else config.num_pooled_prefix_tokens


def class_stage(config: Fields, x, dtype=None):
    """From patches to a class token that has read them, and the patches."""
    x = prefixed(config, x, dtype)
    fields = config.but(stochastic_depth_rate=0.0)
    for i in range(config.class_attention_layers):
        mlp = mlp_of(fields, dtype)
        x = ClassAttentionBlock.from_fields(
            fields, mlp=mlp, dtype=dtype, name=f"class_block_{i}"
        )(x)
    return x


def positioned(config: Fields, x, dtype=None):
    """Adds the position embedding, where the config has one."""
    return AddPositionEmbedding(
        config.grid,
        num_prefix_tokens=config.num_prefix_tokens,
        kind=config.position_embedding,
        dtype=dtype,
        name="position_embedding",
    )(x)


def final_norm(config: Fields, dtype=None):
    """The normalisation after the last block, if it is not after pooling."""
    if not config.final_norm or config.norm_after_pooling:
        return keras.activations.linear  # Returns its input.
    return encoder_norm(config, dtype)


def first_norm(config: Fields, x, dtype=None):
    """Normalises the tokens before the first block, where the config says."""
    if not config.norm_before_blocks:
        return x
    return encoder_norm(config, dtype, "first_norm")(x)


def encoder_norm(
    config: Fields, dtype=None, name: str = "encoder_norm"
) -> keras.layers.Layer:
    """The normalisation after the last block (equation 4)."""
    make = keras.layers.LayerNormalization
    if config.normalization == "rms_norm":
        make = TokenRMSNormalization
    return make(epsilon=config.layer_norm_epsilon, dtype=dtype, name=name)


def block(config: Fields, i: int, dtype=None, shared=None) -> TransformerBlock:
    """Return block i of the encoder, counted from 0.

    Args:
        config: the fields of a `ViTConfig`.
        i: number of the block.
        dtype: dtype policy of its layers.
        shared: the relative positions of all blocks, where they share them.
    """
    own: dict = {}
    if config.differential_attention:
        own["differential_lambda"] = lambda_of_block(i)
    if config.key_value_heads is not None:
        own["key_value_heads"] = config.key_value_heads[i]
    if i in config.global_attention_blocks:
        own["window_size"] = 0
    fields = block_fields(config, i).but(**own)
    make = BLOCKS[config.mlp_placement]
    return make.from_fields(
        fields,
        attention=functools.partial(attention_of, fields, dtype, shared),
        mlp=functools.partial(mlp_of, fields, dtype),
        dtype=dtype,
        name=f"block_{i}",
    )


BLOCKS = {"after": TransformerBlock, "beside": ParallelBlock}


def attention_of(fields: Fields, dtype=None, shared=None) -> SelfAttention:
    """Return the attention of a block, to all tokens or within windows."""
    window = fields.window_size
    make = WindowAttention if window else SelfAttention
    return make.from_fields(
        fields.but(grid=fields.grid),
        rotary=rotary(fields, dtype),
        position_bias=shared
        or position_bias(fields, dtype, (window, window) if window else None),
        dtype=dtype,
        name="attention",
    )


def mlp_of(fields: Fields, dtype=None) -> MLP:
    """Return the MLP of a block."""
    make = GatedMLP if fields.gated_mlp else MLP
    bias = fields.mlp_placement == "after"
    return make.from_fields(fields, output_bias=bias, dtype=dtype, name="mlp")


def rotary(config: Fields, dtype=None) -> RotaryEmbedding | None:
    """The rotary positions of a block, where the config has them."""
    if config.rope is None:
        return None
    return RotaryEmbedding.from_fields(
        config,
        grid=config.grid,
        num_prefix_tokens=config.num_prefix_tokens,
        dtype=dtype,
        name="rotary",
    )


def position_bias(
    config: Fields, dtype=None, grid=None
) -> RelativePositionBias | DecomposedPositionBias | None:
    """The relative positions of a block, where the config has them.

    In the grid that its attention is within, which is all patches with None.
    """
    if not config.relative_position_bias:
        return None
    if config.relative_position_kind == "decomposed":
        return DecomposedPositionBias(
            grid or config.grid,
            config.hidden_dim // config.num_heads,
            dtype=dtype,
            name="position_bias",
        )
    return RelativePositionBias.from_fields(
        config,
        grid=config.grid,
        num_prefix_tokens=config.num_prefix_tokens,
        dtype=dtype,
        name="position_bias",
    )


def shared_positions(config: Fields, dtype=None) -> RelativePositionBias | None:
    """The relative positions of all blocks, where they share them.

    Built here, so that its weights are those of the model and of no block.
    """
    if not config.relative_positions_shared:
        return None
    layer = position_bias(config, dtype)
    if layer is not None:
        count = num_tokens(config)
        layer.build((None, config.num_heads, count, count))
    return layer


def pooled(config: Fields, x, dtype=None):
    """From encoded tokens to what the head sees, (B, D) if it is pooled."""
    if config.pooling == "none":
        return x
    prefix = config.num_pooled_prefix_tokens
    left_out = 0 if config.pool_prefix_tokens else prefix
    if config.pooling in ATTENTION_POOLINGS:
        return AttentionPooling.from_fields(
            config,
            **attention_pooling(config),
            num_heads=config.pool_num_heads or config.num_heads,
            num_prefix_tokens=left_out,
            dtype=dtype,
            name="pool",
        )(x)
    if config.pooling.startswith("prefix"):
        left_out = prefix
    return TokenPooling(
        config.pooling,
        num_prefix_tokens=left_out,
        dtype=dtype,
        name="pool",
    )(x)


def attention_pooling(config: Fields) -> dict:
    """What the two kinds of attention pooling have otherwise."""
    if config.pooling == "map":
        return {"mlp_dim": config.pool_mlp_dim or config.mlp_dim}
    return {
        "mlp_dim": None,
        "project_query": False,
        "key_value_bias": config.qkv_bias,
    }


def classified(config: Fields, x, dtype=None):
    """From encoded tokens to the output of the model (equation 4)."""
    x = pooled(config, x, dtype)
    if config.norm_after_pooling:
        x = encoder_norm(config, dtype)(x)
    if config.representation_dim:
        x = keras.layers.Dense(
            config.representation_dim,
            activation=GELUS.get(
                config.representation_activation,
                config.representation_activation,
            ),
            kernel_initializer="lecun_normal",
            bias_initializer="zeros",
            dtype=resolved_policy(
                keras.dtype_policies.get(dtype), "pre_logits"
            ),
            name="pre_logits",
        )(x)
    return head(config, x, dtype)


@keras.saving.register_keras_serializable("keras_vit")
class NaFlexTransformer(keras.Model):
    """Runs a Vision Transformer on images of any aspect ratio and size.

    Each image is a sequence of its patches with their rows and columns, padded
    to the longest of the batch, as in NaViT (arXiv:2307.06304) and the NaFlex
    models of SigLIP 2 (arXiv:2502.14786, section 2.4.2). The positions of the
    model are resampled to the grid of each image; attention and pooling leave
    out the padding. The weights are those of the given model and not a copy:
    training one trains the other.

    Args:
        encoder: a built `VisionTransformer` with a position per patch, no
            rotary or relative positions and no ResNet.
        resampling: how positions are resampled: "linear_aligned", "linear",
            "linear_antialiased", "bicubic" or "bicubic_antialiased", each
            with "_square" for that of a square grid as large as the longer
            side. None takes what the loaded file says
            (`encoder.load_report`), or "bicubic_antialiased".
        name: str, name of the model.

    Input shape:
        A dict, as `keras_vit.patch_sequences` makes it:
        "patches" (B, N, patch height * patch width * channels), scaled as the
        model wants its images, row by row with the channels last;
        "coordinates" (B, N, 2), row and column of each patch, from 0;
        "valid" (B, N), bool or 0 and 1, 0 for padding.

    Output shape:
        That of the model; with pooling "none" (B, T, ...), the tokens of
        padding among them.

    Raises:
        ValueError: for a model with other options, or whose positions were
            resampled to another grid on loading, and for an unknown
            resampling.

    Example:

    >>> encoder = keras_vit.ViT_B16(weights="augreg_imagenet21k_imagenet2012")
    >>> model = keras_vit.models.NaFlexTransformer(encoder)
    >>> photos = [np.zeros((480, 640, 3), "uint8"), np.zeros((90, 300, 3))]
    >>> inputs = keras_vit.patch_sequences(photos, 16, max_patches=196)
    >>> model(inputs).shape
    (2, 1000)
    """

    def __init__(self, encoder, *, resampling=None, name=None, **kwargs):
        report = getattr(encoder, "load_report", None)
        check_encoder(encoder, report)
        super().__init__(name=name, dtype=encoder.dtype_policy, **kwargs)
        told = getattr(report, "resampling", None) or "bicubic_antialiased"
        self.resampling = resampling or told
        check_choice(
            "resampling", self.resampling.removesuffix(SQUARE), RESAMPLINGS
        )
        self.encoder = encoder
        self.config = encoder.config

    fit, evaluate, predict = map(keeping, ("fit", "evaluate", "predict"))

    def build(self, input_shape):
        self.built = True  # The encoder has all weights.

    def call(self, inputs, training=None):
        config, layer = self.config, self.encoder.get_layer
        valid = ops.cast(inputs["valid"], "bool")  # (B, N)
        x = self._embedded(inputs["patches"])  # (B, N, D)
        if config.num_prefix_tokens:
            x = layer("class_token")(x)  # (B, T, D)
        if config.position_embedding != "none":
            positions = self._positions(inputs["coordinates"], valid)
            x = x + ops.cast(positions, x.dtype)
        valid = ops.pad(
            valid, [(0, 0), (config.num_prefix_tokens, 0)], constant_values=True
        )  # (B, T)
        x = layer("dropout")(x, training=training)
        if config.norm_before_blocks:
            x = layer("first_norm")(x)
        for i in range(config.num_layers):
            x = layer(f"block_{i}")(x, valid, training=training)
        return self._classified(x, valid)

    def get_config(self):
        encoder = keras.saving.serialize_keras_object(self.encoder)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "encoder": encoder,
            "resampling": self.resampling,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(**{**config, "encoder": encoder})

    def compute_output_shape(self, input_shape):
        batch, tokens, _ = input_shape["patches"]
        output = self.encoder.output_shape
        if self.config.pooling != "none":
            return (batch, *output[1:])
        if tokens is not None:
            tokens += self.config.num_prefix_tokens
        return (batch, tokens, *output[2:])

    def _embedded(self, patches):
        """The tokens of patches without positions."""
        config, layer = self.config, self.encoder.get_layer
        x = ops.cast(patches, self.compute_dtype)  # (B, N, h * w * channels)
        pixels = (*ops.shape(x)[:2], *config.patch_size, config.channels)
        if config.include_preprocessing:
            x = layer("rescaling")(ops.reshape(x, pixels))
            x = ops.reshape(x, (*pixels[:2], -1))
        projection = layer("patch_embed").projection
        kernel = ops.reshape(projection.kernel, (-1, config.hidden_dim))
        x = ops.matmul(x, ops.cast(kernel, x.dtype))  # (B, N, D)
        if config.patch_bias:
            x = x + ops.cast(projection.bias, x.dtype)
        return layer("patch_norm")(x) if config.patch_norm else x

    def _positions(self, coordinates, valid):
        """Those of all tokens, (B, T, D)."""
        table = self.encoder.get_layer("position_embedding").embedding
        table = ops.cast(table, "float32")  # (1, P + R * C, D)
        places = ops.cast(coordinates, "float32")  # (B, N, 2)
        places = ops.where(valid[..., None], places, 0.0)
        sides = ops.max(places, axis=1, keepdims=True) + 1  # (B, 1, 2)
        method = self.resampling
        if method.endswith(SQUARE):
            method = method.removesuffix(SQUARE)
            sides = ops.max(sides, axis=-1, keepdims=True) + 0 * sides
        rows, columns = (
            axis_weights(places[..., i], sides[..., i], old, method, ops)
            for i, old in enumerate(self.config.grid)
        )  # (B, N, R), (B, N, C)
        shares = rows[..., :, None] * columns[..., None, :]  # (B, N, R, C)
        length = self.config.grid[0] * self.config.grid[1]
        shares = ops.reshape(shares, (*ops.shape(places)[:2], length))
        patches = ops.matmul(shares, table[0, -length:])  # (B, N, D)
        prefix = table[:, : table.shape[1] - length]  # (1, P, D)
        prefix = ops.repeat(prefix, ops.shape(patches)[0], axis=0)
        return ops.concatenate([prefix, patches], axis=1)

    def _classified(self, x, valid):
        """What the model computes of encoded tokens."""
        config, layer = self.config, self.encoder.get_layer
        normed = config.final_norm and not config.norm_after_pooling
        x = layer("encoder_norm")(x) if normed else x
        x = x if config.pooling == "none" else layer("pool")(x, valid)
        x = layer("encoder_norm")(x) if config.norm_after_pooling else x
        x = layer("pre_logits")(x) if config.representation_dim else x
        x = layer("unit_features")(x) if config.unit_features else x
        return layer("predictions")(x) if config.num_classes else x


def check_encoder(encoder, report) -> None:
    """Raises a ValueError for a model that is of one grid of patches alone.

    Args:
        encoder: the model.
        report: its `load_report`, or None.
    """
    if not isinstance(encoder, VisionTransformer):
        raise ValueError(
            "NaFlexTransformer runs a VisionTransformer. Received: "
            f"{type(encoder).__name__}."
        )
    for name in whole_grid(encoder.config):
        raise ValueError(
            f"NaFlexTransformer needs a model with {name}="
            f"{getattr(type(encoder.config), name)!r}. Received: {name}="
            f"{getattr(encoder.config, name)!r}."
        )
    if report and "position_embedding/embedding" in report.resampled:
        sides = zip(report.grid, encoder.config.patch_size, strict=True)
        shape = (*(x * y for x, y in sides), encoder.config.channels)
        raise ValueError(
            "The positions were resampled on loading, and would be a second "
            f"time. Received: a model of {encoder.config.image_size} pixels. "
            f"Load {report.source!r} with input_shape={shape}."
        )
