import json
import pathlib

import numpy as np
import pytest

from keras_vit.data.vtab_table import TASKS


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A builder on disk, in three files, whose images have any size."""
    import tensorflow_datasets as tfds

    class Shards(tfds.core.GeneratorBasedBuilder):
        """Grey images of their number."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(
                    {
                        "image": tfds.features.Image(shape=(None, None, 1)),
                        "label": tfds.features.ClassLabel(num_classes=40),
                        "number": tfds.features.Scalar(np.int64),
                        "several": tfds.features.Sequence(
                            tfds.features.ClassLabel(num_classes=5)
                        ),
                    }
                ),
                disable_shuffling=True,
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for number in range(40):
                image = np.full((4, 4, 1), number, np.uint8)
                yield (
                    number,
                    {
                        "image": image,
                        "label": number,
                        "number": number - 2,
                        "several": list(range(number % 4)),
                    },
                )

    builder = Shards(data_dir=str(tmp_path_factory.mktemp("shards")))
    config = tfds.download.DownloadConfig(num_shards=3)
    builder.download_and_prepare(download_config=config)
    return builder


@pytest.fixture(scope="session")
def sized(tmp_path_factory):
    """The metadata of each data set of VTAB, with the sizes that it knows."""
    import tensorflow_datasets as tfds

    root = tmp_path_factory.mktemp("tfds")
    for task in TASKS.values():
        builder = tfds.builder(task.builder, data_dir=root)
        folder = pathlib.Path(builder.data_dir)
        if folder.exists():
            continue
        folder.mkdir(parents=True)
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        splits = [
            {
                "name": name,
                "shardLengths": [str(size)],
                "numBytes": "1",
                "filepathTemplate": template,
            }
            for name, size in task.sizes.items()
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
    return root


@pytest.fixture
def mocked(sized, monkeypatch):
    import tensorflow_datasets as tfds
    from tensorflow_datasets.testing import mocking

    # All sequences of an example have ten elements: by default each has
    # another length, which those of KITTI's objects must not have.
    monkeypatch.setattr(
        mocking.RandomFakeGenerator.__init__, "__defaults__", (1, None, True, 0)
    )
    with tfds.testing.mock_data(
        num_examples=7,
        data_dir=str(sized),
        policy=tfds.testing.MockPolicy.USE_FILES,
    ):
        yield
