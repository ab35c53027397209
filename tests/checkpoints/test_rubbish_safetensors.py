"""Damaged and hostile safetensors and folders are refused by name."""

import json
import shutil
import struct

import pytest
from reference_cases import FOLDER, path_of
from refusals import check

from keras_vit.checkpoints import load_checkpoint

SAFETENSORS = path_of("timm_vit_tiny")


@pytest.fixture(autouse=True, scope="module")
def warm():
    load_checkpoint(FOLDER / "hf_vit_tiny")


def rewritten(path, change, data=None):
    raw = SAFETENSORS.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    text = change(header)
    text = text if isinstance(text, bytes) else json.dumps(header).encode()
    body = raw[8 + length :] if data is None else data
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def set_entry(**fields):
    return lambda header: header["norm.bias"].update(fields)


HOSTILE_HEADERS = {
    "shape": (set_entry(shape=[31]), "norm.bias.*shape"),
    "absurd_shape": (set_entry(shape=[2**40, 2**40]), "norm.bias"),
    "negative_shape": (set_entry(shape=[-32]), "norm.bias.*impossible"),
    "text_shape": (set_entry(shape=["32"]), "norm.bias.*impossible"),
    "dtype": (set_entry(dtype="F99"), "norm.bias.*F99"),
    "dtype_list": (set_entry(dtype=[]), "norm.bias"),
    "offsets": (set_entry(data_offsets=[0, 128]), "overlaps"),
    "far_offsets": (
        set_entry(data_offsets=[2**40, 2**40 + 128]),
        "gap|holds",
    ),
    "text_offsets": (set_entry(data_offsets=["0", 128]), "norm.bias"),
    "no_offsets": (lambda h: h["norm.bias"].pop("data_offsets"), "damaged"),
    "no_dictionary": (lambda h: b"[1, 2, 3, 4, 5, 6]", "dictionary"),
    "no_json": (lambda h: b"{" * 100, "no JSON"),
    "nested": (lambda h: b"[" * 200_000, "no JSON|JSON"),
    "entry": (lambda h: h.update({"norm.bias": 3}), "damaged|read"),
    "twice": (lambda h: b'{"a":{}, "a":{}}', "same name twice"),
    "name": (
        lambda h: h.update({"../norm.bias": h.pop("norm.bias")}),
        "outside",
    ),
    "relative_positions": (
        lambda h: h.update({"blocks.0.attn.rel_pos_h": h.pop("norm.bias")}),
        "relative position embeddings",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_HEADERS)
def test_hostile_safetensors(name, tmp_path):
    change, message = HOSTILE_HEADERS[name]
    path = tmp_path / "weights.safetensors"
    rewritten(path, change)
    check(path, message)


def test_oversized_safetensors_header(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}" * 100)
    check(path, "header of 4611686018427387904 bytes")


def test_truncated_safetensors(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(SAFETENSORS.read_bytes()[:-100])
    check(path, "holds .* bytes")


FOLDERS = {
    "no_json": ("config.json", "{", "no JSON"),
    "list": ("config.json", "[]", "no JSON object"),
    "heads": ("config.json", '{"num_attention_heads": 0}', "num_heads=0"),
    "width": (
        "config.json",
        '{"hidden_size": 33, "num_attention_heads": 4}',
        "hidden_dim=32.*33",
    ),
    "activation": ("config.json", '{"hidden_act": "tanh"}', "activation"),
    "epsilon": ("config.json", '{"layer_norm_eps": "x"}', "epsilon"),
    "size": ("config.json", '{"image_size": [1, 2, 3]}', "image_size"),
    "bias": (
        "config.json",
        '{"qkv_bias": false, "num_attention_heads": 4}',
        "qkv_bias=True by its tensors",
    ),
    "escaping": (
        "model.safetensors.index.json",
        '{"weight_map": {"a": "../../secret.safetensors"}}',
        "outside",
    ),
    "absent": (
        "model.safetensors.index.json",
        '{"weight_map": {"a": "b.safetensors"}}',
        "not there",
    ),
    "no_map": ("model.safetensors.index.json", "{}", "weight_map"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_hostile_folder(name, tmp_path):
    file, text, message = FOLDERS[name]
    folder = tmp_path / "model"
    shutil.copytree(FOLDER / "hf_vit_tiny", folder)
    (folder / file).write_text(text)
    check(folder, message)


def test_folder_without_weights(tmp_path):
    (tmp_path / "model").mkdir()
    check(tmp_path / "model", "0 .safetensors")


def test_sharded_folder_is_read(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(FOLDER / "hf_vit_tiny", folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": index})
    )
    model = load_checkpoint(folder)
    assert len(model.load_report.loaded) == len(model.weights)
