"""VTAB-1k by name: a thousand images of a task, and all of its test images.

See `vtab_table.py` for the tasks, their splits and labels.

Axes: N images.

Their splits have the benchmark's own names: "train800val200" to train on for
a result, or "train800" and "val200" to make a choice with, and "test".
"""

import dataclasses
from typing import Any

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset
from keras_vit.data.examples import Examples
from keras_vit.data.tfds import named_builder, prepare
from keras_vit.data.vtab_table import TASKS, VtabTask

__all__ = [
    "VtabTest",
    "is_vtab",
    "open_vtab",
    "open_vtab_name",
]


PARTS = {"train800val200": ("final", None), "train800": ("train", "validation")}


def open_vtab(
    name: str,
    *,
    train: str = "train800val200",
    data_dir: str | None = None,
    download: bool = True,
    max_test_examples: int | None = None,
) -> Dataset:
    """Opens a task of VTAB-1k.

    Args:
        name: one of `TASKS`, such as "caltech101" or "clevr_count".
        train: "train800val200" for a result, which is trained on all 1000
            images, or "train800" for a choice, which is trained on 800 and
            made on the other 200.
        data_dir: where tensorflow-datasets keeps its data; its own default if
            None.
        download: bool, whether data that is not there is downloaded.
        max_test_examples: int, keep the first test images alone, for trials;
            the benchmark has all of them.

    Returns:
        A `Dataset`: training and validation images are `Examples`, the test
        images a `VtabTest`, which are read as they are needed.

    Raises:
        ValueError: for an unknown name; for data that is not there and cannot
            be got, with what to download by hand and where to put it; for
            data of other sizes than VTAB's.

    Example:
        >>> dataset = open_vtab("cifar100")
        >>> len(dataset.train), len(dataset.test)
        (1000, 10000)
    """
    if name not in TASKS:
        raise ValueError(
            f"Unknown task of VTAB: {name!r}. Expected one of "
            f"{', '.join(map(repr, TASKS))}."
        )
    if train not in PARTS:
        raise ValueError(
            f"train must be one of {', '.join(map(repr, PARTS))}. Received: "
            f"train={train!r}."
        )
    task = TASKS[name]
    builder = named_builder(task.builder, data_dir)
    prepare(builder, download=download)
    _check_sizes(builder, task)
    known, held_out = (
        part and _in_memory(VtabTest(builder, task, getattr(task, part)))
        for part in PARTS[train]
    )
    return Dataset(
        known,
        held_out,
        VtabTest(builder, task, task.test, max_test_examples),
        class_names=_class_names(builder, task),
        name=f"vtab/{name}",
    )


@dataclasses.dataclass(frozen=True)
class VtabTest:
    """Images of a split, read from the files whenever they are asked for.

    Args:
        builder: a prepared `tfds.core.DatasetBuilder`.
        task: a `VtabTask`.
        split: as "train[21600:]".
        limit: int, images that are kept, the first ones; all if None.

    Attributes:
        labels: None; they are only known when they are read.
    """

    builder: Any
    task: VtabTask
    split: str
    limit: int | None = None
    kind: str = "encoded"
    on_broken_image: str = "stop"
    labels: None = None

    def __len__(self) -> int:
        size = self.builder.info.splits[self.split].num_examples
        return min(size, self.limit or size)

    @property
    def source(self) -> str:
        """Name of the data and the split, for messages."""
        return f"{self.builder.info.full_name}:{self.split}"

    def name_of(self, example: int) -> str:
        """Names an image in a message.

        Args:
            example: its number, 0 to N - 1.

        Returns:
            The source with the number in it.
        """
        return f"{self.source}[{example}]"

    def in_order(self):
        """All images once.

        Returns:
            A `tf.data.Dataset` of dictionaries: "epoch" (0), "example",
            "number" (of the split), "content" (the encoded image) and
            "label".
        """
        import tensorflow as tf
        import tensorflow_datasets as tfds

        decoders = tfds.decode.PartialDecoding(
            {"image": True, **self.task.features},
            decoders={"image": tfds.decode.SkipDecoding()},
        )
        images = self.builder.as_dataset(
            split=self.split,
            shuffle_files=False,
            decoders=decoders,
            # In the order of the files.
            read_config=tfds.ReadConfig(
                try_autocache=False, interleave_cycle_length=1
            ),
        )
        zero = tf.constant(0, tf.int64)

        def record(number, example):
            return {
                "epoch": zero,
                "example": number,
                "number": number,
                "content": _brightened(example["image"], self.task.brightness),
                "label": self.task.label(example),
            }

        return images.take(self.limit or -1).enumerate().map(record)


