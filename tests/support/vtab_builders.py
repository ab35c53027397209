"""The data sets of VTAB-1k in their right sizes, with images of noise."""

import contextlib
import json
import pathlib
from collections.abc import Iterable, Iterator
from unittest import mock

from vtab.tasks import TASKS

NUM_EXAMPLES = 7  # Whatever the split.
TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def describe(root: pathlib.Path, tasks: Iterable[str] = tuple(TASKS)) -> None:
    """Writes the metadata of the data sets of tasks, as if prepared."""
    import tensorflow_datasets as tfds

    for name in tasks:
        task = TASKS[name]
        builder = tfds.builder(task.builder, data_dir=root)
        folder = pathlib.Path(builder.data_dir)
        if folder.exists():
            continue
        folder.mkdir(parents=True)
        splits = [
            {
                "name": split,
                "shardLengths": [str(size)],
                "numBytes": "1",
                "filepathTemplate": TEMPLATE,
            }
            for split, size in task.sizes.items()
        ]
        info = {
            "fileFormat": "tfrecord",
            "name": builder.name,
            "version": str(builder.version),
            "splits": splits,
        }
        if builder.builder_config:
            info["configName"] = builder.builder_config.name
        (folder / "dataset_info.json").write_text(json.dumps(info))
        builder.info.features.save_config(folder)


@contextlib.contextmanager
def mocked(root: pathlib.Path) -> Iterator[None]:
    """Gives any split of the described data sets seven images of noise."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.testing import mocking

    # All sequences of an example have ten elements: by default each has
    # another length, which those of KITTI's objects must not have.
    same_lengths = mock.patch.object(
        mocking.RandomFakeGenerator.__init__, "__defaults__", (1, None, True, 0)
    )
    images = tfds.testing.mock_data(
        num_examples=NUM_EXAMPLES,
        data_dir=str(root),
        policy=tfds.testing.MockPolicy.USE_FILES,
    )
    with same_lengths, images:
        yield
