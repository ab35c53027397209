"""Resizing and cropping of images of any size, as a part of an exported file.

Axes: B images of a batch, H and W height and width, C channels; h and w
height and width of the result.
"""

import math
from typing import Any

from keras import ops

from keras_vit.data.image_reader import Geometry

__all__ = ["WithResizing", "cropped"]


class WithResizing:
    """A model behind the resizing of its evaluation.

    Args:
        model: from images (B, h, w, C) in [0, 255] to scores.
        geometry: a `Geometry`, how images are resized and cropped.
    """

    def __init__(self, model: Any, geometry: Geometry):
        self.model = model
        self.geometry = geometry
        self.variables = model.variables
        self.input_shape = (None, None, None, geometry.channels)

    def __call__(self, images, training=None):
        return self.model(cropped(images, self.geometry), training=training)


def cropped(images: Any, geometry: Geometry) -> Any:
    """Resizes and crops images as `evaluation_crop` does.

    Each side is a product with a matrix of the weights of each pixel, which
    any exporter writes for any size: no shape is known before.

    Args:
        images: float32 tensor (B, H, W, C) in [0, 255].
        geometry: a `Geometry`.

    Returns:
        float32 tensor (B, h, w, C).
    """
    config = geometry.config
    default = "bilinear"
    # 1 to H and 1 to W, without asking for a shape.
    rows = ops.cumsum(ops.ones_like(images[0, :, 0, 0]))  # (H,)
    columns = ops.cumsum(ops.ones_like(images[0, 0, :, 0]))  # (W,)
    lengths = ops.stack([ops.max(rows), ops.max(columns)])  # (2,)
    if config.evaluation == "resize_small_central_crop":
        default = "area"
        sizes = ops.round(lengths * (geometry.smaller_side / ops.min(lengths)))
    else:
        squashed = config.evaluation == "squash"
        sides = geometry.image_size if squashed else geometry.both_sides
        sizes = ops.convert_to_tensor(sides, "float32")  # (2,)
    method = config.resize_method or default
    matrices = []
    for axis, places in enumerate((rows, columns)):
        centres = _centres(
            sizes[axis], lengths[axis], geometry.image_size[axis]
        )
        scale = lengths[axis] / sizes[axis]
        offset = places - 0.5 - centres[:, None]  # (h, H) or (w, W)
        weights = KERNELS[method](
            offset, scale, ops.maximum(scale, 1.0) if config.antialias else 1.0
        )
        total = ops.sum(weights, axis=1, keepdims=True)
        matrices.append(weights / total)
    result = ops.einsum("ih,bhwc->biwc", matrices[0], images)
    result = ops.einsum("jw,biwc->bijc", matrices[1], result)
    result = ops.clip(result, 0.0, 255.0)
    return ops.floor(result) if config.rounding == "uint8" else result


def _centres(size, length, kept: int):
    """Where the middle `kept` of `size` pixels lie among `length`: (kept,)."""
    first = ops.floor((size - kept) / 2)
    wanted = first + ops.arange(kept, dtype="float32")
    return (wanted + 0.5) * length / size


def _triangle(offset, scale, stretch):
    return ops.relu(1.0 - ops.abs(offset / stretch))


def _cubic(offset, scale, stretch):
    """Keys's kernel with a = -0.5."""
    x = ops.abs(offset / stretch)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return ops.where(x < 1.0, near, ops.where(x < 2.0, far, 0.0))


def _lanczos3(offset, scale, stretch):
    x = ops.abs(offset / stretch)
    angle = math.pi * ops.maximum(x, 1e-6)
    value = 3.0 * ops.sin(angle) * ops.sin(angle / 3.0) / (angle * angle)
    return ops.where(x < 3.0, value, 0.0)


def _overlap(offset, scale, stretch):
    """How much of a pixel lies in a box as wide as a pixel of the result."""
    reach = (scale + 1.0) / 2.0 - ops.abs(offset)
    return ops.minimum(ops.relu(reach), ops.minimum(scale, 1.0))


def _is_inside(offset, scale, stretch):
    inside = ops.logical_and(offset > -0.5, offset <= 0.5)
    return ops.cast(inside, "float32")


KERNELS = {
    "bilinear": _triangle,
    "bicubic": _cubic,
    "lanczos3": _lanczos3,
    "area": _overlap,
    "nearest": _is_inside,
}
