"""VTAB-1k by name: a thousand images of a task, and all of its test images.

See `tasks.py` for the tasks, their splits and labels.
"""

import dataclasses
from typing import Any

import numpy as np

from keras_vit.data.config import DataConfig
from keras_vit.data.dataset import Dataset, Examples, check_not_cut
from keras_vit.data.tfds import named_builder, on_this_machine, prepare
from keras_vit.io.checks import check_choice
from vtab.tasks import TASKS, VtabTask

__all__ = ["VtabSplit", "open_vtab"]

# Training and validation split to the fields of `VtabTask`: 1000 images to
# train on for a result; or 800, and 200 to make a choice with.
SPLITS = {
    (None, None): ("final", None),
    ("train800val200", None): ("final", None),
    ("train800", "val200"): ("train", "validation"),
}
TEST = "test"


def open_vtab(config: DataConfig) -> Dataset:
    """Open a task of VTAB-1k.

    Args:
        config: a `DataConfig` with the name of a task, such as
            "vtab/clevr_count". Its splits are "train800val200" (or none) to
            train on for a result, or "train800" and "val200" to make a choice
            with, and "test". With max_examples only the first test images are
            kept, for trials; the benchmark has all of them.

    Returns:
        A `Dataset`: training and validation images are `Examples`, the test
        images a `VtabSplit`, which is read as it is needed.

    Raises:
        ValueError: for an unknown task or split; for data that is not there
            and cannot be got, with what to download by hand and where to put
            it; for data of other sizes than VTAB's.
    """
    splits = (config.train_split, config.validation_split)
    if splits not in SPLITS or config.test_split not in (None, TEST):
        raise ValueError(
            "A task of VTAB-1k has the splits train800val200, or train800 and "
            f"val200, and test. Received: train_split={splits[0]!r}, "
            f"validation_split={splits[1]!r}, test_split={config.test_split!r}."
        )
    check_not_cut(config, "a task of VTAB-1k has its own splits")
    name = (config.name or "").removeprefix("vtab/")
    check_choice("task of VTAB", name, TASKS)
    task = TASKS[name]
    builder = named_builder(task.builder, config.data_dir)
    prepare(builder, download=config.download)
    _check_sizes(builder, task)
    builder = on_this_machine(builder, config.data_dir)
    train, validation = (
        part and _in_memory(VtabSplit(builder, task, getattr(task, part)))
        for part in SPLITS[splits]
    )
    return Dataset(
        train,
        validation,
        VtabSplit(builder, task, task.test, config.max_examples),
        class_names=_class_names(builder, task),
        name=f"vtab/{name}",
    )


@dataclasses.dataclass(frozen=True)
class VtabSplit:
    """Images of a split, read from the files whenever they are needed.

    Args:
        builder: a prepared `tfds.core.DatasetBuilder`.
        task: whose label rule is used.
        split: as "train[21600:]".
        limit: int, how many of the first images are kept; all if None.

    Attributes:
        labels: None; they are only known when they are read.
    """

    builder: Any
    task: VtabTask
    split: str
    limit: int | None = None
    kind: str = "encoded"
    reader: str = "tensorflow"
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
        return f"{self.source}[{example}]"

    def in_order(self):
        """See `Examples.in_order`."""
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
    """Multiply the pixels of an encoded image, a string scalar."""
    import tensorflow as tf

    if factor == 1:
        return data
    return tf.io.encode_png(tf.io.decode_png(data) * factor)


def _in_memory(images: VtabSplit) -> Examples:
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
            f"{wrong}. Prepare {task.builder} again."
        )


def _class_names(builder, task: VtabTask) -> tuple[str, ...]:
    """Name the classes; a label that is derived has numbers."""
    names = None
    if len(task.features) == 1:
        (feature,) = task.features
        names = getattr(builder.info.features[feature], "names", None)
    if names is None or len(names) != task.num_classes:
        names = range(task.num_classes)
    return tuple(map(str, names))
