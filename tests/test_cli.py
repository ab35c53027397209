"""The command, on the golden files and the catalogue; nothing is fetched."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.checkpoints import catalog, fetch, load_checkpoint
from keras_vit.cli import main
from keras_vit.cli.listing import as_markdown

REFERENCE = Path(__file__).parent / "reference"
GOOGLE = REFERENCE / "vit_tiny_google.npz"
DOCUMENT = Path(__file__).parents[1] / "docs" / "weights.md"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "keras"


def run(capsys, *arguments) -> str:
    """What a command prints when it succeeds."""
    assert main(["weights", *map(str, arguments)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def fail(capsys, *arguments) -> str:
    """The one line that a command that fails leaves."""
    assert main(["weights", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("keras-vit: error: ")
    assert error.count("\n") == 1
    return error


def test_list_shows_all_weights_of_a_model(capsys):
    out = run(capsys, "list", "--model", "ViT_B16")
    shown = re.findall(r"(?:ViT_\w+|timm|google)/[\w.-]+", out)
    assert shown == [entry.key for entry in catalog.entries("ViT_B16")]
    assert len(shown) > 20
    assert "85.49" in out


def test_list_is_json_on_demand(capsys):
    objects = json.loads(run(capsys, "list", "--format", "json"))
    assert len(objects) == len(catalog.entries())
    by_key = {found["key"]: found for found in objects}
    found = by_key["ViT_B16/imagenet21k"]
    assert found["num_bytes"] == 412_815_506
    assert found["classes"] == 21843
    assert found["preprocessing"]["value_range"] == [-1.0, 1.0]


def test_list_of_a_model_that_is_none(capsys):
    assert "Did you mean ViT_B16" in fail(capsys, "list", "--model", "ViT_B17")


def test_info_of_a_name_needs_no_file(capsys):
    out = run(capsys, "info", "ViT_L16/imagenet")
    entry = catalog.find("ViT_L16", "imagenet")
    for part in (entry.url, "85.59", "Apache-2.0", "num_layers=24", "384x384"):
        assert part in out


def test_info_of_a_downloaded_name_tells_of_its_file(capsys):
    entry = catalog.find("ViT_S16", "imagenet")
    path = fetch.cached_path(entry)
    path.parent.mkdir(parents=True)
    assert "tensors" not in run(capsys, "info", "ViT_S16/imagenet")
    path.write_bytes(GOOGLE.read_bytes())
    out = run(capsys, "info", "ViT_S16/imagenet")
    assert str(path) in out
    assert "embedding/kernel [8, 8, 3, 32]" in out


def test_info_of_a_file_tells_its_architecture_and_shapes(capsys):
    found = json.loads(run(capsys, "info", GOOGLE, "--format", "json"))
    case = json.loads((REFERENCE / "cases.json").read_text())[GOOGLE.stem]
    assert found["family"] == "vit"
    for ours, theirs in (
        ("hidden_dim", "hidden_size"),
        ("num_layers", "num_layers"),
        ("num_heads", "num_heads"),
        ("mlp_dim", "mlp_dim"),
        ("num_classes", "num_classes"),
        ("image_size", "image_size"),
    ):
        assert found["fields"][ours] == case[theirs]
    with np.load(GOOGLE) as arrays:
        shapes = {name: list(arrays[name].shape) for name in arrays.files}
    assert found["tensors"] == shapes
    total = sum(math.prod(shape) for shape in shapes.values())
    assert found["num_parameters"] == total


def test_info_folds_the_blocks(capsys):
    out = run(capsys, "info", GOOGLE)
    kernel = "Transformer/encoderblock_*/MlpBlock_3/Dense_0/kernel"
    assert f"  {kernel} [32, 64] x 2\n" in out
    assert "  cls [1, 1, 32]\n" in out


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit_tiny_google.npz", []),
        ("hf_vit_tiny", []),
        ("timm_vit_tiny.safetensors", ["--num_heads", 4]),
    ],
)
def test_verify_says_that_all_is_well(capsys, name, options):
    out = run(capsys, "verify", REFERENCE / name, *options)
    assert len(re.findall(r"SHA-256 [0-9a-f]{64}: nobody published", out)) == 1
    assert "is there, fits and is finite" in out


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_verify_finds_what_is_not_finite(capsys, tmp_path, value):
    with np.load(GOOGLE) as arrays:
        tensors = dict(arrays)
    tensors["cls"][0, 0, 3] = value
    np.savez(tmp_path / "bad.npz", **tensors)
    assert "cls" in fail(capsys, "verify", tmp_path / "bad.npz")


def test_verify_misses_a_tensor(capsys, tmp_path):
    with np.load(GOOGLE) as arrays:
        tensors = dict(arrays)
    del tensors["Transformer/encoderblock_1/LayerNorm_2/bias"]
    np.savez(tmp_path / "bad.npz", **tensors)
    assert "block_1" in fail(capsys, "verify", tmp_path / "bad.npz")


def test_verify_finds_a_tensor_too_many(capsys, tmp_path):
    with np.load(GOOGLE) as arrays:
        tensors = dict(arrays)
    tensors["Transformer/encoderblock_1/extra"] = np.zeros(3, "float32")
    np.savez(tmp_path / "bad.npz", **tensors)
    assert "extra" in fail(capsys, "verify", tmp_path / "bad.npz")


def test_verify_compares_with_the_published_hash(capsys, monkeypatch):
    digest = "ac7478131e1b77e5c2f0225849730bd19ee89cfffe600c2dfd2272b34a50a43d"
    monkeypatch.setattr("keras_vit.cli.weights.file_digest", lambda _: digest)
    out = run(capsys, "verify", GOOGLE)
    assert "ViT_B16/imagenet21k as published" in out


def test_verify_refuses_another_file_in_the_place_of_a_published_one(capsys):
    entry = catalog.find("ViT_B16", "imagenet21k")
    path = fetch.cached_path(entry)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(GOOGLE.read_bytes())
        file.truncate(entry.num_bytes)  # The right size, on sparse disks.
    error = fail(capsys, "verify", "ViT_B16/imagenet21k")
    assert f"{entry.sha256} is expected" in error


def test_converted_file_gives_the_logits_of_the_original(capsys, tmp_path):
    source, out = REFERENCE / "vit_tiny_augreg.npz", tmp_path / "converted"
    run(capsys, "convert", source, out, "--format", "hugging_face")
    with np.load(REFERENCE / "vit_tiny_augreg.expected.npz") as expected:
        images, logits = expected["image"], expected["logits"]
    model = load_checkpoint(out, classifier_activation=None)
    found = keras.ops.convert_to_numpy(model(images))
    np.testing.assert_allclose(found, logits, rtol=0, atol=5e-5)


def test_convert_overwrites_only_on_demand(capsys, tmp_path):
    out = tmp_path / "out.npz"
    out.write_text("mine")
    error = fail(capsys, "convert", GOOGLE, out, "--format", "google")
    assert "--overwrite" in error
    assert out.read_text() == "mine"
    run(capsys, "convert", GOOGLE, out, "--format", "google", "--overwrite")
    assert "tensors" in run(capsys, "info", out)


@pytest.mark.parametrize("command", ["info", "verify"])
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("imagenet21k", "ViT_B16/imagenet21k"),
        ("ViT_H14/imagenet", "imagenet21k"),
        ("./missing.npz", "missing.npz"),
        ("missing.npz", "missing.npz"),
        (__file__, "test_cli.py"),
        ("http://host/a.npz", "https://"),
    ],
)
def test_bad_sources_are_one_line(capsys, command, source, message):
    assert message in fail(capsys, command, source)


def test_unknown_format_is_one_line(capsys, tmp_path):
    out = tmp_path / "out"
    assert "onnx" in fail(capsys, "convert", GOOGLE, out, "--format", "onnx")
    assert not out.exists()


def test_offline_verify_says_what_to_fetch(capsys):
    error = fail(capsys, "verify", "ViT_Ti16/imagenet")
    assert catalog.find("ViT_Ti16", "imagenet").url in error


@pytest.mark.parametrize("arguments", [[], ["weights"], ["weights", "fly"]])
def test_wrong_arguments_exit_with_2(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: keras-vit" in capsys.readouterr().err


def test_document_lists_the_catalogue():
    table = as_markdown(catalog.entries())
    assert "## The list\n\n" + table in DOCUMENT.read_text()


def test_module_runs_as_a_program():
    def program(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "keras_vit.cli", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(DOCUMENT.parents[1])},
        )

    bad = program("weights", "info", "ViT_B16/nonsense")
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.splitlines()[-1].startswith("keras-vit: error: ")
    assert "Traceback" not in bad.stderr
