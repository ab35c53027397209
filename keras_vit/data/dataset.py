"""Images and labels, in memory or in files, and how they are split.

Parts can be chosen by hashes of the contents of images.

Axes: N images, H and W height and width, C channels, K classes.
"""

import collections
import contextlib
import dataclasses
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np

from keras_vit.data.config import (
    BROKEN,
    SAMPLINGS,
    DataConfig,
    chosen_reader,
)
from keras_vit.data.seeds import (
    balanced_order,
    grouped_order,
    order,
    seeded_order,
)
from keras_vit.io.checks import check_choice, check_installed, check_kind

__all__ = [
    "Dataset",
    "Examples",
    "LEFT_OUT",
    "NO_SOURCES",
    "PARTS",
    "SPLITS",
    "Sources",
    "check_not_cut",
    "complete",
    "content_hashes",
    "cut",
    "file_names",
    "folds_by_content",
    "listing",
    "of_classes",
    "skipped_files",
    "split_by_content",
    "stratified_split",
]

# What the folder of a split may be called, and the split in a CSV file.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid", "dev"),
    "test": ("test", "testing"),
}
PARTS = tuple(SPLITS)
NUM_NAMED = 100  # files that a result names of each kind
NUM_LISTED = 5  # and a message
# What `skipped_files` counts, in words.
LEFT_OUT = {
    "unreadable": "not readable as images",
    "no_image_suffix": "without the suffix of an image",
}
KINDS = ("array", "encoded", "path", "record")
THREADS = 8
CHUNK = 2**20  # bytes
SHOWN_FROM = 20_000  # files, which take seconds
EVERY = 1_000  # files between two lines of progress
# The hash of a file that was read before, as long as its size and time stay.
_KNOWN: dict[tuple[str, int, int], str] = {}


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A training, a validation and a test split, and the class names.

    Args:
        train: the images that the weights are fitted to.
        validation: those that choices are made on, or None.
        test: those that are looked at once, for the result, or None.
        class_names: names of the classes; label i is `class_names[i]`.
        name: of the data set.
        skipped: names of the images that were left out because they cannot
            be read.
        other_files: names of the files in the folders of the images that are
            left out because their suffixes are not of images.
        notes: what else its user should know of how it was read.
        task: "classification", "multilabel" or "regression", whose labels are
            numbers, float (N, K); None for what the labels of the training
            images are, classes or several.
        config: the `DataConfig` that `open_dataset` opened it by, or None.
    """

    train: Any
    validation: Any
    test: Any
    class_names: tuple[str, ...]
    name: str = ""
    skipped: tuple[str, ...] = ()
    other_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    task: str | None = None
    config: DataConfig | None = None

    def __post_init__(self):
        if self.task is None:
            labels = np.asarray(getattr(self.train, "labels", None))
            # Floats are the probabilities of a teacher.
            several = labels.ndim == 2 and labels.dtype.kind != "f"
            task = "multilabel" if several else "classification"
            object.__setattr__(self, "task", task)


# The first part of a name, up to the slash, to the function that opens it.
Sources = Mapping[str, Callable[[DataConfig], Dataset]]

NO_SOURCES: Sources = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Examples:
    """Images in memory, or their paths, with their labels.

    Args:
        contents: uint8 array of shape (N, H, W, C); or array of N objects:
            encoded images (bytes), or paths of images (str); or int64 array
            of shape (N,), positions in `records`.
        labels: int32 array of shape (N,); uint8 of shape (N, K), with a 1
            for each class of an image that has several or none; or float of
            shape (N, K), numbers or the probabilities of classes.
        kind: "array", "encoded", "path" or "record", what `contents` holds.
        source: name of the data and the split, for messages.
        numbers: int array of shape (N,), the number of each image in the
            source; None for all in order.
        on_broken_image: "stop" or "skip", see `DataConfig`.
        reader: "tensorflow" or "pillow", what reads the images; "auto" becomes
            one of them, see `DataConfig`.
        records: of the kind "record", the source of the images, see
            `keras_vit.data.records`.
        sampling: "uniform" or "balanced", see `DataConfig`.

    Raises:
        ValueError: when kind, contents and labels do not fit together.

    Example:
        >>> images = np.zeros((2, 8, 8, 1), "uint8")
        >>> examples = Examples(images, np.array([0, 1]), source="zeros")
        >>> len(examples), examples.name_of(1)
        (2, 'zeros[1]')
    """

    contents: np.ndarray
    labels: np.ndarray
    kind: str = "array"
    source: str = "image"
    numbers: np.ndarray | None = None
    on_broken_image: str = "stop"
    reader: str = "auto"
    records: Any = None
    sampling: str = "uniform"

    def __post_init__(self):
        object.__setattr__(self, "reader", chosen_reader(self.reader))
        check_choice("kind", self.kind, KINDS)
        check_choice("on_broken_image", self.on_broken_image, BROKEN)
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_kind(np.ndarray, contents=self.contents, labels=self.labels)
        if self.sampling == "balanced":
            self._check_balanced()
        shape, dtype = self.contents.shape, self.contents.dtype
        if self.kind == "array" and (len(shape) != 4 or dtype != np.uint8):
            raise ValueError(
                "Images must be a uint8 array of shape (N, height, width, "
                f"channels). Received: {dtype} of shape {shape}."
            )
        if len(self.labels) != len(self.contents):
            raise ValueError(
                "There must be one label per image. Received: labels of shape "
                f"{self.labels.shape} for {len(self.contents)} images."
            )

    def __len__(self) -> int:
        return len(self.contents)

    def name_of(self, example: int) -> str:
        """Name the file of an image (0 to N - 1), or its number in the source.

        Of the kind "record" the shard and its record.
        """
        if self.kind == "path":
            return str(self.contents[example])
        if self.kind == "record":
            return self.records.name(int(self.contents[example]))
        return f"{self.source}[{self._numbers()[example]}]"

    def subset(self, examples: Sequence[int] | np.ndarray) -> "Examples":
        """Keep the images of some numbers, 0 to N - 1, and their names."""
        return dataclasses.replace(
            self,
            contents=self.contents[examples],
            labels=self.labels[examples],
            numbers=self._numbers()[examples],
        )

    def in_order(self):
        """Read all images once, in order.

        Returns:
            A `tf.data.Dataset` of dictionaries: "epoch" (0), "example",
            "number" (of the source), "content" and "label".
        """
        import tensorflow as tf

        zero = tf.constant(0, tf.int64)
        numbers = tf.data.Dataset.range(len(self))
        return numbers.map(lambda example: (zero, example)).map(self._fetch())

    def order(self, *, seed: int, epoch: int, batch_size: int) -> np.ndarray:
        """List the images of an epoch in its order, in whole batches.

        Args:
            seed: non-negative int.
            epoch: int.
            batch_size: int, at most N.
        """
        size = len(self) // batch_size * batch_size
        if self.sampling == "balanced":
            return balanced_order(seed, epoch, self.labels, size)
        groups = getattr(self.records, "groups", None)
        if groups is None:
            return order(seed, epoch, len(self))[:size]
        return grouped_order(
            seed,
            epoch,
            groups[self.contents],
            batch_size=batch_size,
            window=self.records.window,
        )

    def shuffled(self, *, seed: int, epoch: int, batch_size: int, skip: int):
        """Read all epochs from one on, each in its own order.

        Args:
            seed: non-negative int.
            epoch: int, the first one.
            batch_size: int, at most N; what does not fill a batch is left out.
            skip: int, images of the first epoch to leave out.

        Returns:
            An endless `tf.data.Dataset` of dictionaries as of `in_order`.
        """
        import tensorflow as tf

        size = len(self) // batch_size * batch_size

        def draw(epoch):
            return self.order(seed=seed, epoch=epoch, batch_size=batch_size)

        def of_epoch(number):
            epoch_order = seeded_order(draw, number, size)
            return tf.data.Dataset.from_tensor_slices(epoch_order).map(
                lambda example: (number, example)
            )

        epochs = tf.data.Dataset.range(epoch, tf.int64.max)
        return epochs.flat_map(of_epoch).skip(skip).map(self._fetch())

    def names_in(self, *, seed: int, epoch: int, batch_size: int, skip: int):
        """Name a batch after `skip` images of a shuffled epoch."""
        used = self.order(seed=seed, epoch=epoch, batch_size=batch_size)
        return [self.name_of(x) for x in used[skip : skip + batch_size]]

    def _check_balanced(self):
        obstacle = None
        if self.labels.ndim == 2:
            obstacle = "its images have several classes"
        if getattr(self.records, "groups", None) is not None:
            obstacle = "its images are read in groups"
        if obstacle is not None:
            raise ValueError(
                f"{self.source} cannot be sampled by class: {obstacle}. "
                "Received: data.sampling='balanced'. Set it to uniform."
            )

    def _numbers(self):
        return np.arange(len(self)) if self.numbers is None else self.numbers

    def _fetch(self):
        import tensorflow as tf

        # On the host: a GPU would fill up with the images.
        with tf.device("CPU"):
            contents = tf.constant(
                self.contents.tolist()
                if self.contents.dtype == object
                else self.contents
            )
            labels = tf.constant(self.labels)
            numbers = tf.constant(self._numbers(), tf.int64)
        return lambda epoch, example: {
            "epoch": epoch,
            "example": example,
            "number": tf.gather(numbers, example),
            "content": tf.gather(contents, example),
            "label": tf.gather(labels, example),
        }


def of_classes(labels: np.ndarray) -> np.ndarray:
    """Return labels as they are; of probabilities (N, K) the largest, (N,)."""
    return labels.argmax(axis=1) if labels.dtype.kind == "f" else labels


def file_names(examples) -> list[str] | None:
    """Name the file of each image of a split, or its shard and place there.

    Args:
        examples: an `Examples`, or another part of a `Dataset`.

    Returns:
        N texts; None where the images are in no files of their own.

    Example:
        >>> file_names(open_dataset(DataConfig(folder="photos")).test)[0]
        'photos/cat/1.jpg'
    """
    if getattr(examples, "kind", None) not in ("path", "record"):
        return None
    return [examples.name_of(example) for example in range(len(examples))]


def skipped_files(dataset: Dataset, more: Sequence[str] = ()) -> dict:
    """Return what was left out of a data set, for result.json.

    Args:
        dataset: a `Dataset`.
        more: names of images that could not be read later on.

    Returns:
        Dict of "unreadable" and "no_image_suffix" as far as there are any,
        each a dict of "count" and "files", their first hundred names.

    Example:
        >>> skipped_files(dataset)
        {'unreadable': {'count': 1, 'files': ['photos/cat/7.jpg']}}
    """
    kinds = {
        "unreadable": sorted({*dataset.skipped, *more}),
        "no_image_suffix": sorted(dataset.other_files),
    }
    return {
        kind: {"count": len(files), "files": files[:NUM_NAMED]}
        for kind, files in kinds.items()
        if files
    }


def listing(names: Sequence[str]) -> str:
    """Return how many files there are, and the names of the first ones."""
    named = ", ".join(map(repr, names[:NUM_LISTED]))
    more = len(names) - NUM_LISTED
    rest = f" and {more} more" if more > 0 else ""
    return f"{len(names)} file(s): {named}{rest}"


def complete(
    parts: Sequence,
    config,
    by: str = "position",
    class_names: Sequence[str] = (),
) -> list:
    """Cut the missing parts off the training images.

    Args:
        parts: training, validation and test images, of which the last two
            may be None.
        config: the `DataConfig` with their fractions and the seed.
        by: "content" or "position", see `cut`.
        class_names: for messages.

    Returns:
        The three; None where the fraction is 0.

    Raises:
        ValueError: when a fraction is given of a part that is there.
    """
    train, validation, test = (part or None for part in parts)
    for part, name in ((validation, "validation"), (test, "test")):
        if part:
            check_not_cut(config, f"the data has {name} images", (name,))
    left, validation_cut, test_cut = cut(
        train,
        validation_fraction=0.0 if validation else config.validation_fraction,
        test_fraction=0.0 if test else config.test_fraction,
        seed=config.split_seed,
        by=by,
        class_names=class_names,
    )
    return [left, validation or validation_cut, test or test_cut]


def check_not_cut(config, why: str, parts: Sequence = PARTS[1:]) -> None:
    """Raise a ValueError for the fraction of a part that is not cut off.

    Args:
        config: the `DataConfig`; a fraction of 0 cuts nothing off, either.
        why: why it is not, for the message.
        parts: "validation" and "test", or one of them.
    """
    for name in (f"{part}_fraction" for part in parts):
        value, default = getattr(config, name), getattr(DataConfig, name)
        if value not in (0, default):
            raise ValueError(
                f"Nothing is cut off: {why}. Received: data.{name}={value}. "
                "Leave it out."
            )


def cut(
    examples,
    *,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
    by: str = "position",
    class_names: Sequence[str] = (),
) -> tuple:
    """Cut off validation and test images, the same share of each class.

    Args:
        examples: an `Examples`. Of shards whose images have several labels,
            the last ones are cut off.
        validation_fraction: float in [0, 1), 0 for none.
        test_fraction: float in [0, 1), 0 for none.
        seed: int; the same seed gives the same cut.
        by: "content" for `split_by_content`, "position" for
            `stratified_split`.
        class_names: for messages.

    Returns:
        Training, validation and test images; None where the fraction is 0.

    Raises:
        ValueError: when a class has too few images.
    """
    fractions = {
        "validation_fraction": validation_fraction,
        "test_fraction": test_fraction,
    }
    if not any(fractions.values()):
        return examples, None, None
    if by == "position" and examples.labels.ndim == 2:
        return _cut_by_position(examples, **fractions)
    try:
        if by == "content":
            hashes = content_hashes(examples)
            parts = split_by_content(
                hashes,
                examples.labels,
                seed=seed,
                class_names=class_names,
                **fractions,
            )
        else:
            parts = stratified_split(examples.labels, seed=seed, **fractions)
    except ValueError as error:
        raise ValueError(
            f"The {len(examples)} images of {examples.source} cannot be cut "
            f"with validation_fraction={validation_fraction} and "
            f"test_fraction={test_fraction}: {error} Add images, choose other "
            "fractions, or give the parts yourself."
        ) from error
    train, validation, test = (
        examples.subset(part) if len(part) else None for part in parts
    )
    return train, validation, test


def _cut_by_position(
    examples, validation_fraction: float, test_fraction: float
):
    size = len(examples)
    num_test = round(test_fraction * size)
    num_train = size - num_test - round(validation_fraction * size)
    bounds = [0, num_train, size - num_test, size]
    train, validation, test = (
        examples.subset(np.arange(start, stop)) if stop > start else None
        for start, stop in zip(bounds, bounds[1:], strict=False)
    )
    return train, validation, test


def stratified_split(
    labels, *, validation_fraction: float, test_fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split at random, each part with the same share of every class.

    Args:
        labels: integer array of shape (N,).
        validation_fraction: float in [0, 1), share of the N images.
        test_fraction: float in [0, 1), share of the N images.
        seed: int; the same seed gives the same split.

    Returns:
        Indices of the training, validation and test images: three sorted
        integer arrays that hold each of 0 to N - 1 once.

    Raises:
        ValueError: by scikit-learn, when a part is too small to hold every
            class.
    """
    labels = np.asarray(labels)
    num_validation = round(validation_fraction * len(labels))
    num_test = round(test_fraction * len(labels))
    everything = np.arange(len(labels))
    rest, test = _cut_off(everything, labels, num_test, seed)
    train, validation = _cut_off(rest, labels, num_validation, seed)
    return np.sort(train), np.sort(validation), np.sort(test)


