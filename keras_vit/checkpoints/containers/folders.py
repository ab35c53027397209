"""Folders of weights of Hugging Face, timm and keras-hub."""

import dataclasses
import json
import re
from pathlib import Path

from keras_vit.checkpoints.containers.hdf5 import datasets
from keras_vit.checkpoints.containers.safetensors import open_safetensors
from keras_vit.checkpoints.containers.tensors import (
    DAMAGED,
    TensorFile,
    check_name,
    refuse,
)

__all__ = ["POOLINGS", "open_file", "open_folder"]

MAX_JSON_BYTES = 16 * 2**20
MAX_FILES = 1000
WEIGHT_FILES = ("model.safetensors", "pytorch_model.safetensors")
CONFIG = "config.json"
# Keys of a config.json that name the model, for messages.
SAYS = ("architecture", "model_type", "architectures")
# Others compute something else than the models here.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def _read_json(path) -> dict:
    """Reads a JSON object of a bounded size."""
    if path.stat().st_size > MAX_JSON_BYTES:
        refuse(path, f"is larger than {MAX_JSON_BYTES} bytes", DAMAGED)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        refuse(path, f"is no JSON ({error})"[:300], DAMAGED)
    if not isinstance(content, dict):
        refuse(path, "is no JSON object", DAMAGED)
    return content


