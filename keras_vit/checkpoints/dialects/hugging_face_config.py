"""The config.json of transformers: what it tells, and how one is written.

The plain models have their own classes; the others are classes of a table. What
a folder of those would say is read again before anything is written, so that
no model comes back as another.

Sources: the configuration_*.py of transformers 5.23.0, and of 4.40.2 for
vit-hybrid.
"""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_vit.checkpoints.dialects import hugging_face_images, shared
from keras_vit.checkpoints.engine.layout import NO_PLACE
from keras_vit.checkpoints.files import config_values
from keras_vit.checkpoints.files.config_values import converted, read_json
from keras_vit.checkpoints.files.tensors import refuse, refusing

__all__ = [
    "CLASSES",
    "check_config",
    "check_layout",
    "companions",
    "find_class_problems",
    "find_pooling",
    "find_problems",
    "folder_files",
    "folder_notes",
    "is_config",
    "read_config",
    "read_preprocessing",
    "read_trained_as",
    "usual_images",
    "rename",
]

NAMES = {
    "num_channels": "channels",
    "patch_size": "patch_size",
    "num_register_tokens": "register_tokens",
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
    "layer_norm_eps": "layer_norm_epsilon",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation",
    "pooler_act": "representation_activation",
    "image_size": "image_size",
    "use_swiglu_ffn": "gated_mlp",
    "use_gated_mlp": "gated_mlp",
    "use_relative_position_bias": "relative_position_bias",
    "qkv_bias": "qkv_bias",
    "query_bias": "qkv_bias",
    "rope_theta": "rope_temperature",
    "window_size": "window_size",
    "global_attn_indexes": "global_attention_blocks",
}

VIT = {
    "num_attention_heads": 12,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "image_size": 224,
}
DINOV2 = {**VIT, "layer_norm_eps": 1e-6}
AIMV2 = {
    "num_attention_heads": 8,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "image_size": 224,
}
BEIT = {**VIT, "use_relative_position_bias": False}
DINOV3 = {
    **VIT,
    "num_attention_heads": 6,
    "layer_norm_eps": 1e-5,
    "rope_theta": 100.0,
}
CLIP = {**VIT, "layer_norm_eps": 1e-5, "hidden_act": "quick_gelu"}
SIGLIP = {**DINOV2, "hidden_act": "gelu_pytorch_tanh"}
TIPSV2 = {**DINOV2, "image_size": 448}
SAM = {
    **{**DINOV2, "image_size": 1024, "window_size": 14},
    "global_attn_indexes": [2, 5, 8, 11],
}
# Its images may be of any size and shape; it has positions of a square.
SIGLIP2 = {**SIGLIP, "image_size": None, "num_patches": 256, "patch_size": 16}
# What transformers takes where a config.json is silent, by its model_type.
DEFAULTS = {
    "aimv2": AIMV2,
    "aimv2_vision_model": AIMV2,
    "beit": BEIT,
    "bit": {},
    "clip": CLIP,
    "clip_vision_model": CLIP,
    "data2vec-vision": BEIT,
    "deit": VIT,
    "dinov2": DINOV2,
    "dinov2_with_registers": DINOV2,
    "dinov3_vit": DINOV3,
    "dpt": {**VIT, "image_size": 384},
    "ijepa": VIT,
    "metaclip_2": CLIP,
    "metaclip_2_vision_model": CLIP,
    "pixio": {**DINOV2, "num_attention_heads": 16, "image_size": 256},
    "sam": SAM,
    "sam_vision_model": SAM,
    "siglip": SIGLIP,
    "siglip2": SIGLIP2,
    "siglip2_vision_model": SIGLIP2,
    "siglip_vision_model": SIGLIP,
    "tipsv2": TIPSV2,
    "tipsv2_vision_model": TIPSV2,
    "vit": VIT,
    "vit-hybrid": {**VIT, "image_size": 384},
    "vit_mae": VIT,
    "vit_msn": DINOV2,
}
# What tensors are of by the start of a model_type, unless of a plain ViT: the
# model_type of a row of `CLASSES`, or a layout without one.
TENSORS = {
    "aimv2": ("aimv2_vision_model", "hugging_face_aimv2"),
    "beit": ("beit",),
    "clip": ("clip_vision_model",),
    "data2vec": ("beit",),
    "dinov2_with_registers": ("dinov2_with_registers",),
    "dinov2": ("dinov2",),
    "dinov3": ("dinov3_vit",),
    "metaclip": ("clip_vision_model",),
    "sam": ("segment_anything",),
    "siglip": ("siglip", "siglip_vision_model"),
    "tipsv2": ("hugging_face_tipsv2",),
}
# These resample the positions of images that are no squares, from a square.
SQUARE = (
    *("aimv2", "aimv2_vision_model", "beit", "data2vec-vision"),
    *("dinov2", "dinov2_with_registers", "dpt", "pixio"),
    *("tipsv2", "tipsv2_vision_model"),
)
ANTIALIASED = {"resampling": "linear_antialiased"}
# Fields that no config.json has: how a model_type resamples positions where the
# others of its format do it otherwise, and what Pixio averages: its class
# tokens, which are a class token and registers here.
IMPLIED = {
    "dpt": {"resampling": "linear"},
    "pixio": {"pooling": "prefix_mean"},
    "siglip2": ANTIALIASED,
    "siglip2_vision_model": ANTIALIASED,
}
# Models of images and texts, whose vision tower has a config of its own.
TOWERS = (
    *("aimv2", "clip", "metaclip_2", "sam", "siglip", "siglip2", "tipsv2"),
)

