"""Folders of weights of Hugging Face and of keras-hub."""

import json
import re
from pathlib import Path

from keras_vit.checkpoints.containers.hdf5 import datasets
from keras_vit.checkpoints.containers.safetensors import open_safetensors
from keras_vit.checkpoints.containers.tensors import (
    TensorFile,
    check_name,
    refuse,
)

__all__ = [
    "activation",
    "epsilon",
    "is_keras_hub",
    "open_folder",
    "open_keras_hub",
    "pair",
    "positive",
    "read_json",
]

MAX_JSON_BYTES = 16 * 2**20
CURE = "Fetch the file again."
# Others compute something else than the models here.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def read_json(path) -> dict:
    """Reads a JSON object of a bounded size.

    Args:
        path: path of the file.

    Returns:
        dict.

    Raises:
        ValueError: when it is no JSON object, or too large.
    """
    if path.stat().st_size > MAX_JSON_BYTES:
        refuse(path, f"is larger than {MAX_JSON_BYTES} bytes", CURE)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        refuse(path, f"is no JSON ({error})"[:300], CURE)
    if not isinstance(content, dict):
        refuse(path, "is no JSON object", CURE)
    return content


def positive(path, name, value) -> int:
    if type(value) is not int or not 0 < value < 10**6:
        refuse(path, f"has {name}={value!r}"[:200], "Expected an integer.")
    return value


def pair(path, name, value) -> tuple:
    values = value if isinstance(value, list) else [value, value]
    if len(values) != 2:
        refuse(path, f"has {name}={value!r}"[:200], "Expected two integers.")
    return tuple(positive(path, name, x) for x in values)


def epsilon(path, name, value) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1:
        refuse(path, f"has {name}={value!r}"[:200], "Expected 0 to 1.")
    return float(value)


def activation(path, name, value) -> str:
    if not isinstance(value, str) or value not in ACTIVATIONS:
        refuse(
            path,
            f"has the activation {value!r}"[:200],
            f"Expected one of {', '.join(ACTIVATIONS)}.",
        )
    return ACTIVATIONS[value]


MAX_FILES = 1000

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


FIELDS = {
    "num_heads": ("num_heads", positive),
    "hidden_dim": ("hidden_dim", positive),
    "num_layers": ("num_layers", positive),
    "mlp_dim": ("mlp_dim", positive),
    "layer_norm_epsilon": ("layer_norm_epsilon", epsilon),
}
BIASES = ("use_mha_bias", "use_mlp_bias", "use_patch_bias")


def is_keras_hub(config: dict) -> bool:
    """Whether a config.json is of a ViT of keras-hub."""
    return config.get("registered_name") == "keras_hub>ViTBackbone"


def open_keras_hub(path: Path, config: dict) -> TensorFile:
    """Opens a preset folder of a ViT of keras-hub.

    Args:
        path: path of the folder.
        config: dict, its config.json.

    Returns:
        A `TensorFile`.

    Raises:
        ValueError: for options that the models here do not have, and for
            damaged files.
        OSError: when a file cannot be opened.
    """
    told = backbone_fields(path / "config.json", config.get("config"))
    tensors = {
        numbered(name): tensor
        for name, tensor in datasets(path / "model.weights.h5").items()
    }
    task = path / "task.json"
    if task.is_file() and (path / "task.weights.h5").is_file():
        options = read_json(task).get("config")
        tensors |= head_tensors(path, options, tensors)
    return TensorFile(str(path), tensors, told, kind="keras_hub")


def backbone_fields(path, config) -> dict:
    if not isinstance(config, dict):
        refuse(path, "has no config of a model", "Fetch it again.")
    absent = [name for name in BIASES if config.get(name) is False]
    if absent:
        refuse(
            path,
            f"has {absent[0]}=false, and the models here have these biases",
            "Choose another preset.",
        )
    told = {
        ours: check(path, theirs, config[theirs])
        for theirs, (ours, check) in FIELDS.items()
        if config.get(theirs) is not None
    }
    shape = config.get("image_shape")
    if not isinstance(shape, list) or len(shape) != 3:
        refuse(path, f"has image_shape={shape!r}"[:200], "Expected 3 sizes.")
    told["image_size"] = pair(path, "image_shape", shape[:2])
    return told


def numbered(name) -> str:
    """Keras leaves out the number of the first layer of a class."""
    return re.sub(r"(vi_t_encoder_block)(?=/)", r"\1_0", name)


def head_tensors(path, options, tensors) -> dict:
    """The weights of the task, under the names of their layers."""
    if not isinstance(options, dict):
        refuse(path / "task.json", "has no config", "Fetch it again.")
    token = "layers/vi_t_patching_and_embedding/vars/0" in tensors
    pooling = options.get("pooling")
    if pooling != ("token" if token else "gap"):
        refuse(
            path / "task.json",
            f"has pooling={pooling!r} {'with' if token else 'without'} a "
            "class token, which the models here do not pool so",
            "Leave the task's files out of the folder, and train a head.",
        )
    hidden = options.get("intermediate_dim") is not None
    names = {"dense": "pre_logits", "dense_1": "predictions"}
    names = names if hidden else {"dense": "predictions"}
    found = {}
    for name, tensor in datasets(path / "task.weights.h5").items():
        match = re.fullmatch(r"layers/(\w+)/(vars/\d)", name)
        if match and match[1] in names:
            found[f"{names[match[1]]}/{match[2]}"] = tensor
        elif not name.startswith("optimizer/"):
            found[f"task/{name}"] = tensor
    return found