# What config.json calls our fields, by who wrote it.
TIMM = {
    "num_heads": "num_heads",
    "img_size": "image_size",
    "act_layer": "activation",
    "global_pool": "pooling",
}
# Arguments of timm's models that show in the tensors, or that change nothing
# in the output of a trained model.
TIMM_SHOWN = {
    *("embed_dim", "depth", "mlp_ratio", "patch_size", "in_chans"),
    *("num_classes", "class_token", "no_embed_class", "reg_tokens"),
    *("qkv_bias", "init_values", "pre_norm", "fc_norm", "final_norm"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate"),
    *("attn_drop_rate", "drop_path_rate", "weight_init", "fix_init"),
    *("dynamic_img_size", "strict_img_size"),
}
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
    """Opens a folder with `config.json` and safetensors, or of keras-hub.

    Raises:
        ValueError: for a folder without weights, an index that names files
            outside of it, or a config that is none.
        OSError: when a file cannot be opened.
    """
    path = Path(path)
    if _is_keras_hub(path):
        return _open_keras_hub(path)
    fields, says = _config_of(path)
    tensors, metadata = {}, dict(says)
    for name in _weight_files(path):
        part = open_safetensors(path / name)
        twice = set(tensors) & set(part.tensors)
        if twice:
            refuse(path / name, "is in two files", DAMAGED, min(twice))
        tensors |= part.tensors
        metadata |= part.metadata
        fields = _agreed(path, fields, part.config)
    return TensorFile(str(path), tensors, fields, metadata, "safetensors")


def open_file(path) -> TensorFile:
    """Opens a `.safetensors` file, with the config.json that is beside it.

    Only under a name that it has in such a folder: another may be of another
    model than its neighbour.

    Raises:
        ValueError: when the header does not describe the file, or the config
            does not describe a model.
        OSError: when it cannot be opened.
    """
    path, file = Path(path), open_safetensors(path)
    if path.name not in WEIGHT_FILES or _is_keras_hub(path.parent):
        return file
    fields, says = _config_of(path.parent)
    fields = _agreed(path.parent, fields, file.config)
    return dataclasses.replace(
        file, config=fields, metadata={**says, **file.metadata}
    )


def _config_of(path) -> tuple[dict, dict]:
    """(our fields, what it says in its own words) of a config.json."""
    config = path / "config.json"
    if not config.is_file():
        return {}, {}
    content = _read_json(config)
    is_timm = isinstance(content.get("architecture"), str)
    fields = (_timm_fields if is_timm else _our_fields)(config, content)
    processor = path / "preprocessor_config.json"
    if processor.is_file() and not is_timm:
        fields |= _pixels(processor, _read_json(processor), "image_")
    says = {x: str(content[x])[:100] for x in SAYS if content.get(x)}
    return fields, {CONFIG: says} if says else {}


def _agreed(path, fields, record) -> dict:
    """The fields of a config.json with those of the record in the weights.

    The record tells more. Where both tell, they have to agree, so that a
    config.json that somebody edited is not ignored.
    """
    for name in ("num_heads", "activation", "layer_norm_epsilon"):
        told = record.get(name, fields.get(name))
        told = ACTIVATIONS.get(told, told) if name == "activation" else told
        if name in fields and fields[name] != told:
            refuse(
                path,
                f"has {name}={fields[name]}, but the weights beside it were "
                f"written with {name}={told}",
                "Restore it, or write the weights anew.",
            )
    return fields | record


def _weight_files(path) -> list:
    """Names of the safetensors in a folder, those of an index if any."""
    indices = sorted(path.glob("*.safetensors.index.json"))
    if indices:
        return _indexed_files(indices[0])
    found = sorted(x.name for x in path.glob("*.safetensors"))
    for name in WEIGHT_FILES:
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


def _indexed_files(index) -> list:
    files = _read_json(index).get("weight_map")
    if not isinstance(files, dict):
        refuse(index, "has no weight_map", DAMAGED)
    names = sorted({str(name) for name in files.values()})
    for name in names[:MAX_FILES]:
        check_name(index, name)
        if "/" in name or "\\" in name or len(names) > MAX_FILES:
            refuse(index, f"names the file {name[:200]!r}", DAMAGED)
        if not (index.parent / name).is_file():
            refuse(index, f"names {name!r}, which is not there", DAMAGED)
    return names


def _our_fields(path, config) -> dict:
    """What a config.json of Hugging Face says, in our names and types."""
    if config.get("qkv_bias") is False:
        refuse(
            path,
            "has qkv_bias=false, which is read from timm's files alone",
            "Choose another file.",
        )
    return _converted(path, config, HUGGING_FACE)


def _timm_fields(path, config) -> dict:
    """What a config.json of timm says, in our names and types.

    An argument of the model that is neither honoured nor visible in the
    tensors is refused.
    """
    arguments = config.get("model_args") or {}
    pretrained = config.get("pretrained_cfg") or {}
    if not isinstance(arguments, dict) or not isinstance(pretrained, dict):
        refuse(path, "has model_args that are no dictionary", DAMAGED)
    unknown = sorted(set(arguments) - set(TIMM) - TIMM_SHOWN)
    if unknown:
        refuse(
            path,
            f"builds {config['architecture']!r} with {', '.join(unknown)}, "
            "which the models here do not have",
            "Choose another file.",
        )
    told = {**arguments}
    told.setdefault("global_pool", config.get("global_pool"))
    size = pretrained.get("input_size")
    if isinstance(size, list) and len(size) == 3:
        told.setdefault("img_size", size[1:])
    fields = _converted(path, told, TIMM)
    if "distilled" in config["architecture"]:
        # Of two tokens, the class token is what timm's word says.
        fields.pop("pooling", None)
    fields |= _pixels(path, pretrained)
    return {**fields, "architecture": config["architecture"]}


def _pixels(path, config, prefix="") -> dict:
    """Mean and deviation of the pixels, both None for those of [-1, 1]."""
    found = {}
    for name in ("mean", "std"):
        values = config.get(f"{prefix}{name}")
        if values is None:
            return {}
        numbers = isinstance(values, list) and all(
            type(x) in (int, float) and 0 <= x < 100 for x in values
        )
        if not numbers or name == "std" and 0 in values:
            refuse(
                path,
                f"has {prefix}{name}={values!r}"[:200],
                "Expected a number for each channel.",
            )
        found[f"pixel_{name}"] = tuple(map(float, values))
    halves = {x for values in found.values() for x in values} == {0.5}
    return dict.fromkeys(found) if halves else found


def _converted(path, config, names) -> dict:
    """The fields of a config that are there, under our names, checked."""
    return {
        ours: CONVERSIONS.get(ours, _positive)(path, ours, config[theirs])
        for theirs, ours in names.items()
        if config.get(theirs) is not None
    }


def _positive(path, name, value) -> int:
    if type(value) is not int or not 0 < value < 10**6:
        refuse(path, f"has {name}={value!r}"[:200], "Expected an integer.")
    return value


def _pair(path, name, value) -> tuple:
    values = value if isinstance(value, list) else [value, value]
    if len(values) != 2:
        refuse(path, f"has {name}={value!r}"[:200], "Expected two integers.")
    return tuple(_positive(path, name, x) for x in values)


def _epsilon(path, name, value) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1:
        refuse(path, f"has {name}={value!r}"[:200], "Expected 0 to 1.")
    return float(value)


def _activation(path, name, value) -> str:
    if not isinstance(value, str) or value not in ACTIVATIONS:
        refuse(
            path,
            f"has the activation {value!r}"[:200],
            f"Expected one of {', '.join(ACTIVATIONS)}.",
        )
    return ACTIVATIONS[value]


def _pooling(path, name, value) -> str:
    if not isinstance(value, str) or value not in POOLINGS:
        refuse(
            path,
            f"has global_pool={value!r}"[:200],
            f"Expected one of {', '.join(map(repr, POOLINGS))}.",
        )
    return POOLINGS[value]


# timm's words for what the head sees.
POOLINGS = {
    "token": "token",
    "avg": "mean",
    "max": "max",
    "map": "map",
    "": "none",
}
CONVERSIONS = {
    "pooling": _pooling,
    "image_size": _pair,
    "layer_norm_epsilon": _epsilon,
    "activation": _activation,
}


# keras-hub has our names.
KERAS_HUB = {
    name: name
    for name in (
        "num_heads",
        "hidden_dim",
        "num_layers",
        "mlp_dim",
        "layer_norm_epsilon",
    )
}
BACKBONE = "keras_hub>ViTBackbone"
BIASES = ("use_mha_bias", "use_mlp_bias", "use_patch_bias")


def _is_keras_hub(path: Path) -> bool:
    """Whether a folder is a preset of keras-hub or of KerasCV."""
    config = path / CONFIG
    name = config.is_file() and _read_json(config).get("registered_name")
    return isinstance(name, str)


def _open_keras_hub(path: Path) -> TensorFile:
    """Opens a preset folder of a ViT of keras-hub with its config.json."""
    config = _read_json(path / CONFIG)
    if config["registered_name"] != BACKBONE:
        refuse(
            path,
            f"is a preset of {config['registered_name'][:100]!r}, which is no "
            f"Vision Transformer of keras-hub ({BACKBONE!r})",
            "Choose a preset of keras_hub.models.ViTBackbone.",
        )
    fields = _backbone_fields(path / "config.json", config.get("config"))
    # Keras leaves out the number of the first layer of a class.
    tensors = {
        re.sub(r"(vi_t_encoder_block)(?=/)", r"\1_0", name): tensor
        for name, tensor in datasets(path / "model.weights.h5").items()
    }
    task = path / "task.json"
    if task.is_file() and (path / "task.weights.h5").is_file():
        options = _read_json(task).get("config")
        tensors |= _head_tensors(path, options, tensors)
        fields |= _head_fields(task, options)
    return TensorFile(str(path), tensors, fields, kind="keras_hub")


def _backbone_fields(path, config) -> dict:
    if not isinstance(config, dict):
        refuse(path, "has no config of a model", DAMAGED)
    absent = [name for name in BIASES if config.get(name) is False]
    if absent:
        refuse(
            path,
            f"has {absent[0]}=false, and the models here have these biases",
            "Choose another preset.",
        )
    shape = config.get("image_shape")
    if not isinstance(shape, list) or len(shape) != 3:
        refuse(path, f"has image_shape={shape!r}"[:200], "Expected 3 sizes.")
    size = _pair(path, "image_shape", shape[:2])
    return {**_converted(path, config, KERAS_HUB), "image_size": size}


def _head_fields(path, options) -> dict:
    """The activation of the classification layer, where there is one."""
    activation = options.get("activation")
    if isinstance(activation, dict):  # as Keras serialises a function
        activation = activation.get("config")
    if activation in (None, "linear"):
        return {"classifier_activation": None}
    if activation not in ("softmax", "sigmoid"):
        refuse(
            path,
            f"has activation={activation!r}"[:200],
            "Expected None, 'linear', 'softmax' or 'sigmoid'.",
        )
    return {"classifier_activation": activation}


def _head_tensors(path, options, tensors) -> dict:
    """The weights of the task, under the names of their layers."""
    if not isinstance(options, dict):
        refuse(path / "task.json", "has no config", DAMAGED)
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
