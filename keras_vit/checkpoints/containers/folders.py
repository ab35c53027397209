"""Folders of Hugging Face: config.json and one or more safetensors."""

from pathlib import Path

from keras_vit.checkpoints.containers.errors import refuse
from keras_vit.checkpoints.containers.fields import (
    activation,
    epsilon,
    pair,
    positive,
    read_json,
)
from keras_vit.checkpoints.containers.keras_hub import (
    is_keras_hub,
    open_keras_hub,
)
from keras_vit.checkpoints.containers.safetensors import open_safetensors
from keras_vit.checkpoints.containers.tensors import TensorFile, check_name

__all__ = ["open_folder"]

MAX_FILES = 1000
CURE = "Fetch the file again."

# What config.json calls our fields, by who wrote it.
HUGGING_FACE = {
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation",
    "image_size": "image_size",
}


def open_folder(path) -> TensorFile:
    """Opens a folder with `config.json` and safetensors.

    Args:
        path: path of the folder.

    Returns:
        A `TensorFile` with the tensors of all files, its config in our
        names.

    Raises:
        ValueError: for a folder without safetensors, an index that names
            files outside of it, or a config that is none.
        OSError: when a file cannot be opened.
    """
    path = Path(path)
    config, told = path / "config.json", {}
    if config.is_file():
        content = read_json(config)
        if is_keras_hub(content):
            return open_keras_hub(path, content)
        told = our_fields(config, content)
    tensors, metadata = {}, {}
    for name in weight_files(path):
        part = open_safetensors(path / name)
        twice = set(tensors) & set(part.tensors)
        if twice:
            refuse(path / name, "is in two files", CURE, min(twice))
        tensors |= part.tensors
        metadata |= part.metadata
        told = part.config | told
    return TensorFile(str(path), tensors, told, metadata, "safetensors")


def weight_files(path) -> list:
    """Names of the safetensors in a folder, those of an index if any."""
    indices = sorted(path.glob("*.safetensors.index.json"))
    if indices:
        return indexed_files(indices[0])
    found = sorted(x.name for x in path.glob("*.safetensors"))
    for name in ("model.safetensors", "pytorch_model.safetensors"):
        if name in found:
            return [name]
    if len(found) != 1:
        have = ", ".join(sorted(x.name for x in path.iterdir())[:10])
        refuse(
            path,
            f"holds {len(found)} .safetensors files and no index (it holds "
            f"{have or 'nothing'})",
            "Expected model.safetensors, or several with an index. Weights "
            "in .bin or .pth files are pickles and are not opened; convert "
            "them with safetensors.torch.save_file.",
        )
    return found


def indexed_files(index) -> list:
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict):
        refuse(index, "has no weight_map", CURE)
    names = sorted({str(name) for name in files.values()})
    for name in names[:MAX_FILES]:
        check_name(index, name)
        if "/" in name or "\\" in name or len(names) > MAX_FILES:
            refuse(index, f"names the file {name[:200]!r}", CURE)
        if not (index.parent / name).is_file():
            refuse(index, f"names {name!r}, which is not there", CURE)
    return names


def our_fields(path, config) -> dict:
    """What a config.json of Hugging Face says, in our names and types."""
    told = {
        ours: config[theirs]
        for theirs, ours in HUGGING_FACE.items()
        if config.get(theirs) is not None
    }
    if config.get("qkv_bias") is False:
        refuse(
            path,
            "has qkv_bias=false, and the models here have these biases",
            "Choose another file.",
        )
    for name, value in told.items():
        told[name] = CONVERSIONS.get(name, positive)(path, name, value)
    return told


CONVERSIONS = {
    "image_size": pair,
    "layer_norm_epsilon": epsilon,
    "activation": activation,
}
