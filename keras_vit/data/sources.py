"""Opening data sets: by name, from a folder of classes, or from a CSV file.

The digits of scikit-learn, which need no download: "Optical Recognition of
Handwritten Digits" (Alpaydin and Kaynak, UCI Machine Learning Repository,
1998), 1797 images by 13 people, 8x8 pixels of 17 grey levels, bright ink on
black.
"""

import dataclasses
import logging
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_vit.data.config import (
    GIVEN,
    DataConfig,
    chosen_reader,
    data_packages,
    hide_accelerators,
)
from keras_vit.data.csv_file import open_csv
from keras_vit.data.dataset import (
    NO_SOURCES,
    NUM_LISTED,
    PARTS,
    Dataset,
    Examples,
    Sources,
    check_not_cut,
    complete,
    content_hashes,
    folds_by_content,
    listing,
)
from keras_vit.data.image_folders import open_folder, open_stored_folder
from keras_vit.data.image_reader import (
    is_readable,
    is_readable_by_pillow,
    unknown_levels,
)
from keras_vit.data.records import are_whole_ends, file_ends
from keras_vit.data.seeds import order
from keras_vit.data.shards import open_hub_dataset, open_shards
from keras_vit.data.tfds import open_tfds
from keras_vit.io.atomic_files import printable
from keras_vit.io.checks import check_installed, check_kind
from keras_vit.io.stores import of_store

__all__ = [
    "broken_images",
    "open_dataset",
    "open_digits",
    "read_by",
    "without_broken_images",
]


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
    check_kind(DataConfig, config=config)
    check_kind(Mapping, sources=sources)
    check_kind(bool, to_evaluate=to_evaluate, unlabelled=unlabelled)
    what = f"The data set {config.name!r}" if config.name else "This reader"
    check_installed(what, *data_packages(config, sources))
    reader = chosen_reader(config.reader)
    hide_accelerators(reader)
    given = config
    if config.folds is not None and not to_evaluate:
        check_not_cut(config, f"there are {config.folds} folds")
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
    dataset = dataclasses.replace(read_by(reader, dataset), config=given)
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
        odd = [
            x for x in part.contents if x != x.encode(errors="ignore").decode()
        ]
        if odd:
            raise ValueError(
                f"{len(odd)} file(s) have names that are no UTF-8: "
                f"{', '.join(map(printable, odd[:NUM_LISTED]))}. Rename them, "
                "or their folders."
            )


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


BRIGHTEST = 16  # Of the 17 grey levels, 0 to 16.
# A part of the only split, as tensorflow-datasets writes it.
SPLIT = re.compile(r"train(\[(?P<start>-?\d+%?)?:(?P<stop>-?\d+%?)?\])?")


def open_digits(config: DataConfig) -> Dataset:
    """Open the digits, in the order of scikit-learn.

    Args:
        config: a `DataConfig`, whose splits are parts of "train" such as
            "train[:90%]", "train[-100:]" or "train[:80%]+train[90%:]"; or else
            its fractions.

    Returns:
        A `Dataset` of `Examples`, uint8 (N, 8, 8, 1).

    Raises:
        ValueError: for another split, or without scikit-learn.
    """
    check_installed("The data set 'digits'", "sklearn")
    from sklearn.datasets import load_digits

    source = load_digits()
    levels = source.images * (255 / BRIGHTEST)
    digits = Examples(
        np.rint(levels).astype(np.uint8)[..., None],
        source.target.astype(np.int32),
        source="digits:train",
        on_broken_image=config.on_broken_image,
    )
    splits = (config.train_split, config.validation_split, config.test_split)
    limit = config.max_examples
    if any(splits):
        check_not_cut(config, f"the splits are {splits}")
        parts = [split and _part(digits, split, limit) for split in splits]
    else:
        first = _part(digits, "train", limit)
        parts = complete([first, None, None], config)
    names = tuple(map(str, source.target_names))
    return Dataset(*parts, class_names=names, name="digits")


def _part(digits: Examples, split: str, limit: int | None) -> Examples:
    """Return the images of a split, the first `limit` of them."""
    kept = [_indices(part, len(digits)) for part in split.split("+")]
    if not all(map(len, kept)):
        raise ValueError(
            "A split of the digits is a part of their 1797 images, as "
            "'train[:90%]' or 'train[-100:]', or several joined by '+'. "
            f"Received: {split!r}."
        )
    return digits.subset(np.concatenate(kept)[:limit])


def _indices(part: str, size: int) -> range:
    """Return the indices of a part, none for what is not a part."""
    found = SPLIT.fullmatch(part)
    if not found:
        return range(0)
    bounds = [_place(found[x], size) for x in ("start", "stop")]
    return range(size)[slice(*bounds)]


