"""The folder of transformers that a model is written as.

The plain models have their own classes; the others are kinds of a table. What
a folder of those would say is read again before anything is written, so that
no model comes back as another.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_vit.checkpoints.dialects.exported_config import image_size, pixels
from keras_vit.checkpoints.dialects.formats_table import Format
from keras_vit.checkpoints.dialects.hugging_face_config import (
    fields_of_config,
)
from keras_vit.checkpoints.dialects.timm_names_table import TIMM_ACTIVATIONS
from keras_vit.checkpoints.engine.configure import AROUND, configure
from keras_vit.checkpoints.engine.fields_table import EXPORTED, TRAINING
from keras_vit.checkpoints.engine.matching import Target
from keras_vit.checkpoints.engine.recognition import recognise
from keras_vit.checkpoints.files.tensors import Tensor, TensorFile

__all__ = [
    "HUGGING_FACE_ACTIVATIONS",
    "NO_PLACE",
    "companions",
    "hugging_face_config",
    "kind_problems",
    "processor_config",
    "renamer",
]

HUGGING_FACE_ACTIVATIONS = {
    **TIMM_ACTIVATIONS,
    "gelu_tanh": "gelu_pytorch_tanh",
}
# How the objections of a class begin that has other layers than the model.
NO_PLACE = "has no place for"
BILINEAR = 2  # in Pillow's numbers
# What stands in front of no prefix.
HEADS = ("classifier", "cls_classifier", "distillation_classifier")
HEADS += ("visual_projection",)


# What most of the classes have, or have not.
NEEDS = {"class_token": True, "final_norm": True, "register_tokens": False}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A class of transformers that a format's files are for.

    Args:
        model: str, name of the class without what it ends in.
        model_type: str, as in its config.json.
        fields: from the config of a model to what its config.json holds
            beyond the sizes; None leaves one of those out.
        head: str, what the name of the class with a last layer ends in.
        prefixes: of the names of all weights but the last layer's, without
            and with that layer.
        needs: dict from fields of the config to whether they are set.
        mask_token: tuple, the shape of what stands for hidden patches in
            pre-training, in multiples of the hidden dimension; () for none.
    """

    model: str
    model_type: str
    fields: Callable[[dict], dict]
    head: str = "ForImageClassification"
    prefixes: tuple[str, str] = ("", "")
    needs: dict[str, bool] = dataclasses.field(default_factory=lambda: NEEDS)
    mask_token: tuple = ()


def _dinov2_fields(config) -> dict:
    return {
        "mlp_ratio": _whole_ratio(config),
        "use_swiglu_ffn": config["gated_mlp"],
        "num_register_tokens": config["register_tokens"] or None,
    }


def _whole_ratio(config) -> int | None:
    """The ratio of DINOv2's MLP, of which a gated one has two thirds."""
    for ratio in range(1, 17):
        size = config["hidden_dim"] * ratio
        if config["gated_mlp"]:
            size = (int(size * 2 / 3) + 7) // 8 * 8
        if size == config["mlp_dim"]:
            return ratio
    return None


def _dinov3_fields(config) -> dict:
    return {
        "query_bias": config["qkv_bias"],
        "key_bias": False,
        "value_bias": config["qkv_bias"],
        "qkv_bias": None,
        "use_gated_mlp": config["gated_mlp"],
        "rope_theta": config["rope_temperature"],
        "num_register_tokens": config["register_tokens"],
    }


def _beit_fields(config) -> dict:
    return {
        "qkv_bias": None,
        "use_absolute_position_embeddings": (
            config["position_embedding"] == "learned"
        ),
        "use_relative_position_bias": config["relative_position_bias"],
        "use_mean_pooling": config["norm_after_pooling"],
        "layer_scale_init_value": config["layer_scale_init"] or 0.0,
    }


def _aimv2_fields(config) -> dict:
    return {
        "rms_norm_eps": config["layer_norm_epsilon"],
        "layer_norm_eps": None,
        "use_head": config["pooling"] == "attention",
        **dict.fromkeys(("qkv_bias", "mlp_bias"), False),
    }


def _clip_fields(config) -> dict:
    return {"projection_dim": config["num_classes"] or config["hidden_dim"]}