RESNET = {"num_groups": (32,), "hidden_act": ("relu",), "output_stride": (32,)}
# The values of fields that change what is computed and that the models here
# have; any other is refused.
SHARED_POSITIONS = {"use_shared_relative_position_bias": (False,)}
AIMV2_FIXED = {x: (False,) for x in ("is_native", "qkv_bias", "mlp_bias")}
FIXED = {
    "aimv2": AIMV2_FIXED,
    "aimv2_vision_model": AIMV2_FIXED,
    "beit": SHARED_POSITIONS,
    "data2vec-vision": SHARED_POSITIONS,
    "bit": {
        **RESNET,
        "layer_type": ("preactivation",),
        "global_padding": (None,),
        "embedding_dynamic_padding": (False,),
        "width_factor": (1,),
    },
    "dinov3_vit": {
        "key_bias": (False,),
        "proj_bias": (True,),
        "mlp_bias": (True,),
    },
    "dpt": {"is_hybrid": (False,), "backbone_config": (None,)},
}
BACKBONE = {
    **RESNET,
    "layer_type": ("bottleneck",),
    "global_padding": ("same", "SAME"),
    "embedding_dynamic_padding": (True,),
    "width_factor": (1,),
}


def is_config(content: dict) -> bool:
    """Return whether a config.json can be of transformers; Keras's cannot."""
    return not isinstance(content.get("registered_name"), str)


def read_config(path, content: dict) -> dict:
    """Read the fields of a `ViTConfig` that a config.json tells, checked.

    Args:
        path: of the config.json.
        content: dict, what it holds. Without a model_type nothing is taken
            that it does not say.

    Returns:
        Dict of fields, with "model_type" where there is one.

    Raises:
        ValueError: for a model_type that the models here do not compute, and
            for a field of another value than they have.
    """
    kind = content.get("model_type")
    if kind is None:
        return converted(path, content, NAMES)
    if not isinstance(kind, str) or kind not in DEFAULTS:
        what = f"has model_type={kind!r}"[:150]
        classes = f"architectures={content.get('architectures')!r}"[:150]
        refuse(
            path,
            f"{what} and {classes}, which the models here do not compute",
            f"Known are {', '.join(DEFAULTS)}, and timm's.",
        )
    content = _vision(path, content, kind)
    _check_fixed(path, content, FIXED.get(kind, {}))
    if kind == "vit-hybrid":
        backbone = _dictionary(path, content, "backbone_config")
        _check_fixed(path, backbone, BACKBONE)
    fields = _fields_of_kind(path, content, kind)
    return {**fields, **IMPLIED.get(kind, {}), "model_type": kind}


