"""Images without labels, and the images of two sources in one.

Axes: N images, H and W height and width, C channels, K classes.
"""

import dataclasses
import io
import pathlib

import numpy as np

from keras_vit import data
from keras_vit.data.broken import without_broken_images
from keras_vit.data.examples import Examples
from keras_vit.data.folders import image_files
from keras_vit.data.stateless import order
from keras_vit.training import Recipe

__all__ = ["joined", "split_labelled"]


def split_labelled(recipe: Recipe, dataset: data.Dataset):
    """What is learned from with its labels, and what without.

    Args:
        recipe: a `Recipe`.
        dataset: its `Dataset`.

    Returns:
        Two `Examples`; the labels of the second mean nothing.

    Raises:
        ValueError: when there are no images, or they are not in memory.

    Example:
        >>> labelled, unlabelled = split_labelled(recipe, dataset)
    """
    config = recipe.noisy_student
    if config.unlabelled is None:
        return _held_back(
            _in_memory(dataset.train),
            config.held_back_fraction,
            recipe.data.split_seed,
        )
    folder = pathlib.Path(config.unlabelled).expanduser()
    if folder.is_dir():
        rest = _of_folder(folder, recipe.data)
    else:
        source = dataclasses.replace(
            recipe.data,
            name=config.unlabelled,
            **dict.fromkeys(
                ("folder", "csv", "train_split", "validation_split")
            ),
            test_split=None,
        )
        rest = data.open_dataset(source).train
    return _in_memory(dataset.train), _in_memory(rest)


def _held_back(examples, fraction, seed):
    """Any of the images; a class may have too few to have its share."""
    numbers = order(seed, 0, len(examples))
    rest = min(max(round(fraction * len(numbers)), 1), len(numbers) - 1)
    return tuple(
        examples.subset(np.sort(part))
        for part in (numbers[rest:], numbers[:rest])
    )


def _in_memory(examples) -> Examples:
    if not isinstance(examples, Examples):
        raise ValueError(
            "Images that get new labels must be in memory or in files of their "
            f"own. Received: a {type(examples).__name__} of "
            f"{getattr(examples, 'source', 'batches')}. Raise "
            "data.memory_limit_mib."
        )
    return examples


def _of_folder(folder, config) -> Examples:
    paths = image_files(folder)
    if not paths:
        raise ValueError(
            f"There are no images in {str(folder)!r} (noisy_student."
            "unlabelled)."
        )
    examples = Examples(
        np.array(paths, object),
        np.zeros(len(paths), np.int32),
        kind="path",
        source=str(folder),
        on_broken_image=config.on_broken_image,
    )
    whole = data.Dataset(examples, None, None, ())
    return without_broken_images(whole, config.check_images).train


def joined(labelled: Examples, others: Examples, shares) -> Examples:
    """Images with labels and images with what a teacher says of them.

    Args:
        labelled: an `Examples`.
        others: an `Examples`; its own labels are not read.
        shares: float array (N, K), the probabilities of the classes of the
            others.

    Returns:
        An `Examples` of both with labels (N, K), one-hot for the first.

    Example:
        >>> joined(labelled, unlabelled, shares).labels.shape
        (1258, 10)
    """
    labels = labelled.labels
    if labels.ndim == 1:
        labels = np.eye(shares.shape[1], dtype="float32")[labels]
    contents = [labelled.contents, others.contents]
    same = labelled.kind == others.kind
    if same and labelled.kind == "array":
        same = contents[0].shape[1:] == contents[1].shape[1:]
    if not same:
        contents = [_encoded(examples) for examples in (labelled, others)]
    return dataclasses.replace(
        labelled,
        contents=np.concatenate(contents),
        labels=np.concatenate([labels, shares]).astype("float32"),
        kind=labelled.kind if same else "encoded",
        source=f"{labelled.source} and {others.source}",
        numbers=None,
    )


def _encoded(examples) -> np.ndarray:
    """The images as encoded bytes, whatever they are in."""
    how = {
        "encoded": bytes,
        "path": lambda path: pathlib.Path(path).read_bytes(),
        "array": _png,
    }[examples.kind]
    contents = np.empty(len(examples), object)
    contents[:] = [how(content) for content in examples.contents]
    return contents


def _png(image) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    grey = image.shape[-1] == 1
    Image.fromarray(image[..., 0] if grey else image).save(stream, "PNG")
    return stream.getvalue()
