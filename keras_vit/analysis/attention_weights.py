"""What a Vision Transformer attends to: weights by block, distance, rollout.

Beside them the filters and the position embeddings of Figure 7 of the ViT
paper, and all that a page shows from one pass.

Axes: B batch, L layers (blocks), H heads, T tokens, P of them prefix tokens
(such as the class token), N = T - P patches, R and C rows and columns of the
grid of patches, D hidden dimension.
"""

import dataclasses
import operator
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.io.checks import (
    check_choice,
    check_finite,
    check_kind,
    check_limits,
    check_whole,
    numbers_of,
)
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.options import ATTENTION_POOLINGS, stem_grid
from keras_vit.variants import VariantTransformer

__all__ = [
    "AttentionOverview",
    "Rollout",
    "attention_distance",
    "attention_grids",
    "attention_maps",
    "attention_overview",
    "attention_rollout",
    "blocks_of",
    "cached",
    "check_block",
    "check_images",
    "check_model",
    "class_attention_maps",
    "class_rows",
    "distance_of",
    "grid_window",
    "has_positions",
    "on_grid",
    "patch_distances",
    "patch_filters",
    "patch_pixels",
    "position_similarity",
    "reading_weights",
    "to_pixels",
    "walk",
]

# Parts of a `VariantConfig` that the analysis follows, the first the plain one.
EXPLAINED = {
    "attention": ("full",),
    "position": ("1d", "2d", "none"),
    "position_at": ("stem", None),
}
PROBE = 4096  # pixels, a multiple of the stride of any ResNet of ours
SHOWN = 28  # components in Figure 7 of the paper
# Poolings of models with class attention that take the class token.
OF_CLASS_TOKEN = ("token", "prefix", "prefix_mean", "none")
FUSIONS = {
    "mean": lambda weights: ops.mean(weights, axis=1),
    "max": lambda weights: ops.max(weights, axis=1),
    "min": lambda weights: ops.min(weights, axis=1),
}


def attention_maps(
    model: VisionTransformer, images: Any, *, batch_size: int = 32
) -> np.ndarray:
    """Compute the attention weights of every block and head.

    The softmax weights of equation 7 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929). The model is neither rebuilt nor slowed: its blocks
    keep their fused attention, the weights are computed beside it.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (L, B, H, T, T), class token first; the last
        axis (keys) sums to 1. With talking heads (CaiT) and differential
        attention it is what the values are multiplied by, of any sign; what a
        class token reads that comes after the blocks is in
        `class_attention_maps`. B/16 at 224 pixels has
        22 MB per image, at 384 pixels 192 MB; `attention_rollout` and
        `attention_distance` do not keep them all.

    Raises:
        ValueError: for anything but a `VisionTransformer`, or images that it
            does not take.

    Example:
        >>> maps = attention_maps(model, images)
        >>> maps[-1, 0, :, 0, 1:]  # last block: what the class token sees
    """
    check_model(model)
    images = check_images(model, images)
    config = model.config
    rows, columns = config.grid
    tokens = config.num_prefix_tokens + rows * columns
    shape = (len(images), config.num_heads, tokens, tokens)
    maps = np.empty((config.num_layers, *shape), "float32")
    for part, layers in walk(model, images, KeepAll(), batch_size):
        for i, layer in enumerate(layers):
            maps[i, part] = layer
    return maps


def class_attention_maps(
    model: VisionTransformer, images: Any, *, batch_size: int = 32
) -> np.ndarray:
    """Compute what the class token reads in each class-attention block.

    Figure 6 of "Going deeper with Image Transformers" (arXiv:2103.17239).

    Args:
        model: a `VisionTransformer` with `class_attention_layers`, K.
        images: array (B, height, width, channels), as the model takes them.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (K, B, H, 1 + R * C), not negative, the class
        token first; the last axis sums to 1.

    Raises:
        ValueError: for a model without such blocks, or images that it does
            not take.

    Example:
        >>> maps = class_attention_maps(model, images)
        >>> maps[0, 0, :, 1:].reshape(-1, *model.config.grid)
    """
    check_model(model)
    if not model.config.class_attention_layers:
        raise ValueError(
            "The model has no blocks of class attention. Received: the model "
            f"{model.name!r}. Use attention_maps."
        )
    found = [
        np.stack(rows)
        for _, rows in walk(model, images, KeepClassRows(), batch_size)
    ]  # each (K, B, H, T)
    return np.concatenate(found, axis=1)


