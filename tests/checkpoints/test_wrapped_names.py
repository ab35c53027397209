"""Weights behind the names of wrappers, and beside what training leaves."""

from typing import Any

import numpy as np
import pytest
from reference_cases import TOLERANCE, expected, path_of
from safetensors.numpy import load_file, save_file

from keras_vit.checkpoints import load_checkpoint, load_weights, read_info
from keras_vit.checkpoints.engine.loading import open_source
from keras_vit.models import VisionTransformer, ViTConfig

NAME = "timm_vit_tiny"
HEADS: dict[str, Any] = {"num_heads": 4}
WRAPPERS = (
    *("module.", "_orig_mod.module.", "module.model.", "teacher.backbone."),
    *("student.", "net.", "backbone.", "encoder.", "vit.", "ema_model."),
    *("0.", "_forward_module.model._orig_mod.", "base_model.model."),
)
COUNTS = {
    "n_averaged": np.array(5),
    "model_ema.n_averaged": np.array(5),
    "criterion.weight": np.ones(5, "float32"),
    "epoch": np.array(3),
    "optimizer.state.0.exp_avg": np.ones((2, 2), "float32"),
    "lr_scheduler.last_epoch": np.array(3),
}


def tensors():
    return load_file(path_of(NAME))


def written(path, prefix, **others):
    wrapped = {prefix + name: x for name, x in tensors().items()}
    save_file({**wrapped, **others}, path)
    return path


def check(model):
    images = expected(NAME)["image"]
    logits = model.predict(images, verbose=0)
    np.testing.assert_allclose(logits, expected(NAME)["logits"], **TOLERANCE)


@pytest.mark.parametrize("prefix", WRAPPERS)
def test_names_behind_a_wrapper(prefix, tmp_path):
    path = written(tmp_path / "x.safetensors", prefix)
    check(load_checkpoint(path, **HEADS))


def test_names_of_transformers_behind_a_wrapper(tmp_path):
    name = "hf_vit_tiny"
    content = load_file(path_of(name) / "model.safetensors")
    path = tmp_path / "x.safetensors"
    save_file({f"module.encoder.{x}": y for x, y in content.items()}, path)
    model = load_checkpoint(path, num_heads=4)
    logits = model.predict(expected(name)["image"], verbose=0)
    np.testing.assert_allclose(logits, expected(name)["logits"], **TOLERANCE)


@pytest.mark.parametrize("prefix", ["", "module.", "model.backbone."])
def test_what_training_leaves_is_left_out_and_reported(prefix, tmp_path):
    path = written(tmp_path / "x.safetensors", prefix, **COUNTS)
    model = load_checkpoint(path, **HEADS)
    check(model)
    assert set(model.load_report.dropped) == set(COUNTS)
    assert "tensors are of training" in str(model.load_report)
    assert "n_averaged" in str(model.load_report)


def two_towers(path):
    other = {f"student.{x}": -y for x, y in tensors().items()}
    return written(path, "teacher.backbone.", **other)


def test_two_models_are_told_apart_by_a_prefix(tmp_path):
    path = two_towers(tmp_path / "x.safetensors")
    message = "'student.', 'teacher.backbone.'.*prefix='student.'"
    with pytest.raises(ValueError, match=message):
        load_checkpoint(path, **HEADS)
    for prefix in ("teacher.backbone.", "teacher.backbone", "teacher"):
        check(load_checkpoint(path, prefix=prefix, **HEADS))
    info = read_info(path, prefix="teacher", **HEADS)
    model = VisionTransformer(ViTConfig(**info.fields))
    check(load_weights(model, path, prefix="teacher"))
    student = load_checkpoint(path, prefix="student", **HEADS)
    teacher = load_checkpoint(path, prefix="teacher", **HEADS)
    for mine, its in zip(
        student.get_weights(), teacher.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(mine, -its)


def test_a_prefix_that_is_not_there_is_refused(tmp_path):
    path = two_towers(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="no part 'ema'.*'student.', 'teach"):
        load_checkpoint(path, prefix="ema")


def test_what_is_beside_a_model_is_left_out_on_demand_alone(tmp_path):
    beside = {"decoder.weight": np.ones((2, 2), "float32")}
    path = written(tmp_path / "x.safetensors", "backbone.", **beside)
    with pytest.raises(ValueError, match="decoder.*prefix='backbone.'"):
        load_checkpoint(path, **HEADS)
    model = load_checkpoint(path, prefix="backbone.", **HEADS)
    check(model)
    assert model.load_report.dropped == ("decoder.weight",)


def test_a_prefix_is_not_passed_over(tmp_path):
    path = written(tmp_path / "x.safetensors", "net.")
    model = load_checkpoint(path, **HEADS)
    for name in ("model.keras", "model.weights.h5"):
        save = model.save_weights if "weights" in name else model.save
        save(tmp_path / name)
        with pytest.raises(ValueError, match="prefix='net.' is given"):
            load_weights(model, tmp_path / name, prefix="net.")
    with pytest.raises(ValueError, match="opened already.*prefix='net.'"):
        load_checkpoint(open_source(path), prefix="net.", **HEADS)
