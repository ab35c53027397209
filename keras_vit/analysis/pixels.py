"""From the grid of patches back to the pixels of the image.

Axes: B batch, R and C rows and columns of the grid of patches, H and W height
and width of the image.
"""

from typing import Any

import numpy as np

from keras_vit.analysis.attention import check_model
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.resnet import stem_grid

__all__ = ["grid_window", "patch_pixels", "to_pixels"]

PROBE = 4096  # pixels, a multiple of the stride of any ResNet of ours


def patch_pixels(config: ViTConfig) -> tuple[int, int]:
    """Height and width of a patch in pixels of the input image.

    Args:
        config: a `ViTConfig`. The patches of a hybrid are cells of a feature
            map, each of which stands for 4 pixels or more.

    Returns:
        (height, width).

    Example:
        >>> patch_pixels(keras_vit.ViT_R50_B16(weights=None).config)
        (16, 16)
    """
    height, width = config.patch_size
    if config.resnet_units is None:
        return height, width
    cells = stem_grid((PROBE, PROBE), config.resnet_units)[0]
    return height * PROBE // cells, width * PROBE // cells


def grid_window(config: ViTConfig) -> tuple[int, int, int, int]:
    """Where the grid of patches lies on the image.

    Args:
        config: a `ViTConfig`. The last cells of a hybrid may reach beyond the
            image, on which the grid is then centred.

    Returns:
        (top, left, height, width) in pixels of the image; top and left are 0
        or below.

    Example:
        >>> grid_window(keras_vit.ViT_B16(weights=None).config)
        (0, 0, 224, 224)
    """
    (height, width), patch = config.image_size, patch_pixels(config)
    rows, columns = (n * p for n, p in zip(config.grid, patch, strict=True))
    return -((rows - height) // 2), -((columns - width) // 2), rows, columns


def to_pixels(
    model: VisionTransformer, maps: Any, *, resample: str = "lanczos"
) -> np.ndarray:
    """Maps on the grid of patches, enlarged to the size of the image.

    Hybrids included: their feature maps, whose last row and column may stand
    for less than a whole cell, are centred on the image as the convolutions
    pad it.

    Args:
        model: a `VisionTransformer`.
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
    maps = np.asarray(maps, "float32")
    if maps.shape[-2:] != config.grid:
        raise ValueError(
            f"The model has a grid of {config.grid[0]}x{config.grid[1]} "
            f"patches. Received: maps of shape {maps.shape}. The last two "
            "axes must be rows and columns of that grid."
        )
    top, left, rows, columns = grid_window(config)
    filters = Image.Resampling[resample.upper()]
    large = [
        np.asarray(Image.fromarray(grid).resize((columns, rows), filters))
        for grid in maps.reshape(-1, *config.grid)
    ]
    height, width = config.image_size
    return np.reshape(large, (*maps.shape[:-2], rows, columns))[
        ..., -top : height - top, -left : width - left
    ]