def _fields_of_kind(path, content, kind) -> dict:
    """Return the fields that a config.json tells, or else its model_type."""
    known = {x: y for x, y in content.items() if y is not None}
    known = {**DEFAULTS[kind], **known}
    # Of a BiT the other names are of other things, or of nothing.
    names = NAMES if DEFAULTS[kind] else {"num_channels": "channels"}
    fields = converted(path, known, names, {"representation_activation": _word})
    if known.get("use_swiglu_ffn"):  # It has no other activation.
        fields["activation"] = "silu"
    if "num_patches" in DEFAULTS[kind]:
        fields |= _size_of_patches(path, known)
    if kind in SQUARE and len(set(fields["image_size"])) > 1:
        refuse(
            path,
            f"has image_size={fields['image_size']}, which is no square and "
            "whose positions transformers resamples from a square",
            "Choose another file.",
        )
    return fields


def _word(path, name, value) -> str:
    """Our word of an activation, or theirs: `check_config` may refuse it."""
    return POOLER_ACTIVATIONS.get(str(value), str(value))


def _vision(path, content, kind) -> dict:
    """Return the config of the vision tower."""
    if kind not in TOWERS:
        return content
    vision = _dictionary(path, content, "vision_config")
    # CLIP's old files have a second one, which transformers takes as a whole.
    if (
        "clip" in kind
        and "siglip" not in kind
        and content.get("vision_config_dict") is not None
    ):
        whole = _dictionary(path, content, "vision_config_dict")
        vision = {**vision, **DEFAULTS[kind], **whole}
    return vision


def _size_of_patches(path, content) -> dict:
    """Return images whose patches have SigLIP 2's positions as they are."""
    count, patch = (
        converted(path, {name: content[name]}, {name: name})[name]
        for name in ("num_patches", "patch_size")
    )
    side = math.isqrt(count)
    if side**2 != count:
        refuse(path, f"has num_patches={count}", "Expected a square.")
    return {"image_size": (side * patch[0], side * patch[1])}


def _dictionary(path, content, name) -> dict:
    found = content.get(name)
    found = {} if found is None else found
    if not isinstance(found, dict):
        refuse(path, f"has {name}={found!r}"[:200], "Expected an object.")
    return found


def _check_fixed(path, content, fixed) -> None:
    """Refuse fields of values that the models here do not have."""
    for name, values in fixed.items():
        found = content.get(name, values[0])
        # 0 is not False here, nor 1 True.
        if not any(type(x) is type(found) and x == found for x in values):
            refuse(
                path,
                f"has {name}={found!r}"[:200] + ", where the models here have "
                f"{name}={values[0]!r}",
                "Its numbers would not come out: choose another file.",
            )


POOLER_ACTIVATIONS = {"tanh": "tanh", **config_values.ACTIVATIONS}
# What only a part of the names of tensors shows, by the field that tells it.
SHOWN = {
    "use_rel_pos": "attn.rel_pos_h",
    "use_abs_pos": "pos_embed",
    "use_absolute_position_embeddings": "position_embeddings",
    "vision_use_head": "head.probe",
}


def check_config(path, content: dict, tensors) -> None:
    """Refuse an activation of the pooler that is not known, or no pooler.

    Args:
        path: of the config.json.
        content: dict, what it holds.
        tensors: names of the tensors beside it; without a pooler its
            activation does not matter.

    Raises:
        ValueError: for another activation, and for a config that says the
            opposite of what the tensors show.
    """
    if "aimv2" in str(content.get("model_type")):
        content = _vision(path, content, content["model_type"])
        pools = any(name.endswith("head.cls_token") for name in tensors)
        _check_fixed(
            path, {"use_head": True, **content}, {"use_head": (pools,)}
        )
    if any(name.endswith("pooler.dense.weight") for name in tensors):
        _check_fixed(path, content, {"pooler_act": (*POOLER_ACTIVATIONS,)})
    vision = _vision(path, content, str(content.get("model_type")))
    for field, part in SHOWN.items():
        said, shown = vision.get(field), any(part in name for name in tensors)
        if type(said) is bool and said != shown:
            refuse(
                path,
                f"has {field}={json.dumps(said)}, but the tensors beside it "
                f"are with{'' if shown else 'out'} {part}",
                "The two belong to different models: fetch both again.",
            )


