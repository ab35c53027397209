"""Opening data sets: by name, from a folder of classes, or from a CSV file."""

import dataclasses

import numpy as np

from keras_vit.data.broken_images import without_broken_images
from keras_vit.data.config import (
    DataConfig,
    chosen_reader,
    data_packages,
    hide_accelerators,
)
from keras_vit.data.content_hashes import content_hashes, folds_by_content
from keras_vit.data.csv_file import open_csv
from keras_vit.data.dataset import (
    NO_SOURCES,
    NUM_LISTED,
    PARTS,
    Dataset,
    Examples,
    Sources,
)
from keras_vit.data.digits import open_digits
from keras_vit.data.image_folders import open_folder, open_stored_folder
from keras_vit.data.seeds import order
from keras_vit.data.shards import open_hub_dataset, open_shards
from keras_vit.data.tfds import open_tfds
from keras_vit.io.atomic_files import printable
from keras_vit.io.checks import check_installed
from keras_vit.io.stores import of_store

__all__ = [
    "open_dataset",
    "read_by",
]

# Names that tensorflow-datasets does not have, up to the first slash.
OWN_NAMES = {
    "digits": open_digits,
    "hf:": open_hub_dataset,
}


def open_dataset(
    config: DataConfig,
    sources: Sources = NO_SOURCES,
    *,
    to_evaluate: bool = False,
    unlabelled: bool = False,
) -> Dataset:
    """Open the images and labels that a config names.

    Args:
        config: where they are, and which of them are for what.
        sources: names of data sets of your own, up to the first slash, to
            functions of the config that open them.
        to_evaluate: whether nothing is cut off: a folder, a CSV file or
            shards without parts are all for the test, and there need be no
            training images.
        unlabelled: whether labels are not wanted: of a folder, all images in
            whatever folders are of one class, without a name.

    Returns:
        A `Dataset` whose parts are `Examples`, or None where there are none.
        Large splits by name are read from their files as they are needed.

    Raises:
        ValueError: when data is missing, empty, of one class, or broken; see
            `DataConfig`.

    Example:
        >>> digits = open_dataset(DataConfig(name="digits"))
        >>> len(digits.train), len(digits.validation), len(digits.test)
        (1258, 180, 359)
    """
    what = f"The data set {config.name!r}" if config.name else "This reader"
    check_installed(what, *data_packages(config, sources))
    reader = chosen_reader(config.reader)
    hide_accelerators(reader)
    if to_evaluate or config.folds is not None:
        none = {"validation_fraction": 0.0, "test_fraction": 0.0}
        config = dataclasses.replace(config, **none)
    if config.folder:
        found = of_store(config.folder)
        opener = open_stored_folder if found else open_folder
        dataset = opener(config, to_evaluate=to_evaluate, unlabelled=unlabelled)
    elif config.csv:
        dataset = open_csv(config, to_evaluate=to_evaluate)
    elif config.shards:
        dataset = open_shards(config)
    else:
        base = (config.name or "").split("/")[0]
        dataset = {**OWN_NAMES, **sources}.get(base, open_tfds)(config)
    if to_evaluate and not dataset.test and not dataset.validation:
        dataset = dataclasses.replace(dataset, train=None, test=dataset.train)
    _check_names(dataset)
    if not to_evaluate and not unlabelled:
        _check_classes(dataset)
    if config.folds is not None and not to_evaluate:
        dataset = _with_folds(dataset, config)
    dataset = read_by(reader, dataset)
    dataset = without_broken_images(dataset, config.check_images)
    return _limited(dataset, config)


def read_by(reader: str, dataset: Dataset) -> Dataset:
    """Let all parts be read by a reader.

    Raises:
        ValueError: for images that TensorFlow alone reads.
    """
    parts = {}
    for split in PARTS:
        examples = getattr(dataset, split)
        if isinstance(examples, Examples):
            parts[split] = dataclasses.replace(examples, reader=reader)
        elif examples is not None and reader != examples.reader:
            raise ValueError(
                f"{examples.source} is read from its files by TensorFlow. "
                f"Received: data.reader={reader!r}. Set it to tensorflow."
            )
    return dataclasses.replace(dataset, **parts)


def _check_names(dataset: Dataset) -> None:
    """Raise a ValueError for paths that TensorFlow cannot open."""
    for part in (dataset.train, dataset.validation, dataset.test):
        if getattr(part, "kind", None) != "path" or part.labels is None:
            continue
        odd = [x for x in part.contents if not _is_utf8(x)]
        if odd:
            raise ValueError(
                f"{len(odd)} file(s) have names that are no UTF-8: "
                f"{', '.join(map(printable, odd[:NUM_LISTED]))}. Rename them, "
                "or their folders."
            )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_classes(dataset: Dataset) -> None:
    labels = dataset.train.labels
    if labels is None or labels.ndim == 2:
        return
    found = np.unique(labels)
    if len(found) < 2:
        raise ValueError(
            "A classifier needs at least two classes: all "
            f"{len(labels)} training images of {dataset.name!r} are "
            f"{dataset.class_names[found[0]]!r}."
        )


def _with_folds(dataset: Dataset, config: DataConfig) -> Dataset:
    """Make one fold of the training images the validation part."""
    train, folds, fold = dataset.train, config.folds or 0, config.fold
    obstacle = None
    if fold is None:
        obstacle = (
            f"give data.fold, from 0 to {folds - 1}, or all of them to "
            "keras-vit cross-validate"
        )
    elif dataset.validation is not None:
        obstacle = (
            "the data has validation images of its own: leave the folds out, "
            "or these images"
        )
    elif not isinstance(train, Examples) or train.kind == "record":
        obstacle = (
            f"they are made by the contents of images, and those of "
            f"{dataset.name!r} are not at hand: give a folder or a CSV file of "
            "a disk"
        )
    if obstacle is not None:
        raise ValueError(
            f"There are no folds: {obstacle}. Received: data.folds={folds}, "
            f"data.fold={fold}."
        )
    found = folds_by_content(
        content_hashes(train),
        train.labels,
        folds=folds,
        seed=config.split_seed,
        class_names=dataset.class_names,
    )
    notes = (*dataset.notes, f"fold {fold} of {folds} is the validation part")
    return dataclasses.replace(
        dataset,
        train=train.subset(np.flatnonzero(found != fold)),
        validation=train.subset(np.flatnonzero(found == fold)),
        notes=notes,
    )


def _limited(dataset: Dataset, config: DataConfig) -> Dataset:
    """Keep max_examples of each part, chosen at random."""
    limit = config.max_examples
    parts = {}
    for split in PARTS:
        examples = getattr(dataset, split)
        if limit is not None and examples is not None and len(examples) > limit:
            kept = order(config.split_seed, 0, len(examples))[:limit]
            parts[split] = examples.subset(np.sort(kept))
    return dataclasses.replace(dataset, **parts)
