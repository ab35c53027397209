"""Where files and values of others come in, and what is done to them there.

A surface has something good, a use of it, and kinds of damage; each damage of
each kind is a case. `verdict` says how a use took it: "held", where it gave a
result or one line of reason; "poor", where it ended in another error or in
several lines; "bad", where it took what it has to refuse, wrote or ran
something, or took seconds or memory that nobody has.
"""

import contextlib
import hashlib
import io
import json
import pathlib
import pickle
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import setups
import sharded
import yaml
from tiny_models import tiny_vit

from keras_vit.checkpoints import (
    load_checkpoint,
    load_weights,
    read_info,
    save_checkpoint,
)
from keras_vit.checkpoints.files.npz import write_npz
from keras_vit.checkpoints.files.safetensors import write_safetensors
from keras_vit.cli import main
from keras_vit.data import DataConfig
from keras_vit.data.manifest import Image, read_manifest, write_manifest
from keras_vit.data.shards import parquet_index, schemas_of, tar_index
from keras_vit.data.sources import open_dataset
from keras_vit.data.tfds import array_record_index, tfrecord_index
from keras_vit.exporting.writers import EMBED
from keras_vit.io.run_folder import MANIFEST, read_config
from keras_vit.io.stores import whole_address
from keras_vit.prediction import exported_model, load_classifier
from keras_vit.prediction.embeddings_file import (
    Embeddings,
    _check_about,
    _write_npz,
    _write_parquet,
    load_embeddings,
    nearest,
)
from keras_vit.prediction.images import patch_sequences
from keras_vit.runs import script
from keras_vit.training import Recipe
from keras_vit.training.checkpointing import read_newest
from keras_vit.training.run.files import check

__all__ = ["Surface", "VALUES", "cases", "checked_use", "verdict"]

SECONDS = 30.0  # of the process, for one use
MEGABYTES = 500

# What stands where something else is expected.
VALUES = (
    *(None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**9, 10**30),
    *("", "x", "../x", "\0", [], {}, [[[]]], {"a": {"b": []}}),
)
BYTES = {
    "empty": b"",
    "zeros": bytes(4096),
    "garbage": bytes(range(256)) * 16,
    "deep JSON": b"[" * 200_000,
    "no UTF-8": b"\xff\xfe{}",
}


class Surface(NamedTuple):
    """Where something of others comes in.

    Attributes:
        make: writes something good into a folder; its path, or a value.
        use: takes that, as a user would.
        kinds: keys of `DAMAGES`.
        refused: the kinds after which it has to be refused.
        exact: whether a checksum finds all that changes a result.
    """

    make: Callable[[pathlib.Path], Any]
    use: Callable[[Any], Any]
    kinds: tuple[str, ...]
    refused: tuple[str, ...] = ()
    exact: bool = False


# --- Damage: from a good path to the name of each case and its damaging ---
def _bytes_as(content):
    return lambda path: path.write_bytes(content)


