"""Crops of images for self-supervision, cut and coloured on the device.

"DINO" (arXiv:2104.14294), section 3 and appendix A: crops of two sizes and
BYOL's colours (arXiv:2006.07733, appendix B). A crop is the product of an
image with two matrices, one of its rows and one of its columns, so that every
backend cuts the same views from the same numbers.

Axes: B images, V views of each, S side of the images, N side of a view, C
channels, R numbers drawn for a view.
"""

import math

import keras
import numpy as np
from keras import ops

__all__ = ["DRAWS", "Views"]

# What is drawn for a view, in order, each in [0, 1).
DRAWS = (
    *("area", "ratio", "top", "left", "flip"),
    *("jitter", "brightness", "contrast", "saturation", "hue"),
    *("grey", "blur", "sigma", "solarize"),
)
RATIO = 3 / 4  # The narrowest crop, width to height; the widest is 4 / 3.
JITTER_RATE = 0.8
# Largest relative changes, and of the hue as a share of the circle.
BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.4, 0.4, 0.2, 0.1
GREY_RATE = 0.2
LEAST_SIGMA = 0.1  # Pixels, of the blur.
THRESHOLD = 128  # Solarising inverts the levels above it.
# To luminance and two axes of colour, in which a hue is an angle.
YIQ = np.array(
    [[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]]
)
GREY = YIQ[0]  # ITU-R BT.601


