"""A page and picture files of the attention of a model in a few images.

Axes: M images, H and W height and width, C channels, L layers, N heads.
"""

import dataclasses
import datetime
import itertools
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.analysis import (
    gradient_cam,
    overlay,
    patch_filters,
    patch_pca,
    patch_scores,
    plot_attention_distance,
    plot_attention_maps,
    plot_images,
    plot_patch_filters,
    plot_patch_pca,
    plot_position_similarity,
    report,
    to_pixels,
)
from keras_vit.analysis.attention_weights import (
    attention_overview,
    check_model,
    grid_window,
)
from keras_vit.analysis.features import features
from keras_vit.data import PreprocessingConfig
from keras_vit.data.image_reader import log_colour_changes
from keras_vit.io.atomic_files import printable, replacing
from keras_vit.io.checks import EXTRAS, check_installed, check_kind, check_whole
from keras_vit.models import VisionTransformer
from keras_vit.prediction import (
    Classifier,
    as_classifier,
    images_of,
    most_probable,
)
from keras_vit.prediction.by_labels import classifier_of
from keras_vit.prediction.networks import check_network
from keras_vit.text.zero_shot import class_embeddings
from keras_vit.variants import VariantTransformer

__all__ = [
    "check_attention",
    "check_folder",
    "enlarged",
    "explain",
    "explain_texts",
    "file_names",
    "overlays",
    "read_images",
]

MAX_TEXTS = 12  # of two pictures each
MAX_IMAGES = 32  # of B/16 at 224 pixels 60 kB each in the page
FEWEST, COMPONENTS = 4, 3  # patches and features that have colours
SMALLEST = 224  # pixels of the shorter side of an overlay
DOTS_PER_INCH = 120