def cut(path):
    whole = path.read_bytes()
    for size in sorted({len(whole) * i // 40 for i in range(40)}):
        yield f"at {size}", _bytes_as(whole[:size])


def flipped(path):
    whole = path.read_bytes()
    for i in range(40):
        place = len(whole) * i // 40
        damaged = bytearray(whole)
        damaged[place] ^= 1 << i % 8
        yield f"at {place}", _bytes_as(bytes(damaged))


def replaced(path):
    for name, content in BYTES.items():
        yield name, _bytes_as(content)


def fields(path):
    """Each field of a JSON object, of objects within too, each value."""
    content = json.loads(path.read_text())
    for keys in _leaves(content):
        for value in VALUES:
            changed = json.loads(json.dumps(content))
            place = changed
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value
            text = json.dumps(changed).encode()
            yield f"{'.'.join(keys)}={str(value)[:20]!r}", _bytes_as(text)
        yield f"without {'.'.join(keys)}", _bytes_as(_without(content, keys))


def _leaves(content, before=()):
    for key, value in content.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from _leaves(value, (*before, key))


def _without(content, keys):
    changed = json.loads(json.dumps(content))
    place = changed
    for key in keys[:-1]:
        place = place[key]
    del place[keys[-1]]
    return json.dumps(changed).encode()


def texts_of_yaml(path):
    anchors = ["a0: &a0 [x, x]"]
    anchors += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    for name, text in {
        "anchors": "\n".join(anchors),
        "itself": "a: &a [*a]",
        "large": "a: " + "x" * 30_000_000,
        "many": "- a\n" * 100_000,
        "deep": "[" * 100_000,
        "deep blocks": "\n".join(" " * i + "a:" for i in range(200)),
        "tags": "!!python/object/apply:os.system ['touch ran']",
        "tagged int": "!!int abc",
        "merge": "<<: 1",
        "date": "seed: 2026-99-99",
    }.items():
        yield name, _bytes_as(text.encode())


DAMAGES: dict[str, Callable[[pathlib.Path], Iterator[tuple[str, Callable]]]] = {
    "cut": cut,
    "flipped": flipped,
    "replaced": replaced,
    "fields": fields,
    "YAML": texts_of_yaml,
}


# --- Files of weights ---
def _model():
    model = tiny_vit()
    head = model.get_layer("predictions")
    random = np.random.default_rng(0)
    head.set_weights([random.normal(size=x.shape) for x in head.weights])
    return model


def weights(name, format=None):
    def make(folder):
        path = folder / name
        if path.suffix == ".keras":
            setups.run_folder.save_model(_model(), ["a", "b", "c"], path)
        else:
            options = {"format": format} if format else {}
            save_checkpoint(_model(), path, **options)
        return path

    return make


def loaded(path):
    path = path.parent if path.name.endswith(".json") else path
    read_info(path)
    return load_checkpoint(path)


def hub_folder(format, name, content=None):
    """A file of JSON in a folder of weights."""

    def make(folder):
        folder = folder / "hub"
        if format == "timm":
            folder.mkdir()
            save_checkpoint(
                _model(), folder / "model.safetensors", format="timm"
            )
        else:
            save_checkpoint(_model(), folder, format=format)
        path = folder / name
        if content is not None:
            path.write_text(json.dumps(content(folder)))
        return path

    return make


TIMM = {
    "architecture": "vit_tiny_patch16_224",
    "num_classes": 3,
    "num_features": 8,
    "global_pool": "token",
    "label_names": ["a", "b", "c"],
    "model_args": {"img_size": 8, "patch_size": 4, "embed_dim": 8}
    | {"depth": 1, "num_heads": 2},
    "pretrained_cfg": {
        "input_size": [3, 8, 8],
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "crop_mode": "center",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "num_classes": 3,
    },
}
ADAPTER = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["query"],
    "bias": "none",
    "rank_pattern": {},
    "alpha_pattern": {},
    "base_model_name_or_path": "x",
}


def adapted_folder(folder):
    """The config of a LoRA of the queries, beside its model."""
    path = hub_folder("hugging_face", "adapter_config.json", lambda x: ADAPTER)(
        folder
    )
    names = json.loads(_header(path.with_name("model.safetensors")))
    (query,) = (x for x in names if x.endswith("query.weight"))
    layer = f"base_model.model.{query.removesuffix('.weight')}"
    random = np.random.default_rng(0)
    arrays = {
        f"{layer}.lora_{x}.weight": random.normal(size=shape).astype("float32")
        for x, shape in (("A", (2, 8)), ("B", (8, 2)))
    }
    shapes = {name: x.shape for name, x in arrays.items()}
    write_safetensors(
        path.with_name("adapter_model.safetensors"), shapes, arrays.items()
    )
    return path


def indexed_folder(folder):
    """A folder of safetensors with an index, which is returned."""
    path = hub_folder("hugging_face", "config.json")(folder).parent
    names = json.loads(_header(path / "model.safetensors"))
    names.pop("__metadata__", None)
    (path / "model.safetensors").rename(path / "model-1.safetensors")
    index = path / "model.safetensors.index.json"
    where = dict.fromkeys(names, "model-1.safetensors")
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return index


def _header(path):
    with path.open("rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def keras_hub_folder(folder):
    source = pathlib.Path(__file__).parents[1] / "reference" / "hub_vit_tiny"
    shutil.copytree(source, folder / "hub")
    return folder / "hub" / "config.json"


def adapter(folder):
    return adapted_folder(folder).with_name("adapter_model.safetensors")


def loaded_beside(path):
    return loaded(path.with_name("config.json"))


# --- Exported files: nothing of them is run ---
RECORD = {
    "format": "onnx",
    "precision": "float32",
    "batch": "any",
    "model": "VisionTransformer",
    "config": {
        "num_classes": 3,
        "image_size": [8, 8],
        "include_preprocessing": False,
        "classifier_activation": None,
        "pixel_mean": None,
        "pixel_std": None,
        "head_bias": -10.0,
    },
    "input": {"name": "image", "shape": [None, 8, 8, 3]},
    "output": {"name": "scores", "shape": [None, 3]},
    "preprocessing": {"evaluation": "squash", "resize_size": None},
    "class_names": ["a", "b", "c"],
    "activation": "softmax",
    "problem": "classification",
}
PROGRAMS = {
    "onnx": ".onnx",
    "openvino": ".xml",
    "litert": ".tflite",
    "saved_model": "",
    "stablehlo": ".stablehlo",
    "pt2": ".pt2",
}


TO_BE_RUN = b"to be run"
OF_THE_PROGRAM = {
    "saved_model.pb": {
        "bytes": len(TO_BE_RUN),
        "sha256": hashlib.sha256(TO_BE_RUN).hexdigest(),
    }
}


def record_for(suffix: str) -> dict:
    """Return the record of the file that `put_record` writes."""
    return {**RECORD, "parts": {} if suffix else OF_THE_PROGRAM}


def record_of_program(suffix):
    def make(folder):
        path = folder / "record.json"
        path.write_text(json.dumps(record_for(suffix)))
        return path

    return make


def put_record(path: pathlib.Path, text: str) -> None:
    """Write a file of a format, by its ending, with a record and no program."""
    if path.suffix == "":
        (path / "assets.extra").mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(TO_BE_RUN)
        (path / "assets.extra" / "model.json").write_text(text)
    elif path.suffix == ".onnx":
        pair = _field(1, b"model.json") + _field(2, text.encode())
        path.write_bytes(_field(7, b"a graph") + _field(14, pair))
    elif path.suffix == ".xml":
        path.write_text("<net><layers/></net>")
        EMBED["openvino"](path, text)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("program/extra/model.json", text)


def _field(number, content):
    """A field of a message, as the encoding of protocol buffers has it."""
    length, size = [], len(content)
    while True:
        length.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            return bytes([number << 3 | 2, *length]) + content


def program(suffix):
    def make(folder):
        path = folder / f"stranger{suffix}"
        put_record(path, json.dumps(record_for(suffix)))
        return path / "assets.extra" / "model.json" if not suffix else path

    return make


class RanError(AssertionError):
    """Something of others was run that should not have been."""


@contextlib.contextmanager
def not_run():
    """Let programs give scores of zeros without being opened."""

    def open_(path, record):
        return lambda images: np.zeros((len(images), 3), "float32")

    runtimes = {
        suffix: runtime._replace(open=open_)
        for suffix, runtime in exported_model.RUNTIMES.items()
    }
    with (
        patch.dict(exported_model.RUNTIMES, runtimes),
        patch.object(exported_model, "check_installed"),
    ):
        yield


IMAGE = np.zeros((1, 8, 8, 3), "uint8")


def predicted(path):
    with not_run():
        path = path.parents[1] if path.name == "model.json" else path
        classifier = load_classifier(path)
        return classifier.probabilities(IMAGE)


def predicted_by_record(suffix):
    def use(path):
        made = path.with_name(f"program{suffix}")
        try:
            text = path.read_bytes().decode("utf-8", "replace")
            put_record(made, text.replace("\0", ""))
            return predicted(made)
        finally:
            shutil.rmtree(made, ignore_errors=True)
            made.unlink(missing_ok=True)

    return use


# --- Embeddings ---
ABOUT = {
    "model": "ViT_B16/imagenet",
    "kind": "pooled",
    "blocks": None,
    "image_size": [8, 8],
    "preprocessing": {"evaluation": "squash"},
    "weights_crc32": 0,
}
VECTORS = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
EMBEDDED = {".npz": _write_npz, ".parquet": _write_parquet}


def embeddings(suffix):
    def make(folder):
        path = folder / f"photos{suffix}"
        EMBEDDED[suffix](path, ("a", "b", "c"), [VECTORS], ABOUT)
        return path

    return make


def about_embeddings(folder):
    path = folder / "about.json"
    path.write_text(json.dumps(ABOUT))
    return path


def searched(path):
    found = load_embeddings(path)
    return nearest(found.vectors, found.vectors)


def searched_with(path):
    about = json.loads(path.read_bytes())
    _check_about(about, path)
    return Embeddings(("a",), VECTORS[:1], about).check_same(ABOUT, path)


# --- Shards ---
def tar(folder):
    samples = {f"{n}": sharded.sample(n) for n in range(3)}
    path = sharded.write_tar(folder / "train.tar", samples)
    # Without the zeros that a tar is filled up with.
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0"))
    path.write_bytes(whole[: end + -end % 512 + 1024])
    return path


def label_in_tar(folder):
    path = folder / "label.json"
    path.write_text(json.dumps({"label": 1, "more": {}}))
    return path


def tar_of_label(path):
    members = {"png": b"x", "json": path.read_bytes()}
    made = path.with_name("train.tar")
    try:
        sharded.write_tar(made, {"a": members})
        return tar_index(str(made), "label")
    finally:
        made.unlink(missing_ok=True)


def _examples():
    for number in range(3):
        image = _field(1, _field(1, sharded.picture(number)))
        label = _field(3, _field(1, bytes([number])))
        entries = [_field(1, b"image") + _field(2, image)]
        entries += [_field(1, b"label") + _field(2, label)]
        yield _field(1, b"".join(_field(1, x) for x in entries))


def tfrecord(folder):
    import google_crc32c

    path, content = folder / "train.tfrecord", b""
    for record in _examples():
        length = len(record).to_bytes(8, "little")
        for part in (length, record):
            checksum = google_crc32c.value(part)
            checksum = (checksum >> 15 | checksum << 17) + 0xA282EAD8
            content += part + (checksum % 2**32).to_bytes(4, "little")
    path.write_bytes(content)
    return path


def array_record(folder):
    from array_record.python.array_record_module import ArrayRecordWriter

    path = folder / "train.array_record"
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in _examples():
        writer.write(record)
    writer.close()
    return path


def parquet(folder):
    (path,) = sharded.parquets(folder / "p", 8, 1).iterdir()
    return path


def read_parquet(path):
    schemas_of([str(path)], "image", "label")
    return parquet_index(str(path), "label")


# --- Runs and configs ---
def run_folder(name):
    def make(folder):
        run = setups._run(_with_model(folder))
        return run / name

    return make


def _with_model(folder):
    weights("model.keras")(folder)
    return folder


def used_run(path):
    with contextlib.suppress(ValueError):
        read_config(path.parent)
    return load_classifier(path.parent)


def manifest(folder):
    """The list of the files of a run that begins anew."""
    run = setups._run(_with_model(folder))
    path = run / MANIFEST
    files = [x.name for x in run.iterdir()]
    path.write_text(json.dumps({"files": files}))
    return path


def checkpoint(folder):
    about = {"step": 3, "interval": 1, "ended": False, "seconds": 0.5}
    text = json.dumps({**about, "callbacks": []}).encode()
    path = folder / "step-000000003.npz"
    record = np.frombuffer(text, "uint8")
    write_npz(path, [("record", record), ("model/0", VECTORS)])
    return path


def images(folder):
    path = folder / "images.csv.gz"
    row = Image("a/1.png", 3, "0" * 64, "a", "train")
    write_manifest(path, [row, row._replace(name="a/2.png")])
    return path


def config_file(folder):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"seed": 1}))
    return path


