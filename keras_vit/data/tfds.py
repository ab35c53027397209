"""Data sets of tensorflow-datasets by name, with the splits of the papers.

Features are read by name, never `as_supervised`, which gives no label or the
wrong one for several data sets.

Images are read by position from TFRecord and ArrayRecord
files. A record is a tf.train.Example, a message of Features, which maps names
to a Feature: a list of bytes, of floats or of integers
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example).
The parser of TensorFlow reads all of it; an index needs where the image is and
what the label is.
"""

import dataclasses
import difflib
import functools
import io
import logging
import math
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeGuard

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import (
    Dataset,
    Examples,
    check_not_cut,
    complete,
)
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
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.io.protobuf import VARINT, messages, varint
from keras_vit.io.stores import fetched, is_address, whole_address

__all__ = [
    "FORMATS",
    "Fields",
    "PRESETS",
    "Preset",
    "array_record_index",
    "image_and_label",
    "named_builder",
    "on_this_machine",
    "open_tfds",
    "prepare",
    "read_split",
    "records_of",
    "tfrecord_index",
]


class Preset(NamedTuple):
    """A name of tensorflow-datasets and the three splits, None to cut them."""

    tfds_name: str
    splits: tuple[str, str, str | None] | None = None


PRESETS = {
    "cifar10": Preset("cifar10", ("train[:98%]", "train[98%:]", "test")),
    "cifar100": Preset("cifar100", ("train[:98%]", "train[98%:]", "test")),
    "oxford_iiit_pet": Preset(
        "oxford_iiit_pet", ("train[:90%]", "train[90%:]", "test")
    ),
    "oxford_flowers102": Preset(
        "oxford_flowers102", ("train[:90%]", "train[90%:]", "test")
    ),
    "imagenet2012": Preset(
        "imagenet2012", ("train[:99%]", "train[99%:]", "validation")
    ),
    "imagenette": Preset(
        "imagenette/full-size-v2", ("train[:90%]", "train[90%:]", "validation")
    ),
    # Not in tensorflow-datasets: the user prepares it under this name.
    "imagenet21k": Preset(
        "imagenet21k", ("full[51200:]", "full[:51200]", None)
    ),
}
IMAGENET21K = (
    "ImageNet-21k is not in tensorflow-datasets: register at "
    "https://image-net.org, download the winter 2021 release, and prepare it "
    "as a data set named imagenet21k with the split full and the features "
    "image and label in {folder} (https://www.tensorflow.org/datasets/"
    "add_dataset). Or give its folder of classes as folder=."
)
NUM_SUGGESTIONS = 5
SHARD = re.compile(r"-\d{5}(-of-\d{5})?$")  # the end of its name


def open_tfds(config: DataConfig) -> Dataset:
    """Open a data set by its name, and download it if it is not there.

    Args:
        config: a `DataConfig` with a name.

    Returns:
        A `Dataset`; splits of TFRecord files up to memory_limit_mib are in
        memory.

    Raises:
        ValueError: for an unknown name, data that cannot be got, an unknown
            feature or split.
    """
    name = config.name or ""
    preset = PRESETS.get(name, Preset(name))
    builder = named_builder(preset.tfds_name, config.data_dir)
    prepare(builder, download=config.download)
    features = builder.info.features
    for field in ("image_key", "label_key"):
        if getattr(config, field) not in features:
            raise ValueError(
                f"{builder.info.full_name} has no feature {field}="
                f"{getattr(config, field)!r}. Its features are "
                f"{', '.join(map(repr, features))}."
            )
    given = (config.train_split, config.validation_split, config.test_split)
    splits = given if any(given) else preset.splits
    parts = [
        split and read_split(builder, config, split)
        for split in splits or _known_splits(builder.info.splits)
    ]
    if splits:
        check_not_cut(config, f"the splits are {splits}")
    else:
        parts = complete(parts, config)
    names = _class_names(features[config.label_key], parts)
    return Dataset(*parts, class_names=names, name=name)


def _known_splits(known) -> tuple:
    """Training, validation and test split; None for those that are not."""
    test = next(
        (name for name in ("test", "validation") if name in known), None
    )
    validation = "validation" if "validation" in known else None
    return ("train", None if validation == test else validation, test)


def _class_names(feature, parts) -> tuple[str, ...]:
    feature = getattr(feature, "feature", feature)
    names = getattr(feature, "names", None)
    if names is None:
        largest = [part.labels.max() for part in parts if part is not None]
        names = range(int(max(largest)) + 1)
    return tuple(map(str, names))


