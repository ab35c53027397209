"""Files of pictures of what a model sees.

Axes: M images, L layers (blocks), N heads, H and W height and width.
"""

import pathlib
from collections import Counter

import numpy as np

from keras_vit.analysis import (
    overlay,
    plot_attention_distance,
    plot_attention_maps,
    plot_images,
    plot_position_similarity,
    to_pixels,
)
from keras_vit.analysis.overview import AttentionOverview
from keras_vit.analysis.pixels import grid_window
from keras_vit.models import VisionTransformer

__all__ = ["write_pictures"]

SMALLEST = 224  # pixels of the shorter side of an overlay
DOTS_PER_INCH = 120


def write_pictures(
    folder: pathlib.Path,
    model: VisionTransformer,
    overview: AttentionOverview,
    arrays: dict[str, np.ndarray],
) -> None:
    """Writes three pictures of each image and two of the model.

    Args:
        folder: where to.
        model: the `VisionTransformer`.
        overview: `attention_overview` of the M images.
        arrays: `attention_arrays` of the same.

    Example:
        >>> write_pictures(folder, model, overview, arrays)
    """
    from PIL import Image

    pictures = _enlarged(arrays["pictures"])  # (M, H, W, C)
    rollouts = _overlays(model, pictures, overview.rollout)  # (M, H, W, 3)
    for i, name in enumerate(_file_names(arrays["titles"])):
        Image.fromarray(rollouts[i]).save(folder / f"{name}_rollout.png")
        grids = overview.grids[:, i]  # (L, N, rows, columns)
        layers = _overlays(
            model, pictures[[i] * len(grids)], grids.mean(axis=1)
        )  # (L, H, W, 3)
        titles = [f"layer {layer}" for layer in range(len(layers))]
        _save(plot_images(layers, titles), folder / f"{name}_layers.png")
        _save(plot_attention_maps(grids), folder / f"{name}_heads.png")
    _save(
        plot_attention_distance(overview.distances),
        folder / "attention_distance.png",
    )
    similarity = arrays["similarity"].astype("float32")
    _save(
        plot_position_similarity(similarity), folder / "position_similarity.png"
    )


def _save(figure, path):
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _enlarged(pictures):
    """Small pictures with pixels that one sees."""
    factor = -(-SMALLEST // min(pictures.shape[1:3]))
    return pictures.repeat(factor, axis=1).repeat(factor, axis=2)


def _overlays(model, pictures, maps):
    config = model.config
    if grid_window(config) == (0, 0, *config.image_size):
        return overlay(pictures, maps, blur=1)
    # The cells of a hybrid may reach beyond the image.
    return overlay(pictures, np.maximum(to_pixels(model, maps), 0))


def _file_names(titles):
    """Names of files without their ending, each once."""
    met: Counter = Counter()
    names = []
    for title in titles:
        name = pathlib.Path(str(title)).stem.replace(" ", "_")
        met[name] += 1
        names.append(f"{name}_{met[name]}" if met[name] > 1 else name)
    return names