class Ended(ValueError):
    """How a command ended with exit code 2."""


def parsed(path):
    """The config of a recipe; its one line of reason is raised."""
    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error):
            return script.parse(Recipe, ["--config", str(path)], "A recipe.")
    except SystemExit as end:
        raise _ended(end.code, error.getvalue()) from end


def _ended(code, error):
    lines = [x for x in error.splitlines() if "error: " in x]
    if code != 2 or len(lines) != 1:
        raise AssertionError(f"exit code {code}: {error[:300]}")
    return Ended(lines[0])


# --- Values: of commands, of functions, names ---
NUMBERS = ("0", "-1", "nan", "inf", "-inf", "1e999", "1" + "0" * 30, "9" * 5000)
NUMBERS += ("x", "", "1.5", "None", "[]", "\x1b[31m")
OPTIONS = {
    ("plan", "--model=ViT_Ti16", "--devices=v5e-8"): (
        *("batch", "image_size", "classes", "model_axis", "efficiency"),
        *("examples", "epochs"),
    ),
    ("plan", "--model=ViT_Ti16"): ("devices",),
    ("benchmark", "ViT_Ti16"): ("image_size", "batch", "repeats"),
    ("summary", "ViT_Ti16"): ("image_size",),
    ("predict", "gone.keras", "gone.png"): ("top", "image_size", "batch"),
    ("search", "gone.npz", "gone.png"): ("top",),
}
# Whose small values are right.
RIGHT = {("batch", "None"), ("image_size", "None")}


