"""How a weight of a file becomes one of another shape in the model."""

import dataclasses
import re
from collections.abc import Callable

import numpy as np

from keras_vit.checkpoints.surgery.patch_resize import (
    adapt_channels,
    resize_patches,
)
from keras_vit.checkpoints.surgery.resample import (
    resample_position_embedding,
    resize_matrix,
)

__all__ = ["Adapter", "adapter"]


@dataclasses.dataclass(frozen=True)
class Adapter:
    """A change of shape.

    Args:
        function: from the file's array, in our layout, to the model's.
        description: str for the report, "" when nothing changes.
    """

    function: Callable
    description: str = ""


def adapter(path, shape, configured, target, resampling) -> Adapter | None:
    """Finds how a weight is adapted.

    Args:
        path: str, path of the weight.
        shape: tuple, its shape in the file, in our layout.
        configured: a `Configured`, of the file.
        target: a `Target`.
        resampling: str, see `resample_position_embedding`.

    Returns:
        An `Adapter`, or None when the shapes cannot be brought together.
    """
    # A table before a later block is one like that before the first.
    adapt = ADAPTERS.get(re.sub(r"^position_embedding_\d+/", POSITION, path))
    if adapt is not None:
        found = adapt(shape, configured, target, path, resampling)
        if found is not None:
            return found
    return Adapter(lambda x: x) if shape == target.shape(path) else None


def adapt_position(shape, configured, target, path, resampling):
    old_prefix = configured.facts.num_prefix_tokens
    prefix = target.facts.num_prefix_tokens
    old, new = tuple(configured.grid), tuple(target.grid)
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
    return Adapter(function, ", ".join(parts))


def adapt_axis(shape, configured, target, path, resampling):
    """Of a table with a vector for each row, or each column, of the grid."""
    old, new = shape[0], target.shape(path)[0]
    if old == new or shape[1] != target.shape(path)[1]:
        return None
    matrix = resize_matrix(old, new, resampling)  # (new, old)
    return Adapter(
        lambda table: (matrix @ table).astype("float32"),
        f"{path.split('/')[1]} {old} -> {new} ({resampling})",
    )


def adapt_offsets(shape, configured, target, path, resampling):
    """The same offset is another way in a grid of other columns."""
    old = tuple(configured.grid), configured.facts.num_prefix_tokens
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


def adapt_patches(shape, configured, target, path, resampling):
    """Channels first, then the patch size."""
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

    return Adapter(function, describe_kernel(shape, wanted))


def adapt_root(shape, configured, target, path, resampling):
    wanted = target.shape(path)
    if shape == wanted or (*shape[:2], shape[3]) != (*wanted[:2], wanted[3]):
        return None
    return Adapter(
        lambda kernel: adapt_channels(kernel, wanted[2]),
        describe_kernel(shape, wanted),
    )


def describe_kernel(old, new) -> str:
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
    f"{POSITION}embedding": adapt_position,
    f"{POSITION}rows": adapt_axis,
    f"{POSITION}columns": adapt_axis,
    f"{POSITION}offsets": adapt_offsets,
    "patch_embed/projection/kernel": adapt_patches,
    "root_conv/kernel": adapt_root,
}
