"""Preset folders of keras-hub: how they are opened, and their names.

Source: keras-hub 0.32.0 (src/models/*/*_layers.py, *_backbone.py,
*_vision_encoder.py, *_image_classifier.py;
src/layers/preprocessing/image_converter.py), and how Keras names what it
saves.
"""

import dataclasses
import functools
import re
from pathlib import Path

import numpy as np

from keras_vit.checkpoints.dialects.shared import EXACT_GELU, TANH_GELU
from keras_vit.checkpoints.engine.layout import Dialect, Layout
from keras_vit.checkpoints.files.config_values import (
    converted,
    pair,
    pixels,
    read_json,
)
from keras_vit.checkpoints.files.hdf5 import datasets
from keras_vit.checkpoints.files.tensors import (
    DAMAGED,
    TensorFile,
    check_name,
    refuse,
)
from keras_vit.trained_as import TrainedAs

__all__ = ["LAYOUTS", "TEXT_LAYOUTS"]

CONFIG, TASK = "config.json", "task.json"
WEIGHTS, SHARDS = "model.weights.h5", "model.weights.json"
TASK_WEIGHTS = "task.weights.h5"
MAX_SHARDS = 1000

# What fields are called here, in whichever backbone they are.
NAMES = {
    "num_heads": "num_heads",
    "hidden_dim": "hidden_dim",
    "num_layers": "num_layers",
    "mlp_dim": "mlp_dim",
    "intermediate_dim": "mlp_dim",
    "intermediate_activation": "activation",
    "hidden_activation": "activation",
    "layer_norm_epsilon": "layer_norm_epsilon",
    "layer_norm_eps": "layer_norm_epsilon",
    "use_gated_mlp": "gated_mlp",
    "use_swiglu_ffn": "gated_mlp",
    "rope_theta": "rope_temperature",
    "num_register_tokens": "register_tokens",
}
# Fields that the tensors show, that are read on their own, or that change
# nothing in the output of a trained model.
OTHERS = {
    *("name", "trainable", "dtype", "image_shape", "patch_size"),
    *("dropout_rate", "attention_dropout", "drop_path_rate"),
    *("layer_scale_init_value", "use_class_token", "use_mask_token"),
    *("use_query_bias", "use_key_bias", "use_value_bias"),
    *("use_proj_bias", "use_mlp_bias"),
    # Of what is taken from between the blocks.
    "apply_layernorm",
    *("position_embedding_shape", "antialias_in_interpolation"),
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """How presets hold one of the image encoders of keras-hub.

    Args:
        blocks: str, the layer of the first block, which Keras writes without
            a number.
        variables: names of the arrays of the embedding, in their order; of
            those in NAMED the config tells which are there.
        embedding: str, the layer that has them.
        numbers: str, the array of the numbers of the positions.
        fixed: dict from a field to the values that the models here have.
        tower: in a model of images and texts, the layer with the encoder.
        vision: likewise, the field that holds the config of the encoder, or
            what the names of its fields begin with.
    """

    blocks: str
    embedding: str = ""
    variables: tuple = ()
    numbers: str = ""
    fixed: dict = dataclasses.field(default_factory=dict)
    tower: str = ""
    vision: str = ""


# Arrays that are there only if a field says so.
NAMED = {
    "mask_token": "use_mask_token",
    "register_tokens": "num_register_tokens",
}
TOKENS = ("cls_token", "mask_token", "register_tokens")
POSITIONS = ("interpolated_position_embeddings", "position_embeddings")

WITHOUT_INTERMEDIATE = {"intermediate_output_index": (None,)}
CLIP = Kind(
    "clip_encoder_layer",
    numbers="layers/clip_vision_embedding/vars/1",
    fixed=WITHOUT_INTERMEDIATE,
)
METACLIP_2 = Kind("meta_clip2_encoder_layer", fixed=WITHOUT_INTERMEDIATE)
# The norm after its blocks has this epsilon, whatever the others have.
SIGLIP = Kind(
    "sig_lip_encoder_layer",
    numbers="layers/sig_lip_vision_embedding/vars/0",
    fixed={"layer_norm_epsilon": (1e-6,)},
)
KINDS = {
    "ViTBackbone": Kind(
        "vi_t_encoder_block",
        fixed={
            name: (True,)
            for name in ("use_mha_bias", "use_mlp_bias", "use_patch_bias")
        },
    ),
    "DeiTBackbone": Kind(
        "dei_t_encoder_block", fixed={"use_mha_bias": (True,)}
    ),
    "DINOV2Backbone": Kind(
        "dinov2_layer", "layers/dinov2_embedding", (*TOKENS, *POSITIONS)
    ),
    "DINOV3Backbone": Kind("dinov3_layer", "layers/dinov3_embedding", TOKENS),
    "CLIPVisionEncoder": CLIP,
    "CLIPBackbone": dataclasses.replace(
        CLIP, tower="clip_vision_encoder", vision="vision_encoder"
    ),
    "MetaCLIP2VisionEncoder": METACLIP_2,
    "MetaCLIP2Backbone": dataclasses.replace(
        METACLIP_2, tower="meta_clip2_vision_encoder", vision="vision_encoder"
    ),
    "SigLIPVisionEncoder": SIGLIP,
    "SigLIPBackbone": dataclasses.replace(
        SIGLIP, tower="sig_lip_vision_encoder", vision="vision_encoder"
    ),
    "PaliGemmaBackbone": Kind(
        "pali_gemma_vit_encoder_block",
        tower="pali_gemma_vit",
        vision="vit_",
    ),
}
POOLINGS = {None: "none", "gap": "mean"}  # of PaliGemma's encoder
CLASSIFIER = {
    *("backbone", "preprocessor", "name", "trainable", "dtype", "dropout"),
    *("num_classes", "pooling", "intermediate_dim", "activation"),
}
CONVERTER = {
    *("name", "trainable", "dtype", "data_format", "bounding_box_format"),
    *("image_size", "scale", "offset", "interpolation", "antialias"),
    *("crop_to_aspect_ratio", "pad_to_aspect_ratio"),
}


def is_keras_hub(path: Path) -> bool:
    """Return whether a folder is a preset of keras-hub or of KerasCV."""
    config = path / CONFIG
    name = config.is_file() and read_json(config).get("registered_name")
    return isinstance(name, str)


def open_keras_hub(path: Path) -> TensorFile:
    """Open a preset folder of a Vision Transformer of keras-hub.

    Raises:
        ValueError: for another model, and for an option that the models here
            do not have.
        OSError: when a file cannot be opened.
    """
    content = read_json(path / CONFIG)
    kind = _kind_of(path, content["registered_name"])
    config = _vision(path / CONFIG, kind, content.get("config"))
    fields = _encoder_fields(path / CONFIG, kind, config)
    tensors = _renamed(_stored(path), kind, config)
    _check_numbers(path, tensors.get(kind.numbers))
    if (path / TASK).is_file() and (path / TASK_WEIGHTS).is_file():
        options = _checked(path / TASK, read_json(path / TASK).get("config"))
        tensors |= _head_tensors(path, options)
        fields |= _head_fields(path / TASK, options, fields)
    found = _converter(path)
    fields |= _scaled(*found) if found else {}
    known = _trained_as(path, found)
    return TensorFile(str(path), tensors, fields, trained_as=known)


def _kind_of(path, name) -> Kind:
    package, _, backbone = name.partition(">")
    if package != "keras_hub" or backbone not in KINDS:
        refuse(
            path,
            f"is a preset of {name[:100]!r}, which is no Vision Transformer "
            "of keras-hub that is known here",
            f"Choose a preset of {', '.join(KINDS)}.",
        )
    return KINDS[backbone]


def _vision(path, kind, config) -> dict:
    """Return the config of the image encoder."""
    config = _checked(path, config)
    if kind.vision == "vision_encoder":
        tower = _checked(path, config.get(kind.vision))
        return _checked(path, tower.get("config"))
    if kind.vision:
        size = config.get("image_size")
        inner = {
            name.removeprefix(kind.vision): value
            for name, value in config.items()
            if name.startswith(kind.vision)
        }
        inner = {x: y for x, y in inner.items() if y is not None}
        defaults = {"intermediate_dim": 4304, "dtype": config.get("dtype")}
        return {**defaults, **inner, "image_shape": [size, size, 3]}
    return config


def _checked(path, config) -> dict:
    if not isinstance(config, dict):
        refuse(path, "has no config of a model", DAMAGED)
    return config


def _encoder_fields(path, kind, config) -> dict:
    """Read the config of an encoder, in our names and types."""
    known = {*NAMES, *OTHERS, *kind.fixed}
    if kind.vision == "vit_":
        known |= {"pooling", "classifier_activation"}
    _check_known(path, config, known)
    for name, values in kind.fixed.items():
        if config.get(name, values[0]) not in values:
            _refuse_field(path, name, config[name], values)
    policy = config.get("dtype")
    if isinstance(policy, dict) and policy.get("class_name") != "DTypePolicy":
        _refuse_field(path, "dtype", policy.get("class_name"), ["DTypePolicy"])
    fields = converted(path, config, NAMES)
    if config.get("use_swiglu_ffn"):
        # It makes the layer a third smaller, to a multiple of 8.
        fields["mlp_dim"] = (fields["mlp_dim"] * 2 // 3 + 7) // 8 * 8
        fields["activation"] = "silu"
    if kind.vision == "vit_":
        fields |= _pali_gemma_fields(path, config)
    return fields | _size_fields(path, config)


def _size_fields(path, config) -> dict:
    """Read sizes of images and patches, and how positions are resampled."""
    shape = config.get("image_shape")
    if not isinstance(shape, list) or len(shape) != 3:
        refuse(path, f"has image_shape={shape!r}"[:200], "Expected 3 sizes.")
    fields = {
        "image_size": pair(path, "image_shape", shape[:2]),
        "channels": shape[2],
    }
    if config.get("patch_size") is not None:
        fields["patch_size"] = pair(path, "patch_size", config["patch_size"])
    if config.get("antialias_in_interpolation"):
        fields["resampling"] = "bicubic_antialiased"
    return fields


def _pali_gemma_fields(path, config) -> dict:
    """Read what becomes of the tokens in front of the language model."""
    pooling = config.get("pooling")
    if pooling not in POOLINGS:
        _refuse_field(path, "vit_pooling", pooling, POOLINGS)
    activation = config.get("classifier_activation")
    return {
        "pooling": POOLINGS[pooling],
        "classifier_activation": _head_activation(path, activation),
    }


def _check_known(path, config, known) -> None:
    """Refuse fields that are neither taken over nor visible in the tensors."""
    unknown = sorted(set(config) - known)
    if unknown:
        refuse(
            path,
            f"has {', '.join(unknown)[:200]}, which the models here do not "
            "have",
            "Choose another preset.",
        )


def _refuse_field(path, name, value, values) -> None:
    refuse(
        path,
        f"has {name}={value!r}"[:200],
        f"Expected {' or '.join(map(repr, values))}: choose another preset.",
    )


def _stored(path) -> dict:
    """List the arrays of a model, of one file or several."""
    if (path / WEIGHTS).is_file() or not (path / SHARDS).is_file():
        return datasets(path / WEIGHTS)
    parts = read_json(path / SHARDS).get("weight_map")
    found = {}
    for name in _shards(path / SHARDS, _checked(path / SHARDS, parts)):
        found |= datasets(path / name)
    return found


def _shards(path, parts) -> list:
    names = set()
    for value in parts.values():
        names |= set(map(str, value if isinstance(value, list) else [value]))
    for name in sorted(names)[:MAX_SHARDS]:
        check_name(path, name)
        if len(names) > MAX_SHARDS or "/" in name or "\\" in name:
            refuse(path, f"names the file {name[:200]!r}", DAMAGED)
        if not (path.parent / name).is_file():
            refuse(path, f"names {name!r}, which is not there", DAMAGED)
    return sorted(names)


def _renamed(tensors, kind, config) -> dict:
    """Number blocks from 0, and name arrays that Keras only numbers.

    What is outside of the tower of images begins with "outer/".
    """
    variables = _variables(kind, config)
    found = {}
    for name, tensor in tensors.items():
        if kind.tower:
            inner = name.removeprefix(f"layers/{kind.tower}/")
            outer = name.replace("layers/", "outer/", 1)
            name = inner if inner != name else outer
        name = re.sub(rf"({kind.blocks})(?=/)", r"\1_0", name)
        found[variables.get(name, name)] = tensor
    return found


def _check_numbers(path, tensor) -> None:
    """Refuse positions that are not those of the patches in their order.

    keras-hub leaves them all 0 in a CLIP that was not made from a checkpoint.
    """
    if tensor is None:
        return
    found = tensor.read().ravel()
    if not np.array_equal(found, np.arange(found.size)):
        refuse(
            path,
            f"has position_ids={found[:9].tolist()!r}...",
            "Expected 0, 1, 2, ...: the position of each token by its number.",
        )


def _variables(kind, config) -> dict:
    """Map the numbers of the embedding's arrays to their names."""
    names = [x for x in kind.variables if config.get(NAMED.get(x, ""), True)]
    if config.get("position_embedding_shape"):
        names = _named_positions(names, config)
    return {
        f"{kind.embedding}/vars/{i}": f"{kind.embedding}/{name}"
        for i, name in enumerate(names)
    }


def _named_positions(names, config) -> list:
    """Name which of two tables of positions is read, and which is unused.

    DINOv2 keeps that of the images that it was trained on, and resamples it
    to its own when it is loaded, on each backend in another way. That which
    the saved model had is beside it.
    """
    sizes = [config.get(x) for x in ("position_embedding_shape", "image_shape")]
    trained, own = (list(x or ())[:2] for x in sizes)
    used = POSITIONS[1] if trained == own else POSITIONS[0]
    renamed = {x: "positions" if x == used else "unused" for x in POSITIONS}
    return [renamed.get(x, x) for x in names]


def _head_fields(path, options, fields) -> dict:
    """Read the activation and the pooling of the task of a preset."""
    _check_known(path, options, CLASSIFIER)
    activation = _head_activation(path, options.get("activation"))
    if options.get("pooling") not in ("token", "gap"):
        _refuse_field(path, "pooling", options.get("pooling"), ("token", "gap"))
    found = {"classifier_activation": activation}
    if options["pooling"] == "gap":  # of all tokens
        found |= {"pooling": "mean", "pool_prefix_tokens": True}
    else:
        found["pooling"] = "token"
    return found


def _head_activation(path, activation) -> str | None:
    """Read the activation of the classification layer, where there is one."""
    if isinstance(activation, dict):  # as Keras serialises a function
        activation = activation.get("config")
    if activation in (None, "linear"):
        return None
    if activation not in ("softmax", "sigmoid"):
        refuse(
            path,
            f"has activation={activation!r}"[:200],
            "Expected None, 'linear', 'softmax' or 'sigmoid'.",
        )
    return activation


def _head_tensors(path, options) -> dict:
    """List the weights of the task, under the names of their layers."""
    hidden = options.get("intermediate_dim") is not None
    names = {"dense": "pre_logits", "dense_1": "predictions"}
    names = names if hidden else {"dense": "predictions"}
    found = {}
    for name, tensor in datasets(path / TASK_WEIGHTS).items():
        match = re.fullmatch(r"layers/(\w+)/(vars/\d)", name)
        if match and match[1] in names:
            found[f"{names[match[1]]}/{match[2]}"] = tensor
        elif not name.startswith("optimizer/"):
            found[f"task/{name}"] = tensor
    return found


def _converter(path) -> tuple[Path, dict] | None:
    """Return the file of the converter of images, and what it holds.

    It has a file of its own, or is a part of the preprocessor.
    """
    for name, part in (
        ("image_converter.json", None),
        ("preprocessor.json", "image_converter"),
    ):
        if (path / name).is_file():
            config = read_json(path / name).get("config")
            if part and isinstance(config, dict):
                config = (config.get(part) or {}).get("config")
            if isinstance(config, dict):
                _check_known(path / name, config, CONVERTER)
                return path / name, config
    return None


def _trained_as(path, found) -> TrainedAs:
    """Return how the converter resizes images, which is Keras's Resizing."""
    if found is None:
        return TrainedAs()
    file, config = found
    source = str(path)
    if config.get("pad_to_aspect_ratio"):
        obstacle = (
            f"{str(file)!r} prepares images with pad_to_aspect_ratio=True, "
            "which is not done here. Give preprocessing=."
        )
        return TrainedAs(source=source, obstacle=obstacle)
    method = config.get("interpolation", "bilinear")
    if method not in METHODS:
        refuse(
            file,
            f"has interpolation={method!r}"[:200],
            f"Expected one of {', '.join(METHODS)}.",
        )
    cuts = config.get("crop_to_aspect_ratio", True)
    size = config.get("image_size")
    return TrainedAs(
        source=source,
        image_size=None if size is None else pair(file, "image_size", size),
        preprocessing={
            "evaluation": "aspect_crop" if cuts else "squash",
            "resize_method": METHODS[method],
            "antialias": bool(config.get("antialias", False)),
            "rounding": "float32",
        },
    )


METHODS = {x: x for x in ("nearest", "bilinear", "bicubic", "lanczos3", "area")}


def _scaled(path, config) -> dict:
    """Read mean and deviation of the pixels from their scale and offset."""
    scales, offsets = (
        value if isinstance(value, list) else [value] * 3
        for value in (config.get("scale"), config.get("offset"))
    )
    scales = [1.0 if x is None else x for x in scales]
    offsets = [0.0 if x is None else x for x in offsets]
    numbers = all(type(x) in (int, float) for x in (*scales, *offsets))
    if not numbers or len(scales) != len(offsets) or min(scales) <= 0:
        refuse(
            path,
            f"has scale={scales!r} and offset={offsets!r}"[:200],
            "Expected a number above 0, and one, for each channel.",
        )
    # (x / 255 - mean) / deviation is what it computes.
    stds = [1 / (255 * x) for x in scales]
    means = [-x * y for x, y in zip(offsets, stds, strict=True)]
    found = {"mean": means, "std": stds}
    # 0.485 in place of 0.48500000000000004.
    rounded = {x: [float(f"{z:.8g}") for z in y] for x, y in found.items()}
    return pixels(path, rounded)


# The tables. Towers of images and arrays of embeddings have the names that
# `_renamed` gives them.
def layer(ours, theirs, names=("kernel", "bias"), kernel="same"):
    """Return the rows of a layer of two weights."""
    return {
        f"{ours}/{names[0]}": (f"{theirs}/vars/0", kernel),
        f"{ours}/{names[1]}": (f"{theirs}/vars/1", "same"),
    }


def norm(ours, theirs):
    return layer(ours, theirs, ("gamma", "beta"))


def attention(theirs):
    """Return the rows of Keras's `MultiHeadAttention` in a block."""
    parts = [f"{theirs}/{x}_dense" for x in ("query", "key", "value")]
    return {
        f"block_{{i}}/attention/qkv/{ours}": (
            tuple(f"{x}/vars/{j}" for x in parts),
            "heads_qkv",
        )
        for j, ours in enumerate(("kernel", "bias"))
    } | layer(
        "block_{i}/attention/out",
        f"{theirs}/output_dense",
        kernel="heads_out",
    )


def block(theirs, names):
    """Return the rows of a block.

    Args:
        theirs: str, its layer.
        names: those of its norm, its attention, and of the norm and the two
            layers of its MLP.
    """
    first_norm, heads, second_norm, first, second = names
    return {
        **norm("block_{i}/attention_norm", f"{theirs}/{first_norm}"),
        **attention(f"{theirs}/{heads}"),
        **norm("block_{i}/mlp_norm", f"{theirs}/{second_norm}"),
        **layer("block_{i}/mlp/dense", f"{theirs}/{first}"),
        **layer("block_{i}/mlp/dense_1", f"{theirs}/{second}"),
    }


EMBEDDING = "layers/vi_t_patching_and_embedding"
VIT_ROWS = {
    **layer("patch_embed/projection", f"{EMBEDDING}/patch_embedding"),
    "class_token/token": (f"{EMBEDDING}/vars/0", "same"),
    "position_embedding/embedding": (
        f"{EMBEDDING}/position_embedding/vars/0",
        "rows",
    ),
    **block(
        "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block_{i}",
        ("layer_norm_1", "mha", "layer_norm_2", "mlp/dense_1", "mlp/dense_2"),
    ),
    **norm("encoder_norm", "layers/vi_t_encoder/layer_norm"),
    **layer("pre_logits", "pre_logits"),
    **layer("predictions", "predictions"),
}
DEIT = "layers/dei_t_embeddings"
DEIT_ROWS = {
    **layer("patch_embed/projection", f"{DEIT}/patch_embedding"),
    "class_token/token": ((f"{DEIT}/vars/0", f"{DEIT}/vars/1"), "tokens"),
    "position_embedding/embedding": (f"{DEIT}/vars/2", "same"),
    **block(
        "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block_{i}",
        (
            *("layer_norm_1", "mha", "layer_norm_2"),
            *("mlp/dense", "output_layer/dense"),
        ),
    ),
    **norm("encoder_norm", "layers/dei_t_encoder/layer_norm"),
    **layer("predictions", "predictions"),
}
DINOV2 = "layers/dinov2_embedding"
DINOV2_BLOCK = "layers/dinov2_encoder/layers/dinov2_layer_{i}"
DINOV2_ROWS = {
    **layer("patch_embed/projection", f"{DINOV2}/patch_embeddings/projection"),
    "class_token/token": (f"{DINOV2}/cls_token", "same"),
    "position_embedding/embedding": (f"{DINOV2}/positions", "same"),
    **block(
        DINOV2_BLOCK,
        ("norm1", "attention/attention", "norm2", "mlp/fc1", "mlp/fc2"),
    ),
    "block_{i}/attention_scale/gamma": (
        f"{DINOV2_BLOCK}/layer_scale1/vars/0",
        "same",
    ),
    "block_{i}/mlp_scale/gamma": (
        f"{DINOV2_BLOCK}/layer_scale2/vars/0",
        "same",
    ),
    **norm("encoder_norm", "layers/layer_normalization"),
}
# SwiGLU, gates before values in one array.
GATES_ROWS = {
    **layer("block_{i}/mlp/dense", f"{DINOV2_BLOCK}/mlp/weights_in"),
    **layer("block_{i}/mlp/dense_1", f"{DINOV2_BLOCK}/mlp/weights_out"),
}
# Registers come after the positions have been added.
REGISTERS_ROWS = {
    "class_token/token": (
        (f"{DINOV2}/cls_token", f"{DINOV2}/register_tokens"),
        "token_and_registers",
    ),
    "position_embedding/embedding": (
        f"{DINOV2}/positions",
        "around_registers",
    ),
}
DINOV3 = "layers/dinov3_embedding"
DINOV3_BLOCK = "layers/dinov3_encoder/layers/dinov3_layer_{i}"


def dinov3_projections(names, weight):
    return tuple(
        f"{DINOV3_BLOCK}/attention/{x}_dense/vars/{weight}" for x in names
    )


DINOV3_ROWS = {
    **layer("patch_embed/projection", f"{DINOV3}/patch_embeddings/projection"),
    "class_token/token": (f"{DINOV3}/cls_token", "same"),
    **norm("block_{i}/attention_norm", f"{DINOV3_BLOCK}/norm1"),
    "block_{i}/attention/qkv/kernel": (
        dinov3_projections(("query", "key", "value"), 0),
        "dense_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        dinov3_projections(("query", "value"), 1),
        "dense_query_value",
    ),
    **layer(
        "block_{i}/attention/out", f"{DINOV3_BLOCK}/attention/output_dense"
    ),
    "block_{i}/attention_scale/gamma": (
        f"{DINOV3_BLOCK}/layer_scale1/vars/0",
        "same",
    ),
    **norm("block_{i}/mlp_norm", f"{DINOV3_BLOCK}/norm2"),
    **layer("block_{i}/mlp/dense", f"{DINOV3_BLOCK}/mlp/up_proj"),
    **layer("block_{i}/mlp/dense_1", f"{DINOV3_BLOCK}/mlp/down_proj"),
    "block_{i}/mlp_scale/gamma": (
        f"{DINOV3_BLOCK}/layer_scale2/vars/0",
        "same",
    ),
    **norm("encoder_norm", "layers/layer_normalization"),
}
DINOV3_KEY_BIAS_ROWS = {
    "block_{i}/attention/qkv/bias": (
        dinov3_projections(("query", "key", "value"), 1),
        "dense_qkv",
    ),
}
DINOV3_GATES_ROWS = {
    f"block_{{i}}/mlp/dense/{ours}": (
        tuple(f"{DINOV3_BLOCK}/mlp/{x}_proj/vars/{j}" for x in ("gate", "up")),
        "columns",
    )
    for j, ours in enumerate(("kernel", "bias"))
}
DINOV3_REGISTERS_ROWS = {
    "class_token/token": (
        (f"{DINOV3}/cls_token", f"{DINOV3}/register_tokens"),
        "token_and_registers",
    ),
}


CLIP_BLOCK = ("layer_norm_1", "attention", "layer_norm_2", "dense_1", "dense_2")
SIGLIP_BLOCK = ("layer_norm1", "self_attn", "layer_norm2", "mlp/fc1", "mlp/fc2")


def clip(name):
    """Return the rows of the image encoder of CLIP and MetaCLIP 2."""
    embedding = f"layers/{name}_vision_embedding"
    return {
        "patch_embed/projection/kernel": (
            f"{embedding}/patch_embedding/vars/0",
            "same",
        ),
        "class_token/token": (f"{embedding}/vars/0", "single_token"),
        "position_embedding/embedding": (
            f"{embedding}/position_embedding/vars/0",
            "rows",
        ),
        **norm("first_norm", "layers/layer_normalization"),
        **block(
            f"layers/{name}_encoder_layer_{{i}}",
            CLIP_BLOCK,
        ),
        "predictions/kernel": ("outer/dense/vars/0", "same"),
    }


CLIP_ROWS = {
    **clip("clip"),
    **norm("encoder_norm", "layers/layer_normalization_1"),
}
# The norm is that of the model of images and texts.
METACLIP_2_ROWS = {
    **clip("meta_clip2"),
    **norm("encoder_norm", "outer/layer_normalization"),
}
SIGLIP_EMBEDDING = "layers/sig_lip_vision_embedding"
KEY_VALUE = ("key", "value")
POOL = "layers/sig_lip_multi_head_attention_pooling"
SIGLIP_ROWS = {
    **layer("patch_embed/projection", f"{SIGLIP_EMBEDDING}/patch_embedding"),
    "position_embedding/embedding": (
        f"{SIGLIP_EMBEDDING}/position_embedding/vars/0",
        "rows",
    ),
    **block(
        "layers/sig_lip_encoder_layer_{i}",
        SIGLIP_BLOCK,
    ),
    **norm("encoder_norm", "layers/layer_normalization"),
    "pool/probe": (f"{POOL}/vars/0", "same"),
    "pool/query/kernel": (f"{POOL}/attention/query_dense/vars/0", "heads"),
    "pool/query/bias": (f"{POOL}/attention/query_dense/vars/1", "heads"),
    **{
        f"pool/key_value/{ours}": (
            tuple(f"{POOL}/attention/{x}_dense/vars/{j}" for x in KEY_VALUE),
            "heads_kv",
        )
        for j, ours in enumerate(("kernel", "bias"))
    },
    **layer("pool/out", f"{POOL}/attention/output_dense", kernel="heads_out"),
    **norm("pool/norm", f"{POOL}/layer_norm"),
    **layer("pool/mlp/dense", f"{POOL}/mlp/fc1"),
    **layer("pool/mlp/dense_1", f"{POOL}/mlp/fc2"),
}
PALI_GEMMA = "layers/pali_gemma_vit_encoder"
PALI_GEMMA_BLOCK = f"{PALI_GEMMA}/resblocks/pali_gemma_vit_encoder_block_{{i}}"
PALI_GEMMA_ROWS = {
    **layer(
        "patch_embed/projection",
        f"{PALI_GEMMA}/vision_embeddings/patch_embedding",
    ),
    "position_embedding/embedding": (
        f"{PALI_GEMMA}/vision_embeddings/position_embedding/vars/0",
        "rows",
    ),
    **block(
        PALI_GEMMA_BLOCK,
        ("layer_norm_1", "attn", "layer_norm_2", "mlp_dense_1", "mlp_dense_2"),
    ),
    **{
        f"block_{{i}}/attention/qkv/{ours}": (
            tuple(
                f"{PALI_GEMMA_BLOCK}/attn/{x}_proj/vars/{j}"
                for x in ("query", "key", "value")
            ),
            "dense_qkv",
        )
        for j, ours in enumerate(("kernel", "bias"))
    },
    **layer("block_{i}/attention/out", f"{PALI_GEMMA_BLOCK}/attn/out_proj"),
    **norm("encoder_norm", f"{PALI_GEMMA}/encoder_layer_norm"),
    **layer("predictions", "layers/dense"),
}


def open_folder(path: Path) -> TensorFile | None:
    """Open a preset folder; return None for another folder."""
    return open_keras_hub(path) if is_keras_hub(path) else None


USUAL = {"evaluation": "aspect_crop", "rounding": "float32"}
DIALECT = Dialect(
    "keras-hub",
    open_folder=open_folder,
    usual_images=lambda layout, fields: {"preprocessing": USUAL},
)
_layout = functools.partial(Layout, DIALECT, "keras_hub", "vit", container="")
LAYOUTS = (
    _layout(
        VIT_ROWS,
        marks=(("layers/vi_t_encoder/layer_norm/vars/0",),),
        constants=EXACT_GELU,
        resampling="bicubic",
    ),
    _layout(
        DEIT_ROWS,
        marks=(("layers/dei_t_encoder/layer_norm/vars/0",),),
        signs={"distillation_token": "layers/dei_t_embeddings/vars/1"},
        constants=EXACT_GELU,
        resampling="bicubic",
    ),
    _layout(
        DINOV2_ROWS,
        marks=(("layers/dinov2_embedding/positions",),),
        variants={
            "registers": REGISTERS_ROWS,
            "gates": GATES_ROWS,
        },
        signs={
            "registers": "layers/dinov2_embedding/register_tokens",
            "gates": DINOV2_BLOCK.format(i=0) + "/mlp/weights_in/vars/0",
        },
        constants=EXACT_GELU,
        implied={"block_0/attention_scale/gamma": {"layer_scale_init": 1.0}},
        ignored=(r"layers/dinov2_embedding/(mask_token|unused)",),
        resampling="bicubic",
    ),
    _layout(
        DINOV3_ROWS,
        marks=(("layers/dinov3_embedding/cls_token",),),
        variants={
            "registers": DINOV3_REGISTERS_ROWS,
            "gates": DINOV3_GATES_ROWS,
            "key_bias": DINOV3_KEY_BIAS_ROWS,
        },
        signs={
            "registers": "layers/dinov3_embedding/register_tokens",
            "gates": DINOV3_BLOCK.format(i=0) + "/mlp/gate_proj/vars/0",
            "key_bias": DINOV3_BLOCK.format(i=0)
            + "/attention/key_dense/vars/1",
        },
        constants={
            "activation": "gelu",
            "layer_norm_epsilon": 1e-5,
            "rope": "centered",
            "rope_pairs": "halves",
            "rope_temperature": 100.0,
        },
        implied={"block_0/attention_scale/gamma": {"layer_scale_init": 1.0}},
        ignored=(r"layers/dinov3_embedding/mask_token",),
        optional=("qkv_bias", "projection_bias"),
    ),
    *(
        _layout(
            table,
            marks=((f"layers/{name}_vision_embedding/vars/0",),),
            constants={"activation": "quick_gelu", "layer_norm_epsilon": 1e-5},
            ignored=(
                rf"layers/{name}_vision_embedding/vars/1",
                rf"outer/({name}_text_encoder|{name}_head|dense_1)/.*",
            ),
            resampling="bicubic",
            optional=("patch_bias",),
        )
        for name, table in (
            ("clip", CLIP_ROWS),
            ("meta_clip2", METACLIP_2_ROWS),
        )
    ),
    _layout(
        SIGLIP_ROWS,
        marks=(("layers/sig_lip_vision_embedding/position_embedding/vars/0",),),
        constants=TANH_GELU,
        ignored=(
            # Numbers of the positions.
            r"layers/sig_lip_vision_embedding/vars/0",
            r"outer/(sig_lip_text_encoder|sig_lip_head)/.*",
        ),
        resampling="bicubic",
    ),
    _layout(
        PALI_GEMMA_ROWS,
        marks=(("layers/pali_gemma_vit_encoder/encoder_layer_norm/vars/0",),),
        constants=TANH_GELU,
        # The language model.
        ignored=(r"outer/.*",),
        resampling="bicubic",
    ),
)


def texts(name, block_names, embedding, projection):
    """Return the rows of the tower of texts of a model of both."""
    tower = f"outer/{name}_text_encoder/layers"
    return {
        "token_embedding/embeddings": (
            f"{tower}/{embedding}/token_embedding/vars/0",
            "same",
        ),
        "position_embedding/embedding": (
            f"{tower}/{embedding}/position_embedding/vars/0",
            "rows",
        ),
        **block(f"{tower}/{name}_encoder_layer_{{i}}", block_names),
        **norm("encoder_norm", f"{tower}/layer_normalization"),
        **projection,
        "logit_scale": (f"outer/{name}_head/vars/0", "vector"),
    }


EMBEDDED = "token_and_position_embedding"
# The second of the two projections, neither of which has a name in the file.
PROJECTED = {"projection/kernel": ("outer/dense_1/vars/0", "same")}
# By their towers: the rows, and what no config says. The last norm of CLIP
# has an epsilon of 1e-6 in keras-hub alone; here it is that of the original.
TEXTS = {
    "clip": (
        texts("clip", CLIP_BLOCK, EMBEDDED, PROJECTED),
        {"layer_norm_epsilon": 1e-5, "pooling": "largest_id"},
    ),
    "meta_clip2": (
        texts("meta_clip2", CLIP_BLOCK, EMBEDDED, PROJECTED),
        {"layer_norm_epsilon": 1e-5, "pooling": "first_id", "pooled_id": 2},
    ),
    "sig_lip": (
        {
            **texts(
                "sig_lip",
                SIGLIP_BLOCK,
                "sig_lip_text_embedding",
                layer("projection", "outer/sig_lip_text_encoder/layers/dense"),
            ),
            "logit_bias": ("outer/sig_lip_head/vars/1", "vector"),
        },
        {"causal": False, "pooling": "last"},
    ),
}
TEXT_SIZES = {
    "vocabulary_size": "vocabulary_size",
    "max_sequence_length": "context_length",
    "hidden_dim": "hidden_dim",
    "num_layers": "num_layers",
    "intermediate_dim": "mlp_dim",
}
TEXT_NAMES = {
    "num_heads": "num_heads",
    "intermediate_activation": "activation",
    "layer_norm_epsilon": "layer_norm_epsilon",
}
TEXT_OTHERS = {
    *("name", "trainable", "dtype", "embedding_dim", "projection_dim"),
    "intermediate_output_index",
}


def read_text(checkpoint, constants) -> dict:
    """Read what a preset's config says of its tower of texts."""
    path = Path(checkpoint.file.path) / CONFIG
    content = _checked(path, read_json(path).get("config"))
    tower = _checked(path, content.get("text_encoder"))
    config = _checked(path, tower.get("config"))
    _check_known(path, config, {*TEXT_SIZES, *TEXT_NAMES, *TEXT_OTHERS})
    return {
        "fields": {**converted(path, config, TEXT_NAMES), **constants},
        "sizes": converted(path, config, TEXT_SIZES),
        "tokenizer": {},
    }


TEXT_LAYOUTS = tuple(
    Layout(
        DIALECT,
        f"keras_hub_{name}_text",
        "text",
        table,
        marks=((table["token_embedding/embeddings"][0],),),
        ignored=(
            r"layers/.*|outer/(dense|layer_normalization)/.*",
            # Numbers of the positions.
            r"outer/sig_lip_text_encoder/layers/sig_lip_text_embedding/vars/0",
        ),
        container="",
        read_text=functools.partial(read_text, constants=constants),
    )
    for name, (table, constants) in TEXTS.items()
)
