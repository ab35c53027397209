"""What a config.json of Hugging Face tells of a model.

Sources: the configuration_*.py of transformers 5.23.0, and of 4.40.2 for
vit-hybrid.
"""

import math

from keras_vit.checkpoints.files.config_fields import converted
from keras_vit.checkpoints.files.tensors import refuse

__all__ = ["check_pooler", "fields_of_config"]

NAMES = {
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_dim",
    "layer_norm_eps": "layer_norm_epsilon",
    "rms_norm_eps": "layer_norm_epsilon",
    "hidden_act": "activation",
    "image_size": "image_size",
    "use_swiglu_ffn": "gated_mlp",
    "use_gated_mlp": "gated_mlp",
    "use_relative_position_bias": "relative_position_bias",
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
FIXED_EVERYWHERE = {"qkv_bias": (True,)}
BACKBONE = {
    **RESNET,
    "layer_type": ("bottleneck",),
    "global_padding": ("same", "SAME"),
    "embedding_dynamic_padding": (True,),
    "width_factor": (1,),
}


def fields_of_config(path, content: dict) -> dict:
    """The fields of a `ViTConfig` that a config.json tells, checked.

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
        _check_fixed(path, content, FIXED_EVERYWHERE)
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
    _check_fixed(path, content, FIXED_EVERYWHERE | FIXED.get(kind, {}))
    if kind == "vit-hybrid":
        backbone = _dictionary(path, content, "backbone_config")
        _check_fixed(path, backbone, BACKBONE)
    fields = _fields_of_kind(path, content, kind)
    return {**fields, **IMPLIED.get(kind, {}), "model_type": kind}


def _fields_of_kind(path, content, kind) -> dict:
    """The fields that a config.json tells, or else its model_type."""
    told = {x: y for x, y in content.items() if y is not None}
    told = {**DEFAULTS[kind], **told}
    fields = converted(path, told, NAMES if DEFAULTS[kind] else {})
    if told.get("use_swiglu_ffn"):  # It has no other activation.
        fields["activation"] = "silu"
    if "num_patches" in DEFAULTS[kind]:
        fields |= _size_of_patches(path, told)
    if kind in SQUARE and len(set(fields["image_size"])) > 1:
        refuse(
            path,
            f"has image_size={fields['image_size']}, which is no square and "
            "whose positions transformers resamples from a square",
            "Choose another file.",
        )
    return fields


def _vision(path, content, kind) -> dict:
    """The config of the vision tower."""
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
    """The images whose patches have the positions of SigLIP 2 as they are."""
    count, patch = (
        converted(path, {name: content[name]}, {name: name})[name]
        for name in ("num_patches", "patch_size")
    )
    side = math.isqrt(count)
    if side**2 != count:
        refuse(path, f"has num_patches={count}", "Expected a square.")
    return {"image_size": (side * patch,) * 2}


def _dictionary(path, content, name) -> dict:
    found = content.get(name)
    found = {} if found is None else found
    if not isinstance(found, dict):
        refuse(path, f"has {name}={found!r}"[:200], "Expected an object.")
    return found


def _check_fixed(path, content, fixed) -> None:
    """Refuses fields of values that the models here do not have."""
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


def check_pooler(path, content: dict, tensors) -> None:
    """Refuses an activation of the pooler that is not tanh, or no pooler.

    Args:
        path: of the config.json.
        content: dict, what it holds.
        tensors: names of the tensors beside it; without a pooler its
            activation does not matter.

    Raises:
        ValueError: for another activation, and for a config that says the
            opposite of an AIMv2's pooling.
    """
    if "aimv2" in str(content.get("model_type")):
        content = _vision(path, content, content["model_type"])
        pools = any(name.endswith("head.cls_token") for name in tensors)
        _check_fixed(
            path, {"use_head": True, **content}, {"use_head": (pools,)}
        )
    if any(name.endswith("pooler.dense.weight") for name in tensors):
        _check_fixed(path, content, {"pooler_act": ("tanh",)})