def command(words):
    """A command; its one line of reason is raised."""
    error, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            with contextlib.redirect_stderr(error):
                code = main(words)
    except SystemExit as end:
        code = end.code
    if code:
        raise _ended(code, error.getvalue())


def commands():
    for words, options in OPTIONS.items():
        for option in options:
            for value in NUMBERS:
                yield (
                    f"{words[0]} --{option} {value[:20]!r}",
                    [
                        *words,
                        f"--{option}={value}",
                    ],
                )


NAMES = (
    *("digits/../x", "digits/.", "digits/x", "../digits", "..", ".", "/", " "),
    *("a/../../b", "\0", "x" * 5000, "\x1b[31m", "hf://", "hf://x", "hf://a/b"),
    *("hf://datasets/../x", "hf://datasets/a", "digits\n", "\udcff"),
)
ADDRESSES = (
    *(
        "gs://",
        "gs://..",
        "gs://b/..",
        "gs://b/../c",
        "gs://b/a/./c",
        "s3://b/..",
    ),
    *("s3:///", "gs://b/\0", "gs://b/\n", "gs:/b/../../c", "s3://\x1b/x"),
)
PATTERNS = (
    *("{0..9999999999}.tar", "{a,b", "}{", "x{1..2}" * 30 + ".tar", "[", "\0"),
    *("{9..0}.tar", "{" * 1000, "gs://b/../x-{0..1}.tar", ".." * 2000),
)
SEQUENCES = (
    *({"max_patches": x} for x in (*VALUES, 10**12)),
    *({"channels": x} for x in (0, -1, 10**9, float("nan"), None)),
    *({"patch_size": x} for x in (0, -1, 10**9, (1,), (), "x", 1.5)),
)