def _cut_off(indices, labels, size: int, seed: int):
    check_installed("Cutting parts off the training images", "sklearn")
    from sklearn.model_selection import train_test_split

    if not size:
        return indices, indices[:0]
    return train_test_split(
        indices, test_size=size, stratify=labels[indices], random_state=seed
    )


def content_hashes(examples) -> list[str]:
    """Return the sha256 of each image as it is stored, in hexadecimal.

    Of a file its bytes, of an image in memory its pixels. A file is read once
    in a process unless it changes.

    Args:
        examples: an `Examples` of any kind but "record".

    Returns:
        N texts of 64 digits; "" for a file that is gone or cannot be read,
        which `open_dataset` names.
    """
    if examples.kind != "path":
        contents = (x.tobytes() for x in examples.contents)
        if examples.kind == "encoded":
            contents = iter(examples.contents)
        return [hashlib.sha256(memoryview(x)).hexdigest() for x in contents]
    paths = examples.contents.tolist()
    with ThreadPoolExecutor(THREADS) as pool:
        return list(_shown(pool.map(_hash_of, paths), len(paths)))


def _hash_of(path: str) -> str:
    try:
        facts = os.stat(path)
        key = (path, facts.st_size, facts.st_mtime_ns)
        if key not in _KNOWN:
            found = hashlib.sha256()
            with open(path, "rb") as file:
                while chunk := file.read(CHUNK):
                    found.update(chunk)
            _KNOWN[key] = found.hexdigest()
        return _KNOWN[key]
    except OSError:
        return ""