class Views(keras.layers.Layer):
    """Cuts views from square images and changes their colours.

    In the order of the paper: crop, flip, brightness, contrast, saturation,
    hue, grey, blur, solarise. A crop covers a drawn share of the area at a
    ratio of 3/4 to 4/3, at most the whole side, and is resized by a triangle
    filter that averages over all pixels. Hues turn in YIQ. Grey images keep
    saturation and hue.

    Args:
        size: int, N.
        scale: (least, largest) share of the area that a crop covers.
        blur_rates: probability of a blur, a number for each of the V views.
        solarize_rates: likewise of solarising.
        flip: whether half of the views are mirrored.
        jitter: float, what the changes of colours are multiplied by; 0
            leaves the colours, grey included, as they are.
        largest_sigma: float, of the blur, in pixels; 0 for none.

    Input shape:
        Images (B, S, S, C) in [0, 255], and what is drawn, float32
        (B, V, R) in [0, 1), the numbers of `DRAWS`.

    Output shape:
        float32 (B * V, N, N, C) in [0, 255], image by image: devices that share
        the images share the views.

    Example:

    >>> cut = Views(8, (0.4, 1.0), (1.0, 0.1), (0.0, 0.2))
    >>> cut(np.zeros((3, 16, 16, 3)), np.zeros((3, 2, len(DRAWS)))).shape
    (6, 8, 8, 3)
    """

    def __init__(
        self,
        size: int,
        scale,
        blur_rates,
        solarize_rates,
        *,
        flip: bool = True,
        jitter: float = 1.0,
        largest_sigma: float = 2.0,
        **kwargs,
    ):
        super().__init__(dtype=kwargs.pop("dtype", "float32"), **kwargs)
        self.size = size
        self.scale = tuple(scale)
        self.blur_rates = tuple(blur_rates)
        self.solarize_rates = tuple(solarize_rates)
        self.flip = flip
        self.jitter = jitter
        self.largest_sigma = largest_sigma

    def call(self, images, drawn):
        side, channels = images.shape[1], images.shape[-1]
        named = {x: drawn[..., i] for i, x in enumerate(DRAWS)}  # (B, V)
        rows, columns = self.cuts(named, side)  # (B, V, N, S)
        x = ops.cast(images, "float32")
        x = ops.einsum("bvis,bstc->bvitc", rows, x)
        x = ops.einsum("bvjt,bvitc->bvijc", columns, x)  # (B, V, N, N, C)
        if self.jitter:
            x = self.coloured(x, named)
        if self.largest_sigma:
            blur = self.blurs(named)  # (B, V, N, N)
            x = ops.einsum("bvki,bvijc->bvkjc", blur, x)
            x = ops.einsum("bvlj,bvkjc->bvklc", blur, x)
        if any(self.solarize_rates):
            chosen = named["solarize"] < tensor(self.solarize_rates)
            turned = ops.where(x >= THRESHOLD, 255 - x, x)
            x = ops.where(to_pixels(chosen), turned, x)
        return ops.reshape(x, (-1, self.size, self.size, channels))

    def cuts(self, drawn, side: int) -> list:
        """Return the matrices that cut rows and columns, (B, V, N, S)."""
        least, largest = self.scale
        area = least + (largest - least) * drawn["area"]
        ratio = ops.exp((2 * drawn["ratio"] - 1) * -math.log(RATIO))
        height = ops.minimum(ops.sqrt(area / ratio), 1.0)
        width = ops.minimum(ops.sqrt(area * ratio), 1.0)
        mirrored = drawn["flip"] < (0.5 if self.flip else 0.0)
        return [
            self.cut((1 - height) * drawn["top"], height, side),
            self.cut((1 - width) * drawn["left"], width, side, mirrored),
        ]

    def cut(self, start, length, side: int, mirrored=None):
        """Return the matrices that resize parts of a line, (B, V, N, S)."""
        places = tensor((np.arange(self.size) + 0.5) / self.size)
        places = ops.broadcast_to(places, (*ops.shape(start), self.size))
        if mirrored is not None:
            places = ops.where(mirrored[..., None], 1 - places, places)
        centre = (start[..., None] + length[..., None] * places) * side - 0.5
        reach = ops.maximum(length * side / self.size, 1.0)[..., None, None]
        distance = ops.abs(centre[..., None] - tensor(np.arange(side)))
        weights = ops.maximum(1 - distance / reach, 0.0)
        return weights / ops.sum(weights, axis=-1, keepdims=True)

    def coloured(self, x, drawn):
        """Change brightness, contrast, saturation and hue, and make grey."""
        applied = to_pixels(drawn["jitter"] < JITTER_RATE)

        def factor(name, most):
            change = (2 * drawn[name] - 1) * most * self.jitter
            return to_pixels(1 + change)

        y = clipped(x * factor("brightness", BRIGHTNESS))
        mean = ops.mean(luminance(y), axis=(-3, -2), keepdims=True)
        y = clipped(mean + (y - mean) * factor("contrast", CONTRAST))
        if x.shape[-1] != 3:
            return ops.where(applied, y, x)
        grey = luminance(y)
        y = clipped(grey + (y - grey) * factor("saturation", SATURATION))
        angle = (2 * drawn["hue"] - 1) * HUE * self.jitter * 2 * math.pi
        y = ops.where(applied, clipped(turned_hue(y, angle)), x)
        chosen = to_pixels(drawn["grey"] < GREY_RATE)
        return ops.where(chosen, luminance(y) + 0 * y, y)

    def blurs(self, drawn):
        """Return matrices of Gaussian blurs, or of none, (B, V, N, N)."""
        chosen = drawn["blur"] < tensor(self.blur_rates)
        sigma = (
            LEAST_SIGMA + (self.largest_sigma - LEAST_SIGMA) * (drawn["sigma"])
        )
        places = np.arange(self.size)
        squares = tensor((places[:, None] - places) ** 2)  # (N, N)
        weights = ops.exp(-squares / (2 * sigma[..., None, None] ** 2))
        weights = weights / ops.sum(weights, axis=-1, keepdims=True)
        same = tensor(np.eye(self.size))
        return ops.where(chosen[..., None, None], weights, same)

    def compute_output_shape(self, images_shape, drawn_shape):
        del drawn_shape
        return None, self.size, self.size, images_shape[-1]


def tensor(x):
    return ops.convert_to_tensor(np.asarray(x, "float32"))


def to_pixels(numbers):
    """Give numbers of views (B, V) the axes of their pixels."""
    return numbers[..., None, None, None]


def clipped(x):
    return ops.clip(x, 0, 255)


def luminance(x):
    """Return the grey levels of views (..., C), (..., 1)."""
    if x.shape[-1] != 3:
        return ops.mean(x, axis=-1, keepdims=True)
    return ops.sum(x * tensor(GREY), axis=-1, keepdims=True)


def turned_hue(x, angle):
    """Turn the hues of views (B, V, N, N, 3) by angles (B, V)."""
    cosine, sine = ops.cos(angle), ops.sin(angle)
    zero = ops.zeros_like(angle)
    turn = [zero + 1, zero, zero, zero, cosine, -sine, zero, sine, cosine]
    turn = ops.stack(turn, axis=-1)  # (B, V, 9)
    turn = ops.reshape(turn, (*ops.shape(angle), 3, 3))
    change = ops.matmul(
        ops.matmul(tensor(np.linalg.inv(YIQ)), turn), tensor(YIQ)
    )
    return ops.einsum("bvdc,bvijc->bvijd", change, x)
