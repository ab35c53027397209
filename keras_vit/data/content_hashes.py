"""Hashes of the contents of images, and parts that are chosen by them.

Axes: N images, K classes.
"""

import collections
import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

__all__ = ["content_hashes", "folds_by_content", "split_by_content"]

THREADS = 8
CHUNK = 2**20  # bytes
SHOWN_FROM = 20_000  # files, which take seconds
EVERY = 1_000  # files between two lines of progress
# The hash of a file that was read before, as long as its size and time stay.
_KNOWN: dict[tuple[str, int, int], str] = {}


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
    its own.

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