def called(function):
    return lambda value: function(value)


def values(given):
    def cases_of():
        for value in given:
            yield repr(value)[:60], value

    return cases_of


def sequence(options):
    patch_size = options.get("patch_size", 4)
    rest = {x: y for x, y in options.items() if x != "patch_size"}
    return patch_sequences([np.zeros((8, 8, 3), "uint8")], patch_size, **rest)


def data_set(options):
    with patch.dict("os.environ", {"HF_HUB_OFFLINE": "1"}):
        return open_dataset(DataConfig(**options))


def neighbours(vectors):
    return nearest(vectors, np.eye(2))


VECTORS_OF_OTHERS = (
    *(np.full((2, 2), x, "float32") for x in (np.nan, np.inf, -np.inf)),
    *(np.zeros(x, "float32") for x in ((0, 2), (2, 0), (2,), (), (1, 1, 1, 1))),
    *([["a", "b"]], [[None, 1]], [[1], [1, 2]], None, {}),
)

# Name -> the cases, each a name and a value, and what a user does with it.
CALLS: dict[str, tuple[Callable, Callable]] = {
    "options of commands": (commands, command),
    "names of data sets": (
        values([{"name": x} for x in NAMES]),
        data_set,
    ),
    "patterns of shards": (
        values([{"shards": x} for x in PATTERNS]),
        data_set,
    ),
    "addresses of stores": (values(ADDRESSES), whole_address),
    "sequences of patches": (values(SEQUENCES), sequence),
    "vectors of a search": (values(VECTORS_OF_OTHERS), neighbours),
}
# Those of which nothing may be taken.
REFUSED_CALLS = ("addresses of stores", "vectors of a search")

