"""Finding images that cannot be read before a run starts."""

import dataclasses
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_vit.data.dataset import Dataset
from keras_vit.data.decode import is_readable

__all__ = ["broken_images", "without_broken_images"]

LOGGER = logging.getLogger(__name__)
THREADS = 16
NAMED = 5  # Images that an error names.
# How the files of a kind begin, and how they end unless they are cut off.
ENDS = {
    b"\xff\xd8\xff": b"\xff\xd9",
    b"\x89PNG\r\n\x1a\n": b"IEND\xaeB`\x82",
    b"GIF8": b";",
}
LONGEST = 8


def broken_images(examples, check: str) -> np.ndarray:
    """Finds the images that cannot be decoded.

    A file that begins and ends as its kind does is taken to be whole; any
    other is decoded. That finds files of another kind, empty ones and those
    that are cut off, and reads 16 bytes of each.

    Args:
        examples: an `Examples`.
        check: "ends", "all" to decode every image, "none".

    Returns:
        int array of their numbers.
    """
    if check == "none" or examples.kind == "array" or examples.labels is None:
        return np.arange(0)
    from_path = examples.kind == "path"

    def is_broken(content) -> bool:
        looks_whole = check == "ends" and _has_ends(content, from_path)
        return not looks_whole and not is_readable(content, from_path)

    with ThreadPoolExecutor(THREADS) as pool:
        broken = list(pool.map(is_broken, examples.contents))
    return np.flatnonzero(broken)


def _has_ends(content, from_path: bool) -> bool:
    try:
        start, end = _file_ends(content) if from_path else _ends(content)
    except OSError:
        return False
    return any(
        start.startswith(first) and end.endswith(last)
        for first, last in ENDS.items()
    )


def _ends(data: bytes) -> tuple[bytes, bytes]:
    return data[:LONGEST], data[-LONGEST:]


def _file_ends(path: str) -> tuple[bytes, bytes]:
    with open(path, "rb") as file:
        start = file.read(LONGEST)
        file.seek(max(-LONGEST, -os.fstat(file.fileno()).st_size), os.SEEK_END)
        return start, file.read()


def without_broken_images(dataset: Dataset, check: str) -> Dataset:
    """Stops at images that cannot be read, or leaves them out.

    Args:
        dataset: a `Dataset` of `Examples`.
        check: see `broken_images`.

    Returns:
        The `Dataset` without them, whose `skipped` names them.

    Raises:
        ValueError: naming them, where `on_broken_image` is "stop".
    """
    parts, names, stops = {}, [], False
    for split in ("train", "validation", "test"):
        examples = getattr(dataset, split)
        if examples is None:
            continue
        broken = broken_images(examples, check)
        if not len(broken):
            continue
        names += [examples.name_of(example) for example in broken]
        stops = stops or examples.on_broken_image == "stop"
        kept = np.delete(np.arange(len(examples)), broken)
        parts[split] = examples.subset(kept)
    if names and stops:
        raise ValueError(
            f"{_listed(names)} cannot be read as images. Repair or remove "
            'them, or set data.on_broken_image to "skip".'
        )
    if names:
        LOGGER.warning("%s cannot be read and are skipped.", _listed(names))
    return dataclasses.replace(dataset, skipped=tuple(names), **parts)


def _listed(names: list[str]) -> str:
    named = ", ".join(map(repr, names[:NAMED]))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} file(s): {named}{more}"