def named_builder(name: str, data_dir: str | None):
    """Find a data set by its name.

    Args:
        name: "name", "name/config" or "name/config:version".
        data_dir: folder of the prepared data, None for the default. Of an
            address in a store, what describes the data is fetched.

    Returns:
        A `tfds.core.DatasetBuilder`.

    Raises:
        ValueError: for an unknown name, with the nearest ones; for an unknown
            config or version; when it is not prepared in a store.
    """
    check_installed(f"The data set {name!r}", "tensorflow", *EXTRAS["data"])
    logging.getLogger("absl").addFilter(_is_for_users)
    import tensorflow_datasets as tfds

    folder = data_dir
    if is_stored(data_dir):
        folder = os.fspath(_description(name, data_dir))
    try:
        builder = tfds.builder(name, data_dir=folder)
    except tfds.core.DatasetNotFoundError as error:
        # Its message has all of the 445 names.
        raise ValueError(_not_found(name, data_dir)) from error
    except (AssertionError, ValueError) as error:
        reason = " ".join(str(error).split())[:500]
        raise ValueError(
            f"The data set {name!r} cannot be opened: {reason}"
        ) from error
    if is_stored(data_dir) and not builder.is_prepared():
        raise ValueError(_not_stored(builder.info.full_name, data_dir))
    return builder


def is_stored(data_dir: str | None) -> TypeGuard[str]:
    """Return whether prepared data is at an address of a store."""
    return data_dir is not None and is_address(data_dir)


def _description(name: str, address: str) -> pathlib.Path:
    """Return a folder of data with all files of a data set but its shards."""
    folder = f"{whole_address(address)}/{re.split('[/:]', name)[0]}"
    try:
        return fetched(folder, lambda file: not SHARD.search(file)).parent
    except ValueError as error:
        raise ValueError(f"{error} {_not_stored(name, address)}") from error


def _not_stored(name: str, address: str) -> str:
    return (
        f"The data set {name!r} is not prepared at {address}. Prepare it on a "
        "disk (`tfds build`) and copy its folder there, with the folders of "
        "its config and version."
    )


def on_this_machine(builder, data_dir: str | None):
    """Copy the shards of a builder to this disk, where they are in a store.

    Args:
        builder: a prepared `tfds.core.DatasetBuilder`.
        data_dir: what it was found in.
    """
    if not is_stored(data_dir):
        return builder
    import tensorflow_datasets as tfds

    version = builder.info.full_name.removeprefix(f"{builder.name}/")
    copy = fetched(
        f"{whole_address(data_dir)}/{builder.name}",
        lambda file: file.startswith(f"{version}/"),
    )
    name = f"{builder.name}/{version}"
    return tfds.builder(
        ":".join(name.rsplit("/", 1)), data_dir=os.fspath(copy.parent)
    )


def _is_for_users(record) -> bool:
    """False of what tensorflow-datasets says of its own code."""
    return "FeatureConnector.dtype" not in record.getMessage()


def _not_found(name: str, data_dir: str | None) -> str:
    import tensorflow_datasets as tfds

    folder = data_dir or os.environ.get(
        "TFDS_DATA_DIR", os.path.join("~", "tensorflow_datasets")
    )
    if name.startswith("imagenet21k"):
        return IMAGENET21K.format(folder=folder)
    known = ["digits", *PRESETS, *tfds.list_builders()]
    near = difflib.get_close_matches(
        name.split("/")[0].split(":")[0], dict.fromkeys(known), NUM_SUGGESTIONS
    )
    nearest = (
        f"The nearest names are {', '.join(map(repr, near))}."
        if near
        else "No name is near."
    )
    return (
        f"There is no data set {name!r} in tensorflow-datasets or in "
        f"{folder}. {nearest} All names: "
        "https://www.tensorflow.org/datasets/catalog. For images of your own "
        "give folder or csv; a name of your own or of a recipe needs its "
        "function in sources."
    )


def prepare(builder, *, download: bool) -> None:
    """Download and prepare a data set that is not there yet.

    Args:
        builder: a `tfds.core.DatasetBuilder`.
        download: bool, whether that is allowed.

    Raises:
        ValueError: when it is not there and cannot be got, with what to
            download by hand and where to put it.
    """
    if builder.is_prepared():
        return
    if not download:
        raise ValueError(
            f"{builder.info.full_name} is not prepared in {builder.data_dir}"
            f" and download is off. {_instructions(builder)}"
        )
    try:
        builder.download_and_prepare()
    # Whatever a data set's own code and the network raise.
    except Exception as error:
        raise ValueError(
            f"{builder.info.full_name} is not prepared in {builder.data_dir} "
            f"and cannot be: {str(error).strip()[:500]}\n"
            f"{_instructions(builder)}"
        ) from error


