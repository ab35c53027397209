"""Adapters of peft beside their model are merged, or refused by name."""

import json
import shutil

import numpy as np
import pytest
from arrays import read_arrays
from reference_cases import FOLDER, TOLERANCE, expected
from safetensors.numpy import load_file, save_file

from keras_vit.checkpoints import load_checkpoint

BASE = "hf_vit_tiny"
ADAPTERS = ["lora_tiny", "lora_tiny_patterns"]
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def joined(path, adapter, base=BASE):
    """A folder with a model and an adapter."""
    shutil.copytree(FOLDER / base, path)
    for name in (CONFIG, WEIGHTS):
        shutil.copy(FOLDER / adapter / name, path)
    return path


@pytest.mark.parametrize("file", ["", "model.safetensors"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_beside_its_model_is_merged(name, file, tmp_path):
    folder = joined(tmp_path / "model", name)
    model = load_checkpoint(folder / file)
    images = expected(BASE)["image"]
    found = model.predict(images, verbose=0)
    wanted = read_arrays(FOLDER / f"{name}.expected.npz")["logits"]
    np.testing.assert_allclose(found, wanted, **TOLERANCE)
    assert np.abs(found - expected(BASE)["logits"]).max() > 0.1
    assert "the adapter beside it is merged" in str(model.load_report)


@pytest.mark.parametrize("file", ["", WEIGHTS])
def test_an_adapter_alone_says_where_it_belongs(file, tmp_path):
    folder = shutil.copytree(FOLDER / ADAPTERS[0], tmp_path / "adapter")
    with pytest.raises(ValueError, match=f"{CONFIG} and {WEIGHTS} into the"):
        load_checkpoint(folder / file)


def test_a_state_dict_with_an_adapter_inside_is_refused_by_name(tmp_path):
    content = load_file(FOLDER / BASE / "model.safetensors")
    content["vit.layers.0.mlp.fc1.lora_A.default.weight"] = np.ones(
        (2, 2), "float32"
    )
    save_file(content, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="lora_A.default.*merge_and_unload"):
        load_checkpoint(tmp_path / "x.safetensors", num_heads=4)


@pytest.mark.parametrize(
    "change",
    [
        {"peft_type": "IA3"},
        {"use_dora": True},
        {"fan_in_fan_out": True},
        {"lora_bias": True},
        {"lora_alpha": "6"},
        {"alpha_pattern": ["query"]},
        {"alpha_pattern": {"(a+)+$": 4}},
        {"target_parameters": ["classifier.weight"]},
    ],
    ids=str,
)
def test_what_is_not_computed_is_refused_by_name(change, tmp_path):
    folder = joined(tmp_path / "model", ADAPTERS[0])
    content = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(content | change))
    (field,) = change
    with pytest.raises(ValueError, match=f"{CONFIG}.*{field}="):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("base_model.model.vit.layers.9.mlp.fc1", "does not have"),
        ("base_model.model.vit.layers.0.mlp.fc1", r"\(32, 2\) and \(2, 32\)"),
    ],
)
def test_an_adapter_of_another_model_is_refused(name, message, tmp_path):
    folder = joined(tmp_path / "model", ADAPTERS[0])
    content = load_file(folder / WEIGHTS)
    content[f"{name}.lora_A.weight"] = np.ones((2, 32), "float32")
    content[f"{name}.lora_B.weight"] = np.ones((32, 2), "float32")
    save_file(content, folder / WEIGHTS)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


OTHERS = sorted(
    path.name
    for path in FOLDER.glob("hf_*_tiny")
    if path.is_dir() and path.name != BASE
)


@pytest.mark.parametrize("base", OTHERS)
def test_an_adapter_beside_any_other_model_is_refused(base, tmp_path):
    for name in ADAPTERS:
        with pytest.raises(ValueError, match="model that it was trained for"):
            load_checkpoint(joined(tmp_path / name, name, base))


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.vit.layers.0.mlp.fc1.lora_A.weight",
        "base_model.model.vit.layers.0.mlp.fc1.lora_magnitude_vector",
        "vit.layers.0.mlp.fc1.weight",
    ],
)
def test_an_unknown_tensor_of_an_adapter_is_refused(name, tmp_path):
    folder = joined(tmp_path / "model", ADAPTERS[0])
    content = load_file(folder / WEIGHTS)
    content[name] = np.ones((2, 32), "float32")
    save_file(content, folder / WEIGHTS)
    with pytest.raises(ValueError, match="no known adapter|no two factors"):
        load_checkpoint(folder)


def test_an_adapter_that_is_a_pickle_is_not_passed_over(tmp_path):
    folder = joined(tmp_path / "model", ADAPTERS[0])
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    with pytest.raises(ValueError, match=f"no {WEIGHTS}.*merge_and_unload"):
        load_checkpoint(folder)