def attention_grids(model: VisionTransformer, maps: Any) -> np.ndarray:
    """Return maps of what the model's head attends to in each block and head.

    The rows of the class token, as in the pictures of DINO
    (arXiv:2104.14294); where the head reads the mean of the patches, or the
    class token comes after the blocks, the mean of the patches' rows.

    Args:
        model: a `VisionTransformer`, hybrids included.
        maps: array (L, B, H, T, T) from `attention_maps`.

    Returns:
        Array of shape (L, B, H, R, C), not negative; with what goes to the
        class token it sums to 1. Of talking heads the magnitudes are taken.

    Raises:
        ValueError: when the maps are not of this model.

    Example:
        >>> grids = attention_grids(model, attention_maps(model, images))
    """
    check_model(model)
    weights = reading_weights(model.config)
    maps = numbers_of("maps", maps)
    if np.shape(maps)[-2:] != 2 * weights.shape:
        raise ValueError(
            f"The model has {len(weights)} tokens. Received: maps of shape "
            f"{np.shape(maps)}. Give attention_maps(model, images) of the "
            "same model."
        )
    if is_signed(model.config):
        maps = ops.convert_to_numpy(shares(maps))
    return on_grid(model.config, weights @ maps)


def to_pixels(
    model: VisionTransformer, maps: Any, *, resample: str = "lanczos"
) -> np.ndarray:
    """Enlarge maps on the grid of patches to the size of the image.

    Hybrids included: their feature maps, whose last row and column may stand
    for less than a whole cell, are centred on the image as the convolutions
    pad it.

    Args:
        model: a `VisionTransformer`, hybrids included.
        maps: array of shape (..., R, C).
        resample: "lanczos" as in the paper's figures, "bilinear", or "nearest"
            for visible patches.

    Returns:
        float32 array of shape (..., H, W). Lanczos may go a little below the
        smallest and above the largest value.

    Raises:
        ValueError: when the maps do not have the model's grid.

    Example:
        >>> to_pixels(model, attention_rollout(model, images)).shape
        (8, 224, 224)
    """
    from PIL import Image

    check_model(model)
    config = model.config
    maps = numbers_of("maps", maps)
    if maps.shape[-2:] != config.grid:
        raise ValueError(
            f"The model has a grid of {config.grid[0]}x{config.grid[1]} "
            f"patches. Received: maps of shape {maps.shape}. The last two "
            "axes must be rows and columns of that grid."
        )
    top, left, rows, columns = grid_window(config)
    names = [name.lower() for name in Image.Resampling.__members__]
    check_choice("resample", resample, names)
    filters = Image.Resampling[resample.upper()]
    large = [
        np.asarray(Image.fromarray(grid).resize((columns, rows), filters))
        for grid in maps.reshape(-1, *config.grid)
    ]
    height, width = config.image_size
    return np.reshape(large, (*maps.shape[:-2], rows, columns))[
        ..., -top : height - top, -left : width - left
    ]


def walk(
    model: VisionTransformer, images: Any, analysis: Any, batch_size: int = 32
) -> Iterator[tuple[slice, Any]]:
    """Run an analysis of the attention, block by block, over images.

    Only what the analysis keeps of a layer outlives that layer, so one that
    keeps little needs the memory of one layer, not of all. The compiled
    function stays with the model for further calls.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        analysis: a hashable object with `step(carry, weights)`, from what is
            kept so far (None before the first block) and a float32 tensor
            (B, H, T, T) to what is kept now, and `finish(carry, x, model)`,
            from that and the tokens (B, T, D) after the last block to the
            result, a tensor (B, ...) or a list of them.
        batch_size: int, images at a time.

    Yields:
        (slice of the images, result as NumPy arrays), in order.
    """
    check_model(model)
    images = check_images(model, images, batch_size)
    walker = cached(model, analysis, lambda: _Walker(model, analysis))
    for start in range(0, len(images), batch_size):
        part = slice(start, start + batch_size)
        found = walker.predict_on_batch(images[part])
        # Under tf.distribute every replica answers for the whole batch.
        cut = operator.itemgetter(slice(len(images[part])))
        yield part, keras.tree.map_structure(cut, found)