def check_layout(checkpoint, architecture: str | None) -> None:
    """Refuse tensors of another kind than the model_type beside them."""
    kind, layout = checkpoint.file.config.get("model_type"), checkpoint.layout
    shown = layout.model_class.model_type if layout.model_class else layout.name
    expected = (y for x, y in TENSORS.items() if str(kind).startswith(x))
    if kind is not None and shown not in next(expected, ("hugging_face",)):
        refuse(
            checkpoint.file.path,
            f"has model_type={kind!r}, but tensors of {shown!r}",
            "The two belong to different models: fetch both again.",
        )


def read_trained_as(folder: Path, content: dict) -> dict:
    """Read how images are prepared, the kind of problem and the classes.

    Answers are made of scores as its pipeline for images makes them.
    """
    found = {}
    labels = content.get("id2label")
    numbers = content.get("label2id")
    if labels is None and isinstance(numbers, dict):
        labels = {number: name for name, number in numbers.items()}
    if labels is not None:
        found["class_names"] = _names(folder / "config.json", labels) or None
    count = content.get("num_labels", len(labels or ()) or 2)
    problem = PROBLEMS.get(str(content.get("problem_type")), "classification")
    found["problem"] = problem
    if problem == "classification" and count == 1:
        found["activation"] = "sigmoid"
    if processor := _processor(folder):
        found |= hugging_face_images.read(*processor)
    elif kind := content.get("model_type"):
        found |= {**hugging_face_images.usual(kind), "assumed": (ASSUMED,)}
    return found


def _names(path, labels) -> tuple[str, ...]:
    """Return the names of the classes 0, 1, 2, ..., each a text."""
    if not isinstance(labels, dict):
        refuse(path, f"has id2label={labels!r}"[:200], "Expected an object.")
    with refusing(path, "id2label"):
        names = {int(key): name for key, name in labels.items()}
    if names.keys() != {*range(len(labels))}:
        refuse(
            path,
            f"has id2label with the numbers {sorted(names)[:5]} ..., "
            f"{len(labels)} in all",
            "Expected 0, 1, 2, ... without a gap.",
        )
    wrong = [x for x in names.values() if not isinstance(x, str | int | float)]
    if wrong:
        refuse(
            path,
            f"has the class name {wrong[0]!r}"[:200],
            "Expected a text for each class.",
        )
    return tuple(str(names[i]) for i in range(len(names)))


def usual_images(layout, fields) -> dict:
    """Return how the processor of a model without files prepares images."""
    kind = layout.model_class.model_type if layout.model_class else "vit"
    return hugging_face_images.usual(kind)


ASSUMED = (
    "there is no preprocessor_config.json; images are prepared as the "
    "processor of this model_type does by default"
)
PROBLEMS = {
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
    "regression": "regression",
}


def read_preprocessing(folder: Path, content: dict) -> dict:
    """Read how pixels are scaled, where a file for images tells it."""
    found = _processor(folder)
    return hugging_face_images.pixels(*found) if found else {}


def _processor(path) -> tuple[Path, dict] | None:
    """Return the file of a folder for its images, and what it says.

    It has a file of its own, or since transformers 5 a part of the file of
    the processor of images and texts.
    """
    for name, part in {
        "processor_config.json": "image_processor",
        "preprocessor_config.json": None,
    }.items():
        if (path / name).is_file():
            content = read_json(path / name)
            content = content.get(part) if part else content
            if isinstance(content, dict):
                return path / name, content
    return None


def folder_notes(folder: Path, fields) -> tuple[str, ...]:
    """Return a note where images are prepared in another size than configured.

    The config's is that of the positions. DINOv2 is published so.
    """
    found, size = _processor(folder), fields.get("image_size")
    if found is None or size is None:
        return ()
    prepared = hugging_face_images.read(*found).get("image_size")
    if prepared in (None, tuple(size)):
        return ()
    return (
        f"image_size={tuple(size)} is that of config.json; {found[0].name} "
        f"prepares images of {prepared}",
    )