def _instructions(builder) -> str:
    manual = builder.MANUAL_DOWNLOAD_INSTRUCTIONS
    root = os.path.dirname(os.path.dirname(os.fspath(builder.data_dir)))
    if builder.builder_config is not None:
        root = os.path.dirname(root)
    if manual:
        folder = os.path.join(root, "downloads", "manual")
        text = " ".join(manual.split())
        return (
            f"It must be downloaded by hand into {folder} (manual_dir): {text}"
        )
    return (
        "Run where there is a network: python -m tensorflow_datasets.scripts."
        f"cli.main build {builder.info.name} --data_dir {root} (or `tfds "
        "build`), or set data_dir to where it is prepared already."
    )


def read_split(builder, config: DataConfig, split: str):
    """Open a split; in memory if it fits there.

    Args:
        builder: a prepared `tfds.core.DatasetBuilder`.
        config: a `DataConfig` with a name.
        split: as "train[:98%]".

    Returns:
        An `Examples` of pixels where all images have one size, else of
        encoded images; above memory_limit_mib, and of ArrayRecord files, of
        records that are read by position.

    Raises:
        ValueError: when the split is unknown or empty, or has no labels.
    """
    import tensorflow_datasets as tfds

    small = None not in builder.info.features[config.image_key].shape
    size = _mebibytes(builder, config, split, decoded=small)
    if is_stored(config.data_dir):
        # All of it would be copied.
        size = max(size, builder.info.dataset_size / 2**20)
    in_memory = builder.info.file_format.value == "tfrecord"
    if size > config.memory_limit_mib or not in_memory:
        return _by_position(builder, config, split)
    builder = on_this_machine(builder, config.data_dir)
    decoders = tfds.decode.PartialDecoding(
        {config.image_key: True, config.label_key: True},
        decoders=None
        if small
        else {config.image_key: tfds.decode.SkipDecoding()},
    )
    images, labels = _images_and_labels(builder, config, split, decoders)
    return Examples(
        np.stack(images) if small else np.array(images, object),
        np.stack(labels),
        kind="array" if small else "encoded",
        source=f"{config.name}:{split}",
        on_broken_image=config.on_broken_image,
    )


def _mebibytes(builder, config: DataConfig, split: str, *, decoded: bool):
    """Return how much memory a split takes; 0 where its size is not known."""
    splits = builder.info.splits
    if not splits:
        return 0.0
    size = splits[split].num_examples
    if decoded:
        each = math.prod(builder.info.features[config.image_key].shape)
    else:
        total = sum(part.num_bytes for part in splits.values())
        each = total / sum(part.num_examples for part in splits.values())
    return min(size, config.max_examples or size) * each / 2**20


def _images_and_labels(builder, config: DataConfig, split: str, decoders):
    import tensorflow_datasets as tfds

    dataset = builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders=decoders,
        read_config=tfds.ReadConfig(try_autocache=False),
    )
    if config.max_examples is not None:
        dataset = dataset.take(config.max_examples)
    num_classes = _num_label_classes(builder.info.features, config)
    images, labels = [], []
    for example in dataset.as_numpy_iterator():
        images.append(example[config.image_key])
        labels.append(_label(example[config.label_key], num_classes))
    if not images:
        raise ValueError(f"The split {split!r} of {config.name} is empty.")
    _check_labels(np.stack(labels), split, config)
    return images, labels


def _check_labels(labels, split: str, config: DataConfig) -> None:
    if labels.min() < 0:
        raise ValueError(
            f"The split {split!r} of {config.name} has labels below 0: it "
            "has images without labels. Choose another split."
        )


def _num_label_classes(features, config: DataConfig) -> int | None:
    """Return K where an image has any number of labels, None where one."""
    feature = features[config.label_key]
    return getattr(getattr(feature, "feature", None), "num_classes", None)


def _label(label, num_classes: int | None):
    """Return the class; or, of several ones, a vector with a 1 for each."""
    if num_classes is None:
        return np.int32(label)
    vector = np.zeros(num_classes, np.uint8)
    vector[np.asarray(label)] = 1
    return vector


def _by_position(builder, config: DataConfig, split: str) -> Examples:
    """Return the images of a split, each of which is read when it is needed."""
    file_format = builder.info.file_format.value
    if file_format not in FORMATS:
        raise ValueError(
            f"{builder.info.full_name} is prepared as {file_format} files. "
            f"Expected {' or '.join(FORMATS)}: prepare it as one of these."
        )
    files = builder.info.splits[split].file_instructions
    if is_stored(config.data_dir):
        root = f"{whole_address(config.data_dir)}/{builder.info.full_name}"
        files = [
            file.replace(filename=f"{root}/{file.basename()}") for file in files
        ]
    records, positions, labels = records_of(
        files,
        file_format,
        config,
        _num_label_classes(builder.info.features, config),
    )
    _check_labels(labels, split, config)
    kept = slice(config.max_examples)
    return Examples(
        positions[kept],
        labels[kept],
        kind="record",
        source=f"{config.name}:{split}",
        records=records,
        on_broken_image=config.on_broken_image,
    )


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
