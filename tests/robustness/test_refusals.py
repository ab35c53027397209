"""Refusals that no other test meets: each says what was given and what to do.

The first table has those of values, the second those of files.
"""

import gzip
import io
import json
import re
import tarfile
import types
import warnings
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image
from text_cases import FOLDER

from keras_vit import analysis
from keras_vit.analysis.report.run_files import RunFiles
from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.checkpoints.dialects import (
    hugging_face_config,
    hugging_face_text,
    keras_hub,
    open_clip,
)
from keras_vit.checkpoints.engine import keras_files, loading, matching
from keras_vit.checkpoints.files import (
    config_values,
    hdf5,
    npz,
    safetensors,
)
from keras_vit.checkpoints.files.folders import open_shards
from keras_vit.checkpoints.public import network
from keras_vit.cli import main
from keras_vit.data import (
    DataConfig,
    Examples,
    PreprocessingConfig,
    batches,
    manifest,
    open_dataset,
    records,
    shards,
    tfds,
)
from keras_vit.data.dataset import Dataset
from keras_vit.data.shards import dataset_of, parquet_index
from keras_vit.evaluation import metrics
from keras_vit.exporting import browser_page
from keras_vit.exporting.export import export_pair
from keras_vit.io import protobuf, stores
from keras_vit.io.checks import MAX_YAML_BYTES, check_yaml
from keras_vit.models import (
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)
from keras_vit.planning import machine
from keras_vit.prediction import (
    as_classifier,
    by_labels,
    embeddings_file,
    exported_model,
    exported_pair,
    networks,
    patch_sequences,
)
from keras_vit.prediction.exported_model import ExportedModel
from keras_vit.runs import reporting, script
from keras_vit.sharing import model_card, push
from keras_vit.text import (
    image_text,
    load_image_text,
    pair_files,
    tokenizer,
    zero_shot,
)
from keras_vit.text.tower import TextTransformer
from keras_vit.training import checkpointing, training_run
from keras_vit.training.build import _check_classes
from keras_vit.training.config import ModelConfig, Recipe, TrainingConfig
from keras_vit.training.tasks import mae
from keras_vit.variants.variant_config import VariantTransformerConfig
from keras_vit.variants.variant_transformer import (
    AddPositionEmbedding2D,
    RelativeSelfAttention,
)

TINY: dict[str, Any] = {
    "image_size": 8,
    "patch_size": 4,
    "hidden_dim": 8,
    "num_layers": 1,
}
VIT: dict[str, Any] = {**TINY, "num_heads": 2, "mlp_dim": 8, "num_classes": 2}
MIXER: dict[str, Any] = {
    **TINY,
    "tokens_mlp_dim": 4,
    "channels_mlp_dim": 8,
    "num_classes": 2,
}
NUMBER: Any = 3
NOTHING: Any = None
PIXELS = np.zeros((2, 8, 8, 3), "uint8")
COLOURS = np.random.default_rng(0).integers(0, 256, PIXELS.shape, "uint8")
# Of a checkpoint, and of the interval that it is in.
RECORD = {
    "step": 3,
    "interval": 0,
    "ended": False,
    "seconds": 1.0,
    "callbacks": [],
}
PART = {"batches": "many", "logged": 0, "means": {}, "seconds": 0, "open": 0}


def vit(**options):
    return VisionTransformer(ViTConfig(**{**VIT, **options}))


def dense():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def digits(labels, contents=PIXELS):
    return Examples(contents, np.array(labels), source="digits")


def like(**parts) -> Any:
    return types.SimpleNamespace(**parts)


def part_alone(images=PIXELS):
    """A data set of training images."""
    return Dataset(digits([0, 1], images), None, None, ("a", "b"), "it")


def broken():
    model = vit()
    model.weights[0].assign(np.full(model.weights[0].shape, np.nan))
    return model


def embeddings(**changes):
    found = {"files": ["a"], "vectors": np.ones((1, 3), "float32")}
    found = like(**{**found, "metadata": {}, **changes})
    embeddings_file._check(found, vectors=True)


