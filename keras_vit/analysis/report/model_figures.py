"""Figures of a model as a whole for a page, and what they show in words.

Axes: L layers (blocks), N heads, R and Q rows and columns of the grid of
patches.
"""

import numpy as np

from keras_vit.analysis.model_plots import (
    plot_attention_distance,
    plot_position_similarity,
)
from keras_vit.analysis.report import pictures

__all__ = ["model_figures"]


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
