"""Small random affine changes of images, without state.

What happens to an image is a function of the seed, the epoch and the number
of the image alone: not of the batch it is in, nor of what was drawn before.
So a run that is continued, or that reads in another order, sees the same.

Axes: N images, H and W height and width, C channels.
"""

import dataclasses

import numpy as np

__all__ = ["RandomAffine", "affine_transform"]

LIMITS = {"shift": 1, "rotation": 180, "zoom": 1}


@dataclasses.dataclass(frozen=True)
class RandomAffine:
    """Bounds of the random shift, rotation and zoom; zero leaves images as is.

    Raises:
        ValueError: for a bound outside its range.

    Example:
        >>> images = np.zeros((2, 16, 16, 1), "uint8")
        >>> augment = RandomAffine(shift=0.1, rotation=10)
        >>> augment(images, examples=[7, 3], seed=0, epoch=5).shape
        (2, 16, 16, 1)
    """

    shift: float = 0.0
    """Largest shift along each axis, as a fraction of the image's side."""

    rotation: float = 0.0
    """Largest angle to either side, in degrees below 180."""

    zoom: float = 0.0
    """Largest relative change of size: 0.1 draws factors in [0.9, 1.1]."""

    def __post_init__(self):
        for name, limit in LIMITS.items():
            bound = getattr(self, name)
            if not 0 <= bound < limit:
                raise ValueError(
                    f"{name} must be at least 0 and below {limit}. Received: "
                    f"{name}={bound!r}."
                )

    def __call__(self, images, examples, *, seed: int, epoch: int):
        """Changes each image as its number and the epoch say.

        Args:
            images: uint8 array of shape (N, H, W, C).
            examples: N non-negative integers, the numbers of the images in
                the data set.
            seed: non-negative int.
            epoch: int, counted from 0.

        Returns:
            uint8 array of shape (N, H, W, C).
        """
        if not (self.shift or self.rotation or self.zoom):
            return images
        draws = np.stack(
            [
                np.random.default_rng((seed, epoch, example)).uniform(-1, 1, 4)
                for example in examples
            ]
        )  # (N, 4)
        sides = np.array(images.shape[1:3])
        return affine_transform(
            images,
            shift=draws[:, :2] * self.shift * sides,
            angle=np.deg2rad(draws[:, 2] * self.rotation),
            scale=1 + draws[:, 3] * self.zoom,
        )


def affine_transform(images, *, shift, angle, scale):
    """Rotates and scales images about their centres, then shifts them.

    Bilinear; what comes from outside the image is 0.

    Args:
        images: uint8 array of shape (N, H, W, C).
        shift: array of shape (N, 2), pixels down and to the right.
        angle: array of shape (N,), radians, counter-clockwise.
        scale: array of shape (N,), above 1 enlarges.

    Returns:
        uint8 array of shape (N, H, W, C).
    """
    height, width = images.shape[1:3]
    centre = np.array([height - 1, width - 1]) / 2
    grid = np.indices((height, width)).transpose(1, 2, 0) - centre  # (H, W, 2)
    # Each pixel of the result asks where it comes from: the inverse map.
    cosine = np.cos(angle) / scale
    sine = np.sin(angle) / scale
    inverse = np.stack([cosine, sine, -sine, cosine], -1)
    inverse = inverse.reshape(-1, 2, 2)  # (N, 2, 2)
    grid = grid - shift[:, None, None]  # (N, H, W, 2)
    source = np.einsum("nij,nhwj->nhwi", inverse, grid) + centre
    return bilinear(images, source)


def bilinear(images, source):
    """Reads images at fractional positions.

    Args:
        images: uint8 array of shape (N, H, W, C).
        source: array of shape (N, H, W, 2), rows and columns to read at.

    Returns:
        uint8 array of shape (N, H, W, C), 0 where a position is outside.
    """
    height, width = images.shape[1:3]
    low = np.floor(source).astype(int)
    fraction = source - low
    # One pixel of zeros around stands for all that is outside.
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    result = np.zeros(images.shape)
    number = np.arange(len(images))[:, None, None]
    for down in (0, 1):
        for right in (0, 1):
            row = np.clip(low[..., 0] + down + 1, 0, height + 1)
            column = np.clip(low[..., 1] + right + 1, 0, width + 1)
            weight = np.abs(1 - down - fraction[..., 0]) * np.abs(
                1 - right - fraction[..., 1]
            )  # (N, H, W)
            result += weight[..., None] * padded[number, row, column]
    return np.rint(result).astype(np.uint8)