OF_VALUES = {
    "a head of both": (
        lambda: analysis.patch_scores(
            vit(pooling="token_and_mean"), np.zeros((1, 8, 8, 3))
        ),
        "a head of 16 numbers with pooling='token_and_mean', tokens of 8",
    ),
    "a config of towers": (
        lambda: hugging_face_config.read_config(
            "it", {"model_type": "clip", "vision_config": 3}
        ),
        "has vision_config=3. Expected an object",
    ),
    "labels with a gap": (
        lambda: hugging_face_config._names("it", {"0": "a", "2": "b"}),
        r"the numbers \[0, 2\] \.\.\., 2 in all. Expected 0, 1, 2",
    ),
    "a resizing of keras-hub": (
        lambda: keras_hub._trained_as("it", ("it", {"interpolation": "odd"})),
        "has interpolation='odd'. Expected one of",
    ),
    "a config of open_clip": (
        lambda: open_clip.read_config(Path("it"), {}),
        "has no vision_cfg",
    ),
    "a resizing of open_clip": (
        lambda: open_clip.read_trained_as(
            Path("it"), {}, {"resize_mode": "odd"}
        ),
        "has resize_mode='odd' and interpolation='bicubic'",
    ),
    "a policy with a list": (
        lambda: keras_files._check_policy("it", {"config": [1]}),
        "has a list in its dtype",
    ),
    "a source of weights": (
        lambda: load_checkpoint(3),
        "is a path or a name. Received: 3 of type int",
    ),
    "an average of others": (
        lambda: loading.average_weights([dense(), dense()]),
        "models of this package. Received: Sequential",
    ),
    "weights of others": (
        lambda: save_checkpoint(dense(), "x.npz", format="google"),
        "is no model of keras_vit.*pass the inner model",
    ),
    "positions of another grid": (
        lambda: matching.resample_position_embedding(
            np.zeros((1, 5, 8)), (3, 3), (2, 2)
        ),
        r"of shape \(1, 5, 8\) is too short for a grid of 3x3",
    ),
    "a word for a number": (
        lambda: config_values.converted(
            "it", {"theta": "big"}, {"theta": "rope_temperature"}
        ),
        "has rope_temperature='big'. Expected a number",
    ),
    "an address without a host": (
        lambda: network.encoded(f"https://{'é' * 64}/x"),
        "has no host",
    ),
    "no batch": (
        lambda: batches.evaluation_batches(
            digits([0, 1]), image_size=8, channels=3, batch_size=0
        ),
        "batch_size must be an int above 0. Received: batch_size=0",
    ),
    "a separator": (
        lambda: DataConfig(folder="x", label_separator=""),
        "label_separator is not empty.*one label per image",
    ),
    "a least area": (
        lambda: PreprocessingConfig(train="inception_crop", least_area=0),
        "above 0 and at most 1. Received: least_area=0",
    ),
    "images of numbers": (
        lambda: digits([0, 1], PIXELS.astype("float32")),
        r"Images must be a uint8 array.*Received: float32 of shape \(2, 8,",
    ),
    "a label too many": (
        lambda: digits([0, 1, 0]),
        r"one label per image. Received: labels of shape \(3,\) for 2 images",
    ),
    "shards of two kinds": (
        lambda: dataset_of(["a.tar", "b.parquet"], DataConfig(shards="x"), "x"),
        r"all .tar or all .parquet. Received: a.tar and",
    ),
    "shards of a test": (
        lambda: dataset_of(
            ["d/test-0.tar", "d/test-1.tar"], DataConfig(shards="x"), "x"
        ),
        "No shard of x is for training.*as d/test-0.tar",
    ),
    "braces": (
        lambda: open_dataset(
            DataConfig(shards="{000..999}{000..999}{000..999}.tar")
        ),
        "names more than .* shards",
    ),
    "classes as numbers": (
        lambda: metrics.predict_numbers(vit(), [], digits([0, 1])),
        r"predicts 2 number\(s\).*are int64 of shape \(2,\).*label_kind number",
    ),
    "an export of a pair": (
        lambda: export_pair("x", "y", "pt2", precision="int8"),
        "pt2 is not written in int8, only in",
    ),
    "a number cut off": (
        lambda: protobuf.varint(io.BytesIO(b"\xff")),
        "it ends too early",
    ),
    "a number without end": (
        lambda: protobuf.varint(io.BytesIO(b"\xff" * 11)),
        "it is no message",
    ),
    "an address for a path": (
        lambda: stores.check_local("out", "gs://bucket/x"),
        "out is a path on this machine. Received: 'gs://bucket/x'",
    ),
    "an address that leads out": (
        lambda: stores.whole_address("gs://bucket/a/../b"),
        "names no object",
    ),
    "one class": (
        lambda: open_dataset(
            DataConfig(name="digits", train_split="train[:1]")
        ),
        "at least two classes: all 1 training images of 'digits' are '",
    ),
    "images of another size": (
        lambda: vit().check_shape((1, 8, 12, 3)),
        r"for images of 8x8 pixels. Received: images of shape \(1, 8, 12, 3\)",
    ),
    "a norm after pooling": (
        lambda: ViTConfig(**VIT, norm_after_pooling=True, final_norm=False),
        "Received: final_norm=False. Set one of the two",
    ),
    "means of other channels": (
        lambda: ViTConfig(**VIT, pixel_mean=(0.5,), pixel_std=(0.5,)),
        r"each of 3 channels.*Received: pixel_mean=\(0.5,\)",
    ),
    "deviations of 0": (
        lambda: ViTConfig(**VIT, pixel_mean=(0.5,) * 3, pixel_std=(0,) * 3),
        r"deviations above 0.*Received: pixel_std=\(0, 0, 0\)",
    ),
    "mixing without a size": (
        lambda: MixerConfig(**{**MIXER, "tokens_mlp_dim": 0}),
        "Received: mixing='mlp' and tokens_mlp_dim=0",
    ),
    "gates of an odd size": (
        lambda: MixerConfig(
            **{**MIXER, "tokens_mlp_dim": 0, "channels_mlp_dim": 9},
            mixing="spatial_gating",
        ),
        "an even channels_mlp_dim. Received: channels_mlp_dim=9",
    ),
    "too many devices": (
        lambda: machine("h100x123456789"),
        "devices. Received: 'h100x123456789'",
    ),
    "files without text": (
        lambda: embeddings(files=[3]),
        "its files are not named by texts",
    ),
    "files without vectors": (
        lambda: embeddings(files=["a", "b"]),
        "2 files and 1 vectors",
    ),
    "metadata without keys": (
        lambda: embeddings(metadata=[]),
        "its metadata are no object",
    ),
    "vectors of doubles": (
        lambda: embeddings(vectors=np.ones((1, 3))),
        r"its vectors are float64 of shape \(1, 3\)",
    ),
    "a branch twice": (
        lambda: push._target("user/name@main", "other", True, False, None),
        "another branch than revision='other'",
    ),
    "a pair of numbers": (
        lambda: model_card.open_shared_pair(NUMBER),
        "load_image_text returns, or its source. Received: int",
    ),
    "recall at 0": (
        lambda: image_text.retrieval_recall(np.eye(2), np.eye(2), at=(0, 1)),
        r"Recall is at 1 or more. Received: at=\(0, 1\)",
    ),
    "a cleaning": (
        lambda: tokenizer.Tokenizer({"cleaning": ["odd"]}, {}),
        r"Cleaning is by .*Received: \['odd'\]",
    ),
    "texts without a model": (
        lambda: zero_shot.as_text_encoder(3),
        "Texts need an image-text model.*Received: 3",
    ),
    "a file of classes": (
        lambda: zero_shot.checked_path("none/x.npz"),
        "in a folder that exists. Received: 'none/x.npz'",
    ),
    "weights without a name": (
        lambda: ModelConfig(weights=""),
        "an unset variable of the shell is. Received: weights=''",
    ),
    "a head of other classes": (
        lambda: _check_classes(vit(), ["a", "b", "c"], "it"),
        "of 'it' has 2 classes, the data 3. Use model.head=\"new\"",
    ),
    "levels of YAML": (
        lambda: check_yaml("[" * 1000 + "]" * 1000),
        "A YAML text has at most .* levels",
    ),
    "float16 on a TPU": (
        lambda: training_run._check_tpu("tpu", "mixed_float16"),
        "float32 or bfloat16. Received: training.precision=mixed_float16",
    ),
    "colours for a grey model": (
        lambda: training_run._check_colours(
            Recipe(),
            part_alone(COLOURS),
            vit(channels=1),
        ),
        "The images of it have colours, and the model is for grey images",
    ),
    "no part of a result": (
        lambda: training_run._check_parts(part_alone(), ("test",)),
        "it has no test images, and the result is computed on them",
    ),
    "an accuracy of pixels": (
        lambda: mae._make_model(
            Recipe(training=TrainingConfig(best_metric="val_accuracy")), ()
        ),
        'has no accuracy. Received: training.best_metric="val_accuracy"',
    ),
    "other blocks in a variant": (
        lambda: VariantTransformerConfig(**VIT, gated_mlp=True),
        "with its blocks. Received: {'gated_mlp': True}",
    ),
    "sequences without room": (
        lambda: patch_sequences([PIXELS[0]] * 10**4, 1000, max_patches=10**4),
        "10000 sequences of 10,000 patches take .* Give fewer",
    ),
    "an image without room": (
        lambda: networks._check_side(10**6),
        "no room for an image of 1000000x1000000 pixels",
    ),
    "texts of another length": (
        lambda: TextTransformer.check_shape(
            like(input_shape=(None, 7)), (2, 5)
        ),
        r"texts of 7 tokens with their padding. Received: ids of shape \(2, 5",
    ),
    "a token that pads": (
        lambda: tokenizer._Fast(like(token_to_id=lambda token: None), "<pad>"),
        "has no token '<pad>', which pads texts",
    ),
    "images by files": (
        lambda: batches._check_in_memory(like(source="it")),
        "it is read from its files by TensorFlow. Received: data.reader='pil",
    ),
    "no batch of arrays": (
        lambda: batches._Arrays(PIXELS, [0, 1], batch_size=3),
        "a batch_size from 1 to 2, .* Received: batch_size=3",
    ),
    "labels of many digits": (
        lambda: shards._check_digits(["1", "2" * 99]),
        "The label '2222.* is no number of a class",
    ),
    "labels above all integers": (
        lambda: records._labels_of([1, 2**70], "it"),
        "The shard it has labels that are no numbers of classes, such as 118",
    ),
    "a shard that is not there": (
        lambda: records.open_shard("none.tar"),
        "The shard none.tar cannot be read: No such file",
    ),
    "a step before the first": (
        lambda: checkpointing._check_record({**RECORD, "step": -1}),
        "Its step is -1",
    ),
    "a part of a record": (
        lambda: checkpointing._check_record({**RECORD, "part": PART}),
        "Its part is {'batches': 'many'",
    ),
    "a table of an odd size": (
        lambda: AddPositionEmbedding2D((2, 2)).build((None, 4, 7)),
        r"Received: input_shape=\(None, 4, 7\). Choose an even hidden_dim",
    ),
    "a kernel for offsets": (
        lambda: RelativeSelfAttention(2, flash_attention=True).build(
            (None, 4, 8)
        ),
        "No fused kernel adds .* Received: flash_attention=True. Set it to",
    ),
    "no validation images": (
        lambda: reporting.batches_of(
            like(dataset=part_alone()), Recipe(), "validation"
        ),
        "it has no validation images. Give --data.validation_split or",
    ),
    "scores that are no numbers": (
        lambda: as_classifier(broken()).probabilities(PIXELS),
        "The model returns NaN. Check its weights",
    ),
    "a size of a model in memory": (
        lambda: by_labels.classifier_of(
            load_image_text(FOLDER / "siglip"), NOTHING, image_size=64
        ),
        "The model takes images of 32x32. Received: image_size=64",
    ),
    "texts of no export": (
        lambda: exported_pair.ExportedTexts("x.txt", {}, NOTHING),
        "'x.txt' is no exported model",
    ),
    "a label of many bytes": (
        lambda: tfds._read(io.BytesIO(), 0, tfds.LARGEST_LABEL + 1),
        "a name or label of .* bytes is too long",
    ),
    "a page of windows": (
        lambda: browser_page._contents(
            {
                "preprocessing": {"evaluation": "aspect_crop"},
                "input": {"shape": [None, 8, 8, 3]},
                "config": {},
            },
            "",
            "",
        ),
        "A page does not cut images before it resizes them",
    ),
    "vectors of no size": (
        lambda: embeddings_file._checked_shape([3, -1], None, False),
        r"its vectors are None, said to be of \[3, -1\]",
    ),
    "other metrics": (
        lambda: checkpointing.restore_metrics(
            [1, 2], {f"{checkpointing.METRIC}0": 0}
        ),
        "has 1 variables of metrics, and there are 2",
    ),
}


