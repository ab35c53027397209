"""Shards of PNG images that say which one they are."""

import collections
import io
import itertools
import json
import pathlib
import tarfile

import numpy as np
from PIL import Image

from keras_vit.data import PreprocessingConfig, records, training_stream

SIDE, BATCH = 4, 8
SQUASH = PreprocessingConfig(train="squash", evaluation="squash", flip=False)


class Counted(io.FileIO):
    """A file that adds the bytes that are read of it to a counter."""

    def __init__(self, path, counter):
        super().__init__(path)
        self.counter = counter

    def readinto(self, buffer):
        size = super().readinto(buffer)
        self.counter[self.name] += size
        return size

    def read(self, size=-1):
        content = super().read(size)
        self.counter[self.name] += len(content)
        return content


def count_bytes(monkeypatch=None) -> collections.Counter:
    """Counts the bytes that are read of each shard from now on."""
    read = collections.Counter()

    def opened(path, mode, buffering):
        assert mode == "rb"
        raw = Counted(path, read)
        return io.BufferedReader(raw, buffering) if buffering else raw

    if monkeypatch:
        monkeypatch.setattr(records, "open", opened, raising=False)
    else:
        setattr(records, "open", opened)  # noqa: B010
    return read


def picture(number: int, side: int = SIDE) -> bytes:
    """A grey PNG whose pixels, resized to 4x4, begin with its number.

    Not compressed; larger ones have noise besides, so that nothing can be.
    """
    stream = io.BytesIO()
    noise = np.random.default_rng(number)
    pixels = noise.integers(0, 256, (side, side), dtype=np.uint8)
    corner = -(-side // 2)
    pixels[:corner, :corner] = number
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


def as_tar(path, examples) -> pathlib.Path:
    """`Examples` of grey images in memory as a tar file, enlarged by 8."""
    samples = {}
    for number, label in enumerate(examples.labels):
        stream = io.BytesIO()
        pixels = np.kron(examples.contents[number, ..., 0], np.ones((8, 8)))
        image = Image.fromarray(pixels.astype(np.uint8))
        image.save(stream, "PNG", compress_level=0)
        members = {"png": stream.getvalue(), "cls": str(label).encode()}
        samples[f"{number:04d}"] = members
    return write_tar(path, samples)


def tars(folder, count=40, shards=3, side=SIDE) -> pathlib.Path:
    """`count` images in train-0.tar and so on, as even as they come."""
    for shard, numbers in enumerate(np.array_split(range(count), shards)):
        samples = {f"{n:04d}": sample(n, side=side) for n in map(int, numbers)}
        write_tar(pathlib.Path(folder) / f"train-{shard}.tar", samples)
    return pathlib.Path(folder)


def table(numbers, side=SIDE, names=tuple("abcd"), label=None):
    """A table as Hugging Face datasets writes it."""
    import pyarrow

    rows = [
        {"bytes": picture(n, side), "path": f"{n}.png"}
        for n in map(int, numbers)
    ]
    labels = [n % 4 if label is None else label for n in map(int, numbers)]
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list(names), "_type": "ClassLabel"},
    }
    noted = json.dumps({"info": {"features": features}})
    made = pyarrow.table({"image": rows, "label": labels})
    return made.replace_schema_metadata({"huggingface": noted})


def parquets(folder, count=40, shards=3, side=SIDE, rows=4) -> pathlib.Path:
    """`count` images in three parquet files of groups of a few rows."""
    from pyarrow import parquet

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for shard, numbers in enumerate(np.array_split(range(count), shards)):
        path = folder / f"train-{shard:05d}-of-{shards:05d}.parquet"
        parquet.write_table(table(numbers, side), path, row_group_size=rows)
    return folder


def prepared(folder, file_format, count=40, side=SIDE):
    """A prepared builder of tensorflow-datasets, in three files."""
    import tensorflow_datasets as tfds

    class Numbers(  # pyright: ignore[reportGeneralTypeIssues]
        tfds.core.GeneratorBasedBuilder,
        skip_registration=True,  # pyright: ignore[reportCallIssue]
    ):
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


def stream(examples, share=None):
    return training_stream(
        examples,
        4,
        image_size=4,
        channels=1,
        batch_size=BATCH,
        preprocessing=SQUASH,
        share=share,
    )


def shown(stream, first, steps):
    """Numbers of the images of some batches, and their classes."""
    batches = itertools.islice(iter(stream.from_step(first)), steps)
    found = [tuple(map(np.asarray, batch)) for batch in batches]
    return (
        np.array([images[:, 0, 0, 0] for images, _ in found]),
        np.array([labels.argmax(-1) for _, labels in found]),
    )
