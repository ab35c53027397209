"""Attention in reports: the arrays that are stored, and how they are drawn.

A map is divided by its maximum and stored in bytes. All maps of an image are
one grey picture, a row of maps per layer and a column per head, out of which
the page cuts the one that is asked for.

Axes: M images, H and W height and width, C channels, L layers (blocks), N
heads, R and Q rows and columns of the grid of patches, K classes, T the most
probable classes.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.analysis.attention_weights import (
    NO_POSITIONS,
    AttentionOverview,
    attention_overview,
    check_model,
    grid_window,
    has_positions,
    position_similarity,
)
from keras_vit.analysis.plots import (
    plot_attention_distance,
    plot_position_similarity,
)
from keras_vit.analysis.report import pictures
from keras_vit.analysis.report.run_files import image_titles
from keras_vit.io.atomic_files import replacing
from keras_vit.models import VisionTransformer
from keras_vit.preprocessing import preprocess_input
from keras_vit.variants import VariantTransformer

__all__ = [
    "attention_arrays",
    "attention_contents",
    "explain_run",
    "model_figures",
    "write_attention",
]

NUM_IMAGES = 8  # in the report of a run
PHOTO_SIDE = 448  # pixels; photographs are not drawn larger.
MAX_TILES = 16  # maps in a row of the figure of position similarity


def explain_run(folder: str | os.PathLike, model: keras.Model) -> None:
    """Store what a model attends to in some images of its evaluation.

    Writes attention.npz for the report of the run: of mistakes and of right
    answers in predictions.npz, or the reason why there is nothing to show.

    Args:
        folder: the run folder.
        model: the model that was evaluated, on images in [0, 255].

    Example:
        >>> explain_run("runs/quickstart", model)
    """
    folder = pathlib.Path(folder)
    with replacing(folder / "attention.npz") as path:
        write_attention(path, _of_run(folder, model))


def write_attention(
    path: str | os.PathLike, arrays: dict[str, np.ndarray] | str
) -> None:
    """Write attention.npz: `attention_arrays`, or why there are none."""
    contents: dict = (
        {"reason": np.array(arrays)} if isinstance(arrays, str) else arrays
    )
    with open(path, "wb") as file:
        np.savez_compressed(file, **contents)


def _of_run(folder, model) -> dict | str:
    """Arrays for attention.npz, or the reason why there are none."""
    if not isinstance(model, (VisionTransformer, VariantTransformer)):
        return f"a {type(model).__name__} has no attention."
    try:
        check_model(model)
    except ValueError as error:
        return str(error)
    if not (folder / "predictions.npz").is_file():
        return "no images were evaluated."
    with np.load(folder / "predictions.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    images, rows, single = _selected(found)
    titles = image_titles(found)
    inputs = images.astype("float32")
    if not model.config.include_preprocessing:
        inputs = preprocess_input(images)
    try:
        overview = attention_overview(model, inputs)
    except Exception as error:
        # The run is finished; pictures that a device has no memory for, say,
        # are no reason to lose it.
        return f"it could not be computed ({' '.join(str(error).split())})."
    return attention_arrays(
        model,
        overview,
        images,
        titles=[titles[row] for row in rows],
        classes=found["classes"][rows],
        probabilities=found["probabilities"][rows],
        labels=found["labels"][rows] if single else None,
    )


def _selected(found):
    """Images of mistakes, then of right answers of different classes."""
    images = np.concatenate([found["cell_pictures"], found["pictures"]])
    rows = np.concatenate([found["cell_rows"], found["picture_rows"]])
    labels = found["labels"]
    if labels.ndim > 1:
        return images[:NUM_IMAGES], rows[:NUM_IMAGES], False
    right = labels[rows] == found["classes"][rows, 0]
    order = np.argsort(-found["probabilities"][rows, 0], kind="stable")
    wrong = order[~right[order]][: NUM_IMAGES // 2]
    others = np.flatnonzero(right)
    _, first = np.unique(labels[rows[others]], return_index=True)
    selected = [*wrong, *others[np.sort(first)]]
    # As many as there can be: eight images divide evenly among devices.
    selected += [*np.setdiff1d(np.arange(len(rows)), selected)]
    selected = selected[:NUM_IMAGES]
    return images[selected], rows[selected], True


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
    """Return what a page draws of the attention, small enough for a run folder.

    Args:
        model: the `VisionTransformer` of K classes.
        overview: `attention_overview` of the model and the M images.
        images: array (M, H, W, C) in [0, 255].
        titles: M names of the images.
        classes: integer array (M, T), the most probable first.
        probabilities: float array (M, T).
        labels: integer array (M,), the true classes; None if unknown.

    Returns:
        Dictionary of arrays: pictures (M, H, W, C), maps (L, M, 1 + N, R, Q)
        and rollout (M, R, Q), all uint8, of maps the first being the mean of
        the heads; distances (L, N); similarity, float16 (tiles, tiles, R, Q)
        of every similarity_step-th patch, of none where the model has no
        position embeddings; window, where the grid lies on the
        image (top, left, height, width); titles, classes, probabilities,
        num_classes; and labels where there are any.
    """
    grids = np.moveaxis(overview.grids, 2, 0)  # (N, L, M, R, Q)
    with_mean = np.concatenate([grids.mean(axis=0, keepdims=True), grids])
    step = -(-max(model.config.grid) // MAX_TILES)
    similarity = np.zeros((0, 0, *model.config.grid))
    if has_positions(model):
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


def _bytes(maps):
    """Maps (..., R, Q) as shares of their maximum, 255 for all of it."""
    peaks = maps.max(axis=(-2, -1), keepdims=True)
    shares = maps / np.maximum(peaks, np.finfo("float32").tiny)
    return np.rint(255 * shares).astype("uint8")


def attention_contents(
    arrays: dict[str, np.ndarray], names: Sequence[str]
) -> dict:
    """Return what the template of the attention fills in.

    Args:
        arrays: of `attention_arrays`.
        names: K names of the classes.

    Returns:
        Dict of "layers", "heads", "rows" and "columns", their numbers;
        "window" and "ratio" for CSS; and "images", each with its photograph,
        maps, rollout, truth and guesses.
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
            _image(arrays, i, names) for i in range(len(arrays["pictures"]))
        ],
    }


