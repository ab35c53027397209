"""Resizing and cropping of images of any size, as a part of an exported file.

Axes: B images of a batch, H and W height and width, C channels; h and w
height and width of the result.
"""

from typing import Any

from keras import ops

from keras_vit.data.resizing import DEFAULT_METHODS, KERNELS, Geometry

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
    method = config.resize_method or DEFAULT_METHODS.get(
        config.evaluation, "bilinear"
    )
    # 1 to H and 1 to W, without asking for a shape.
    rows = ops.cumsum(ops.ones_like(images[0, :, 0, 0]))  # (H,)
    columns = ops.cumsum(ops.ones_like(images[0, 0, :, 0]))  # (W,)
    lengths = ops.stack([ops.max(rows), ops.max(columns)])  # (2,)
    sizes = _sizes(lengths, geometry)  # (2,)
    down, right = (
        _weights(
            places - 0.5,
            _centres(sizes[axis], lengths[axis], geometry.image_size[axis]),
            lengths[axis] / sizes[axis],
            method,
            config.antialias,
        )
        for axis, places in enumerate((rows, columns))
    )  # (h, H) and (w, W)
    result = ops.einsum("ih,bhwc->biwc", down, images)
    result = ops.einsum("jw,biwc->bijc", right, result)
    result = ops.clip(result, 0.0, 255.0)
    return ops.floor(result) if config.rounding == "uint8" else result


def _sizes(lengths, geometry: Geometry):
    """Height and width that images are scaled to before the crop: (2,)."""
    crop = geometry.config.evaluation
    if crop == "resize_small_central_crop":
        return ops.round(lengths * (geometry.smaller_side / ops.min(lengths)))
    squashed = crop == "squash"
    sides = geometry.image_size if squashed else geometry.both_sides
    return ops.convert_to_tensor(sides, "float32")


def _centres(size, length, kept: int):
    """Return where the middle `kept` of `size` pixels lie: (kept,)."""
    first = ops.floor((size - kept) / 2)
    wanted = first + ops.arange(kept, dtype="float32")
    return (wanted + 0.5) * length / size


def _weights(places, centres, scale, method: str, antialias: bool):
    """Return the weight of each of H pixels in each of h means: (h, H)."""
    kernel, radius = KERNELS[method]
    stretch = ops.maximum(scale, 1.0) if antialias else 1.0
    if radius is None:
        stretch = scale
    weights = kernel(places - centres[:, None], stretch, ops)
    return weights / ops.sum(weights, axis=1, keepdims=True)
