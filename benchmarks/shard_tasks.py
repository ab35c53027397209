"""What `input_pipeline.py --sources` compares: the same images in shards.

Each task makes batches of the JPEG images of a folder, in an order that is
shuffled, by an inception crop of 224. The shards are written once, below the
folder. Those that are not ours are what their manuals show.
"""

import importlib.util
import io
import itertools
import json
import pathlib
import tarfile

import numpy as np
from input_tasks import BATCH, SIZE, ours

SHARDS = 4
ROWS = 100  # of a group, as Hugging Face datasets writes them
TRAIN = {"validation_fraction": 0.0, "test_fraction": 0.0}


def files_of(folder) -> list[tuple[pathlib.Path, int]]:
    """The images of a folder and their classes, mixed."""
    paths = sorted(pathlib.Path(folder).rglob("*.jpg"))
    order = np.random.default_rng(0).permutation(len(paths))
    return [(paths[i], int(paths[i].parent.name)) for i in order]


def write_tars(folder):
    """The shards of WebDataset."""
    root = pathlib.Path(folder) / "tars"
    root.mkdir()
    files = files_of(folder)
    for shard in range(SHARDS):
        with tarfile.open(root / f"train-{shard:03d}.tar", "w") as tar:
            for number in range(shard, len(files), SHARDS):
                path, label = files[number]
                for extension, content in (
                    ("jpg", path.read_bytes()),
                    ("cls", str(label).encode()),
                ):
                    member = tarfile.TarInfo(f"{number:06d}.{extension}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def write_parquets(folder):
    """Parquet files as Hugging Face datasets writes them."""
    import pyarrow
    from pyarrow import parquet

    root = pathlib.Path(folder) / "parquet"
    root.mkdir()
    features = {"label": {"names": ["0", "1"], "_type": "ClassLabel"}}
    noted = {"huggingface": json.dumps({"info": {"features": features}})}
    files = files_of(folder)
    for shard in range(SHARDS):
        mine = files[shard::SHARDS]
        rows = [{"bytes": x.read_bytes(), "path": x.name} for x, _ in mine]
        labels = [label for _, label in mine]
        table = pyarrow.table({"image": rows, "label": labels})
        parquet.write_table(
            table.replace_schema_metadata(noted),
            root / f"train-{shard:05d}-of-{SHARDS:05d}.parquet",
            row_group_size=ROWS,
        )


def write_tfds(folder):
    """A data set of tensorflow-datasets, in both formats."""
    import tensorflow_datasets as tfds

    class Photos(  # pyright: ignore[reportGeneralTypeIssues]
        tfds.core.GeneratorBasedBuilder,
        skip_registration=True,  # pyright: ignore[reportCallIssue]
    ):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(encoding_format="jpeg"),
                "label": tfds.features.ClassLabel(num_classes=2),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for path, label in files_of(folder):
                yield path.name, {"image": str(path), "label": label}

    config = tfds.download.DownloadConfig(num_shards=SHARDS)
    for file_format in ("tfrecord", "array_record"):
        builder = Photos(
            data_dir=f"{folder}/{file_format}", file_format=file_format
        )
        builder.download_and_prepare(download_config=config)


def write_shards(folder):
    """Writes the images of a folder in all kinds of shards."""
    write_tars(folder)
    write_parquets(folder)
    write_tfds(folder)


def of_tfds(file_format):
    def batches(folder):
        return ours(
            folder,
            "inception_crop",
            data={
                "name": "photos:1.0.0",
                "data_dir": f"{folder}/{file_format}",
                "train_split": "train",
                "memory_limit_mib": 0,
            },
        )

    return batches


def of_shards(kind):
    def batches(folder):
        return ours(
            folder, "inception_crop", data={"shards": f"{folder}/{kind}"}
        )

    return batches


def files(folder):
    """The images in files of their own."""
    return ours(folder, "inception_crop")


def files_by_pillow(folder):
    """The same, read as where there is no TensorFlow."""
    images = {"folder": f"{folder}/images", "reader": "pillow"}
    return ours(folder, "inception_crop", data=images)


def plain_tf_data(folder):
    """tf.data as TensorFlow's guides have it: streams and a buffer."""
    import tensorflow as tf

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def image(record):
        example = tf.io.parse_single_example(record, features)
        shape = tf.io.extract_jpeg_shape(example["image"])
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            tf.zeros([0, 0, 4], tf.float32),
            min_object_covered=0.0,
            area_range=(0.05, 1.0),
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], axis=0)
        pixels = tf.image.decode_and_crop_jpeg(
            example["image"], window, channels=3
        )
        pixels = tf.image.resize(pixels, (SIZE, SIZE))
        pixels = tf.image.random_flip_left_right(pixels)
        label = tf.one_hot(example["label"], 2)
        return tf.cast(pixels, tf.uint8), label

    paths = tf.data.Dataset.list_files(
        f"{folder}/tfrecord/photos/*/*tfrecord-*"
    )
    return (
        paths.interleave(
            tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE
        )
        .repeat()
        .shuffle(256)
        .map(image, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )


def grain(folder):
    """Grain on the ArrayRecord files, decoded by Pillow, in its threads."""
    import grain as peer  # pyright: ignore[reportMissingImports]
    import tensorflow_datasets as tfds
    from PIL import Image

    builder = tfds.builder_from_directory(f"{folder}/array_record/photos/1.0.0")
    skip = {"image": tfds.decode.SkipDecoding()}
    source = builder.as_data_source("train", decoders=skip)

    def image(example, generator):
        with Image.open(io.BytesIO(example["image"])) as picture:
            width, height = picture.size
            for _ in range(10):
                area = generator.uniform(0.05, 1.0) * width * height
                ratio = generator.uniform(3 / 4, 4 / 3)
                columns = round((area * ratio) ** 0.5)
                rows = round((area / ratio) ** 0.5)
                if columns <= width and rows <= height:
                    break
            else:
                columns, rows = width, height
            left = generator.integers(0, width - columns + 1)
            top = generator.integers(0, height - rows + 1)
            box = (left, top, left + columns, top + rows)
            pixels = np.asarray(
                picture.convert("RGB").resize(
                    (SIZE, SIZE), Image.Resampling.BILINEAR, box
                )
            )
        if generator.random() < 0.5:
            pixels = pixels[:, ::-1]
        return pixels, np.eye(2, dtype="float32")[example["label"]]

    return (
        peer.MapDataset.source(source)
        .seed(0)
        .shuffle()
        .repeat()
        .random_map(image)
        .to_iter_dataset()
        .batch(BATCH)
    )


def torchvision(folder):
    """torchvision's transforms of Pillow's images, in the process itself."""
    library = transforms_of_torchvision()
    transform = library.Compose(
        [
            library.RandomResizedCrop(SIZE, (0.05, 1.0), antialias=True),
            library.RandomHorizontalFlip(),
            library.PILToTensor(),
        ]
    )
    from torchvision.datasets import (  # pyright: ignore[reportMissingImports]
        ImageFolder,
    )

    return in_batches(ImageFolder(f"{folder}/images", transform))


def timm(folder):
    """timm's transforms and data set, in the process itself."""
    transforms_of_torchvision()  # which they are made of
    from timm.data.dataset_factory import create_dataset
    from timm.data.transforms_factory import create_transform

    images = create_dataset("", root=f"{folder}/images", is_training=True)
    images.transform = create_transform(
        SIZE,
        is_training=True,
        scale=(0.05, 1.0),
        color_jitter=None,  # pyright: ignore[reportArgumentType]
        interpolation="bilinear",
        normalize=False,
    )
    return in_batches(images)


def in_batches(images):
    """Shuffled batches without end, of uint8 pixels on tensors of torch."""
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        images, batch_size=BATCH, shuffle=True, drop_last=True
    )
    return itertools.chain.from_iterable(loader for _ in itertools.count())


def transforms_of_torchvision():
    """The transforms; with other builds of torch without its operators."""
    import torch

    try:
        return importlib.import_module("torchvision.transforms.v2")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
    boxes = "Tensor boxes, Tensor scores, float threshold"
    for name in ("nms", "qnms"):
        library.define(f"{name}({boxes}) -> Tensor")
    return importlib.import_module("torchvision.transforms.v2")


SOURCES = {
    "files": files,
    "files_by_pillow": files_by_pillow,
    "tar": of_shards("tars"),
    "tfrecord": of_tfds("tfrecord"),
    "array_record": of_tfds("array_record"),
    "parquet": of_shards("parquet"),
    "plain_tf_data": plain_tf_data,
    "grain": grain,
    "torchvision": torchvision,
    "timm": timm,
}
PEERS = {"grain": "grain", "torchvision": "torchvision", "timm": "torchvision"}
for _name, _library in PEERS.items():
    if importlib.util.find_spec(_library) is None:
        del SOURCES[_name]