ACTIVATIONS = {
    **shared.ACTIVATIONS,
    "gelu_tanh": "gelu_pytorch_tanh",
}
# What the classes of Vision Transformers call our fields.
KEYS = {
    "image_size": "image_size",
    "channels": "num_channels",
    "patch_size": "patch_size",
    "hidden_dim": "hidden_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "activation": "hidden_act",
    "num_layers": "num_hidden_layers",
    "mlp_dim": "intermediate_size",
    "num_heads": "num_attention_heads",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "qkv_bias": "qkv_bias",
}
# What stands in front of no prefix.
HEADS = ("classifier", "cls_classifier", "distillation_classifier")
HEADS += ("visual_projection",)
# What most of the classes have, or have not.
NEEDS = {"class_token": True, "final_norm": True, "register_tokens": False}


@dataclasses.dataclass(frozen=True)
class ModelClass:
    """A class of transformers that the files of a layout are for.

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
        poolings: what its last layer sees, where it has one; () where the
            tensors tell it.
        squares_only: bool, whether images have one side.
    """

    model: str
    model_type: str
    fields: Callable[[dict], dict]
    head: str = "ForImageClassification"
    prefixes: tuple[str, str] = ("", "")
    needs: dict[str, bool] = dataclasses.field(default_factory=lambda: NEEDS)
    mask_token: tuple = ()
    poolings: tuple[str, ...] = ()
    squares_only: bool = False


def _dinov2_fields(config) -> dict:
    return {
        "mlp_ratio": _whole_ratio(config),
        "use_swiglu_ffn": config["gated_mlp"],
        "num_register_tokens": config["register_tokens"] or None,
    }


def _whole_ratio(config) -> int | None:
    """Return the ratio of DINOv2's MLP, of which a gated one has two thirds."""
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


DINOV2_CLASS = {
    "fields": _dinov2_fields,
    "mask_token": (1,),
    "poolings": ("token_and_mean",),
}
WITHOUT_TOKEN = {**NEEDS, "class_token": False}
WITHOUT_GATES = {"gated_mlp": False}
TOWER = "vision_model."
CLASSES = {
    "dinov2": ModelClass(
        "Dinov2", "dinov2", prefixes=("", "dinov2."), **DINOV2_CLASS
    ),
    "dinov2_with_registers": ModelClass(
        "Dinov2WithRegisters",
        "dinov2_with_registers",
        prefixes=("", "dinov2_with_registers."),
        needs={**NEEDS, "register_tokens": True},
        **DINOV2_CLASS,
    ),
    "dinov3": ModelClass(
        "DINOv3ViT",
        "dinov3_vit",
        _dinov3_fields,
        needs={"class_token": True, "final_norm": True},
        mask_token=(1, 1),
    ),
    "beit": ModelClass(
        "Beit",
        "beit",
        _beit_fields,
        prefixes=("", "beit."),
        poolings=("token", "mean"),
        needs={**NEEDS, **WITHOUT_GATES},
    ),
    "aimv2": ModelClass(
        "Aimv2Vision",
        "aimv2_vision_model",
        _aimv2_fields,
        needs=WITHOUT_TOKEN,
    ),
    "clip": ModelClass(
        "CLIPVision",
        "clip_vision_model",
        _clip_fields,
        head="ModelWithProjection",
        needs={**NEEDS, **WITHOUT_GATES},
        prefixes=(TOWER, TOWER),
        squares_only=True,
    ),
    "siglip": ModelClass(
        "SiglipVision",
        "siglip_vision_model",
        lambda config: {"vision_use_head": config["pooling"] == "map"},
        prefixes=(TOWER, TOWER),
        squares_only=True,
        needs={**WITHOUT_TOKEN, **WITHOUT_GATES},
    ),
    "siglip_classifier": ModelClass(
        "Siglip",
        "siglip",
        lambda config: {"vision_use_head": False},
        prefixes=("", TOWER),
        squares_only=True,
        needs={**WITHOUT_TOKEN, **WITHOUT_GATES},
    ),
}


def find_pooling(checkpoint, fields) -> None:
    """Refuse a pooler without a class token, which takes the first patch."""
    if fields["representation_dim"] and not fields["class_token"]:
        refuse(
            checkpoint.file.path,
            "has a pooler and no class token: it takes the first patch, which "
            "the models here do not",
            "Choose another file.",
        )


