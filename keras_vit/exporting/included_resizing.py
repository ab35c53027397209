"""Resizing and cropping of images of any size, as a part of an exported file.

Axes: B images of a batch, H and W height and width, C channels; h and w
height and width of the result.
"""

from typing import Any

from keras import ops

from keras_vit.data.resizing import (
    EVALUATION_CROPS,
    KERNELS,
    PADDING,
    Geometry,
)

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
    crop = EVALUATION_CROPS[config.evaluation]
    if crop.window:
        raise ValueError(
            "A file cannot cut images before it resizes them. Received: "
            f"evaluation={config.evaluation!r}. Leave out include_resizing."
        )
    # 1 to H and 1 to W, without asking for a shape.
    rows = ops.cumsum(ops.ones_like(images[0, :, 0, 0]))  # (H,)
    columns = ops.cumsum(ops.ones_like(images[0, 0, :, 0]))  # (W,)
    lengths = ops.stack([ops.max(rows), ops.max(columns)])  # (2,)
    sizes = crop.size(lengths, geometry, ops)  # (2,)
    kept = ops.convert_to_tensor(geometry.image_size, "float32")  # (2,)
    first = crop.first(sizes - kept, ops)  # (2,)
    method = config.resize_method or crop.method
    steps = []
    for axis, places in enumerate((rows, columns)):
        wanted = first[axis] + ops.arange(
            geometry.image_size[axis], dtype="float32"
        )  # (kept,)
        scale = lengths[axis] / sizes[axis]
        weights = _weights(
            places - 0.5,
            (wanted + 0.5) * scale,
            scale,
            method,
            config.antialias,
        )  # (h, H) or (w, W)
        inside = ops.logical_and(wanted >= 0, wanted < sizes[axis])
        steps.append((AXES[axis], weights, inside))
    nearest = config.rounding == "nearest"
    result = images
    for product, weights, _ in reversed(steps) if nearest else steps:
        result = ops.einsum(product, weights, result)
        if nearest:
            result = ops.floor(ops.clip(result, 0.0, 255.0) + 0.5)
    result = ops.clip(result, 0.0, 255.0)
    if config.rounding == "uint8":
        result = ops.floor(result)
    if config.evaluation not in PADDING:
        return result
    (_, _, rows), (_, _, columns) = steps
    inside = ops.logical_and(rows[:, None], columns)[..., None]  # (h, w, 1)
    colour = ops.convert_to_tensor(config.padding_colour or (0,), "float32")
    return ops.where(inside, result, colour)


AXES = ("ih,bhwc->biwc", "jw,bhwc->bhjc")


def _weights(places, centres, scale, method: str, antialias: bool):
    """Return the weight of each of H pixels in each of h means: (h, H)."""
    kernel, radius = KERNELS[method]
    stretch = ops.maximum(scale, 1.0) if antialias else 1.0
    if radius is None:
        stretch = scale
    weights = kernel(places - centres[:, None], stretch, ops)
    # What lies outside of the image has none, and is filled up later.
    total = ops.sum(weights, axis=1, keepdims=True)
    return weights / ops.where(total == 0, 1.0, total)