BINARY = ("cut", "flipped", "replaced")
JSON = ("fields", "replaced", "cut")
SURFACES: dict[str, Surface] = {
    **{
        f"weights in {name}": Surface(
            *(weights(name, format), loaded, BINARY, ("cut", "replaced")),
            exact=not name.endswith(".safetensors"),
        )
        for name, format in {
            "model.npz": "google",
            "model.safetensors": "timm",
            "model.keras": None,
        }.items()
    },
    "weights in model.weights.h5": Surface(
        weights("model.weights.h5", "keras"),
        lambda x: load_weights(_model(), x),
        BINARY,
        ("cut", "replaced"),
    ),
    "config.json of keras-hub": Surface(
        keras_hub_folder, loaded, JSON, ("cut",)
    ),
    "LoRA": Surface(adapter, loaded_beside, BINARY, ("cut", "replaced")),
    "config.json of Hugging Face": Surface(
        hub_folder("hugging_face", "config.json"), loaded, JSON, ("cut",)
    ),
    "preprocessor_config.json": Surface(
        hub_folder("hugging_face", "preprocessor_config.json"),
        loaded,
        JSON,
        ("cut",),
    ),
    "config.json of timm": Surface(
        hub_folder("timm", "config.json", lambda folder: TIMM),
        loaded,
        JSON,
        ("cut",),
    ),
    "index of safetensors": Surface(
        indexed_folder, loaded, ("replaced", "cut"), ("replaced", "cut")
    ),
    "adapter_config.json": Surface(adapted_folder, loaded, JSON, ("cut",)),
    **{
        f"record in {format}": Surface(
            record_of_program(suffix),
            predicted_by_record(suffix),
            JSON,
            ("cut",),
        )
        for format, suffix in PROGRAMS.items()
    },
    **{
        f"exported file of {format}": Surface(
            program(suffix), predicted, BINARY, ("replaced",)
        )
        for format, suffix in PROGRAMS.items()
    },
    **{
        f"embeddings in {suffix}": Surface(
            *(embeddings(suffix), searched, BINARY, ("cut", "replaced")),
            exact=suffix == ".npz",
        )
        for suffix in EMBEDDED
    },
    "metadata of embeddings": Surface(
        about_embeddings, searched_with, ("fields",)
    ),
    "shard of tar": Surface(
        tar, lambda x: tar_index(str(x), "label"), BINARY, ("cut", "replaced")
    ),
    "label in a tar": Surface(label_in_tar, tar_of_label, JSON, ("cut",)),
    "shard of TFRecord": Surface(
        tfrecord,
        lambda x: tfrecord_index(str(x), "image", "label"),
        BINARY,
        BINARY,
        exact=True,
    ),
    "shard of ArrayRecord": Surface(
        array_record,
        lambda x: array_record_index(str(x), "image", "label"),
        BINARY,
        ("cut", "replaced"),
    ),
    "shard of parquet": Surface(
        parquet, read_parquet, BINARY, ("cut", "replaced")
    ),
    "config.yaml of a run": Surface(
        run_folder("config.yaml"), used_run, ("replaced", "YAML")
    ),
    "model of a run": Surface(
        *(run_folder("model.keras"), used_run, BINARY, ("cut", "replaced")),
        exact=True,
    ),
    "list of files of a run": Surface(
        manifest, lambda x: check(x.parent, overwrite=True), JSON
    ),
    "checkpoint of a run": Surface(
        checkpoint,
        lambda x: read_newest(x.parent),
        BINARY,
        ("cut", "replaced"),
        exact=True,
    ),
    "list of images of a run": Surface(
        images, read_manifest, BINARY, ("cut", "replaced"), exact=True
    ),
    "config of a recipe": Surface(
        config_file, parsed, ("replaced", "YAML", "cut")
    ),
}