def _shown(hashes, total: int) -> Iterator[str]:
    """Show how many of many files are hashed, on a terminal."""
    shows = total >= SHOWN_FROM and sys.stderr.isatty()
    for number, value in enumerate(hashes, start=1):
        if shows and (number % EVERY == 0 or number == total):
            end = "\n" if number == total else ""
            with contextlib.suppress(OSError):
                sys.stderr.write(f"\rHashed {number:,} of {total:,}{end}")
                sys.stderr.flush()
        yield value


def split_by_content(
    hashes,
    labels,
    *,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
    class_names: Sequence[str] = (),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split by the hash of each image, whatever others there are.

    The hash with the seed is a place in [0, 1): below test_fraction an image
    is for the test, in the validation_fraction above that for the validation.
    So images that are added or removed move no other, and equal images never
    part. The fractions are met about as well as by throwing dice. A part that
    would get nothing of a class takes the image whose place is nearest to
    its own, until it has another.

    Args:
        hashes: N texts.
        labels: integer array of shape (N,); or (N, K), whose images are taken
            as of one class.
        validation_fraction: float in [0, 1).
        test_fraction: float in [0, 1).
        seed: int; the same seed gives the same split.
        class_names: names of the classes, for messages.

    Returns:
        Indices of the training, validation and test images: three sorted
        integer arrays that hold each of 0 to N - 1 once.

    Raises:
        ValueError: when a class has fewer different images than parts.
    """
    bounds = {
        "test": (0.0, test_fraction),
        "validation": (test_fraction, test_fraction + validation_fraction),
        "train": (test_fraction + validation_fraction, 1.0),
    }
    bounds = {x: (low, high) for x, (low, high) in bounds.items() if high > low}
    labels = np.asarray(labels)
    classes = labels.tolist() if labels.ndim == 1 else [0] * len(labels)
    classes_of = collections.defaultdict(set)
    for value, label in zip(hashes, classes, strict=True):
        classes_of[value].add(label)
    places = {value: _place(value, seed) for value in classes_of}
    parts = {
        value: next(x for x, (_, high) in bounds.items() if place < high)
        for value, place in places.items()
    }
    members = collections.defaultdict(list)
    for value, found in classes_of.items():
        for label in found:
            members[label].append(value)
    counts = collections.Counter(
        (label, parts[value]) for value, x in classes_of.items() for label in x
    )
    for label in sorted(members):
        for part, interval in bounds.items():
            if counts[label, part]:
                continue
            # None that a class of it needs where it is.
            free = [
                value
                for value in members[label]
                if all(counts[x, parts[value]] > 1 for x in classes_of[value])
            ]
            if not free:
                name = class_names[label] if class_names else label
                need = f"{len(bounds)} parts need as many different images"
                few = f"{len(members[label])}. Equal ones stay together."
                if name == "":  # The name of all where there are no classes.
                    raise ValueError(f"{need}, and there are {few}")
                raise ValueError(
                    f"{need} of each class, and the class {name!r} has {few}"
                )
            nearest = min(free, key=lambda x: _gap(places[x], *interval))
            for x in classes_of[nearest]:
                counts[x, parts[nearest]] -= 1
                counts[x, part] += 1
            parts[nearest] = part
    found = np.array([parts[value] for value in hashes])
    train, validation, test = (
        np.flatnonzero(found == part)
        for part in ("train", "validation", "test")
    )
    return train, validation, test


def folds_by_content(
    hashes, labels, *, folds: int, seed: int, class_names: Sequence[str] = ()
) -> np.ndarray:
    """Divide images into folds by the hash of each, whatever others there are.

    As `split_by_content`: an image's place in [0, 1) tells its fold. A fold
    that would get nothing of a class takes the image whose place is nearest to
    its own; of a class with fewer different images than folds, two folds have
    some, so that there are always others to train on.

    Args:
        hashes: N texts.
        labels: as of `split_by_content`.
        folds: int, from 2.
        seed: int; the same seed gives the same folds.
        class_names: names of the classes, for messages.

    Returns:
        int array of shape (N,), the fold of each image, from 0.

    Raises:
        ValueError: when a class has fewer than two different images, or there
            are fewer different images than folds.
    """
    bounds = {i: (i / folds, (i + 1) / folds) for i in range(folds)}
    labels = np.asarray(labels)
    classes = labels.tolist() if labels.ndim == 1 else [0] * len(labels)
    members = collections.defaultdict(set)
    classes_of = collections.defaultdict(set)
    for value, label in zip(hashes, classes, strict=True):
        members[label].add(value)
        classes_of[value].add(label)
    if len(classes_of) < folds:
        raise ValueError(
            f"{folds} folds need as many different images, and there are "
            f"{len(classes_of)}. Equal ones stay together."
        )
    places = {value: _place(value, seed) for value in classes_of}
    fold = {value: int(place * folds) for value, place in places.items()}
    counts = collections.Counter(
        (label, fold[value]) for value, x in classes_of.items() for label in x
    )
    for label in sorted(members):
        if len(members[label]) < 2:
            name = class_names[label] if class_names else label
            raise ValueError(
                f"The class {name!r} has {len(members[label])} image, and the "
                "folds need two different ones of each class."
            )
        there = {fold[value] for value in members[label]}
        if len(members[label]) >= folds:
            lacking = sorted(set(bounds) - there)
        else:
            lacking = [(min(there) + 1) % folds] if len(there) == 1 else []
        for number in lacking:
            free = [
                value
                for value in sorted(members[label])
                if all(counts[x, fold[value]] > 1 for x in classes_of[value])
            ]
            if not free:
                continue  # Its images are all that other classes have there.
            nearest = min(free, key=lambda x: _gap(places[x], *bounds[number]))
            for x in classes_of[nearest]:
                counts[x, fold[nearest]] -= 1
                counts[x, number] += 1
            fold[nearest] = number
    return np.array([fold[value] for value in hashes])


def _place(value: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}:{value}".encode()).digest()
    # 53 bits, all that a float below 1 keeps.
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def _gap(place: float, low: float, high: float) -> float:
    return max(low - place, place - high, 0.0)