def _place(bound: str | None, size: int) -> int | None:
    if bound is None:
        return None
    if not bound.endswith("%"):
        return int(bound)
    return round(int(bound[:-1]) * size / 100)


LOGGER = logging.getLogger(__name__)
THREADS = 16
# Files of a split that are decoded where nothing else is asked for: some ten
# seconds on two cores.
AFFORDABLE_BYTES = 2**28
# What reads the images to whether it decodes one.
DECODES = {"tensorflow": is_readable, "pillow": is_readable_by_pillow}


def without_broken_images(dataset: Dataset, check: str) -> Dataset:
    """Raise an error for images that cannot be read, or leave them out.

    Args:
        dataset: a `Dataset` of `Examples`.
        check: see `broken_images`.

    Returns:
        The `Dataset` without them, whose `skipped` names them.

    Raises:
        ValueError: naming them, where `on_broken_image` is "stop".
    """
    parts, names, stops, reasons = {}, [], False, ""
    for split in PARTS:
        examples = getattr(dataset, split)
        if examples is None:
            continue
        broken = broken_images(examples, check)
        if not len(broken):
            continue
        reasons = reasons or _reason(examples, int(broken[0]))
        names += [examples.name_of(example) for example in broken]
        stops = stops or examples.on_broken_image == "stop"
        kept = np.delete(np.arange(len(examples)), broken)
        parts[split] = examples.subset(kept)
    if names:
        message = f"{listing(names)} cannot be read as images{reasons}"
        if stops:
            raise ValueError(
                f"{message}. Repair or remove them, or set "
                'data.on_broken_image to "skip".'
            )
        LOGGER.warning("%s and are skipped.", message)
    return dataclasses.replace(dataset, skipped=tuple(names), **parts)


def _reason(examples, example: int) -> str:
    """Return what is known of why an image is refused, behind a colon."""
    content = examples.contents[example]
    if examples.kind == "record":
        content = examples.records.read(int(content))
    found = unknown_levels(content, examples.kind == "path")
    name = examples.name_of(example)
    return f" (of {name!r} {found.rstrip('.')})" if found else ""


def broken_images(examples, check: str) -> np.ndarray:
    """Find the images that cannot be decoded.

    By its ends a file that begins and ends as its kind does is taken to be
    whole; any other is decoded. That finds files of another kind, empty ones
    and those that are cut off, and reads 16 bytes of each. Damage inside is
    found by decoding alone.

    Args:
        examples: the `Examples` whose files are checked.
        check: "all" to decode every image, "ends", "none", or "auto": "all"
            of files of up to 256 MiB together, "ends" of more and of shards.

    Returns:
        int array of their numbers.
    """
    if check == "none" or examples.kind == "array" or examples.labels is None:
        return np.arange(0)
    if examples.kind == "record":
        return _broken_records(examples, check)
    from_path = examples.kind == "path"
    by_ends = check == "ends" or check == "auto" and not _is_small(examples)
    decodes = DECODES[examples.reader]

    def is_broken(content) -> bool:
        looks_whole = by_ends and _looks_whole(content, from_path)
        return not looks_whole and not decodes(content, from_path)

    with ThreadPoolExecutor(THREADS) as pool:
        broken = list(pool.map(is_broken, examples.contents))
    return np.flatnonzero(broken)


def _is_small(examples) -> bool:
    """Return whether decoding all images takes seconds."""
    total = 0
    for content in examples.contents:
        if total > AFFORDABLE_BYTES:
            break
        is_file = isinstance(content, str) and os.path.isfile(content)
        total += os.path.getsize(content) if is_file else len(content)
    return total <= AFFORDABLE_BYTES


def _broken_records(examples, check: str) -> np.ndarray:
    """Find samples of shards whose bytes are damaged."""
    records, decodes = examples.records, DECODES[examples.reader]
    odd = (check == "all") | ~records.whole[examples.contents]
    suspects = np.flatnonzero(odd)

    def is_broken(example) -> bool:
        return not decodes(records.read(examples.contents[example]), False)

    with ThreadPoolExecutor(THREADS) as pool:
        broken = list(pool.map(is_broken, suspects))
    return suspects[np.array(broken, bool)]


def _looks_whole(content, from_path: bool) -> bool:
    if not from_path:
        return are_whole_ends(content, content)
    try:
        return are_whole_ends(*file_ends(content))
    except OSError:
        return False


def _open_given(config: DataConfig):
    raise ValueError(
        "The data of this run were given in Python and cannot be opened by "
        f"name. Received: data.name={config.name!r}. Name other data, as with "
        "--data.folder, or pass the Dataset again."
    )


# Names that tensorflow-datasets does not have, up to the first slash.
OWN_NAMES = {
    GIVEN: _open_given,
    "digits": open_digits,
    "hf:": open_hub_dataset,
}
