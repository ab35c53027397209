"""Masked autoencoders, "Masked Autoencoders Are Scalable Vision Learners".

arXiv:2111.06377. The encoder reads the visible patches alone; a small decoder
reads their tokens and a learned one for each hidden patch, and predicts the
pixels of all. The loss is the squared error of the hidden patches,

    sum_i m_i * mean_j (y_ij - t_ij)**2 / sum_i m_i,

with m_i = 1 where patch i is hidden, the predicted y_ij and the target t_ij of
its number j. Only the encoder is kept.

"SimMIM" (arXiv:2111.09886) is the other kind: the encoder reads a learned token
in place of each hidden patch, a linear layer predicts the pixels, and the loss
has |y_ij - t_ij| in place of the square.

Axes: B images, N patches, K of them visible, P prefix tokens, D hidden
dimension, M numbers of a patch.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.dialects import Decoder, read_decoder
from keras_vit.data.array_ops import ops_of
from keras_vit.io.checks import (
    check_at_least,
    check_choice,
    check_positive,
    check_types,
    check_unread,
)
from keras_vit.layers import TransformerBlock
from keras_vit.layers.common import ConfiguredLayer
from keras_vit.models import VisionTransformer
from keras_vit.models.options import whole_grid
from keras_vit.training import build
from keras_vit.training.defaults import adamw_by_batch
from keras_vit.training.tasks.feature_watch import watched
from keras_vit.training.tasks.hidden_patches import (
    HiddenPatches,
    hidden_source,
    patch_pixels,
    streams_of,
    through_hidden,
)

__all__ = [
    "FromVisible",
    "MAE",
    "MAEBatches",
    "MAEConfig",
    "VisibleTokens",
    "autoencoder",
    "decoder_positions",
    "normalized_patches",
    "with_mae_defaults",
]

EPSILON = 1e-6  # Of the variance of a patch.
# Of arXiv:2111.06377, table 8: AdamW's for 256 images of a batch.
RATE, WEIGHT_DECAY = 1.5e-4, 0.05
# As there; arXiv:2111.09886, section 4.1, has Adam's usual one.
BETAS_2 = {"mae": 0.95, "simmim": 0.999}
LEAST_AREAS = {"mae": 0.2, "simmim": 0.67}  # of their crops
SAME = 1e-4  # Positions that differ less from sines and cosines are these.
# `kind` -> what is null in a `MAEConfig`, and the loss of pixels.
DEFAULTS: dict = {
    "mae": {
        **{"mask_ratio": 0.75, "normalize_pixels": True},
        **{"decoder_dim": 512, "decoder_layers": 8},
        **{"decoder_heads": 16, "decoder_mlp_dim": 2048},
    },
    "simmim": {"mask_ratio": 0.6, "normalize_pixels": False},
}
LOSSES = {
    "mae": keras.losses.MeanSquaredError,
    "simmim": keras.losses.MeanAbsoluteError,
}


@dataclasses.dataclass(frozen=True)
class MAEConfig:
    """What is hidden, what is predicted of it, and the decoder.

    What is null is that of the decoder of --model.weights, where the folder
    has one; otherwise of `DEFAULTS`, from arXiv:2111.06377, section 4, and
    arXiv:2111.09886, section 4.1.
    """

    mask_ratio: float | None = None
    """Share of the patches that are hidden; of N patches int(N * (1 -
    mask_ratio)) are visible. If null, 0.75, and 0.6 of simmim."""

    normalize_pixels: bool | None = None
    """Whether each patch to predict has mean 0 and variance 1; if null, true,
    and false of simmim."""

    decoder_dim: int | None = None
    """Width of the decoder, a multiple of 4 and of decoder_heads; if null,
    512."""

    decoder_layers: int | None = None
    """Blocks of the decoder; if null, 8."""

    decoder_heads: int | None = None
    """Heads of each of its blocks; if null, 16."""

    decoder_mlp_dim: int | None = None
    """Hidden size of the MLP of each of its blocks; if null, 2048."""

    mask_patch_size: int | None = None
    """Side in pixels of the squares that are hidden as a whole, a multiple of
    the patches; if null, single patches are. SimMIM's is 32 for patches of 16
    (arXiv:2111.09886, section 4.1)."""

    kind: str = "mae"
    """"mae", whose encoder reads the visible patches alone, or "simmim", which
    reads a learned token for each hidden one, and a linear layer predicts."""

    collapse_steps: int = 200
    """Steps, and two checkpoints at least, of features that are the same for
    all images, after which the run ends; 0 never ends it."""

    def __post_init__(self):
        check_types(self)
        check_choice("kind", self.kind, DEFAULTS)
        decoder = [x for x in DEFAULTS["mae"] if x.startswith("decoder")]
        check_positive(self, *decoder, "mask_patch_size")
        check_at_least(self, 0, "collapse_steps")
        if self.kind == "simmim":
            check_unread(self, "kind='simmim'", *decoder)
        if self.mask_ratio is not None and not 0 < self.mask_ratio < 1:
            raise ValueError(
                "mask_ratio must be between 0 and 1. Received: "
                f"mask_ratio={self.mask_ratio!r}. Leave it out, or set it to "
                "0.75."
            )
        dim, heads = (
            getattr(self, x) or DEFAULTS["mae"][x]
            for x in ("decoder_dim", "decoder_heads")
        )
        if dim % 4 or dim % heads:
            raise ValueError(
                "decoder_dim must be a multiple of 4 and of decoder_heads. "
                f"Received: decoder_dim={dim}, decoder_heads={heads}."
            )

    def filled(self, known: Mapping = types.MappingProxyType({})) -> Any:
        """Return this with what is null filled in.

        Args:
            known: what a decoder was trained with; it goes before `DEFAULTS`.
        """
        usual = {**DEFAULTS[self.kind], **known}
        null = {k: x for k, x in usual.items() if getattr(self, k) is None}
        return dataclasses.replace(self, **null)

    def num_visible(self, size: tuple, grid: tuple) -> int:
        """Return K, the number of patches that the encoder reads.

        Args:
            size: (height, width) of the images.
            grid: rows and columns of their patches.
        """
        squares = self.squares(size, grid)
        count = int(squares.max()) + 1
        visible = int(count * (1 - self.filled().mask_ratio))
        return visible * (squares.size // count)

    def squares(self, size: tuple, grid: tuple) -> np.ndarray:
        """Return the number of the square that each patch is in, int (N,).

        Raises:
            ValueError: when squares cut patches, or images have part of one.
        """
        patch = [
            whole // count for whole, count in zip(size, grid, strict=True)
        ]
        side = self.mask_patch_size
        sides = patch if side is None else [side, side]
        if any(
            x % y or z % x for x, y, z in zip(sides, patch, size, strict=True)
        ):
            raise ValueError(
                "Squares that are hidden are of whole patches, and images of "
                f"whole squares. Received: mae.mask_patch_size={side}, "
                f"patches of {patch[0]}x{patch[1]}, images of {size[0]}x"
                f"{size[1]}. Set it to {2 * patch[0]}, or leave it out."
            )
        rows, columns = (
            np.arange(count) * x // y
            for count, x, y in zip(grid, patch, sides, strict=True)
        )
        return (rows[:, None] * (columns[-1] + 1) + columns).ravel()


@keras.saving.register_keras_serializable("keras_vit")
class VisibleTokens(ConfiguredLayer):
    """Keeps the prefix tokens and the first patches of an order.

    Args:
        num_visible: int, K.

    Input shape:
        Tokens (B, P + N, D), and the order of the patches, int32 (B, N).

    Output shape:
        (B, P + K, D), the patches in that order.

    Example:

    >>> tokens = keras.random.normal((1, 5, 8))
    >>> VisibleTokens(2)(tokens, [[3, 0, 1, 2]]).shape
    (1, 3, 8)
    """

    def __init__(self, num_visible: int, **kwargs):
        super().__init__(**kwargs)
        self.num_visible = num_visible

    def call(self, tokens, order):
        prefix = tokens.shape[1] - order.shape[1]
        places = prefix + ops.expand_dims(order[:, : self.num_visible], -1)
        kept = ops.take_along_axis(tokens, places, axis=1)  # (B, K, D)
        return ops.concatenate([tokens[:, :prefix], kept], axis=1)

    def compute_output_shape(self, tokens_shape, order_shape):
        batch, length, width = tokens_shape
        prefix = length - order_shape[1]
        return batch, prefix + self.num_visible, width


@keras.saving.register_keras_serializable("keras_vit")
class FromVisible(ConfiguredLayer):
    """Puts visible patches back, and a learned token for each hidden one.

    Args:
        num_visible: int, K.

    Input shape:
        Tokens (B, P + K, D), and the order of `VisibleTokens`, int32 (B, N).

    Output shape:
        (B, P + N, D), the patches row by row.

    Example:

    >>> tokens = keras.random.normal((1, 3, 8))
    >>> FromVisible(2)(tokens, [[3, 0, 1, 2]]).shape
    (1, 5, 8)
    """

    def __init__(self, num_visible: int, **kwargs):
        super().__init__(**kwargs)
        self.num_visible = num_visible

    def build(self, tokens_shape, order_shape):
        self.mask = self.add_weight(
            name="mask",
            shape=(1, 1, tokens_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, tokens, order):
        prefix = tokens.shape[1] - self.num_visible
        hidden = order.shape[1] - self.num_visible
        shape = (ops.shape(tokens)[0], hidden, tokens.shape[-1])
        mask = ops.broadcast_to(ops.cast(self.mask, tokens.dtype), shape)
        patches = ops.concatenate([tokens[:, prefix:], mask], axis=1)
        places = ops.expand_dims(ops.argsort(order, axis=1), -1)
        patches = ops.take_along_axis(patches, places, axis=1)  # (B, N, D)
        return ops.concatenate([tokens[:, :prefix], patches], axis=1)

    def compute_output_shape(self, tokens_shape, order_shape):
        batch, length, width = tokens_shape
        return batch, length - self.num_visible + order_shape[1], width


def autoencoder(model: VisionTransformer, config: MAEConfig) -> keras.Model:
    """Build the network that reconstructs hidden patches.

    Args:
        model: a `VisionTransformer`, whose layers the network shares, except
            those that pool its tokens.
        config: a `MAEConfig`.

    Returns:
        A Keras model from a dictionary of "image" (B, H, W, C) and "order",
        int32 (B, N), of which the first K patches are visible, to the pixels
        of all patches, float32 (B, N, M).

    Raises:
        ValueError: for a model whose tokens depend on patches that are hidden.

    Example:
        >>> network = autoencoder(model, MAEConfig())
        >>> network({"image": images, "order": order}).shape
        (64, 196, 768)
    """
    full = config.filled()
    check_model(model.config, config)
    grid, prefix = model.config.grid, model.config.num_prefix_tokens
    count = full.num_visible(model.config.image_size, grid)
    order = keras.Input((math.prod(grid),), dtype="int32", name="order")
    if full.kind == "simmim":
        return pixels_of_all(model, order, count)
    width, policy = full.decoder_dim, model.dtype_policy
    names = [layer.name for layer in model.layers]
    first, last = map(names.index, ("position_embedding", "encoder_norm"))
    x = model.layers[first].output  # (B, P + N, D)
    x = VisibleTokens(count, dtype=policy, name="visible_tokens")(x, order)
    for layer in model.layers[first + 1 : last + 1]:
        x = layer(x)  # (B, P + K, D)
    x = keras.layers.Dense(width, dtype=policy, name="decoder_embed")(x)
    x = FromVisible(count, dtype=policy, name="from_visible")(x, order)
    x = x + ops.cast(decoder_positions(grid, width, prefix), x.dtype)
    for i in range(full.decoder_layers):
        x = TransformerBlock(
            full.decoder_heads,
            full.decoder_mlp_dim,
            layer_norm_epsilon=model.config.layer_norm_epsilon,
            activation="gelu",
            dtype=policy,
            name=f"decoder_block_{i}",
        )(x)
    x = keras.layers.LayerNormalization(
        epsilon=model.config.layer_norm_epsilon,
        dtype=policy,
        name="decoder_norm",
    )(x)
    x = pixels_layer(model)(x[:, prefix:])  # (B, N, M)
    return keras.Model({"image": model.input, "order": order}, x, name="mae")


def pixels_of_all(model, order, count: int) -> keras.Model:
    """Build the network of SimMIM, arguments as in `autoencoder`."""
    source = hidden_source(ops.argsort(order, axis=1) >= count)
    _, tokens = through_hidden(model, model.input, source)  # (B, N, D)
    x = pixels_layer(model)(tokens)  # (B, N, M)
    return keras.Model({"image": model.input, "order": order}, x, name="mae")


def pixels_layer(model) -> keras.layers.Dense:
    """Return the layer from tokens to the pixels of their patches, M."""
    config = model.config
    pixels = math.prod(config.image_size) // math.prod(config.grid)
    return keras.layers.Dense(
        pixels * config.channels, dtype="float32", name="pixels"
    )


def check_model(config, mae: MAEConfig) -> None:
    """Refuse a model of which the patches cannot be read one by one."""
    build.check_plain("mae", config)
    found = whole_grid(config)
    if config.norm_after_pooling or not config.final_norm:
        found.append("norm_after_pooling" * config.norm_after_pooling)
    if found:
        raise ValueError(
            "method='mae' hides patches from the blocks, and normalises their "
            "tokens at the end. Received: a model with "
            f"{', '.join(filter(None, found)) or 'final_norm=False'}. Choose a "
            "model with absolute position embeddings and one projection of "
            "patches, such as ViT_B16."
        )
    patches, ratio = math.prod(config.grid), mae.filled().mask_ratio
    visible = mae.num_visible(config.image_size, config.grid)
    if not 0 < visible < patches:
        raise ValueError(
            f"Of {patches} patches mae.mask_ratio={ratio} leaves "
            f"{visible} visible. Choose a smaller "
            "model.patch_size, larger images or another ratio."
        )


def decoder_positions(grid: tuple, width: int, prefix: int) -> np.ndarray:
    """Return fixed positions: sines and cosines of column, then of row.

    Zeros for each of `prefix` tokens; the frequencies are 10000**(-4 i /
    width). Unlike those of `AddPositionEmbedding(kind="sincos2d")` the last is
    above 1/10000.

    Returns:
        float32 array (1, P + N, width).
    """
    rows, columns = np.mgrid[: grid[0], : grid[1]]
    frequencies = 10_000.0 ** (-4 * np.arange(width // 4) / width)
    angles = [np.outer(x, frequencies) for x in (columns, rows)]
    table = np.concatenate([f(x) for x in angles for f in (np.sin, np.cos)], 1)
    table = np.concatenate([np.zeros((prefix, width)), table])
    return table[None].astype("float32")


def normalized_patches(pixels):
    """Return patches of mean 0 and variance 1, the unbiased one.

    Args:
        pixels: float32 tensor or array (B, N, M).
    """
    tf = ops_of(pixels)
    column = [-1, pixels.shape[1], 1]
    mean = tf.reshape(tf.reduce_mean(pixels, -1), column)
    squares = tf.reduce_sum((pixels - mean) ** 2, -1)
    squares = tf.reshape(squares, column)
    variance = squares / (pixels.shape[-1] - 1)
    return (pixels - mean) / (variance + EPSILON) ** 0.5


@dataclasses.dataclass(frozen=True)
class MAEBatches(HiddenPatches):
    """Turns images into the order of their patches, and pixels to predict."""

    name = "mae"
    draws = 1

    @staticmethod
    def config_of(recipe) -> MAEConfig:
        """See `HiddenPatches`."""
        return options_of(recipe)[0]

    def hide(self, drawn, images) -> tuple:
        """See `HiddenPatches`."""
        tf = ops_of(images)
        patches = math.prod(self.grid)
        size = tuple(images.shape[1:3])
        squares = self.config.squares(size, self.grid)  # (N,)
        first = np.unique(squares, return_index=True)[1]
        drawn = tf.gather(tf.transpose(drawn[..., 0]), first)  # (squares, B)
        place = tf.argsort(
            tf.argsort(tf.transpose(drawn), stable=True), stable=True
        )
        place = tf.transpose(tf.gather(tf.transpose(place), squares))  # (B, N)
        order = tf.cast(tf.argsort(place, stable=True), tf.int32)
        count = self.config.num_visible(size, self.grid)
        hidden = tf.argsort(order, stable=True) >= count
        target = patch_pixels(images, self.grid)
        if self.config.normalize_pixels:
            target = normalized_patches(target)
        return {"order": order}, target, hidden, patches - count


def options_of(recipe) -> tuple[MAEConfig, Decoder | None]:
    """Return the options in a recipe, none null, and the decoder they are of.

    That is the one of the weights that the recipe starts from, where they
    have one of the shape that is asked for.

    Raises:
        ValueError: for weights that are damaged.
    """
    config, decoder = recipe.mae, None
    if config.kind == "mae" and recipe.model.weights and not recipe.smoke:
        decoder = read_decoder(recipe.model.weights)
    known = decoder.fields if decoder is not None else {}
    full = config.filled(known)
    of_decoder = [x for x in known if x.startswith("decoder_")]
    if any(getattr(full, x) != known[x] for x in of_decoder):
        decoder = None
    return full, decoder


def _make_network(recipe, model):
    config, decoder = options_of(recipe)
    network = autoencoder(model, config)
    if decoder is not None:
        arrays = decoder.arrays()
        for variable in network.weights:
            if variable.path in arrays:
                variable.assign(arrays[variable.path])
    return network


def _make_model(recipe, class_names):
    del class_names
    training = recipe.training
    build.check_trains_all("mae", training, with_classes=False)
    if training.best_metric == "val_accuracy":
        raise ValueError(
            "The squared error of pixels has no accuracy. Received: training."
            'best_metric="val_accuracy". Set it to val_loss.'
        )
    model = build.make_encoder(recipe, lambda x: check_model(x, recipe.mae))
    if recipe.mae.kind == "mae":
        fix_positions(model, fresh=recipe.model.weights is None)
    return model


def fix_positions(model, *, fresh: bool) -> None:
    """Leave positions as they are that are sines and cosines.

    Those of the original are, and are not trained (arXiv:2111.06377, section
    3); positions of weights that are others are trained.

    Args:
        model: a `VisionTransformer`.
        fresh: whether it gets them first.
    """
    config = model.config
    if config.position_embedding != "learned" or config.hidden_dim % 4:
        return
    prefix = config.num_prefix_tokens
    table = decoder_positions(config.grid, config.hidden_dim, prefix)
    embedding = model.get_layer("position_embedding").embedding
    if fresh:
        embedding.assign(table)
    known = ops.convert_to_numpy(ops.cast(embedding, "float32"))
    if known.shape == table.shape and np.abs(known - table).max() < SAME:
        # Not the layer: the model that is saved can be trained.
        embedding.trainable = False


def with_mae_defaults(recipe) -> dict:
    """Return the groups of a recipe, rates and crops that are null filled in.

    Example:
        >>> recipe = PretrainRecipe(method="mae")
        >>> with_mae_defaults(recipe)["optimizer"].learning_rate
        3.75e-05
    """
    kind, crop = recipe.mae.kind, recipe.preprocessing
    groups = adamw_by_batch(recipe, RATE, WEIGHT_DECAY, BETAS_2[kind])
    if crop.train == "inception_crop" and crop.least_area is None:
        crop = dataclasses.replace(crop, least_area=LEAST_AREAS[kind])
    return {**groups, "preprocessing": crop}


MAE = watched(
    "mae",
    build.Task(
        make_model=_make_model,
        make_network=_make_network,
        **streams_of(MAEBatches),
        make_loss=lambda recipe: LOSSES[recipe.mae.kind](),
        make_metrics=lambda recipe: [],
        names_classes=False,
    ),
)
