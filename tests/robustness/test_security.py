"""SECURITY.md says what the code does."""

import importlib
import json
import pathlib
import re

import numpy as np
import pytest
import setups
import surfaces
from surfaces import RECORD, record_for

import keras_vit
from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.prediction import exported_model
from keras_vit.prediction.exported_model import RUNTIMES, read_record

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
LIMITS = re.findall(r"^\| `([\w.]+)\.(\w+)` \| ([\d,]+) \|", TEXT, re.MULTILINE)

SUFFIXES = (".onnx", ".xml", ".tflite", "", ".stablehlo", ".pt2")
# Row of the table of what is promised -> its surfaces, or its tests.
ROWS = {
    "`.npz`, safetensors, `.h5`, `.keras`, folders of weights": (
        *("weights in model.npz", "weights in model.safetensors"),
        *("weights in model.keras", "weights in model.weights.h5"),
        "index of safetensors",
    ),
    "exported files": tuple(f"record in {x}" for x in surfaces.PROGRAMS),
    "embeddings": (
        *("embeddings in .npz", "embeddings in .parquet"),
        *("metadata of embeddings", "vectors of a search"),
    ),
    "shards": (
        *("shard of tar", "label in a tar", "shard of TFRecord"),
        *("shard of ArrayRecord", "shard of parquet", "patterns of shards"),
    ),
    "configs": (
        *("config of a recipe", "config.json of Hugging Face"),
        *("config.json of timm", "preprocessor_config.json"),
        "config.json of keras-hub",
    ),
    "adapters": ("adapter_config.json", "LoRA"),
    "run folders": (
        *("config.yaml of a run", "model of a run", "checkpoint of a run"),
        *("list of files of a run", "list of images of a run"),
    ),
    "other processes": (
        *(
            "tests/robustness/test_mishaps.py",
            "tests/training/test_run_lock.py",
        ),
        "tests/training/test_run_store.py",
    ),
    "paths": ("tests/robustness/test_paths.py",),
    "names": ("names of data sets", "addresses of stores"),
    "images": ("tests/robustness/test_cases.py",),
    "CSV files": ("tests/robustness/test_fuzz.py",),
    "addresses": ("tests/checkpoints/test_https.py",),
    "requests to `keras-vit serve`": ("tests/serving/test_hostile.py",),
}


def test_each_row_of_the_table_is_tested():
    table = TEXT.split("## What is promised")[1].split("## Limits")[0]
    found = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    listed = [x for x in found[1:] if "---" not in x]
    assert sorted(listed) == sorted(ROWS)
    known = {*surfaces.SURFACES, *surfaces.CALLS}
    for name in (x for names in ROWS.values() for x in names):
        assert name in known or (ROOT / name).is_file(), name


def test_limits_are_listed():
    assert len(LIMITS) == TEXT.split("## Limits")[1].count("| `")


@pytest.mark.parametrize(("module", "name", "value"), LIMITS)
def test_a_limit_is_that_of_the_code(module, name, value):
    found = getattr(importlib.import_module(f"keras_vit.{module}"), name)
    assert f"{found:,}" == value


def write_program(folder, suffix, text):
    """A file, or folder, of a format with a record and nothing to run."""
    path = folder / f"stranger{suffix}"
    surfaces.put_record(path, text)
    return path


@pytest.fixture
def opened(monkeypatch):
    """Which programs were opened."""
    found = []

    def note(path, record):
        found.append(path)
        return lambda images: np.zeros((len(images), 3), "float32")

    for suffix, runtime in RUNTIMES.items():
        monkeypatch.setitem(RUNTIMES, suffix, runtime._replace(open=note))
    monkeypatch.setattr(exported_model, "check_installed", lambda runtime: None)
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    setups.base(folder)
    return folder


IMAGE = np.zeros((8, 8, 3), "uint8")


def test_all_formats_are_tried():
    assert {*RUNTIMES} == {*SUFFIXES}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_program_is_opened_by_its_name(tmp_path, opened, suffix):
    path = write_program(tmp_path, suffix, json.dumps(record_for(suffix)))
    (found,) = keras_vit.predict(path, IMAGE)
    assert [name for name, _ in found.classes] == ["a", "b", "c"]
    assert opened == [path]


PART = {"bytes": 9, "sha256": "0" * 64}


@pytest.mark.parametrize("how", ["", "saved_model.pb"])
@pytest.mark.parametrize(
    "parts",
    [
        None,
        {},
        {"saved_model.pb": PART},
        {"saved_model.pb": {**PART, "bytes": 8}},
        {**surfaces.OF_THE_PROGRAM, "variables/variables.index": PART},
    ],
)
def test_a_record_of_another_model_opens_nothing(tmp_path, opened, parts, how):
    record = {**RECORD, **({} if parts is None else {"parts": parts})}
    folder = write_program(tmp_path, "", json.dumps(record))
    with pytest.raises(ValueError, match="is of other files than lie there"):
        keras_vit.predict(folder / how, IMAGE)
    assert not opened


