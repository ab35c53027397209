"""Files of pictures of what a model sees.

Axes: M images, H and W height and width, C channels, K classes, T the most
probable classes.

Axes: M images, H and W height and width, C channels.
"""

import dataclasses
import os
import pathlib
from collections import Counter
from typing import Any

import keras
import numpy as np

from keras_vit.analysis import (
    overlay,
    plot_attention_distance,
    plot_attention_maps,
    plot_images,
    plot_position_similarity,
    report,
    to_pixels,
)
from keras_vit.analysis.attention import check_model
from keras_vit.analysis.overview import AttentionOverview, attention_overview
from keras_vit.analysis.pixels import grid_window
from keras_vit.data import PreprocessingConfig
from keras_vit.files import replacing
from keras_vit.models import VisionTransformer
from keras_vit.prediction import (
    Classifier,
    as_classifier,
    images_of,
    most_probable,
)
from keras_vit.variants import VariantTransformer

__all__ = [
    "check_folder",
    "explain",
    "explain_run",
    "write_pictures",
]

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


MAX_IMAGES = 32  # of B/16 at 224 pixels 60 kB each in the page


def explain(
    model: str | os.PathLike | keras.Model | Classifier,
    source: Any,
    folder: str | os.PathLike,
    *,
    top: int = 5,
    discard_ratio: float = 0.0,
    head_fusion: str = "mean",
    class_names: tuple[str, ...] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    name: str | None = None,
) -> pathlib.Path:
    """Shows what a model sees in images, prepared as for its evaluation.

    Writes index.html, one page without network in which layers and heads are
    switched; of each image the attention rollout over it, the attention of
    each layer over it, and the map of each head; and the figures of the
    attention distance, of these images, and of the similarity of positions.

    Args:
        model: see `keras_vit.predict`; a `VisionTransformer`.
        source: images, see `keras_vit.predict`; 32 at most.
        folder: where to write; what has the same name is replaced.
        top: int, how many classes to name; a model of fewer names all.
        discard_ratio: see `keras_vit.analysis.attention_rollout`.
        head_fusion: see `keras_vit.analysis.attention_rollout`.
        class_names: the names, where they are not those of the weights.
        preprocessing: how images are resized and cropped, where it is not as
            the weights were evaluated.
        name: str, what the page calls the model; by default its name.

    Returns:
        The path of index.html.

    Raises:
        ValueError: when there is no such model, it has no attention, an image
            cannot be read, there are none or too many, an argument is out of
            range, or the folder is a file. Nothing is written then.
        OSError: when weights cannot be fetched, or the disk is full.

    Example:
        >>> keras_vit.explain("ViT_B16/imagenet", "photo.jpg", "out")
        PosixPath('out/index.html')
    """
    folder = check_folder(folder)
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise ValueError(f"top must be an int above 0. Received: top={top!r}.")
    classifier = as_classifier(model, class_names, preprocessing)
    network = classifier.model
    check_attention(network)
    titles, images = _read(classifier, source)
    overview = attention_overview(
        network,
        classifier.inputs(images),
        head_fusion=head_fusion,
        discard_ratio=discard_ratio,
    )
    shares = classifier.probabilities(images)
    best = most_probable(shares, top)
    arrays = report.attention_arrays(
        network,
        overview,
        images,
        titles=titles,
        classes=best,
        probabilities=np.take_along_axis(shares, best, axis=1),
    )
    name = str(name or network.name)
    if os.path.exists(name):  # a run folder or a file
        name = pathlib.Path(name).resolve().name
    folder.mkdir(parents=True, exist_ok=True)
    write_pictures(folder, network, overview, arrays)
    path = folder / "index.html"
    with replacing(path) as temporary:
        temporary.write_text(_page(name, classifier, arrays), encoding="utf-8")
    return path


def check_folder(folder: str | os.PathLike) -> pathlib.Path:
    """The path of a folder that can be written into or made.

    Args:
        folder: its path.

    Returns:
        The path.

    Raises:
        ValueError: when there is a file of that name, or in its way.
    """
    path = pathlib.Path(folder).expanduser()
    for part in (path, *path.parents):
        if part.exists():
            if part.is_dir():
                return path
            raise ValueError(
                f"{str(folder)!r} is to be a folder. {str(part)!r} is a file. "
                "Give another path."
            )
    return path