def _brightened(data, factor: int):
    """Multiplies the pixels of an encoded image, a string scalar."""
    import tensorflow as tf

    if factor == 1:
        return data
    return tf.io.encode_png(tf.io.decode_png(data) * factor)


def _in_memory(images: VtabTest) -> Examples:
    records = list(images.in_order().as_numpy_iterator())
    contents = np.empty(len(records), object)
    contents[:] = [record["content"] for record in records]
    labels = np.array([record["label"] for record in records], np.int32)
    return Examples(contents, labels, kind="encoded", source=images.source)


def _check_sizes(builder, task: VtabTask) -> None:
    found = {
        name: split.num_examples for name, split in builder.info.splits.items()
    }
    wrong = {
        name: found.get(name, 0)
        for name, size in task.sizes.items()
        if found.get(name, 0) != size
    }
    if wrong:
        raise ValueError(
            f"{builder.info.full_name} in {builder.data_dir} is not the data "
            f"of VTAB-1k, whose splits are {dict(task.sizes)}. Received: "
            f"{wrong}. Prepare {task.builder} anew."
        )


def _class_names(builder, task: VtabTask) -> tuple[str, ...]:
    """Names of the data set's own label; numbers of one that is made."""
    names = None
    if len(task.features) == 1:
        (feature,) = task.features
        names = getattr(builder.info.features[feature], "names", None)
    if names is None or len(names) != task.num_classes:
        names = range(task.num_classes)
    return tuple(map(str, names))


NAME = "vtab"
# Training and validation split to what `open_vtab` takes.
SPLITS = {
    (None, None): "train800val200",
    ("train800val200", None): "train800val200",
    ("train800", "val200"): "train800",
}
TEST = "test"


def is_vtab(name: str | None) -> bool:
    """Says whether a name is one of a task of VTAB-1k.

    Args:
        name: of a data set, or None.

    Returns:
        bool.

    Example:
        >>> is_vtab("vtab/dtd"), is_vtab("dtd")
        (True, False)
    """
    return (name or "").split("/")[0] == NAME


def open_vtab_name(config: DataConfig) -> Dataset:
    """Opens the task of VTAB-1k that a config names.

    Args:
        config: a `DataConfig` with a name such as "vtab/dtd", whose splits,
            data_dir, download and max_examples are used.

    Returns:
        A `Dataset` as `open_vtab` gives it.

    Raises:
        ValueError: for an unknown task or split, or data that cannot be got.

    Example:
        >>> len(open_vtab_name(DataConfig(name="vtab/dtd")).train)
        1000
    """
    asked = (config.train_split, config.validation_split)
    if asked not in SPLITS or config.test_split not in (None, TEST):
        raise ValueError(
            "A task of VTAB-1k has the splits train800val200, or train800 and "
            f"val200, and test. Received: train_split={asked[0]!r}, "
            f"validation_split={asked[1]!r}, test_split={config.test_split!r}."
        )
    return open_vtab(
        (config.name or NAME).removeprefix(f"{NAME}/"),
        train=SPLITS[asked],
        data_dir=config.data_dir,
        download=config.download,
        max_test_examples=config.max_examples,
    )