def explain(
    model: str | os.PathLike | keras.Model | Classifier,
    source: Any,
    folder: str | os.PathLike,
    *,
    top: int = 5,
    discard_ratio: float = 0.0,
    head_fusion: str = "mean",
    class_names: tuple[str, ...] | None = None,
    image_size: int | tuple[int, int] | None = None,
    preprocessing: PreprocessingConfig | None = None,
    name: str | None = None,
) -> pathlib.Path:
    """Draws what a model attends to in images, as pictures and as a page.

    Writes index.html, a page that works offline and switches between layers
    and heads; per image the attention rollout over it, the attention of each
    layer over it, and the map of each head; and figures of the attention
    distance in these images, of the filters of the patch embedding, of the
    similarity of positions and of what the features of the patches have in
    common.

    Args:
        model: see `keras_vit.predict`; a `VisionTransformer`, with
            classes or, as DINOv2, without.
        source: images, see `keras_vit.predict`; 32 at most.
        folder: where to write; files of the same names are replaced.
        top: int, how many classes to list per image; all of a model that has
            fewer.
        discard_ratio: see `keras_vit.analysis.attention_rollout`.
        head_fusion: see `keras_vit.analysis.attention_rollout`.
        class_names: the names, where they are not those of the weights.
        image_size: see `keras_vit.predict`.
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
    check_whole(1, top=top)
    check_kind(str | None, name=name)
    check_installed("The page of the attention", *EXTRAS["plots"])
    classifier = as_classifier(
        model, class_names, preprocessing, image_size, needs_classes=False
    )
    network = classifier.model
    check_network(network)
    check_attention(network)
    titles, images = read_images(classifier, source)
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
    page = _page(printable(name), classifier, arrays)
    folder.mkdir(parents=True, exist_ok=True)
    _write_pictures(folder, network, overview, arrays)
    _write_colours(folder, network, images, classifier.inputs(images))
    path = folder / "index.html"
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def explain_texts(
    model: Any,
    source: Any,
    texts: Sequence[str],
    folder: str | os.PathLike,
) -> pathlib.Path:
    """Draw which patches of images an image-text model finds texts in.

    Writes index.html, which works offline, and for each image a strip of
    pictures, NAME_texts.png, with two maps of each text. The gradient
    (`keras_vit.analysis.gradient_cam`) says which patches raise the score of
    the whole image; the similarity (`keras_vit.analysis.patch_scores`) is the
    cosine of each patch alone and the text, from the lowest of the image to
    its highest.

    Args:
        model: what `keras_vit.load_image_text` returned, or its source.
        source: images, see `keras_vit.predict`; 32 at most.
        texts: 1 to 12 texts, as they stand.
        folder: where to write; files of the same names are replaced.

    Returns:
        The path of index.html.

    Raises:
        ValueError: when the model has no texts or no attention, an image
            cannot be read, or there are no texts or too many. Nothing is
            written then.
        OSError: when weights cannot be fetched.

    Example:
        >>> explain_texts("siglip", "photo.jpg", ["a red car", "snow"], "out")
        PosixPath('out/index.html')
    """
    out = check_folder(folder)
    texts = [texts] if isinstance(texts, str) else list(texts)
    if not 0 < len(texts) <= MAX_TEXTS:
        raise ValueError(
            f"A page shows 1 to {MAX_TEXTS} texts. Received: {len(texts)}."
        )
    check_installed("The page of the attention", *EXTRAS["plots"])
    classes = class_embeddings(model, texts, "{}")
    classifier = classifier_of(model, classes)
    network = classifier.model
    check_attention(network)
    titles, images = read_images(classifier, source)
    inputs, pictures = classifier.inputs(images), enlarged(images)
    bias, scale = classes.logit_bias or 0.0, np.exp(classes.logit_scale)
    patches = (patch_scores(network, inputs) - bias) / scale  # (M, R, C, T)
    whole = (network.predict_on_batch(inputs) - bias) / scale  # (M, T)
    rows = [[] for _ in titles]
    for number, text in enumerate(texts):
        gradient = gradient_cam(network, inputs, number)
        one = patches[..., number]
        least = one.min(axis=(1, 2), keepdims=True)
        for what, maps in (("gradient", gradient), ("similarity", one - least)):
            shown = overlays(network, pictures, maps)
            for i, picture in enumerate(shown):
                value = f"cosine {whole[i, number]:.3f}"
                if what == "similarity":
                    low, high = one[i].min(), one[i].max()
                    value = f"cosines {low:.3f} to {high:.3f}"
                rows[i].append((text, f"{what}, {value}", picture))
    out.mkdir(parents=True, exist_ok=True)
    for name, row in zip(file_names(titles), rows, strict=True):
        lines = [
            f"{printable(x[:30])}\n{line.partition(',')[0]}"
            for x, line, _ in row
        ]
        _save(
            plot_images(np.stack([x for *_, x in row]), lines),
            out / f"{name}_texts.png",
        )
    path = out / "index.html"
    report.write_rows(
        path,
        "Where the texts are",
        "Texts",
        list(zip(titles, rows, strict=True)),
        kind="explained",
        facts=(
            f"{len(titles)} images",
            report.date_of(datetime.datetime.now()),
        ),
    )
    return path


def check_folder(folder: str | os.PathLike) -> pathlib.Path:
    """Return the path of a folder, which exists or can be made.

    Raises:
        ValueError: when there is a file of that name, or in its way, and for
            a name that no folder can have.
    """
    named = isinstance(folder, (str, os.PathLike)) and str(folder).strip()
    if not named or "\0" in str(folder):
        raise ValueError(
            "The folder to write to must have a name. Received: "
            f"folder={folder!r}."
        )
    path = pathlib.Path(folder).expanduser()
    for part in (path, *path.parents):
        if part.exists():
            if part.is_dir():
                return path
            raise ValueError(
                f"{str(folder)!r} must be a folder. {str(part)!r} is a file. "
                "Give another path."
            )
    return path


def check_attention(model: keras.Model) -> None:
    """Raises a ValueError unless a model has attention to show."""
    if not isinstance(model, (VisionTransformer, VariantTransformer)):
        raise ValueError(
            "Only a Vision Transformer has attention to show. Received: a "
            f"{type(model).__name__}. `keras-vit predict` classifies images "
            "with any model."
        )
    check_model(model)


def read_images(classifier, source):
    """Return titles and pixels (M, H, W, C) of the images of a source.

    Args:
        classifier: what prepares them.
        source: see `keras_vit.predict`; 32 images at most.

    Raises:
        ValueError: when one cannot be read, or there are none or too many.
    """
    paths, images, changes = [], [], []
    for number, image in enumerate(images_of(source)):
        if number == MAX_IMAGES:
            raise ValueError(
                f"A page shows {MAX_IMAGES} images at most. Received: more. "
                "Name some of them."
            )
        paths.append(pathlib.Path(image) if isinstance(image, str) else None)
        images.append(classifier.read(image, changes))
    if not images:
        raise ValueError(f"There is no image. Received: source={source!r}.")
    log_colour_changes(changes)
    return _titles(paths), np.stack(images)


def _titles(paths):
    """Shorten paths of files to names that differ."""
    titles = []
    for number, path in enumerate(paths):
        if path is None:
            titles.append(f"image {number}")
            continue
        others = [x.parts for x in paths if x is not None and x != path]
        length = next(
            (
                n
                for n in range(1, len(path.parts))
                if all(x[-n:] != path.parts[-n:] for x in others)
            ),
            len(path.parts),
        )
        titles.append(printable(str(pathlib.Path(*path.parts[-length:]))))
    return titles


def _page(name, classifier, arrays):
    config = dataclasses.asdict(classifier.model.config)
    preprocessing = dataclasses.asdict(classifier.geometry.config)
    contents = report.FilesInMemory(
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
    images = len(arrays["titles"])
    facts = (
        type(classifier.model).__name__,
        f"{images} image{'s' if images > 1 else ''}",
        report.date_of(datetime.datetime.now()),
    )
    return report.render_page(
        f"What {name} sees",
        report.EXPLANATION,
        contents,
        kind="explained",
        facts=facts,
    )


def _plain(values):
    """Tuples as lists, as JSON has them."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in values.items()
    }


