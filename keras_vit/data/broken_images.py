"""Finding images that cannot be read, before the first step."""

import dataclasses
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_vit.data.dataset import PARTS, Dataset, listing
from keras_vit.data.image_reader import is_readable
from keras_vit.data.pillow_images import (
    is_readable_by_pillow,
    unknown_levels,
)
from keras_vit.data.records import are_whole_ends, file_ends

__all__ = ["broken_images", "without_broken_images"]

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