class _Walker(keras.Model):
    """The model, with an analysis after the weights of each block."""

    def __init__(self, model, analysis):
        super().__init__(name="walker")
        self.stem = keras.Model(model.input, model.get_layer("block_0").input)
        self.blocks = blocks_of(model)
        self.model = model
        self.analysis = analysis
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True

    def call(self, images):
        x = self.stem(images)  # (B, T, D)
        keeps_all = isinstance(self.analysis, KeepAll)
        signed = is_signed(self.model.config) and not keeps_all
        carry = None
        for block in self.blocks:
            weights = block.attention.attention_weights(
                block.attention_norm(x)
            )  # (B, H, T, T)
            weights = ops.cast(weights, "float32")
            if signed:
                weights = shares(weights)
            carry = self.analysis.step(carry, weights)
            x = block(x)  # (B, T, D)
        return self.analysis.finish(carry, x, self.model)


def cached(
    model: VisionTransformer, key: Hashable, make: Callable[[], Any]
) -> Any:
    """Return what `make` returned earlier with this model and key, or now.

    The cache is emptied when quantisation or LoRA has changed the variables:
    TensorFlow's compiled functions would use the old ones.
    """
    variables = tuple((v.path, v.dtype) for v in model.variables)
    # Not by assignment: Keras would track what is cached as layers of the
    # model and save them.
    since, cache = model.__dict__.get("_analysis_cache", (None, {}))
    if since != variables:
        cache = {}
        model.__dict__["_analysis_cache"] = (variables, cache)
    if key not in cache:
        cache[key] = make()
    return cache[key]


def blocks_of(model: VisionTransformer) -> list[keras.layers.Layer]:
    """Return the transformer blocks of a model, first to last."""
    return [
        model.get_layer(f"block_{i}") for i in range(model.config.num_layers)
    ]


def check_block(model: VisionTransformer, block: int) -> int:
    """Convert the number of a block, negative from the end, to 0..L-1."""
    count = model.config.num_layers
    check_kind(int, block=block)
    if not -count <= block < count:
        raise ValueError(
            f"The model has {count} blocks. Received: block={block}. Give a "
            f"number from 0 to {count - 1}, or -1 for the last block."
        )
    return block % count


def check_model(model: Any) -> None:
    """Raise a ValueError unless a model has the attention of equation 7.

    A `VisionTransformer` has it, and a `VariantTransformer` whose attention is
    full and whose positions, if any, are added before the first block. Its MLP
    may be local.
    """
    if isinstance(model, VariantTransformer):
        variant = model.config.variant
        for field, values in EXPLAINED.items():
            if (value := getattr(variant, field)) not in values:
                needed = " or ".join(map(repr, values))
                raise ValueError(
                    f"The analysis needs a variant whose {field} is {needed}. "
                    f"Received: {model.name!r} with {field}={value!r}."
                )
    elif not isinstance(model, VisionTransformer):
        raise ValueError(
            "The analysis needs a VisionTransformer. Received: "
            f"{type(model).__name__}. Build or load one with keras_vit; where "
            "it is a layer of another model, take it with get_layer."
        )


def check_images(
    model: VisionTransformer, images: Any, batch_size: int = 1
) -> np.ndarray:
    """Images as float32, at least one, of the model's size and channels."""
    check_whole(1, batch_size=batch_size)
    if keras.ops.is_tensor(images):
        images = ops.convert_to_numpy(images)
    images = numbers_of("images", images)
    wanted = (*model.config.image_size, model.config.channels)
    if images.shape[1:] != wanted or not len(images):
        raise ValueError(
            f"The model takes batches of shape (batch, {wanted[0]}, "
            f"{wanted[1]}, {wanted[2]}) (height, width, channels). Received: "
            f"images of shape {images.shape}. Resize the images, or build the "
            "model with their input_shape; of one image make a batch with "
            "images[np.newaxis]."
        )
    check_finite(images=images)
    return images


@dataclasses.dataclass(frozen=True)
class KeepAll:
    """Keeps the weights of every layer."""

    def step(self, carry, weights):
        return [*(carry or []), weights]

    def finish(self, carry, x, model):
        return carry


@dataclasses.dataclass(frozen=True)
class KeepClassRows:
    """Keeps what the class token reads after the blocks."""

    def step(self, carry, weights):
        return carry

    def finish(self, carry, x, model):
        return class_rows(model, x)


