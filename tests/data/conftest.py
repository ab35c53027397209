import numpy as np
import pytest

from keras_vit.data import dataset, sources


@pytest.fixture(params=["tensorflow", "pillow"])
def reader(request, monkeypatch):
    """Each of what reads images, in turn what "auto" stands for."""

    def chosen(asked):
        return request.param if asked == "auto" else asked

    for module in (dataset, sources):
        monkeypatch.setattr(module, "chosen_reader", chosen)
    return request.param


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A builder on disk, in three files, whose images have any size."""
    return prepare(tmp_path_factory.mktemp("shards"), "tfrecord")


@pytest.fixture(scope="session")
def prepared_by_position(tmp_path_factory):
    """The same in ArrayRecord files."""
    return prepare(tmp_path_factory.mktemp("records"), "array_record")


def prepare(folder, file_format):
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

    builder = Shards(data_dir=str(folder), file_format=file_format)
    config = tfds.download.DownloadConfig(num_shards=3)
    builder.download_and_prepare(download_config=config)
    return builder
