"""Data sets of tensorflow-datasets by name, with the splits of the papers.

Features are read by name, never `as_supervised`, which gives no label or the
wrong one for several data sets.
"""

import difflib
import logging
import math
import os
import pathlib
import re
from typing import NamedTuple, TypeGuard

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, complete
from keras_vit.data.tfds_records import FORMATS, records_of
from keras_vit.io.checks import EXTRAS, check_installed
from keras_vit.io.stores import fetched, is_address, whole_address

__all__ = [
    "PRESETS",
    "Preset",
    "named_builder",
    "on_this_machine",
    "open_tfds",
    "prepare",
    "read_split",
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
    if not splits:
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
    _check_installed(name)
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


def _check_installed(name):
    check_installed(f"The data set {name!r}", "tensorflow", *EXTRAS["data"])
    logging.getLogger("absl").addFilter(_is_for_users)


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