def class_rows(model: VisionTransformer, x: Any) -> list:
    """Return what the class token takes from each token after the blocks.

    Args:
        model: a `VisionTransformer`.
        x: the patch tokens (B, R * C, D) after the last block.

    Returns:
        For each class-attention block a float32 tensor (B, H, 1 + R * C).
    """
    count, found = model.config.class_attention_layers, []
    for name in ["class_token", *(f"class_block_{i}" for i in range(count))]:
        layer = model.get_layer(name)
        if found or name != "class_token":
            normalized = layer.attention_norm(x)  # (B, T, D)
            rows = layer.attention.attention_weights(normalized)[:, :, 0]
            found.append(ops.cast(rows, "float32"))  # (B, H, T)
        x = layer(x)  # (B, T, D)
    return found


def is_signed(config: ViTConfig) -> bool:
    """Return whether attention weights are of any sign and sum."""
    return config.talking_heads or config.differential_attention


def shares(weights: Any) -> Any:
    """Compute the magnitudes of signed weights, 1 in sum over the keys."""
    sizes = ops.abs(weights)
    return sizes / ops.sum(sizes, axis=-1, keepdims=True)


def reading_weights(config: ViTConfig) -> np.ndarray:
    """Return how much the model's pooling takes from each token, float32 (T,).

    The class token's row with pooling "token" (and with "none", where there
    is a class token), all prefix tokens alike with "prefix" and "prefix_mean",
    half of it the class token's and half the patches' with "token_and_mean",
    otherwise all patch tokens alike: exact for "mean", and for "max", "map" and
    "attention" what can be said without an image. Where the class token comes
    after the blocks, T are the patches alone, all alike. The sum is 1.
    """
    rows, columns = config.grid
    prefix = config.num_prefix_tokens
    read = {
        "token": slice(0, 1),
        "prefix": slice(0, prefix),
        "prefix_mean": slice(0, prefix),
        "none": slice(0, 1) if config.class_token else slice(prefix, None),
    }.get(config.pooling, slice(prefix, None))
    if config.class_attention_layers:
        read = slice(None)
    weights = np.zeros(prefix + rows * columns, "float32")
    weights[read] = 1
    if config.pooling == "token_and_mean" and prefix:
        weights[0] = rows * columns
    return weights / weights.sum()


def on_grid(config: ViTConfig, tokens: Any) -> np.ndarray:
    """Put the patch tokens of an array (..., T) on their grid (..., R, C)."""
    patches = np.asarray(tokens)[..., config.num_prefix_tokens :]
    return patches.reshape(*patches.shape[:-1], *config.grid)


def patch_pixels(config: ViTConfig) -> tuple[int, int]:
    """Height and width of a patch in pixels of the input image.

    The patches of a hybrid are cells of a feature map, each of which stands
    for 4 pixels or more.
    """
    height, width = config.patch_size
    if config.resnet_units is None:
        return height, width
    cells = stem_grid((PROBE, PROBE), config.resnet_units)[0]
    return height * PROBE // cells, width * PROBE // cells


