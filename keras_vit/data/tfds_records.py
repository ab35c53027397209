"""Images of tensorflow-datasets by position: TFRecord and ArrayRecord files.

A record is a tf.train.Example, a message of Features, which maps names to a
Feature: a list of bytes, of floats or of integers
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example).
The parser of TensorFlow reads all of it; an index needs where the image is and
what the label is.
"""

import dataclasses
import functools
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.records import (
    AHEAD,
    ImageRanges,
    ShardIndex,
    index_folder,
    index_of_rows,
    indexed,
    looks_whole,
    open_shard,
    ranges_of,
)
from keras_vit.io.checks import check_installed
from keras_vit.io.protobuf import VARINT, messages, varint
from keras_vit.io.stores import is_address

__all__ = [
    "FORMATS",
    "Fields",
    "array_record_index",
    "image_and_label",
    "records_of",
    "tfrecord_index",
]

HEADER, FOOTER = 12, 4  # Bytes around a record: its size, and checksums.
CHECKSUM_MASK = 0xA282EAD8
BYTES, FLOATS, INTEGERS = 1, 2, 3  # fields of a Feature
KINDS = {BYTES: "bytes", FLOATS: "floats", INTEGERS: "integers"}
LARGEST_LABEL = 2**20  # bytes
LARGEST_RECORD = 2**30  # bytes; one is in memory at a time
AGAIN = "Fetch the shard again."


def records_of(
    files: Sequence,
    file_format: str,
    config: DataConfig,
    num_classes: int | None,
) -> tuple[ImageRanges, np.ndarray, np.ndarray]:
    """Open the files of a split.

    Args:
        files: each a `tfds.core.FileInstruction`.
        file_format: a name of `FORMATS`.
        config: the `DataConfig` with the features of images and labels.
        num_classes: K where an image has any number of labels, else None.

    Returns:
        The records of the files; the positions of the N of the split, int64
        (N,); their labels, int32 (N,), or uint8 (N, K).

    Raises:
        ValueError: naming the shard, when one is missing or damaged, and the
            record; when array_record is not installed.
    """
    make, source = FORMATS[file_format]
    if file_format == "array_record":
        check_installed("Reading ArrayRecord files", "array_record")
        _check_on_disk(files)
    keys = (config.image_key, config.label_key)
    # The files of "train[:5%]+train[90%:]" are there twice.
    paths = list(dict.fromkeys(str(file.filename) for file in files))
    known = indexed(
        paths,
        lambda path: make(path, *keys),
        kept_as=(file_format, *keys),
        folder=index_folder(config.index_dir),
    )
    sizes = {x: len(y.starts) for x, y in zip(paths, known, strict=True)}
    _check_sizes(files, sizes)
    firsts = dict(zip(paths, np.cumsum([0, *sizes.values()]), strict=False))
    positions = np.concatenate(
        [
            firsts[str(file.filename)] + file.skip + np.arange(file.take)
            for file in files
        ]
    )
    labels = _labels(known, num_classes, config.label_key)[positions]
    return ranges_of(paths, known, source), positions, labels


def _check_on_disk(files) -> None:
    if is_address(name := str(files[0].filename)):
        raise ValueError(
            f"The reader of ArrayRecord files opens files of a disk. Received: "
            f"{name!r}. Copy its folder to a disk, or prepare the data set as "
            "TFRecord files (`tfds build --file_format=tfrecord`)."
        )


def _check_sizes(files, sizes) -> None:
    for file in files:
        found = sizes[str(file.filename)]
        if found != file.examples_in_shard:
            raise ValueError(
                f"The shard {file.filename} has {found} records. Expected "
                f"{file.examples_in_shard}: it is cut off, or of another "
                "version of the data set."
            )


def _labels(known: Sequence[ShardIndex], num_classes, label_key) -> np.ndarray:
    labels = np.concatenate([index.labels for index in known])
    counts = np.concatenate([index.counts for index in known])
    if num_classes is None:
        if (counts != 1).any():
            raise ValueError(
                f"The feature {label_key!r} has {counts.min()} to "
                f"{counts.max()} values of an image. Expected one."
            )
        return labels.astype(np.int32)
    vectors = np.zeros((len(counts), num_classes), np.uint8)
    vectors[np.repeat(np.arange(len(counts)), counts), labels] = 1
    return vectors


def tfrecord_index(path: str, image_key: str, label_key: str) -> ShardIndex:
    """Find images and labels of a TFRecord file, its checksums compared.

    Args:
        path: of the shard.
        image_key: the feature that is the encoded image.
        label_key: the feature of integers that is the label.

    Raises:
        ValueError: naming the shard and the record that is damaged.
    """
    rows = []
    with open_shard(path, AHEAD) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        while (start := file.tell()) < size:
            where = f"The shard {path} is damaged in record {len(rows)}"
            record = _record(file, size, where)
            found = _fields(
                io.BytesIO(record),
                len(record),
                image_key,
                label_key,
                f"{path}[{len(rows)}]",
            )
            rows.append((found[0] + start + HEADER, *found[1:]))
    return index_of_rows(rows, path)


def _record(file: BinaryIO, size: int, where: str) -> bytes:
    """Read the record that a file of a size is at, and its checksums.

    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
    """
    header = file.read(HEADER)
    length = int.from_bytes(header[:8], "little")
    if len(header) == HEADER and not _agrees(header[:8], header[8:]):
        raise ValueError(f"{where}, whose length has another checksum. {AGAIN}")
    end = file.tell() + length + FOOTER
    if len(header) < HEADER or end > size:
        raise ValueError(
            f"{where} or cut off: it would end at byte {end:,} of {size:,}. "
            f"{AGAIN}"
        )
    if length > LARGEST_RECORD:
        raise ValueError(
            f"{where}: it has {length:,} bytes, where at most "
            f"{LARGEST_RECORD:,} are read."
        )
    record = file.read(length)
    if not _agrees(record, file.read(FOOTER)):
        raise ValueError(f"{where}, which has another checksum. {AGAIN}")
    return record