DINOV2 = {"fields": _dinov2_fields, "mask_token": (1,)}
WITHOUT_TOKEN = {**NEEDS, "class_token": False}
TOWER = "vision_model."
# By `Format.kind`.
KINDS = {
    "dinov2": Kind("Dinov2", "dinov2", prefixes=("", "dinov2."), **DINOV2),
    "dinov2_with_registers": Kind(
        "Dinov2WithRegisters",
        "dinov2_with_registers",
        prefixes=("", "dinov2_with_registers."),
        needs={**NEEDS, "register_tokens": True},
        **DINOV2,
    ),
    "dinov3": Kind(
        "DINOv3ViT",
        "dinov3_vit",
        _dinov3_fields,
        needs={"class_token": True, "final_norm": True},
        mask_token=(1, 1),
    ),
    "beit": Kind("Beit", "beit", _beit_fields, prefixes=("", "beit.")),
    "aimv2": Kind(
        "Aimv2Vision",
        "aimv2_vision_model",
        _aimv2_fields,
        needs=WITHOUT_TOKEN,
    ),
    "clip": Kind(
        "CLIPVision",
        "clip_vision_model",
        _clip_fields,
        head="ModelWithProjection",
        prefixes=(TOWER, TOWER),
    ),
    "siglip": Kind(
        "SiglipVision",
        "siglip_vision_model",
        lambda config: {},
        prefixes=(TOWER, TOWER),
        needs=WITHOUT_TOKEN,
    ),
    "siglip_classifier": Kind(
        "Siglip",
        "siglip",
        lambda config: {"vision_use_head": False},
        prefixes=("", TOWER),
        needs=WITHOUT_TOKEN,
    ),
}


def kind_problems(format: Format, target: Target, shapes: dict) -> list:
    """Why transformers has no such model; each follows "it ".

    Args:
        format: a format with a kind.
        target: the model.
        shapes: dict from the names of the tensors that would be written to
            their shapes.
    """
    config, kind = target.config, KINDS[format.kind]
    if problems := _unlike(kind, format, config):
        return problems
    content = hugging_face_config(format, target, set())
    if "mlp_ratio" in kind.fields(config) and "mlp_ratio" not in content:
        return [f"has no mlp_ratio for mlp_dim={config['mlp_dim']}"]
    try:
        found = _read_again(format, content, shapes)
    except ValueError as error:
        return [f"would not be read again: {str(error).rstrip('.')}"]
    told = {x for x, y in EXPORTED["vit"].items() if y.place != TRAINING}
    known = {**target.defaults, **found}
    return [
        f"would be read with {name}={known[name]!r} in place of "
        f"{config[name]!r}"
        for name in target.defaults
        if name in told and name not in UNREAD and known[name] != config[name]
    ]


def _unlike(kind, format, config) -> list:
    """What the class has otherwise and no tensor tells."""
    problems = [
        f"{NO_PLACE} {name}={config[name]!r} in a {kind.model}"
        for name, is_set in kind.needs.items()
        if bool(config[name]) != is_set
    ]
    # Of its projections a map head has those of keys and values, and a query.
    if config["pooling"] == "attention" and not kind.fields(config).get(
        "use_head"
    ):
        problems.append(f"{NO_PLACE} pooling='attention' in a {kind.model}")
    has_positions = "position_embedding/embedding" in format.table
    has_others = config["relative_position_bias"]
    if has_positions and config["position_embedding"] == "none":
        problems += [] if has_others else ["needs position_embedding='learned'"]
    if config["activation"] not in HUGGING_FACE_ACTIVATIONS:
        problems += [
            f"has no hidden_act for activation={config['activation']!r}"
        ]
    return problems


# Told by the record, by preprocessor_config.json, or of no influence.
UNREAD = {*AROUND, "pixel_mean", "pixel_std", "layer_scale_init"}


def _read_again(format, content, shapes) -> dict:
    """The fields of the config that a folder would be read with."""
    tensors = {
        name: Tensor(shape, np.dtype("float32"), _never_read)
        for name, shape in shapes.items()
    }
    fields = fields_of_config("config.json", content)
    file = TensorFile("it", tensors, fields, kind="safetensors")
    source = recognise(file)
    if source.format is not format:
        raise ValueError("its pooling and num_classes are of another class.")
    return configure(source).fields


def _never_read():
    raise ValueError("There are no values yet.")