# --- Cases and verdicts ---
class Case(NamedTuple):
    """One damage of a surface; `use` does it and takes the result."""

    name: str
    use: Callable[[], Any]
    refused: bool
    folder: pathlib.Path | None


def cases(surface: str, folder: pathlib.Path) -> Iterator[Case]:
    """Yield the cases of a surface, of files in a folder of its own."""
    if surface in CALLS:
        given, use = CALLS[surface]
        for name, value in given():
            yield Case(
                name, lambda v=value: use(v), surface in REFUSED_CALLS, folder
            )
        return
    row = SURFACES[surface]
    path = row.make(folder)
    good = path.read_bytes()
    use = checked_use(row, path)
    for kind in row.kinds:
        for name, damage in DAMAGES[kind](path):
            damage(path)
            yield Case(
                f"{kind} {name}",
                use,
                kind in row.refused,
                folder,
            )
            path.write_bytes(good)


def checked_use(row: Surface, path: Any) -> Callable[[], Any]:
    """Return the use of a path, which is good and taken now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _values_of(row.use(path))

    def use():
        found = row.use(path)
        if row.exact and _values_of(found) != expected:
            raise AssertionError("another result, in silence")

    return use


def _values_of(result):
    model = getattr(result, "model", result)
    if hasattr(model, "get_weights"):
        return [x.tobytes() for x in model.get_weights()]
    return pickle.dumps(result)


def verdict(case: Case) -> tuple[str, str]:
    """Use what is damaged; "held", "poor" or "bad", and why."""
    before = _listing(case.folder)
    start, peak = time.process_time(), _peak()
    error = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.use()
    except Exception as caught:
        error = caught
    taken = time.process_time() - start
    if taken > SECONDS or _peak() - peak > MEGABYTES:
        return "bad", f"{taken:.1f} s, {_peak() - peak:.0f} MB"
    if _listing(case.folder) != before:
        return "bad", "it wrote something"
    if error is None:
        return ("bad", "it was taken") if case.refused else ("held", "taken")
    return _of_error(error)


def _of_error(error):
    text = f"{type(error).__name__}: {str(error)[:300]}"
    if not isinstance(error, (ValueError, OSError)):
        return "poor", text
    if isinstance(error, UnicodeError | json.JSONDecodeError):
        return "poor", text
    if "\n" in str(error):
        return "poor", text
    if error.__context__ is not None and error.__cause__ is None:
        return "poor", f"its cause is lost: {text}"
    return "held", text


def _listing(folder):
    return sorted(map(str, folder.rglob("*"))) if folder else None


def _peak():
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def run(surface: str, step: int = 1) -> list[tuple[str, str, str]]:
    """Return name, verdict and reason of each `step`-th case of a surface."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases(surface, pathlib.Path(folder))):
            if number % step == 0:
                found.append((case.name, *verdict(case)))
    return found
