"""Shards of PNG images that say which one they are."""

import io
import json
import pathlib
import tarfile

import numpy as np
from PIL import Image

SIDE = 4


def picture(number: int, side: int = SIDE) -> bytes:
    """A grey PNG whose pixels are its number, not compressed."""
    stream = io.BytesIO()
    pixels = np.full((side, side), number, np.uint8)
    Image.fromarray(pixels).save(stream, "PNG", compress_level=0)
    return stream.getvalue()


def write_tar(path, samples: dict) -> pathlib.Path:
    """A tar file of samples: key -> extension -> bytes."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for key, members in samples.items():
            for extension, content in members.items():
                member = tarfile.TarInfo(f"{key}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def sample(number: int, label=None, side: int = SIDE) -> dict:
    label = number % 4 if label is None else label
    return {"png": picture(number, side), "cls": str(label).encode()}


def json_sample(number: int, **fields) -> dict:
    return {"json": json.dumps(fields).encode(), "png": picture(number)}


def tars(folder, count=40, shards=3, side=SIDE) -> pathlib.Path:
    """`count` images in train-0.tar and so on, as even as they come."""
    for shard, numbers in enumerate(np.array_split(range(count), shards)):
        samples = {f"{n:04d}": sample(n, side=side) for n in map(int, numbers)}
        write_tar(pathlib.Path(folder) / f"train-{shard}.tar", samples)
    return pathlib.Path(folder)


def prepared(folder, file_format, count=40, side=SIDE):
    """A prepared builder of tensorflow-datasets, in three files."""
    import tensorflow_datasets as tfds

    class Numbers(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """Grey images of their number."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(None, None, 1)),
                "label": tfds.features.ClassLabel(num_classes=4),
                "name": tfds.features.Text(),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(features),
                disable_shuffling=True,
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for number in range(count):
                image = io.BytesIO(picture(number, side))
                fields = {"label": number % 4, "name": str(number)}
                yield number, {"image": image, **fields}

    builder = Numbers(data_dir=str(folder), file_format=file_format)
    config = tfds.download.DownloadConfig(num_shards=3)
    builder.download_and_prepare(download_config=config)
    return builder
