"""Weights for a model of another size than the file's.

Axes: R and C rows and columns of a grid of patches, D hidden dimension, h and w
height and width of a patch, K channels.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_vit.checkpoints.engine.recognition import Checkpoint
from keras_vit.interpolation import cubic, triangle
from keras_vit.io.checks import check_choice

__all__ = [
    "Adaptation",
    "RESAMPLINGS",
    "adapt_channels",
    "adapted_fields",
    "check_input_shape",
    "find_adaptation",
    "geometric_matrix",
    "resample_position_embedding",
    "resize_matrix",
    "resize_patches",
]


def resample_position_embedding(
    table: np.ndarray,
    old_grid: tuple,
    new_grid: tuple,
    method: str = "linear_aligned",
) -> np.ndarray:
    """Resample the embeddings of patches from one grid to another.

    Args:
        table: float array (1, P + R * C, D), those of P prefix tokens first;
            they are kept.
        old_grid: (rows, columns) of the table.
        new_grid: (rows, columns) that are wanted.
        method: "linear_aligned": linear, corners on corners, as the original
            code does it (`scipy.ndimage.zoom` of order 1). "bicubic",
            "linear": between the centres of patches, as torch does it.
            "bicubic_antialiased", "linear_antialiased": likewise, low-pass
            filtered where the grid shrinks.
            Each with "_square": to a square grid as large as the longer side,
            of which the upper left is taken, as NaFlexViTs do it.

    Returns:
        float32 array (1, P + new rows * new columns, D).

    Raises:
        ValueError: for an unknown method, or a table without the rows of the
            grid.
    """
    check_choice("resampling", method.removesuffix(SQUARE), RESAMPLINGS)
    prefix = table.shape[1] - old_grid[0] * old_grid[1]
    if prefix < 0:
        raise ValueError(
            f"A position embedding of shape {table.shape} is too short for a "
            f"grid of {old_grid[0]}x{old_grid[1]} patches."
        )
    side = max(new_grid) if method.endswith(SQUARE) else None
    method = method.removesuffix(SQUARE)
    rows, columns = (
        resize_matrix(old, side or new, method)[:new]
        for old, new in zip(old_grid, new_grid, strict=True)
    )
    grid = table[0, prefix:].reshape(*old_grid, -1)  # (R, C, D)
    grid = np.einsum("rR,cC,RCD->rcD", rows, columns, grid, optimize=True)
    patches = grid.reshape(1, -1, grid.shape[-1])  # (1, r * c, D)
    joined = np.concatenate([table[:, :prefix], patches], axis=1)
    return joined.astype("float32")


def resize_matrix(old: int, new: int, method: str) -> np.ndarray:
    """Return the linear map that resamples one axis of `old` entries to `new`.

    Returns:
        float64 array (new, old) whose rows sum to 1.
    """
    if old == new:
        return np.eye(old)
    return RESAMPLINGS[method](old, new)


def geometric_matrix(old: int, new: int) -> np.ndarray:
    """Return the linear map of distances along one axis, as BEiT does it.

    The old distances are put at 0, 1, 1 + q, 1 + q + q^2, ... to both sides,
    with a q above 1.01 by which the last one gets as far as the new ones go,
    and interpolated linearly: close to a token they stay as they are.

    Args:
        old: int, odd: the distances from -(old // 2) to old // 2.
        new: int, odd, likewise.

    Returns:
        float64 array (new, old) whose rows sum to 1.
    """
    left, right = 1.01, 1.5
    ratio = left
    while right - left > 1e-6:
        ratio = (left + right) / 2
        reach = (ratio ** (old // 2) - 1) / (ratio - 1)
        left, right = (left, ratio) if reach > new // 2 else (ratio, right)
    points = np.cumsum(ratio ** np.arange(old // 2))
    points = np.concatenate([-points[::-1], [0], points])
    wanted = np.arange(new) - new // 2
    each = np.eye(old)
    return np.stack([np.interp(wanted, points, x) for x in each], axis=1)


def _linear_aligned(old, new):
    """Interpolate at `new` points from the first to the last of `old`."""
    points = np.linspace(0, old - 1, new)
    return triangle(points[:, None] - np.arange(old))  # (new, old)


def _half_pixel(kernel, support, antialias=False):
    """Interpolate between centres of cells, as torch's `interpolate` does.

    With antialias the kernel is widened when the grid shrinks, and what is
    outside of the grid has no weight; without, the edge is repeated.
    """

    def matrix(old, new):
        scale = old / new
        points = (np.arange(new) + 0.5) * scale - 0.5
        width = max(scale, 1.0) if antialias else 1.0
        reach = int(np.ceil(support * width)) + 1
        sources = np.floor(points).astype(int)[:, None] + np.arange(
            -reach, reach + 1
        )
        weights = kernel((points[:, None] - sources) / width)
        if antialias:
            weights = weights * ((sources >= 0) & (sources < old))
        result = np.zeros((new, old))
        targets = np.repeat(np.arange(new)[:, None], sources.shape[1], axis=1)
        np.add.at(result, (targets, np.clip(sources, 0, old - 1)), weights)
        return result / result.sum(axis=1, keepdims=True)  # (new, old)

    return matrix


SQUARE = "_square"

# torch's bicubic has a = -0.75; antialiased, like Pillow's, -0.5.
RESAMPLINGS = {
    "linear_aligned": _linear_aligned,
    "linear": _half_pixel(triangle, 1),
    "linear_antialiased": _half_pixel(triangle, 1, antialias=True),
    "bicubic": _half_pixel(cubic(-0.75), 2),
    "bicubic_antialiased": _half_pixel(cubic(-0.5), 2, antialias=True),
}


def adapted_fields(
    found: dict,
    family: str,
    *,
    classes: int | None,
    input_shape: tuple | None,
    include_top: bool,
    keep_representation: bool,
    overrides: dict,
) -> dict:
    """Return the fields that were found with what a user wants otherwise."""
    fields = dict(found)
    if input_shape is not None:
        height, width, channels = check_input_shape(input_shape, family)
        fields |= {"image_size": (height, width), "channels": channels}
        fields |= _pixel_fields(fields)
    if classes is not None:
        fields |= _head_fields(fields, classes, keep_representation)
    if not include_top:
        fields |= {"num_classes": 0, "pooling": "none"}
        if "representation_dim" in fields:
            fields["representation_dim"] = 0
        pools = overrides.get("pooling", "none") != "none"
        if fields.get("norm_after_pooling") and not pools:
            # Its publisher's features are the tokens before that.
            fields |= {"norm_after_pooling": False, "final_norm": False}
    if overrides.get("pooling") == "avg":
        overrides = {**overrides, "pooling": "mean"}
    if (
        fields.get("pooling") == "token"
        and overrides.get("pooling") in ("mean", "max")
        and not fields.get("register_tokens")
        and not fields.get("class_attention_layers")
    ):
        # As the original does it: what pools patches has no class token.
        fields["class_token"] = False
    if overrides.get("pooling") == "token":
        fields["class_token"] = True
        fields["norm_after_pooling"] = False
    return fields | overrides


def check_input_shape(input_shape, family: str) -> tuple:
    """Return (height, width, channels) of what users give as a shape.

    Args:
        input_shape: what was given.
        family: of the models, of which "bit" takes None as a side.

    Raises:
        ValueError: when it is none, or a side is unknown or not above 0.
    """
    is_shape = isinstance(input_shape, (tuple, list)) and len(input_shape) == 3
    sizes = tuple(input_shape) if is_shape else ()
    if family == "bit":  # It takes images of any size.
        sizes = (*(x for x in sizes[:2] if x is not None), *sizes[2:])
    if not is_shape or not all(type(x) is int and x > 0 for x in sizes):
        raise ValueError(
            "input_shape must be (height, width, channels), all known and "
            "channels last: patches and position embeddings depend on it. "
            f"Received: input_shape={input_shape!r}. Give for example "
            "input_shape=(384, 384, 3)."
        )
    return tuple(input_shape)


def _pixel_fields(fields) -> dict:
    """Return mean and deviation of pixels for another number of channels."""
    names = ("pixel_mean", "pixel_std")
    return {
        name: (float(np.mean(fields[name])),) * fields["channels"]
        for name in names
        if fields.get(name) and len(fields[name]) != fields["channels"]
    }


def _head_fields(fields, classes, keep_representation) -> dict:
    if type(classes) is not int or classes < 0:
        raise ValueError(
            "classes must be the number of classes, or 0 for features. "
            f"Received: classes={classes!r}."
        )
    found: dict = {"num_classes": classes}
    if not classes and fields.get("pooling") == "prefix":
        # Features of two heads are the mean of what they see.
        found["pooling"] = "prefix_mean"
    is_new = classes != fields["num_classes"]
    if is_new and fields.get("head_bias", 0.0) is None:
        found["head_bias"] = 0.0
    if is_new and not keep_representation and fields.get("representation_dim"):
        found["representation_dim"] = 0
    return found


def resize_patches(kernel: np.ndarray, patch_size: tuple) -> np.ndarray:
    """Resize a patch embedding by the pseudo-inverse of resizing patches.

    "FlexiViT: One Model for All Patch Sizes" (arXiv:2212.08013, section
    3.4): the new weights give resized patches the embeddings that the old
    ones give the patches, exactly when patches grow, in the least squares
    otherwise. Patches are resized bilinearly.

    Args:
        kernel: float array (h, w, K, D).
        patch_size: (height, width) of the result.
    """
    # Resizing is separable, so its pseudo-inverse is too.
    rows, columns = (
        np.linalg.pinv(resize_matrix(old, new, "linear"))
        for old, new in zip(kernel.shape[:2], patch_size, strict=True)
    )  # (h, height), (w, width)
    resized = np.einsum("hH,wW,hwcd->HWcd", rows, columns, kernel)
    return resized.astype("float32")


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Adapt the first convolution to another number of channels.

    One channel gets the sum over the old ones, so that a grey
    image gives what it gave as RGB; more get the old ones in turn, scaled so
    that the sum stays about the same. The kernel is (h, w, K, D).
    """
    old = kernel.shape[2]
    if channels == 1:
        adapted = kernel.sum(axis=2, keepdims=True)
    else:
        repeats = -(-channels // old)
        adapted = np.tile(kernel, (1, 1, repeats, 1))[:, :, :channels]
        adapted = adapted * (old / channels)
    return adapted.astype("float32")


class Adaptation(NamedTuple):
    """A change of shape: from the file's array, in our layout, to the model's.

    The description goes into the report, "" when nothing changes.
    """

    function: Callable
    description: str = ""


def find_adaptation(
    path, shape, checkpoint: Checkpoint, target, resampling
) -> Adaptation | None:
    """Find how a weight of some shape in the file is adapted to the model.

    None when the shapes cannot be brought together.
    """
    # A table before a later block is one like that before the first.
    named = re.sub(r"^position_embedding_\d+/", POSITION, path)
    adapt = ADAPTERS.get(re.sub(r"^block_\d+/", "", named))
    if adapt is not None:
        found = adapt(shape, checkpoint, target, path, resampling)
        if found is not None:
            return found
    return Adaptation(lambda x: x) if shape == target.shape(path) else None


def _adapt_position(shape, checkpoint, target, path, resampling):
    old_prefix = checkpoint.facts.num_prefix_tokens
    prefix = target.facts.num_prefix_tokens
    old, new = tuple(checkpoint.grid), tuple(target.grid)
    if (old, old_prefix) == (new, prefix):
        return None
    if shape[2] != target.shape(path)[2]:
        return None

    def function(table):
        kept, patches = table[:, :old_prefix][:, :prefix], table[:, old_prefix:]
        patches = resample_position_embedding(patches, old, new, resampling)
        missing = prefix - kept.shape[1]
        kept = np.pad(kept, [(0, 0), (0, missing), (0, 0)])
        return np.concatenate([kept, patches], axis=1)

    parts = []
    if old != new:
        parts.append(
            f"grid {old[0]}x{old[1]} -> {new[0]}x{new[1]} ({resampling})"
        )
    if old_prefix != prefix:
        parts.append(f"prefix tokens {old_prefix} -> {prefix}")
    return Adaptation(function, ", ".join(parts))


def _adapt_axis(shape, checkpoint, target, path, resampling):
    """Adapt a table with a vector for each row, or each column, of the grid."""
    old, new = shape[0], target.shape(path)[0]
    if old == new or shape[1] != target.shape(path)[1]:
        return None
    matrix = resize_matrix(old, new, resampling)  # (new, old)
    return Adaptation(
        lambda table: (matrix @ table).astype("float32"),
        f"{path.split('/')[-1]} {old} -> {new} ({resampling})",
    )


def _adapt_offsets(shape, checkpoint, target, path, resampling):
    """Refuse another grid, in which the same offset is another way."""
    old = tuple(checkpoint.grid), checkpoint.facts.num_prefix_tokens
    new = tuple(target.grid), target.facts.num_prefix_tokens
    if old == new:
        return None
    raise ValueError(
        "Relative positions are offsets in the sequence of tokens, row by "
        "row, and mean nothing in another grid. Received: weights of "
        f"{old[0][0]}x{old[0][1]} patches and {old[1]} prefix tokens for a "
        f"model of {new[0][0]}x{new[0][1]} and {new[1]}. Keep the image size "
        "and the pooling of the weights, or train a variant with 1-D or 2-D "
        "positions."
    )


# How distances are resampled, by how positions are: between points that lie
# geometrically, otherwise linearly.
DISTANCES = {"bicubic_antialiased": ("geometric", geometric_matrix)}

LINEARLY = ("linear", RESAMPLINGS["linear"])


def _adapt_distances(shape, checkpoint, target, path, resampling):
    """Adapt a number for each distance on the grid; those of tokens stay."""
    old, new = tuple(checkpoint.grid), tuple(target.grid)
    spans = [tuple(2 * x - 1 for x in grid) for grid in (old, new)]
    extra = shape[0] - math.prod(spans[0])
    wanted = (math.prod(spans[1]) + extra, shape[1])
    if old == new or target.shape(path) != wanted:
        return None
    # Also of a span that stays as it is, as the originals do it.
    method, matrix = DISTANCES.get(resampling, LINEARLY)
    rows, columns = (matrix(x, y) for x, y in zip(*spans, strict=True))

    def function(table):
        patches = table[: math.prod(spans[0])].reshape(*spans[0], -1)
        patches = np.einsum("rR,cC,RCh->rch", rows, columns, patches)
        patches = patches.reshape(-1, table.shape[1]).astype("float32")
        return np.concatenate([patches, table[math.prod(spans[0]) :]])

    return Adaptation(
        function,
        f"distances in {old[0]}x{old[1]} -> {new[0]}x{new[1]} ({method})",
    )


def _adapt_span(shape, checkpoint, target, path, resampling):
    """Adapt a vector for each distance along an axis, always linearly."""
    return _adapt_axis(shape, checkpoint, target, path, "linear")


def _adapt_patches(shape, checkpoint, target, path, resampling):
    """Adapt the channels first, then the patch size."""
    wanted = target.shape(path)
    hybrid = "root_conv/kernel" in target.variables
    if shape == wanted or shape[3] != wanted[3] or hybrid:
        return None

    def function(kernel):
        if kernel.shape[2] != wanted[2]:
            kernel = adapt_channels(kernel, wanted[2])
        if kernel.shape[:2] != wanted[:2]:
            kernel = resize_patches(kernel, wanted[:2])
        return kernel

    return Adaptation(function, _describe_kernel(shape, wanted))


def _adapt_root(shape, checkpoint, target, path, resampling):
    wanted = target.shape(path)
    if shape == wanted or (*shape[:2], shape[3]) != (*wanted[:2], wanted[3]):
        return None
    return Adaptation(
        lambda kernel: adapt_channels(kernel, wanted[2]),
        _describe_kernel(shape, wanted),
    )


def _describe_kernel(old, new) -> str:
    parts = []
    if old[2] != new[2]:
        parts.append(f"channels {old[2]} -> {new[2]}")
    if old[:2] != new[:2]:
        parts.append(
            f"patches {old[0]}x{old[1]} -> {new[0]}x{new[1]} "
            "(pseudo-inverse resize)"
        )
    return ", ".join(parts)


POSITION = "position_embedding/"

ADAPTERS = {
    f"{POSITION}embedding": _adapt_position,
    f"{POSITION}rows": _adapt_axis,
    f"{POSITION}columns": _adapt_axis,
    f"{POSITION}offsets": _adapt_offsets,
    "attention/position_bias/table": _adapt_distances,
    "position_bias/table": _adapt_distances,
    "attention/position_bias/rows": _adapt_span,
    "attention/position_bias/columns": _adapt_span,
    "patch_embed/projection/kernel": _adapt_patches,
    "root_conv/kernel": _adapt_root,
    "root_conv1/kernel": _adapt_root,
    "stem_conv1/kernel": _adapt_root,
}