def companions(format: Format, target: Target) -> dict:
    """Tensors that transformers expects beside the model's, by name."""
    kind = KINDS.get(format.kind)
    if kind is None or not kind.mask_token:
        return {}
    shape = (*kind.mask_token, target.config["hidden_dim"])
    return {"embeddings.mask_token": np.zeros(shape, "float32")}


def renamer(format: Format, target: Target, features: set):
    """Hugging Face puts the model in front of all names but the heads'."""
    has_head = bool(target.config["num_classes"])
    distilled = "distillation_token" in features
    plain = (
        "deit."
        if distilled
        else {"vit": "vit.", "bit": "bit."}.get(target.family, "")
    )
    kind = KINDS.get(format.kind)
    prefixes = kind.prefixes if kind else ("", plain)
    prefix = prefixes[has_head] if format.container == "folder" else ""
    return lambda name: name if name.startswith(HEADS) else prefix + name


def processor_config(target: Target) -> dict:
    """The `preprocessor_config.json` of transformers for a model."""
    height, width = image_size(target.config)
    mean, deviation = pixels(target.config)
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": deviation,
    }


def hugging_face_config(
    format: Format, target: Target, features: set, class_names=None
) -> dict:
    """The `config.json` of transformers for a model."""
    config = target.config
    if format.kind:
        content = _kind_config(KINDS[format.kind], config)
    elif target.family == "bit":
        content = _bit_config(config)
    else:
        content = _vit_config(config, features)
    names = class_names or [f"LABEL_{i}" for i in range(config["num_classes"])]
    return {
        **content,
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "num_channels": config["channels"],
        "torch_dtype": "float32",
    }


def _sizes(config) -> dict:
    """What the classes of Vision Transformers call alike."""
    named = {
        row.hugging_face: config[field]
        for field, row in EXPORTED["vit"].items()
        if row.hugging_face
    }
    return {
        **named,
        "image_size": _one_or_two(config["image_size"]),
        "patch_size": _one_or_two(config["patch_size"]),
        "hidden_act": HUGGING_FACE_ACTIVATIONS[config["activation"]],
        "num_channels": config["channels"],
    }


def _kind_config(kind, config) -> dict:
    fields = {**_sizes(config), **kind.fields(config)}
    fields = {x: y for x, y in fields.items() if y is not None}
    if kind.model_type == "siglip":  # The tower has a config of its own.
        fields = {"vision_config": fields, "text_config": {}}
    ending = kind.head if config["num_classes"] else "Model"
    return {
        **fields,
        "architectures": [kind.model + ending],
        "model_type": kind.model_type,
    }


def _vit_config(config, features) -> dict:
    name = "DeiT" if config["distillation_token"] else "ViT"
    hybrid = config["resnet_units"] is not None
    name = "ViTHybrid" if hybrid else name
    head = "ForImageClassification" if config["num_classes"] else "Model"
    if "averaged_heads" in features:
        head += "WithTeacher"
    fields = {
        **_sizes(config),
        "architectures": [name + head],
        "model_type": "vit-hybrid" if hybrid else name.lower(),
        "pooler_act": "tanh",
        "pooler_output_size": config["representation_dim"]
        or config["hidden_dim"],
    }
    if hybrid:
        fields["backbone_config"] = _resnet_config(
            config["resnet_width"],
            config["resnet_units"],
            layer_type="bottleneck",
            global_padding="same",
            embedding_dynamic_padding=True,
        )
    return fields


def _bit_config(config) -> dict:
    head = "ForImageClassification" if config["num_classes"] else "Model"
    return {
        "architectures": [f"Bit{head}"],
        **_resnet_config(
            config["width"],
            config["units"],
            layer_type="preactivation",
            global_padding=None,
            embedding_dynamic_padding=False,
        ),
    }


def _resnet_config(width, units, **options) -> dict:
    """Fields of transformers' BitConfig."""
    sizes = [4 * width * 2**stage for stage in range(len(units))]
    return {
        "model_type": "bit",
        "embedding_size": width,
        "hidden_sizes": sizes,
        "depths": list(units),
        "num_groups": 32,
        "hidden_act": "relu",
        **options,
    }


def _one_or_two(size):
    return size[0] if size[0] == size[1] else list(size)