def check_attention(model: keras.Model) -> None:
    """Raises a ValueError unless the model has attention to show."""
    if not isinstance(model, VisionTransformer):
        raise ValueError(
            "Only a Vision Transformer has attention to show. Received: a "
            f"{type(model).__name__}. `keras-vit predict` names what any "
            "model finds in images."
        )
    check_model(model)


def _read(classifier, source):
    """Titles and pixels of the images of a source."""
    titles, images = [], []
    for number, image in enumerate(images_of(source)):
        if number == MAX_IMAGES:
            raise ValueError(
                f"A page shows {MAX_IMAGES} images at most. Received: more. "
                "Name some of them."
            )
        in_memory = not isinstance(image, str)
        titles.append(f"image {number}" if in_memory else image)
        images.append(classifier.read(image))
    if not images:
        raise ValueError(f"There is no image. Received: source={source!r}.")
    return [pathlib.Path(title).name for title in titles], np.stack(images)


def _page(name, classifier, arrays):
    config = dataclasses.asdict(classifier.model.config)
    preprocessing = dataclasses.asdict(classifier.geometry.config)
    contents = report.Kept(
        {
            "attention.npz": arrays,
            "class_names.json": list(classifier.class_names),
            "model.json": {
                "weights": name,
                "parameters": classifier.model.count_params(),
                "model": _plain(config),
                "preprocessing": _plain(preprocessing),
            },
        }
    )
    title = f"What {name} sees"
    return report.render_page(
        title, report.EXPLANATION, contents, kind="explained"
    )


def _plain(values):
    """Tuples as lists, as JSON has them."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
    }


NUM_IMAGES = 8


def explain_run(folder: str | os.PathLike, model: keras.Model) -> None:
    """Keeps for the report of a run what its model sees in some images.

    Writes attention.npz: of mistakes and of right answers, which
    predictions.npz holds, or why there is nothing to show.

    Args:
        folder: the run folder.
        model: the model that was evaluated, on images in [0, 255].

    Example:
        >>> explain_run("runs/quickstart", model)
    """
    folder = pathlib.Path(folder)
    with replacing(folder / "attention.npz") as path:
        report.write_attention(path, _of_run(folder, model))


def _of_run(folder, model):
    """Arrays for attention.npz, or the reason why there are none."""
    if isinstance(model, VariantTransformer):
        return "it is drawn of the plain model alone, and this is a variant."
    if not isinstance(model, VisionTransformer):
        return f"a {type(model).__name__} has no attention."
    if not (folder / "predictions.npz").is_file():
        return "no images were evaluated."
    with np.load(folder / "predictions.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    pictures, rows, single = _chosen(found)
    inputs = pictures.astype("float32")
    if not model.config.include_preprocessing:
        inputs = inputs / 127.5 - 1.0
    try:
        overview = attention_overview(model, inputs)
    except Exception as error:
        # The run is finished; pictures that a device has no memory for, say,
        # are no reason to lose it.
        return f"it could not be computed ({' '.join(str(error).split())})."
    return report.attention_arrays(
        model,
        overview,
        pictures,
        titles=[f"Image {row}" for row in rows],
        classes=found["classes"][rows],
        probabilities=found["probabilities"][rows],
        labels=found["labels"][rows] if single else None,
    )


def _chosen(found):
    """Pictures of mistakes, then of right answers of different classes."""
    pictures = np.concatenate([found["cell_pictures"], found["pictures"]])
    rows = np.concatenate([found["cell_rows"], found["picture_rows"]])
    labels = found["labels"]
    if labels.ndim > 1:
        return pictures[:NUM_IMAGES], rows[:NUM_IMAGES], False
    right = labels[rows] == found["classes"][rows, 0]
    order = np.argsort(-found["probabilities"][rows, 0], kind="stable")
    wrong = order[~right[order]][: NUM_IMAGES // 2]
    others = np.flatnonzero(right)
    _, first = np.unique(labels[rows[others]], return_index=True)
    chosen = [*wrong, *others[np.sort(first)]]
    # As many as there can be: devices share eight alike.
    chosen = [*chosen, *np.setdiff1d(np.arange(len(rows)), chosen)]
    chosen = chosen[:NUM_IMAGES]
    return pictures[chosen], rows[chosen], True