def _write_pictures(folder, model, overview, arrays):
    """Writes three pictures per image and three of the model."""
    from PIL import Image

    pictures = enlarged(arrays["pictures"])  # (M, H, W, C)
    rollouts = overlays(model, pictures, overview.rollout)  # (M, H, W, 3)
    for i, name in enumerate(file_names(arrays["titles"])):
        Image.fromarray(rollouts[i]).save(folder / f"{name}_rollout.png")
        grids = overview.grids[:, i]  # (L, N, rows, columns)
        layers = overlays(
            model, pictures[[i] * len(grids)], grids.mean(axis=1)
        )  # (L, H, W, 3)
        titles = [f"layer {layer}" for layer in range(len(layers))]
        _save(plot_images(layers, titles), folder / f"{name}_layers.png")
        _save(plot_attention_maps(grids), folder / f"{name}_heads.png")
    _save(
        plot_attention_distance(overview.distances),
        folder / "attention_distance.png",
    )
    _save(
        plot_patch_filters(patch_filters(model)), folder / "patch_filters.png"
    )
    similarity = arrays["similarity"].astype("float32")
    if similarity.size:
        _save(
            plot_position_similarity(similarity),
            folder / "position_similarity.png",
        )


def _write_colours(folder, model, images, inputs):
    """Draws the first principal components of the patches of all images."""
    (maps,) = features(model, inputs)  # (M, rows, columns, D)
    if np.prod(maps.shape[:3]) >= FEWEST and maps.shape[-1] >= COMPONENTS:
        colours, _ = patch_pca(maps)
        pixels = np.rint(images).astype("uint8")
        _save(plot_patch_pca(pixels, colours), folder / "patch_pca.png")


def _save(figure, path):
    figure.savefig(path, dpi=DOTS_PER_INCH)


def enlarged(pictures):
    """Return small pictures (M, H, W, C) with visible pixels."""
    factor = -(-SMALLEST // min(pictures.shape[1:3]))
    return pictures.repeat(factor, axis=1).repeat(factor, axis=2)


def overlays(
    model: VisionTransformer, pictures: np.ndarray, maps: np.ndarray
) -> np.ndarray:
    """Darkens pictures where maps on the model's grid of patches are low.

    Args:
        model: the `VisionTransformer` that the maps are of.
        pictures: array (B, H, W, C) in [0, 255], what the model sees; or its
            pixels repeated.
        maps: array (B, rows, columns), not negative.

    Returns:
        uint8 array of shape (B, H, W, 3).
    """
    config = model.config
    if grid_window(config) == (0, 0, *config.image_size):
        return overlay(pictures, maps, blur=1)
    # The cells of a hybrid may reach beyond the image.
    return overlay(pictures, np.maximum(to_pixels(model, maps), 0))


def file_names(titles):
    """Return names of files without their ending, each once."""
    names: list[str] = []
    for title in titles:
        stem, _ = os.path.splitext(str(title))
        stem = re.sub(r"[ /\\]", "_", stem).lstrip("_") or "image"
        # Of at most 200 bytes, and what UTF-8 cannot hold as "?".
        stem = stem.encode(errors="replace")[:200].decode(errors="ignore")
        numbered = (f"{stem}_{n}" for n in itertools.count(2))
        free = itertools.chain([stem], numbered)
        names.append(next(name for name in free if name not in names))
    return names