def _agrees(content, checksum) -> bool:
    import google_crc32c

    found = google_crc32c.value(content)
    masked = ((found >> 15 | found << 17) + CHECKSUM_MASK) % 2**32
    return masked == int.from_bytes(checksum, "little")


def array_record_index(path: str, image_key: str, label_key: str) -> ShardIndex:
    """Find images and labels of an ArrayRecord file, which is read whole.

    Starts and sizes are those within a record.
    """
    rows = []
    try:
        for number, record in enumerate(_data_source([path])):
            rows.append(
                _fields(
                    io.BytesIO(record),
                    len(record),
                    image_key,
                    label_key,
                    f"{path}[{number}]",
                )
            )
    except (RuntimeError, IndexError) as error:
        raise ValueError(
            f"The shard {path} is cut off or damaged in record {len(rows)}. "
            f"{str(error)[:200]}"
        ) from error
    return index_of_rows(rows, path)


def _fields(file: BinaryIO, size, image_key, label_key, name) -> tuple:
    try:
        found = image_and_label(file, size, image_key, label_key)
        return *found, looks_whole(file, found.start, found.size)
    except ValueError as error:
        raise ValueError(
            f"The record {name} cannot be read: {error}."
        ) from error


def _data_source(paths: Sequence[str]) -> Any:
    from array_record.python.array_record_data_source import (
        ArrayRecordDataSource,
    )

    return ArrayRecordDataSource(paths)


@dataclasses.dataclass(frozen=True)
class ArrayRecords(ImageRanges):
    """Images in records of ArrayRecord files, each of which is compressed."""

    @functools.cached_property
    def _source(self):
        return _data_source(
            [
                f"{x}[0:{n}]"
                for x, n in zip(self.files, self._sizes, strict=True)
            ]
        )

    @functools.cached_property
    def _sizes(self):
        return np.bincount(self.shards, minlength=len(self.files))

    def read(self, position: int) -> bytes:
        try:
            record = self._source[position]
        except (RuntimeError, IndexError) as error:
            raise ValueError(f"{self.name(position)}: {error}") from error
        start = self.starts[position]
        return record[start : start + self.sizes[position]]


# A file format of tensorflow-datasets to the function that makes an index and
# the class of its records.
FORMATS = {
    "tfrecord": (tfrecord_index, ImageRanges),
    "array_record": (array_record_index, ArrayRecords),
}


class Fields(NamedTuple):
    """First byte and size of the image, and the labels of an Example."""

    start: int
    size: int
    labels: list[int]


def image_and_label(
    file: BinaryIO, size: int, image_key: str, label_key: str
) -> Fields:
    """Find the image and the labels of the Example that a file is at.

    Args:
        file: at the first byte of the Example.
        size: int, bytes of the Example.
        image_key: name of a feature of bytes.
        label_key: name of a feature of integers.

    Returns:
        A `Fields`, whose start counts from the start of the file.

    Raises:
        ValueError: when the message is damaged, or a feature is missing or of
            another kind.
    """
    image = labels = None
    for name, start, length in _features(file, size):
        if name == image_key.encode():
            image = _image(file, start, length)
        elif name == label_key.encode():
            labels = _integers(file, start, length)
        if image and labels is not None:
            return Fields(*image, labels)
    missing = image_key if image is None else label_key
    raise ValueError(f"it has no feature {missing!r}")


def _features(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, first byte and size of each Feature."""
    for _, start, length in messages(file, file.tell(), size):
        for _, entry, entry_length in messages(file, start, length):
            name, place = b"", None
            for number, first, found in messages(file, entry, entry_length):
                if number == 1:
                    name = _read(file, first, found)
                else:
                    place = first, found
            if place:
                yield name, *place


def _image(file: BinaryIO, start: int, size: int) -> tuple[int, int]:
    (place,) = _values(file, start, size, BYTES) or [None]
    images = list(messages(file, *place)) if place else []
    if len(images) != 1:
        raise ValueError(
            f"its feature of the image has {len(images)} values of bytes"
        )
    return images[0][1:]


def _values(file, start, size, kind) -> list[tuple[int, int]]:
    """Return where the list of a Feature is; none, when that is empty."""
    found = list(messages(file, start, size))
    other = [number for number, *_ in found if number != kind]
    if other:
        raise ValueError(
            f"a feature has {KINDS.get(other[0], 'unknown values')} where "
            f"{KINDS[kind]} are expected"
        )
    return [(first, length) for _, first, length in found]


def _integers(file: BinaryIO, start: int, size: int) -> list[int]:
    labels = []
    for place in _values(file, start, size, INTEGERS):
        content = _read(file, *place)
        packed = io.BytesIO(content)
        while packed.tell() < len(content):
            tag = varint(packed)
            if tag & 7 == VARINT:
                labels.append(_signed(varint(packed)))
                continue
            end = varint(packed)
            end += packed.tell()
            while packed.tell() < end:
                labels.append(_signed(varint(packed)))
    return labels


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    if size > LARGEST_LABEL:
        raise ValueError(f"a name or label of {size:,} bytes is too long")
    file.seek(start)
    return file.read(size)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