def test_weights_of_another_model_open_nothing(tmp_path, opened):
    """OpenVINO has them in a file of their own."""
    record = {**RECORD, "parts": {".bin": PART}}
    path = write_program(tmp_path, ".xml", json.dumps(record))
    for content in (None, b"too few", b"123456789"):
        if content is not None:
            path.with_suffix(".bin").write_bytes(content)
        with pytest.raises(ValueError, match="is of other files"):
            keras_vit.predict(path, IMAGE)
    assert not opened


def beside_model(folder, base):
    (folder / "model.keras").write_bytes((base / "model.keras").read_bytes())


def beside_tensors(folder, base):
    save_checkpoint(
        load_checkpoint(base / "model.keras"),
        folder / "model.safetensors",
        format="timm",
    )


def beside_a_run(folder, base):
    beside_model(folder, base)
    (folder / "config.yaml").write_text("seed: 0")
    (folder / "keras_vit_run.json").write_text('{"files": []}')


def beside_a_note(folder, base):
    (folder / "README.md").write_text("Good weights.")


def without_record(folder, base):
    (folder / "assets.extra" / "model.json").unlink()


@pytest.mark.parametrize("how", ["", "model.keras"])
@pytest.mark.parametrize(
    "place",
    [
        *(beside_model, beside_tensors, beside_a_run),
        *(beside_a_note, without_record),
    ],
    ids=lambda place: place.__name__,
)
@pytest.mark.filterwarnings("ignore:.*its source does not say")
def test_a_saved_model_beside_anything_is_not_run(
    tmp_path, base, opened, place, how
):
    folder = write_program(tmp_path, "", json.dumps(RECORD))
    place(folder, base)
    source = folder / how
    weights = [*folder.glob("model.*")]
    if source.exists() and weights:
        assert len(keras_vit.predict(source, IMAGE)) == 1
    elif source.exists():
        with pytest.raises(ValueError, match="SavedModel, which is a program"):
            keras_vit.predict(source, IMAGE)
    assert not opened


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"input": {"shape": [None, 10**9, 10**9, 3]}}, "input"),
        ({"input": {"shape": [None, 16_000, 16_000, 1000]}}, "GB are free"),
        ({"input": {"shape": [60_000, 4000, 4000, 3]}}, "GB are free"),
        ({"input": {"shape": [10**9, 8, 8, 3]}}, "input"),
        ({"input": {"shape": [None, 8, 8, 10**9]}}, "input"),
        ({"input": {"shape": [None, True, 8, 3]}}, "input"),
        ({"input": None}, "input"),
        ({"config": {}}, "config"),
        ({"config": {**RECORD["config"], "num_classes": 10**9}}, "config"),
        ({"config": {**RECORD["config"], "image_size": [10**9] * 2}}, "config"),
        ({"class_names": [1]}, "class_names"),
        ({"activation": []}, "activation"),
        ({"problem": {}}, "problem"),
        ({"output": {"shape": ["x"]}}, "output"),
        ({"batch": float("nan")}, "batch"),
    ],
)
def test_a_record_is_checked_before_its_program(
    tmp_path, opened, suffix, changes, reason
):
    path = write_program(tmp_path, suffix, json.dumps({**RECORD, **changes}))
    with pytest.raises(ValueError, match=reason):
        keras_vit.predict(path, IMAGE)
    assert not opened


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[]", "null", "1e999"]
)
def test_a_record_that_is_none_is_refused(tmp_path, opened, suffix, text):
    path = write_program(tmp_path, suffix, text)
    with pytest.raises(ValueError, match="no record|damaged|cannot open"):
        read_record(path)
    with pytest.raises(ValueError, match="no record|damaged|cannot open"):
        keras_vit.predict(path, IMAGE)
    assert not opened


def test_scores_of_another_shape_than_the_record_says(tmp_path, monkeypatch):
    monkeypatch.setattr(exported_model, "check_installed", lambda runtime: None)
    path = write_program(tmp_path, ".onnx", json.dumps(RECORD))
    wrong = RUNTIMES[".onnx"]._replace(
        open=lambda path, record: lambda images: np.zeros((1, 7), "float32")
    )
    monkeypatch.setitem(RUNTIMES, ".onnx", wrong)
    with pytest.raises(ValueError, match=r"scores of shape \(1, 7\)"):
        keras_vit.predict(path, IMAGE)