def _image(arrays, i, names):
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


def model_figures(arrays: dict[str, np.ndarray]) -> dict:
    """Return the figures of the attention distance and the position similarity.

    Args:
        arrays: of `attention_arrays`.

    Returns:
        Dict of "figures", each with "title", "drawing" (an SVG element) and
        "text"; "notes", what is left out and why; "distances", per layer the
        distances of its heads; "images", their number.
    """
    distances, similarity = arrays["distances"], arrays["similarity"]
    similarity = similarity.astype("float32")
    drawn = (
        (
            "Attention distance",
            plot_attention_distance(distances),
            _distances_in_words(distances),
        ),
    )
    if similarity.size:
        step = int(arrays["similarity_step"])
        words = _similarity_in_words(similarity, step)
        figure = plot_position_similarity(similarity)
        drawn = (*drawn, ("Position similarity", figure, words))
    return {
        "notes": [] if similarity.size else [f"The model {NO_POSITIONS}"],
        "figures": [
            {
                "title": title,
                "drawing": pictures.vector_graphic(
                    figure, title.lower().replace(" ", "-"), text
                ),
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
        "Mean distance between a patch and what it attends to, a dot per "
        f"head. First layer: {first.min():.1f} to {first.max():.1f} pixels, "
        f"mean {first.mean():.1f}; last layer: {last.min():.1f} to "
        f"{last.max():.1f}, mean {last.mean():.1f}."
    )


def _similarity_in_words(similarity, step):
    rows, columns = similarity.shape[2:]
    every = (
        f"one patch in {step} rows and columns" if step > 1 else "each patch"
    )
    places = np.indices((rows, columns))  # (2, R, Q)
    drawn = places[:, ::step, ::step].reshape(2, -1, 1)
    steps = np.abs(drawn - places.reshape(2, 1, -1)).sum(axis=0)
    values = similarity.reshape(steps.shape)
    means = "; ".join(
        f"{name} {part.mean():.2f}"
        for name, part in (
            ("neighbours", values[steps == 1]),
            ("all others", values[steps > 1]),
        )
        if part.size
    )
    return (
        f"Cosine similarity of the position embedding of {every} with those "
        f"of all {rows}x{columns} patches, a map for each. Means: {means}."
    )
