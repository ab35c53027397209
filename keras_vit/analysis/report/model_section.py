"""Figures of a model as a whole for a page, and what they show in words.

A map is divided by its maximum and kept in bytes. All maps of an image are one
grey picture, a row of maps for each layer and a column for each head, out of
which the page cuts the one that is asked for.

Axes: M images, H and W height and width, C channels, L layers (blocks), N
heads, R and Q rows and columns of the grid of patches, K classes, T the most
probable classes.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.analysis.inspection import position_similarity
from keras_vit.analysis.overview import AttentionOverview
from keras_vit.analysis.pixels import grid_window
from keras_vit.analysis.plots import (
    plot_attention_distance,
    plot_position_similarity,
)
from keras_vit.analysis.report import pictures
from keras_vit.models import VisionTransformer

__all__ = [
    "attention_arrays",
    "model_figures",
    "sights",
    "write_attention",
]


def model_figures(arrays: dict[str, np.ndarray]) -> dict:
    """Attention distance and position similarity.

    Args:
        arrays: of `attention_arrays`.

    Returns:
        Dict of "figures", each with "title", "source" (a data URI) and
        "text"; "distances", of each layer the distances of its heads;
        "images", their number.

    Example:
        >>> model_figures(arrays)["figures"][0]["title"]
        'Attention distance'
    """
    distances, similarity = arrays["distances"], arrays["similarity"]
    drawn = (
        (
            "Attention distance",
            plot_attention_distance(distances),
            _distances_in_words(distances),
        ),
        (
            "Position similarity",
            plot_position_similarity(similarity.astype("float32")),
            _similarity_in_words(similarity, int(arrays["similarity_step"])),
        ),
    )
    return {
        "figures": [
            {
                "title": title,
                "source": pictures.vector_graphic(figure),
                "text": text,
            }
            for title, figure, text in drawn
        ],
        "distances": distances.tolist(),
        "images": len(arrays["pictures"]),
    }


def _distances_in_words(distances):
    first, last = distances[0], distances[-1]
    return (
        "Mean distance between a patch and what it attends to, a dot for each "
        f"head. First layer: {first.min():.1f} to {first.max():.1f} pixels, "
        f"mean {first.mean():.1f}; last layer: {last.min():.1f} to "
        f"{last.max():.1f}, mean {last.mean():.1f}."
    )


def _similarity_in_words(similarity, step):
    rows, columns = similarity.shape[2:]
    every = (
        f"one patch in {step} rows and columns" if step > 1 else "each patch"
    )
    apart = np.indices((rows, columns)).reshape(2, -1).T  # (R * Q, 2)
    drawn = np.stack(
        np.meshgrid(
            np.arange(rows)[::step], np.arange(columns)[::step], indexing="ij"
        ),
        axis=-1,
    ).reshape(-1, 2)
    steps = np.abs(drawn[:, None] - apart).sum(axis=-1)  # grid distances
    values = similarity.astype("float32").reshape(steps.shape)
    near, far = values[steps == 1], values[steps > 1]
    means = "; ".join(
        f"{name} {part.mean():.2f}"
        for name, part in (("neighbours", near), ("all others", far))
        if part.size
    )
    return (
        f"Cosine similarity of the position embedding of {every} with those "
        f"of all {rows}x{columns} patches, a map for each. Means: {means}."
    )


PHOTO_SIDE = 448  # pixels; a photograph is not shown larger.
MAX_TILES = 16  # maps in a row of the figure of position similarity


def attention_arrays(
    model: VisionTransformer,
    overview: AttentionOverview,
    images: np.ndarray,
    *,
    titles: Sequence[str],
    classes: Any,
    probabilities: Any,
    labels: Any = None,
) -> dict[str, np.ndarray]:
    """What the page needs, small enough for a run folder.

    Args:
        model: the `VisionTransformer` of K classes.
        overview: `attention_overview` of the model and the M images.
        images: array (M, H, W, C) in [0, 255].
        titles: M names of the images.
        classes: integer array (M, T), the most probable first.
        probabilities: float array (M, T).
        labels: integer array (M,), the true classes; None where nobody knows.

    Returns:
        Dictionary of arrays: pictures (M, H, W, C), maps (L, M, 1 + N, R, Q)
        and rollout (M, R, Q), all uint8, of maps the first being the mean of
        the heads; distances (L, N); similarity, float16 (tiles, tiles, R, Q)
        of every similarity_step-th patch; window, where the grid lies on the
        image (top, left, height, width); titles, classes, probabilities,
        num_classes; and labels where there are any.

    Example:
        >>> overview = attention_overview(model, images)
        >>> attention_arrays(model, overview, images, titles=["a.jpg"],
        ...     classes=[[3]], probabilities=[[0.9]])["maps"].dtype
        dtype('uint8')
    """
    grids = np.moveaxis(overview.grids, 2, 0)  # (N, L, M, R, Q)
    with_mean = np.concatenate([grids.mean(axis=0, keepdims=True), grids])
    step = -(-max(model.config.grid) // MAX_TILES)
    similarity = position_similarity(model)[::step, ::step]
    arrays = {
        "pictures": np.clip(np.rint(images), 0, 255).astype("uint8"),
        "maps": np.moveaxis(_bytes(with_mean), 0, 2),  # (L, M, 1 + N, R, Q)
        "rollout": _bytes(overview.rollout),
        "distances": overview.distances,
        "similarity": similarity.astype("float16"),
        "similarity_step": np.array(step),
        "window": np.array(grid_window(model.config)),
        "titles": np.array(titles, str),
        "classes": np.asarray(classes),
        "probabilities": np.asarray(probabilities, "float32"),
        "num_classes": np.array(model.config.num_classes),
    }
    return arrays if labels is None else arrays | {"labels": np.array(labels)}


def write_attention(
    path: str | os.PathLike, arrays: dict[str, np.ndarray] | str
) -> None:
    """Keeps what a model sees for the report.

    Args:
        path: the file, attention.npz in the run folder.
        arrays: from `attention_arrays`; or str, why there is nothing to show,
            which the report then tells.

    Example:
        >>> write_attention("attention.npz", "a Mixer has no attention")
    """
    contents: dict = (
        {"reason": np.array(arrays)} if isinstance(arrays, str) else arrays
    )
    with open(path, "wb") as file:
        np.savez_compressed(file, **contents)


def sights(arrays: dict[str, np.ndarray], names: Sequence[str]) -> dict:
    """What the template of the attention shows.

    Args:
        arrays: of `attention_arrays`.
        names: K names of the classes.

    Returns:
        Dict of "layers", "heads", "rows" and "columns", their numbers;
        "window" and "ratio" for CSS; and "images", for each of them its
        photograph, maps, rollout, truth and guesses.

    Example:
        >>> sights(arrays, names)["images"][0]["guesses"][0]
        ('tabby', 0.87)
    """
    layers, _, heads, rows, columns = arrays["maps"].shape
    height, width = arrays["pictures"].shape[1:3]
    top, left, tall, wide = arrays["window"].tolist()
    return {
        "layers": layers,
        "heads": heads - 1,
        "rows": rows,
        "columns": columns,
        "ratio": f"{width} / {height}",
        "window": (
            f"top: {top / height:.4%}; left: {left / width:.4%}; "
            f"height: {tall / height:.4%}; width: {wide / width:.4%}"
        ),
        "images": [
            _sight(arrays, i, names) for i in range(len(arrays["pictures"]))
        ],
    }


def _sight(arrays, i, names):
    maps = np.moveaxis(arrays["maps"][:, i], 1, 2)  # (L, R, 1 + N, Q)
    layers, rows, heads, columns = maps.shape
    shares = arrays["probabilities"][i].tolist()
    guesses = zip(arrays["classes"][i], shares, strict=True)
    truth = names[arrays["labels"][i]] if "labels" in arrays else None
    rollout = arrays["rollout"][i]
    row, column = np.unravel_index(rollout.argmax(), rollout.shape)
    return {
        "title": str(arrays["titles"][i]),
        "photo": pictures.photograph(arrays["pictures"][i], side=PHOTO_SIDE),
        "sprite": pictures.grey(maps.reshape(layers * rows, heads * columns)),
        "rollout": pictures.grey(rollout),
        "strongest": (int(row), int(column)),
        "truth": truth,
        "guesses": [(names[k], share) for k, share in guesses],
    }


def _bytes(maps):
    """Maps (..., R, Q) as shares of their maximum, 255 for all of it."""
    peaks = maps.max(axis=(-2, -1), keepdims=True)
    shares = maps / np.maximum(peaks, np.finfo("float32").tiny)
    return np.rint(255 * shares).astype("uint8")