def find_problems(layout, target) -> list:
    """Return why the plain classes have no such model."""
    config, problems = target.config, []
    activation = config.get("activation", "gelu")
    if activation not in ACTIVATIONS:
        problems.append(f"has no hidden_act for activation={activation!r}")
    activation = config.get("representation_activation", "tanh")
    if activation not in ("tanh", *ACTIVATIONS):
        problems.append(
            f"has no pooler_act for representation_activation={activation!r}"
        )
    if config.get("representation_dim") and config["num_classes"]:
        problems.append("has representation_dim or num_classes, not both")
    if config.get("representation_dim") and config["pooling"] != "token":
        problems.append("has representation_dim of pooling='token' only")
    if config.get("class_token") is False:
        problems.append("always has class_token=True")
    return problems


def find_class_problems(layout, target) -> list:
    """Return what the class of a layout has otherwise and no tensor tells."""
    config, kind = target.config, layout.model_class
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
    known = kind.poolings or (config["pooling"],)
    if config["num_classes"] and config["pooling"] not in known:
        problems.append(
            f"has a last layer of pooling={' or '.join(map(repr, known))}, "
            f"the model one of {config['pooling']!r}"
        )
    if kind.squares_only and len({*config["image_size"]}) > 1:
        problems.append(
            f"has images of one side in a {kind.model}, the model "
            f"image_size={config['image_size']}"
        )
    has_positions = "position_embedding/embedding" in layout.table
    has_others = config["relative_position_bias"]
    if has_positions and config["position_embedding"] == "none":
        problems += [] if has_others else ["needs position_embedding='learned'"]
    if config["activation"] not in ACTIVATIONS:
        problems += [
            f"has no hidden_act for activation={config['activation']!r}"
        ]
    if problems or "mlp_ratio" not in kind.fields(config):
        return problems
    if kind.fields(config)["mlp_ratio"] is None:
        return [f"has no mlp_ratio for mlp_dim={config['mlp_dim']}"]
    return []


def companions(layout, target) -> dict:
    """Return tensors that transformers expects beside the model's, by name."""
    kind = layout.model_class
    if kind is None or not kind.mask_token:
        return {}
    shape = (*kind.mask_token, target.config["hidden_dim"])
    return {"embeddings.mask_token": np.zeros(shape, "float32")}


def rename(layout, target, features: set) -> Callable:
    """Return the function that puts the model before all names but heads'."""
    has_head = bool(target.config["num_classes"])
    distilled = "distillation_token" in features
    plain = (
        "deit."
        if distilled
        else {"vit": "vit.", "bit": "bit."}.get(target.family, "")
    )
    kind = layout.model_class
    prefixes = kind.prefixes if kind else ("", plain)
    prefix = prefixes[has_head]
    return lambda name: name if name.startswith(HEADS) else prefix + name


def folder_files(layout, target, features, class_names) -> dict:
    """Return the JSON files of a folder that transformers reads."""
    images = hugging_face_images.written(target)
    return {
        "config.json": written_config(layout, target, features, class_names),
        **({"preprocessor_config.json": images} if images else {}),
    }


def written_config(layout, target, features: set, class_names=None) -> dict:
    """Return the `config.json` of a model."""
    config = target.config
    if layout.model_class:
        content = _class_config(layout.model_class, config)
    elif target.family == "bit":
        content = _bit_config(config)
    else:
        content = _vit_config(config, features)
    names = class_names or [f"LABEL_{i}" for i in range(config["num_classes"])]
    problem = target.trained_as.problem
    if problem != "classification" and config["num_classes"]:
        words = {ours: theirs for theirs, ours in PROBLEMS.items()}
        content["problem_type"] = words[problem]
    return {
        **content,
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "num_channels": config["channels"],
        "torch_dtype": "float32",
    }


def _sizes(config) -> dict:
    """Return what the classes of Vision Transformers call alike."""
    named = {key: config[field] for field, key in KEYS.items()}
    return {
        **named,
        "image_size": _one_or_two(config["image_size"]),
        "patch_size": _one_or_two(config["patch_size"]),
        "hidden_act": ACTIVATIONS[config["activation"]],
        "num_channels": config["channels"],
    }


def _class_config(kind, config) -> dict:
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
        "pooler_act": {**ACTIVATIONS, "tanh": "tanh"}[
            config["representation_activation"]
        ],
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
    """Return the fields of transformers' BitConfig."""
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