@pytest.mark.parametrize("name", OF_VALUES)
def test_a_value_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given, message = OF_VALUES[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        given()
    assert not any(tmp_path.iterdir())


def written(folder, name, text):
    (folder / name).write_text(text)
    return folder


def tensors(path, **shapes):
    arrays = [(x, np.ones(y, "float32")) for x, y in shapes.items()]
    shapes = {x: y.shape for x, y in arrays}
    safetensors.write_safetensors(path, shapes, arrays)


def half_a_result(folder):
    np.savez(folder / "predictions.npz", labels=np.zeros(2))
    run = RunFiles(folder)
    assert run.read("predictions.npz") is None
    raise ValueError(run.problems["predictions.npz"])


def text_tower_of_an_image_model(folder):
    written(folder, "config.json", '{"model_type": "vit"}')
    file = like(path=folder)
    hugging_face_text.read_text(like(file=file))


def config_of_lists(folder):
    (folder / open_clip.WEIGHTS[0]).write_bytes(b"")
    written(folder, open_clip.CONFIG, '{"model_cfg": [1]}')
    open_clip.open_folder(folder)


def texts_without_a_config(folder):
    file = like(path=folder)
    open_clip.read_text(like(file=file))


def name_of_an_architecture(folder):
    save_checkpoint(vit(), folder / "x.npz", format="google")
    load_checkpoint(folder / "x.npz", architecture="vit_base_patch16_224")


def index(folder, names):
    text = json.dumps({"weight_map": names})
    written(folder, "model.safetensors.index.json", text)


def tensor_of_the_index(folder):
    tensors(folder / "one.safetensors", a=2)
    index(folder, {"a": "one.safetensors", "b": "one.safetensors"})
    list(open_shards(folder))


def tensor_twice(folder):
    tensors(folder / "one.safetensors", a=2)
    tensors(folder / "two.safetensors", a=2, b=2)
    index(folder, {"a": "one.safetensors", "b": "two.safetensors"})
    list(open_shards(folder))


def array_twice(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile says so.
        with zipfile.ZipFile(folder / "x.npz", "w") as file:
            file.writestr("a.npy", b"")
            file.writestr("a.npy", b"")
    npz.open_npz(folder / "x.npz")


def header(folder, content):
    text = json.dumps(content).encode()
    size = len(text).to_bytes(8, "little")
    (folder / "x.safetensors").write_bytes(size + text)
    safetensors.open_safetensors(folder / "x.safetensors")


def pickle(folder):
    with zipfile.ZipFile(folder / "x.npz", "w") as file:
        file.writestr("archive/data.pkl", b"")
    load_checkpoint(folder / "x.npz")


def table(folder, text, **options):
    for name in ("a", "b"):
        Image.new("L", (4, 4)).save(folder / f"{name}.png")
    (folder / "x.csv").write_text(text)
    open_dataset(DataConfig(csv=str(folder / "x.csv"), **options))


def rows(folder, labels):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    images = pyarrow.array([b"x"] * len(labels), pyarrow.binary())
    column = pyarrow.array(labels, pyarrow.int64())
    found = pyarrow.table({"image": images, "label": column})
    parquet.write_table(found, folder / "x.parquet")
    parquet_index(str(folder / "x.parquet"), "label")


def plan_of_a_mixer(folder):
    Mixer(MixerConfig(**MIXER)).save(folder / "x.keras")
    raise SystemExit(main(["plan", str(folder / "x.keras")]))


def texts_of_keras(folder):
    vit().save(folder / "x.keras")
    pair_files.open_text(folder / "x.keras")


def lengths(folder):
    np.savez(
        folder / "x.npz",
        names=np.array(["a"]),
        metadata=np.array("{}"),
        vectors=np.full((1, 4), 3, "float32"),
    )
    zero_shot.load_class_embeddings(folder / "x.npz")


def sentences(folder):
    pytest.importorskip("sentencepiece")
    classes = zero_shot.class_embeddings(FOLDER / "siglip", ["a"])
    by_labels.words_of(FOLDER / "siglip", classes, "a {}")


def link(folder):
    """In HDF5: an array whose numbers are in another file."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        numbers = [(folder / "numbers", 0, 16)]
        file.create_dataset("a", (4,), "float32", external=numbers)
        hdf5.list_datasets(folder / "x.h5", file, None)


def sparse_image(folder):
    """Of 512 zeros that are not in the file, in the old format of GNU."""
    member = tarfile.TarInfo("0.png")
    member.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[386:410] = b"%011o\0" % 0 + b"%011o\0" % 0
    block[483:495] = b"%011o\0" % 512
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    with tarfile.open(folder / "x.tar", "w") as file:
        file.fileobj.write(bytes(block))
        label = tarfile.TarInfo("0.cls")
        label.size = 1
        file.addfile(label, io.BytesIO(b"0"))
    open_dataset(DataConfig(shards=str(folder / "x.tar")))


def list_of_images(folder):
    (folder / "x.csv.gz").write_bytes(gzip.compress(bytes(2**23)))
    manifest.read_manifest(folder / "x.csv.gz")


def labels_in_a_large_file(folder):
    size = zero_shot.MAX_LABELS_FILE + 1
    zero_shot.labels_of(sparse(folder / "x.txt", size))


def large_config(folder):
    path = sparse(folder / "x.yaml", MAX_YAML_BYTES + 1)
    script._config(str(path), set())


def array_of_another_kind(folder):
    with zipfile.ZipFile(folder / "x.npz", "w") as file:
        file.writestr("a.txt", b"")
    npz.open_npz(folder / "x.npz")


def objects(folder):
    np.savez(folder / "x.npz", a=np.array([{}], object))
    npz.open_npz(folder / "x.npz")


def sparse(path, size):
    """A file of zeros that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def wide_teacher(folder):
    words = ["plan", "ViT_Ti16", "--method", "distill", "--options"]
    words += ["teacher=ViT_Ti16", "teacher_size=[32,64]"]
    raise SystemExit(main(words))


OF_FILES = {
    "a wide teacher": (wide_teacher, "square images. Received: teacher_size="),
    "notes without end": (
        lambda folder: exported_model._record_in_xml(
            sparse(folder / "x.xml", exported_model.LARGEST_XML + 1)
        ),
        "it is larger than .* bytes",
    ),
    "a file of zeros": (
        lambda folder: exported_model._open_litert(
            sparse(folder / "x.tflite", 9), {}
        ),
        "it does not begin as a file of LiteRT",
    ),
    "a link in HDF5": (link, "tensor 'a': points to another file"),
    "a sparse image": (
        sparse_image,
        "The image of the sample .*: 0 is a sparse file",
    ),
    "a list of zeros": (list_of_images, "unpacks to more than .* bytes. Put"),
    "too many labels": (labels_in_a_large_file, "is too large for labels"),
    "a large config": (large_config, "bytes, where a config has at most"),
    "a text in an archive": (array_of_another_kind, "is no array of NumPy"),
    "objects": (objects, "is an array of pickled Python objects"),
    "half a result": (half_a_result, "it lacks classes, probabilities"),
    "texts of ViT": (text_tower_of_an_image_model, "has model_type='vit'"),
    "a config of lists": (config_of_lists, "no objects model_cfg and"),
    "no config": (texts_without_a_config, "is not there. Load the folder"),
    "an architecture": (
        name_of_an_architecture,
        "is of the format google. Received: architecture='vit_base_patch16",
    ),
    "a tensor of the index": (
        tensor_of_the_index,
        "tensor 'b': is without a tensor that the index of its folder lists",
    ),
    "a tensor twice": (
        tensor_twice,
        "two.safetensors', tensor 'a': is in two files",
    ),
    "an array twice": (array_twice, "holds the same name twice"),
    "metadata": (
        lambda folder: header(folder, {"__metadata__": [1]}),
        "has metadata that are no dictionary",
    ),
    "a pickle": (pickle, "is a Python pickle of torch"),
    "a column of words": (
        lambda folder: table(
            folder, "image,x,y\na.png,0,1\nb.png,1,maybe\n", label_key="x,y"
        ),
        "Line 3 of .* has 'maybe' in a column of a class. Expected 0 or 1",
    ),
    "no rows": (lambda folder: rows(folder, []), "has no images"),
    "a row without a label": (
        lambda folder: rows(folder, [1, None]),
        r"The row .*\[1\] has no label",
    ),
    "a plan of a mixer": (plan_of_a_mixer, "Only Vision Transformers.*a Mixer"),
    "a result that is none": (
        lambda folder: model_card._read_result(
            written(folder, "result.json", "[")
        ),
        "is damaged, so that it is unknown what the run measured",
    ),
    "no folder": (
        lambda folder: push._check_free(folder / "none" / "x"),
        "There is no folder .* to write 'x' into",
    ),
    "texts of Keras": (texts_of_keras, "a model without texts"),
    "both towers": (
        lambda folder: pair_files._saved("it", {"image_size": 8}),
        "as they were saved. Received: image_size. Leave these out",
    ),
    "vectors of other lengths": (lengths, "not one of length 1 per name"),
    "sentences of embeddings": (
        sentences,
        r"whose sentences are chosen. Received: template='a \{\}'",
    ),
    "an exported model": (
        lambda folder: ExportedModel(folder / "x.txt"),
        "is no exported model. Expected a file or folder of",
    ),
}


def test_a_file_of_onnx_has_a_largest_number_of_fields(tmp_path, monkeypatch):
    monkeypatch.setattr(exported_model, "MOST_FIELDS", 3)
    path, field = tmp_path / "x.onnx", b"\x0a\x00"
    path.write_bytes(4 * field)
    assert exported_model._record_in_onnx(path) is None
    path.write_bytes(5 * field)
    with pytest.raises(ValueError, match="it is no ONNX file"):
        exported_model._record_in_onnx(path)


def test_the_config_of_a_folder_of_keras_has_a_largest_size(
    tmp_path, monkeypatch
):
    written(tmp_path, "config.json", "{}")
    keras_files.FolderParts(tmp_path)
    monkeypatch.setattr(keras_files, "MAX_CONFIG_BYTES", 1)
    with pytest.raises(ValueError, match="has an oversized config.json"):
        keras_files.FolderParts(tmp_path)


@pytest.mark.parametrize("name", OF_FILES)
def test_a_file_is_refused(name, tmp_path, capsys):
    given, message = OF_FILES[name]
    try:
        given(tmp_path)
    except ValueError as error:
        found = str(error)
    except SystemExit:
        found = capsys.readouterr().err
    else:
        raise AssertionError(f"It is taken: {capsys.readouterr()}")
    assert re.search(f"(?s){message}", found), found
