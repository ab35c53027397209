"""The commands that read and write weights; nothing is fetched."""

import math
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from command import fail, run

from keras_vit.checkpoints import load_checkpoint
from keras_vit.checkpoints.public import catalog, fetch

REFERENCE = Path(__file__).parent / "reference"
GOOGLE = REFERENCE / "vit_tiny_google.npz"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "keras"


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
    assert (
        len(re.findall(r"SHA-256 [0-9a-f]{64}: no hash is published", out)) == 1
    )
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
    monkeypatch.setattr(
        "keras_vit.checkpoints.public.fetch.file_digest", lambda _: digest
    )
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


def test_unknown_format_is_one_line(capsys, tmp_path):
    out = tmp_path / "out"
    assert "onnx" in fail(capsys, "convert", GOOGLE, out, "--format", "onnx")
    assert not out.exists()


def test_offline_verify_says_what_to_fetch(capsys):
    error = fail(capsys, "verify", "ViT_Ti16/imagenet")
    assert catalog.find("ViT_Ti16", "imagenet").url in error


@pytest.mark.parametrize(
    "option",
    [
        ("--architecture", "vit_base_patch16_clip_quickgelu_224"),
        ("--activation", "quick_gelu"),
    ],
)
def test_what_a_file_leaves_open_can_be_said(capsys, tmp_path, option):
    path = REFERENCE / "timm_vit_tiny.safetensors"
    options = ("--num_heads", 4, *option)
    assert "activation=quick_gelu" in run(capsys, "info", path, *options)
    out = tmp_path / "out.safetensors"
    run(capsys, "convert", path, out, "--format", "timm", *options)
    assert load_checkpoint(out).config.activation == "quick_gelu"