def grid_window(config: ViTConfig) -> tuple[int, int, int, int]:
    """Locate the grid of patches: top, left, height, width in pixels.

    The last cells of a hybrid may reach beyond the image, on which the grid
    is then centred: top and left are 0 or below.
    """
    (height, width), patch = config.image_size, patch_pixels(config)
    rows, columns = (n * p for n, p in zip(config.grid, patch, strict=True))
    return -((rows - height) // 2), -((columns - width) // 2), rows, columns


def patch_filters(
    model: VisionTransformer, num_components: int | None = None
) -> np.ndarray:
    """Compute the principal components of the patch embedding's filters.

    Figure 7 (left) of "An Image Is Worth 16x16 Words" (arXiv:2010.11929),
    where 28 of L/32 are shown: the D filters are points in the space of
    pixels; their mean is taken off, and the directions of the largest
    variance are returned, the largest first. They look like a basis for the
    fine structure inside a patch.

    Of a hybrid the filters of its root convolution are taken, as its patch
    embedding sees no pixels.

    Args:
        model: a `VisionTransformer`, hybrids included.
        num_components: int, K, at most D and at most h * w * C; by default
            28, or all of a model that has fewer.

    Returns:
        float32 array of shape (K, h, w, C), each of length 1. The sign, which
        means nothing, makes the largest value of each positive.

    Raises:
        ValueError: when there are not that many components.

    Example:
        >>> patch_filters(keras_vit.ViT_L32(weights=None)).shape
        (28, 32, 32, 3)
    """
    check_model(model)
    kernel = np.asarray(ops.convert_to_numpy(_first(model).kernel), "float32")
    filters = kernel.reshape(-1, kernel.shape[-1]).T  # (D, h * w * C)
    available = min(filters.shape)
    if num_components is None:
        num_components = min(SHOWN, available)
    check_whole(1, num_components=num_components)
    if num_components > available:
        raise ValueError(
            f"There are {available} components: the model has "
            f"{filters.shape[0]} filters of {filters.shape[1]} weights. "
            f"Received: num_components={num_components}."
        )
    filters = filters - filters.mean(axis=0)
    _, _, components = np.linalg.svd(filters, full_matrices=False)
    components = components[:num_components]  # (K, h * w * C)
    peaks = np.abs(components).argmax(axis=1)[:, None]
    components *= np.sign(np.take_along_axis(components, peaks, axis=1))
    return components.reshape(num_components, *kernel.shape[:-1])


def _first(model):
    """Return the convolution that reads the image."""
    if model.config.resnet_units is not None:
        return model.get_layer("root_conv")
    if model.config.patch_stem:
        return model.get_layer("stem_conv1")
    return model.get_layer("patch_embed").projection


def position_similarity(model: VisionTransformer) -> np.ndarray:
    """Compute the cosine similarity of each position embedding with all.

    Figures 7 (centre) and 10 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929): close patches, and those of one row or column, tend to
    have similar embeddings. Those of the class token and other prefix tokens
    are left out.

    Args:
        model: a `VisionTransformer`, hybrids included.

    Returns:
        float32 array of shape (R, C, R, C) with values in [-1, 1]: [i, j] is
        the map of similarities of the patch in row i and column j.

    Raises:
        ValueError: for anything but a `VisionTransformer`, and for one
            without position embeddings, see `has_positions`.

    Example:
        >>> position_similarity(model)[0, 0, 0, 0]  # with itself
        1.0
    """
    check_model(model)
    config = model.config
    if not has_positions(model):
        raise ValueError(f"{model.name!r} {NO_POSITIONS}")
    table = model.get_layer("position_embedding").embedding  # (1, T, D)
    table = np.asarray(ops.convert_to_numpy(table)[0], "float32")
    table = table[config.num_prefix_tokens :]  # (R * C, D)
    lengths = np.linalg.norm(table, axis=-1, keepdims=True)
    table = table / np.maximum(lengths, np.finfo("float32").tiny)
    return (table @ table.T).reshape(*config.grid, *config.grid)


NO_POSITIONS = (
    "has no position embeddings to compare: its attention places the patches "
    "by rotary or relative positions, or not at all."
)


def has_positions(model: VisionTransformer) -> bool:
    """Return whether a model adds an embedding of its position to a patch."""
    added = any(layer.name == "position_embedding" for layer in model.layers)
    return added and model.config.position_embedding != "none"


def attention_distance(
    model: VisionTransformer, images: Any, *, batch_size: int = 32
) -> np.ndarray:
    """Compute the mean distance between a patch and what it attends to.

    Figures 7 (right) and 11 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), by the authors' definition (vision_transformer#162):
    class token left out as query and as key, the weights among the patches
    not normalised again; distances between patch centres weighted by them,
    summed over the keys, averaged over queries and images. It is the size of
    a receptive field in a convolutional network. The paper uses 128 images.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        batch_size: int, images at a time; the weights of one block are in
            memory.

    Returns:
        float32 array of shape (L, H), in pixels of the input image.

    Raises:
        ValueError: for anything but a `VisionTransformer`, or images that it
            does not take.

    Example:
        >>> attention_distance(model, images).shape  # B/16
        (12, 12)
    """
    check_model(model)
    analysis = distance_of(model.config)
    parts = [
        np.stack(layers, axis=1)
        for _, layers in walk(model, images, analysis, batch_size)
    ]  # each (B, L, H)
    return np.concatenate(parts).mean(axis=0)


def distance_of(config: ViTConfig) -> "Distance":
    """Return the analysis that `attention_distance` walks with."""
    return Distance(config.grid, patch_pixels(config), config.num_prefix_tokens)


def patch_distances(grid: tuple, patch: tuple) -> np.ndarray:
    """Distances (N, N) between the centres of the patches, row by row.

    Args:
        grid: (rows, columns) of the patches.
        patch: (height, width) of a patch in pixels.
    """
    centres = np.indices(grid).reshape(2, -1).T * patch  # (N, 2)
    apart = centres[:, None] - centres  # (N, N, 2)
    return np.linalg.norm(apart, axis=-1).astype("float32")


@dataclasses.dataclass(frozen=True)
class Distance:
    """Keeps one number per head of each layer's weights."""

    grid: tuple
    patch: tuple
    num_prefix_tokens: int

    def step(self, carry, weights):
        prefix = self.num_prefix_tokens
        weights = weights[:, :, prefix:, prefix:]  # (B, H, N, N)
        distances = patch_distances(self.grid, self.patch)  # (N, N)
        summed = ops.sum(ops.multiply(weights, distances), axis=-1)  # (B, H, N)
        return [*(carry or []), ops.mean(summed, axis=-1)]

    def finish(self, carry, x, model):
        return carry


def attention_rollout(
    model: VisionTransformer,
    images: Any,
    *,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    batch_size: int = 32,
) -> np.ndarray:
    """Maps which patches the information at the model's head comes from.

    Figures 6 and 14 and appendix D.7 of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929), after "Quantifying Attention Flow in Transformers"
    (arXiv:2005.00928): the heads of a block are averaged, the identity is
    added for the residual connection, rows are divided by their sum, and
    the matrices of all blocks are multiplied. What is shown is the row of the
    class token; of models that pool the patches, the mean of their rows, with
    attention pooling weighted by what it attends to, and with class attention
    after the blocks by what the class token takes from them. The weights of
    one block are in memory at a time.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        head_fusion: "mean" as in the paper, "max" or "min" of the heads.
        discard_ratio: float in [0, 1), share of the smallest fused weights
            of each image that is set to zero in each block, before the
            identity is added. The rows of the class token and of other prefix
            tokens are kept whole.
        batch_size: int, images at a time.

    Returns:
        float32 array of shape (B, R, C), not negative. With what comes from
        the class token itself an image's values sum to 1; for pictures they
        are divided by their maximum.

    Raises:
        ValueError: for an unknown fusion, a ratio out of range, anything but
            a `VisionTransformer`, or images that it does not take.

    Example:
        >>> attention_rollout(model, images).shape  # B/16, 224 x 112 pixels
        (8, 14, 7)
    """
    rollout = _rollout_of(model, head_fusion, discard_ratio)
    tokens = [
        rows for _, rows in walk(model, images, rollout, batch_size)
    ]  # each (B, T)
    return on_grid(model.config, np.concatenate(tokens))


@dataclasses.dataclass(frozen=True)
class AttentionOverview:
    """What `attention_overview` finds.

    Attributes:
        grids: float32 array of shape (L, B, H, R, C), see `attention_grids`;
            of a model with class attention (L + K, B, H, R, C), the rows of
            the class token in its K last blocks.
        rollout: float32 array of shape (B, R, C), see `attention_rollout`.
        distances: float32 array of shape (L, H), see `attention_distance`.
    """

    grids: np.ndarray
    rollout: np.ndarray
    distances: np.ndarray


def attention_overview(
    model: VisionTransformer,
    images: Any,
    *,
    head_fusion: str = "mean",
    discard_ratio: float = 0.0,
    batch_size: int = 8,
) -> AttentionOverview:
    """Compute attention of each head, rollout and distance in one pass.

    Of each layer the rows that the model's head reads are kept, not the
    (T, T) weights: of H/14 at 224 pixels 0.5 MB per image instead of 135.

    Args:
        model: a `VisionTransformer`, hybrids included.
        images: array (B, height, width, channels), as the model takes them.
        head_fusion: see `attention_rollout`.
        discard_ratio: see `attention_rollout`.
        batch_size: int, images at a time.

    Raises:
        ValueError: see `attention_rollout`.

    Example:
        >>> attention_overview(model, images).grids.shape  # B/16
        (12, 8, 12, 14, 14)
    """
    check_model(model)
    config = model.config
    analyses = _Together(
        (
            _Rows(config),
            _rollout_of(model, head_fusion, discard_ratio),
            distance_of(config),
        )
    )
    found = [
        [np.stack(read, axis=1), rows, np.stack(distances, axis=1)]
        for _, (read, rows, distances) in walk(
            model, images, analyses, batch_size
        )
    ]  # each (B, L, H, T), (B, T), (B, L, H)
    read, rows, distances = map(np.concatenate, zip(*found, strict=True))
    return AttentionOverview(
        np.moveaxis(on_grid(config, read), 1, 0),
        on_grid(config, rows),
        distances.mean(axis=0),
    )


def _rollout_of(model, head_fusion, discard_ratio):
    check_model(model)
    return Rollout(head_fusion, discard_ratio, model.config.num_prefix_tokens)


@dataclasses.dataclass(frozen=True)
class Rollout:
    """Multiplies the matrices of the blocks."""

    head_fusion: str
    discard_ratio: float
    num_prefix_tokens: int

    def __post_init__(self):
        check_choice("head_fusion", self.head_fusion, FUSIONS)
        check_limits(self, 1, "discard_ratio")

    def step(self, carry, weights):
        fused = FUSIONS[self.head_fusion](weights)  # (B, T, T)
        fused = _discard(fused, self.discard_ratio, self.num_prefix_tokens)
        fused = fused + ops.eye(fused.shape[-1])
        fused = fused / ops.sum(fused, axis=-1, keepdims=True)
        return fused if carry is None else ops.matmul(fused, carry)

    def finish(self, carry, x, model):
        config = model.config
        if config.class_attention_layers and config.pooling in OF_CLASS_TOKEN:
            read = self._read_by_class(class_rows(model, x))  # (B, T)
            return ops.einsum("bq,bqk->bk", read, carry)  # (B, T)
        if config.pooling not in ATTENTION_POOLINGS:
            read = reading_weights(config)
            return ops.einsum("q,bqk->bk", read, carry)  # (B, T)
        names = [layer.name for layer in model.layers]
        before = names[: names.index("pool")]
        for name in ("encoder_norm", "neck"):
            if name in before:
                x = model.get_layer(name)(x)
        pool = model.get_layer("pool").attention_weights(x)  # (B, H, 1, T)
        read = FUSIONS[self.head_fusion](pool)[:, 0]  # (B, T)
        read = ops.cast(read, "float32")
        read = read / ops.sum(read, axis=-1, keepdims=True)
        return ops.einsum("bq,bqk->bk", read, carry)  # (B, T)

    def _read_by_class(self, layers):
        """Return the weights of patches in a class token after the blocks."""
        read = None
        for rows in layers:  # (B, H, 1 + T)
            fused = FUSIONS[self.head_fusion](rows)  # (B, 1 + T)
            own, taken = fused[:, :1] + 1, fused[:, 1:]
            total = ops.sum(fused, axis=-1, keepdims=True) + 1
            before = 0 if read is None else own * read
            read = (before + taken) / total  # (B, T)
        return read


def _discard(fused, ratio, num_prefix_tokens):
    """Set the smallest weights (B, T, T) of each image to zero.

    Prefix rows are kept whole; of equal weights at the limit none is dropped.
    """
    rows = fused[:, num_prefix_tokens:]  # (B, T - P, T)
    count = rows.shape[1] * rows.shape[2]
    dropped = int(ratio * count)
    if not dropped:
        return fused
    ordered = ops.sort(ops.reshape(rows, (-1, count)), axis=-1)
    limit = ordered[:, dropped][:, None, None]  # (B, 1, 1)
    rows = ops.where(rows < limit, 0.0, rows)
    return ops.concatenate([fused[:, :num_prefix_tokens], rows], axis=1)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Keeps of each layer's weights the rows that the head reads."""

    config: ViTConfig

    def step(self, carry, weights):
        read = reading_weights(self.config)
        rows = ops.einsum("q,bhqk->bhk", read, weights)  # (B, H, T)
        return [*(carry or []), rows]

    def finish(self, carry, x, model):
        if not self.config.class_attention_layers:
            return carry
        return [*carry, *(rows[..., 1:] for rows in class_rows(model, x))]


@dataclasses.dataclass(frozen=True)
class _Together:
    """Several analyses in one walk."""

    analyses: tuple

    def step(self, carry, weights):
        carries = carry or [None] * len(self.analyses)
        return [
            analysis.step(kept, weights)
            for analysis, kept in zip(self.analyses, carries, strict=True)
        ]

    def finish(self, carry, x, model):
        return [
            analysis.finish(kept, x, model)
            for analysis, kept in zip(self.analyses, carry, strict=True)
        ]
