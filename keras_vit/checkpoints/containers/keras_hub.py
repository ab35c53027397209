"""Preset folders of keras-hub: config.json and `.weights.h5` files."""

import re
from pathlib import Path

from keras_vit.checkpoints.containers.errors import refuse
from keras_vit.checkpoints.containers.fields import (
    epsilon,
    pair,
    positive,
    read_json,
)
from keras_vit.checkpoints.containers.hdf5 import datasets
from keras_vit.checkpoints.containers.tensors import TensorFile

__all__ = ["is_keras_hub", "open_keras_hub"]

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
