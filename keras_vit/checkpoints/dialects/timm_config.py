"""The config.json of timm: what it tells of a model, and how one is written.

Sources: timm 1.0.31 (models/*.py, models/_hub.py).
"""

import json
import math

from keras_vit.checkpoints.dialects.shared import (
    ACTIVATIONS,
    image_size,
    method_of,
    pixels,
)
from keras_vit.checkpoints.files import config_values
from keras_vit.checkpoints.files.config_values import converted, words
from keras_vit.checkpoints.files.tensors import DAMAGED, refuse

__all__ = [
    "BUILT_WITH",
    "POOLINGS",
    "find_folder_problems",
    "find_problems",
    "folder_files",
    "is_config",
    "metadata",
    "read_config",
    "read_preprocessing",
    "read_trained_as",
    "usual_images",
]

# The arguments of its models by our fields.
ARGUMENTS = {
    "image_size": "img_size",
    "channels": "in_chans",
    "pooling": "global_pool",
    "num_classes": "num_classes",
    "patch_size": "patch_size",
    "hidden_dim": "embed_dim",
    "activation": "act_layer",
    "num_layers": "depth",
    "num_heads": "num_heads",
    "class_token": "class_token",
    "register_tokens": "reg_tokens",
    "layer_scale_init": "init_values",
    "qkv_bias": "qkv_bias",
    "projection_bias": "proj_bias",
    "qk_norm": "qk_norm",
    "attention_inner_norm": "scale_attn_norm",
    "mlp_inner_norm": "scale_mlp_norm",
    "final_norm": "final_norm",
    "pool_prefix_tokens": "pool_include_prefix",
    "norm_before_blocks": "pre_norm",
    "norm_after_pooling": "fc_norm",
}
# Its arguments that are compared with the tensors, or that none shows, by what
# they are here.
READ = {
    "embed_dim": "hidden_dim",
    "depth": "num_layers",
    "in_chans": "channels",
    "patch_size": "patch_size",
    "reg_tokens": "register_tokens",
    "num_reg_tokens": "register_tokens",
    "num_heads": "num_heads",
    "img_size": "image_size",
    "act_layer": "activation",
    "global_pool": "pooling",
    "pool_include_prefix": "pool_prefix_tokens",
    "final_norm": "final_norm",
    "use_post_transformer_norm": "final_norm",
    "attn_pool_num_heads": "pool_num_heads",
    "rope_temperature": "rope_temperature",
    "rope_grid_offset": "rope_offset",
    "ref_feat_shape": "rope_reference_grid",
    "rope_type": "rope",
    "rope_grid_indexing": "rope_axes",
    "rope_rotate_half": "rope_pairs",
    "use_post_norm": "norm_placement",
    "window_size": "window_size",
    "global_attn_indexes": "global_attention_blocks",
}
# The values of attn_layer that show in the tensors.
SHOWN_ATTENTION = ("", "attn", "diff")
# Arguments of timm's models that show in the tensors, or that change nothing
# in the output of a trained model.
SHOWN = {
    *("mlp_ratio", "num_classes", "class_token", "no_embed_class"),
    *("qkv_bias", "init_values", "pre_norm", "fc_norm"),
    *("proj_bias", "qk_norm", "scale_attn_norm", "scale_mlp_norm"),
    "num_blocks",  # of a Mixer
    *("rel_pos_type", "rel_pos_dim", "shared_rel_pos"),
    # Of Eva and Beit.
    *("use_abs_pos_emb", "use_rel_pos_bias", "qkv_fused", "swiglu_mlp"),
    *("scale_mlp", "scale_attn_inner", "use_pre_transformer_norm"),
    *("use_fc_norm", "attn_pool_mlp_ratio", "attn_type", "num_kv_heads"),
    *("attn_only_layer_scale", "swiglu_align_to", "use_rot_pos_emb"),
    # Of VisionTransformerSAM.
    *("use_rel_pos", "use_abs_pos", "neck_chans"),
    # Of Cait.
    *("depth_token_only", "mlp_ratio_token_only"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate"),
    *("attn_drop_rate", "drop_path_rate", "weight_init", "fix_init"),
    *("dynamic_img_size", "strict_img_size"),
}
# timm's words for what the head sees.
POOLINGS = {
    "token": "token",
    "avg": "mean",
    "max": "max",
    "map": "map",
    "": "none",
}
CONVERSIONS = {
    "pooling": words(POOLINGS, "global_pool"),
    "rope": words({"cat": "axial", "dinov3": "centered", "mixed": "mixed"}),
    "rope_axes": words({"ij": "row_first", "xy": "column_first"}),
    "rope_pairs": words({False: "neighbors", True: "halves"}),
    "norm_placement": words({False: "before", True: "after"}),
}


def is_config(content: dict) -> bool:
    """Return whether the content of a config.json is timm's."""
    return isinstance(content.get("architecture"), str)


def read_config(path, content: dict) -> dict:
    """Read what a config.json tells, under our names and checked.

    Raises:
        ValueError: for an argument of the model that is neither taken over
            nor visible in the tensors.
    """
    arguments, pretrained = _parts(path, content)
    unknown = sorted(set(arguments) - set(READ) - SHOWN)
    if arguments.get("attn_layer") in SHOWN_ATTENTION:
        unknown = [x for x in unknown if x != "attn_layer"]
    if arguments.get("use_rot_pos_emb") is None and "rope_type" in arguments:
        unknown += ["rope_type alone"]
    if unknown:
        refuse(
            path,
            f"builds {content['architecture']!r} with {', '.join(unknown)}, "
            "which the models here do not have",
            "Choose another file.",
        )
    count = content.get("num_classes")
    if count is not None and (type(count) is not int or not 0 <= count < 10**6):
        refuse(
            path,
            f"has num_classes={count!r}"[:200],
            "Expected the number of classes.",
        )
    arguments = {**arguments}
    arguments.setdefault("global_pool", content.get("global_pool"))
    size = pretrained.get("input_size")
    if isinstance(size, list) and len(size) == 3:
        arguments.setdefault("img_size", size[1:])
    fields = converted(path, arguments, READ, CONVERSIONS)
    if "distilled" in content["architecture"]:
        # Of two tokens, the class token is what timm's word says.
        fields.pop("pooling", None)
    if arguments.get("use_rot_pos_emb") is False:
        fields["rope"] = None
    if arguments.get("use_rel_pos") is False:  # No tensor shows the windows.
        fields = {**_windows_of(content["architecture"], arguments), **fields}
    named = {"architecture": content["architecture"], BUILT_WITH: arguments}
    return {**fields, **named}


# What its config.json builds a model with, among the fields of a file.
BUILT_WITH = "model_args"
# The blocks of SAM's encoders that attend to whole images, by size.
GLOBAL_BLOCKS = {
    "samvit_base": (2, 5, 8, 11),
    "samvit_large": (5, 11, 17, 23),
    "samvit_huge": (7, 15, 23, 31),
}


def _windows_of(architecture, arguments) -> dict:
    """Return the windows of SAM's encoders, which arguments may replace."""
    blocks = GLOBAL_BLOCKS.get(architecture.rpartition("_patch")[0], ())
    if type(depth := arguments.get("depth")) is int:
        blocks = tuple(x for x in blocks if x < depth)
    return {"window_size": 14, "global_attention_blocks": blocks}


def _parts(path, content) -> tuple[dict, dict]:
    """Return the arguments of the model, and the config of its weights."""
    arguments = content.get("model_args") or {}
    pretrained = content.get("pretrained_cfg") or {}
    if not isinstance(arguments, dict) or not isinstance(pretrained, dict):
        refuse(path, "has model_args that are no dictionary", DAMAGED)
    return arguments, pretrained


def read_preprocessing(folder, content: dict) -> dict:
    """Read how pixels are scaled."""
    path = folder / "config.json"
    pretrained = _parts(path, content)[1]
    if not pretrained:
        return {}
    given = {x: pretrained.get(x) or list(y) for x, y in IMAGENET.items()}
    return config_values.pixels(path, {**pretrained, **given})


def read_trained_as(folder, content: dict) -> dict:
    """Read how images are prepared, and the names of the classes."""
    path = folder / "config.json"
    pretrained = _parts(path, content)[1]
    names = content.get("label_names") or pretrained.get("label_names")
    found = {}
    if isinstance(names, list) and names:
        found["class_names"] = tuple(map(str, names))
    if not pretrained:
        return found
    mode, percent, size = _read_crop(path, pretrained)
    before = tuple(math.floor(x / percent) for x in size)
    rule: dict = {"evaluation": CROPS[mode]}
    if mode != "squash" or before != size:
        rule["resize_size"] = before
    if mode == "border":
        mean = pretrained.get("mean") or IMAGENET["mean"]
        rule["padding_colour"] = tuple(round(255 * x) for x in mean)
    if mode == "squash" and before == size:
        rule["evaluation"] = "squash"
    method = pretrained.get("interpolation") or "bicubic"
    if method not in METHODS:
        refuse(
            path,
            f"has interpolation={method!r}"[:200],
            f"Expected one of {', '.join(METHODS)}.",
        )
    rule["resize_method"] = METHODS[method]
    exact = {"antialias": True, "rounding": "nearest"}
    return {**found, "preprocessing": {**rule, **exact}, "image_size": size}


def _read_crop(path, pretrained) -> tuple:
    """Return the mode, the share of the resized image, and the size."""
    mode = pretrained.get("crop_mode") or "center"
    percent = pretrained.get("crop_pct") or 0.875
    shape = pretrained.get("input_size") or [3, 224, 224]
    sides = isinstance(shape, list) and len(shape) == 3
    if not sides or not all(type(x) is int and 0 < x < 10**5 for x in shape):
        refuse(
            path,
            f"has input_size={shape!r}"[:200],
            "Expected channels, height and width.",
        )
    if mode not in CROPS:
        refuse(
            path,
            f"has crop_mode={mode!r}"[:200],
            f"Expected one of {', '.join(CROPS)}.",
        )
    if type(percent) not in (int, float) or not 0.01 <= percent <= 100:
        refuse(
            path,
            f"has crop_pct={percent!r}"[:200],
            "Expected the share of the resized image, such as 0.9.",
        )
    return mode, percent, tuple(shape[1:])


CROPS = {
    "center": "cover_crop",
    "squash": "stretch_crop",
    "border": "contain_pad",
}
METHODS = {
    **{x: x for x in ("nearest", "bilinear", "bicubic", "box", "hamming")},
    "lanczos": "lanczos3",
}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def usual_images(layout, fields) -> dict:
    """Return how most of its models are evaluated: 0.9 of a bicubic image."""
    rule = {
        "evaluation": "cover_crop",
        "resize_size": (248, 248),
        "resize_method": "bicubic",
        "antialias": True,
        "rounding": "nearest",
    }
    return {"preprocessing": rule, "image_size": (224, 224)}


def _written_crop(target) -> dict:
    """Return what comes nearest to how images are prepared for a model."""
    known = target.trained_as
    rule, size = known.preprocessing, known.image_size
    size = size or image_size(target.config)
    crop = rule.get("evaluation", "squash")
    before = rule.get("resize_size") or size
    smaller = min(before) if isinstance(before, (list, tuple)) else before
    words = {ours: theirs for theirs, ours in METHODS.items()}
    return {
        "interpolation": {**words, "area": "box"}[method_of(rule)],
        "crop_pct": max(size) / smaller if crop != "squash" else 1.0,
        "crop_mode": MODES.get(crop, "center"),
    }


MODES = {
    "squash": "squash",
    "stretch_crop": "squash",
    "both_sides_crop": "squash",
    "resize_central_crop": "squash",
    "contain_pad": "border",
    "longer_side_pad": "border",
}


# An architecture of timm whose arguments can all be given, by its epsilon.
# Only the epsilon has no words in JSON.
EPSILONS = {1e-6: "vit_base_patch16_224", 1e-5: "vit_base_patch16_clip_224"}
# Of its models with relative positions, by where the norms are.
RELATIVE = {
    "before": "vit_relpos_base_patch16_224",
    "after": "vit_relpos_base_patch16_rpn_224",
}
BEIT = "beit_base_patch16_224"
# With windows and a neck.
SAM = "samvit_base_patch16"
# With rotary positions, by normalisation and epsilon.
EVA = {
    ("layer_norm", 1e-6): "eva02_base_patch16_clip_224",
    ("layer_norm", 1e-5): "vit_base_patch16_dinov3",
    ("rms_norm", 1e-6): "vit_base_patch16_sapiens2",
}
DISTILLED = "deit_base_distilled_patch16_224"
# With class attention.
CAIT = "cait_xxs24_224"
# With parallel blocks, by whether their attention is differential.
PARALLEL = {
    False: "vit_pwee_patch16_reg1_gap_256",
    True: "vit_dpwee_patch16_reg1_gap_256",
}
# Architectures that fix their sizes: by the units of the ResNet ...
HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}
# ... by how they mix tokens, patch size, blocks, width, and gates; all but the
# first six fix the sizes of their MLPs ...
MIXERS = {
    ("mlp", 32, 8, 512, False): "mixer_s32_224",
    ("mlp", 16, 8, 512, False): "mixer_s16_224",
    ("mlp", 32, 12, 768, False): "mixer_b32_224",
    ("mlp", 16, 12, 768, False): "mixer_b16_224",
    ("mlp", 32, 24, 1024, False): "mixer_l32_224",
    ("mlp", 16, 24, 1024, False): "mixer_l16_224",
    ("mlp", 16, 12, 384, True): "gmixer_12_224",
    ("mlp", 16, 24, 384, True): "gmixer_24_224",
    ("linear", 16, 12, 384, False): "resmlp_12_224",
    ("linear", 16, 24, 384, False): "resmlp_24_224",
    ("linear", 16, 36, 384, False): "resmlp_36_224",
    ("linear", 8, 24, 768, False): "resmlp_big_24_224",
    ("spatial_gating", 16, 30, 128, False): "gmlp_ti16_224",
    ("spatial_gating", 16, 30, 256, False): "gmlp_s16_224",
    ("spatial_gating", 16, 30, 512, False): "gmlp_b16_224",
}
MIXER_RATIOS = {
    ("mlp", False): None,
    ("mlp", True): (1.0, 4.0),
    ("linear", False): (0.0, 4.0),
    ("spatial_gating", False): (0.0, 6.0),
}
# ... by units and width ...
BITS = {
    ((3, 4, 6, 3), 64): "resnetv2_50x1_bit",
    ((3, 4, 6, 3), 192): "resnetv2_50x3_bit",
    ((3, 4, 23, 3), 64): "resnetv2_101x1_bit",
    ((3, 4, 23, 3), 192): "resnetv2_101x3_bit",
    ((3, 8, 36, 3), 128): "resnetv2_152x2_bit",
    ((3, 8, 36, 3), 256): "resnetv2_152x4_bit",
}
# ... and without weight standardisation, of width 64.
RESNETS = {
    ((2, 2, 2, 2), "basic", "single", "batch_norm"): "resnetv2_18",
    ((2, 2, 2, 2), "basic", "deep", "batch_norm"): "resnetv2_18d",
    ((3, 4, 6, 3), "basic", "single", "batch_norm"): "resnetv2_34",
    ((3, 4, 6, 3), "basic", "deep", "batch_norm"): "resnetv2_34d",
    ((3, 4, 6, 3), "bottleneck", "single", "batch_norm"): "resnetv2_50",
    ((3, 4, 6, 3), "bottleneck", "deep", "batch_norm"): "resnetv2_50d",
    ((3, 4, 6, 3), "bottleneck", "tiered", "batch_norm"): "resnetv2_50t",
    ((3, 4, 6, 3), "bottleneck", "deep", "group_norm"): "resnetv2_50d_gn",
    ((3, 4, 6, 3), "bottleneck", "deep", "evolved"): "resnetv2_50d_evos",
    ((3, 4, 23, 3), "bottleneck", "single", "batch_norm"): "resnetv2_101",
    ((3, 4, 23, 3), "bottleneck", "deep", "batch_norm"): "resnetv2_101d",
    ((3, 8, 36, 3), "bottleneck", "single", "batch_norm"): "resnetv2_152",
    ((3, 8, 36, 3), "bottleneck", "deep", "batch_norm"): "resnetv2_152d",
}
# Its words for what the head sees, by ours.
WORDS_OF_POOLINGS = {
    "token": "token",
    "prefix": "token",
    "prefix_mean": "token",
    "mean": "avg",
    "max": "max",
    "map": "map",
    "none": "",
}
# Arguments that older versions of timm do not have, by their defaults.
LATER = {
    **{"proj_bias": True, "qk_norm": False, "pool_include_prefix": False},
    **{"scale_attn_norm": False, "scale_mlp_norm": False, "final_norm": True},
}
# Options that timm's config.json has no words for in a Vision Transformer.
UNSPOKEN = (
    *("rope", "relative_position_bias", "key_bias", "gated_mlp"),
    *("normalization", "norm_placement", "patch_norm"),
    *("pool_num_heads", "pool_mlp_dim", "patch_stem"),
    *("key_value_heads", "mlp_layer_scale"),
)
# What a model with relative positions may choose beside its sizes.
RELATIVE_OPTIONS = (
    *("relative_position_bias", "relative_position_kind"),
    *("relative_position_dim", "relative_positions_shared"),
    *("class_token", "qkv_bias", "qk_norm", "norm_after_pooling"),
    *("norm_placement", "layer_scale_init", "pixel_mean", "pixel_std"),
)
RELATIVE_SIZES = (
    *("patch_size", "hidden_dim", "num_layers", "mlp_dim", "num_heads"),
)
RELATIVE_POOLINGS = ("token", "mean", "none")
# Options of the blocks that timm's models with class attention have.
OF_CAIT = (
    *("talking_heads", "class_attention_layers", "layer_scale_init"),
    *("qkv_bias", "pixel_mean", "pixel_std"),
)
# What a model with rotary positions or grouped queries may choose ...
EVA_OPTIONS = (
    *("rope", "rope_temperature", "rope_offset", "rope_axes"),
    *("rope_reference_grid", "rope_pairs", "position_embedding"),
    *("class_token", "register_tokens", "qkv_bias", "key_bias", "qk_norm"),
    *("key_value_heads", "layer_scale_init", "mlp_layer_scale"),
    *("attention_inner_norm", "mlp_inner_norm", "gated_mlp"),
    *("normalization", "norm_placement", "final_norm", "layer_norm_epsilon"),
    *("norm_before_blocks", "patch_bias", "norm_after_pooling"),
    *("activation", "pixel_mean", "pixel_std"),
)
# ... and what it has not where the norms are after the branches.
EVA_AFTER = {
    **{"qk_norm": False, "key_value_heads": None},
    "layer_scale_init": None,
}
# What the image encoder of SAM may choose beside its sizes.
SAM_OPTIONS = (
    *("window_size", "global_attention_blocks", "neck_dim", "qkv_bias"),
    *("position_embedding", "relative_position_bias", "pixel_mean"),
    "pixel_std",
)
# What timm's parallel blocks, and its differential attention, have not.
NOT_BESIDE = {
    **{"gated_mlp": False, "attention_inner_norm": False},
    **{"mlp_inner_norm": False, "distillation_token": False},
    **{"key_bias": True, "rope": None, "relative_position_bias": False},
}
NOT_DIFFERENTIAL = {"key_bias": True, "distillation_token": False}
RELATIVE_KINDS = {"table": "bias", "mlp": "mlp", "mlp_swin": "mlp_swin"}
# What any of its Vision Transformers may choose.
ANY = (
    *("image_size", "channels", "pooling", "num_classes"),
    *("classifier_activation", "head_bias", "include_preprocessing"),
)
TOKENS = (
    *("patch_size", "hidden_dim", "stochastic_depth_rate"),
    *("layer_norm_epsilon", "activation"),
)


def find_problems(layout, target) -> list:
    """Return why timm has no such Vision Transformer, in a file either."""
    return [
        *_token_problems(target.config),
        *_class_attention_problems(target),
        *_parallel_problems(target.config),
    ]


def _token_problems(config) -> list:
    """Refuse other poolings of DeiT's two tokens than by heads, or its mean."""
    pooling = "prefix" if config["num_classes"] else "prefix_mean"
    if not config["distillation_token"] or (
        config["pooling"] in (pooling, "none", "prefix", "prefix_mean")
    ):
        return []
    return [
        f"has pooling={pooling!r} beside a distillation_token, the model "
        f"{config['pooling']!r}"
    ]


def _class_attention_problems(target) -> list:
    """Return why there is no model with class attention like it."""
    config = target.config
    layers = config["class_attention_layers"]
    if not (layers or config["talking_heads"]):
        return []
    if not layers or not config["talking_heads"]:
        return ["has talking_heads and class_attention_layers together only"]
    options = (*OF_CAIT, *TOKENS)
    problems = _unlike(config, target.defaults, options, OF_CAIT[1])
    if config["layer_scale_init"] is None:
        problems.append("needs layer_scale_init beside class_attention_layers")
    return problems


def _parallel_problems(config) -> list:
    """Return why there is no model with parallel blocks like it."""
    excluded = {}
    if config["differential_attention"]:
        excluded["differential_attention=True"] = NOT_DIFFERENTIAL
    if config["mlp_placement"] == "beside":
        excluded["mlp_placement='beside'"] = NOT_BESIDE
    return [
        f"has {name}={value!r} beside {option}, the model {config[name]!r}"
        for option, others in excluded.items()
        for name, value in others.items()
        if config[name] != value
    ]


def find_folder_problems(target) -> list:
    """Return why timm cannot build a model from a config.json."""
    return PROBLEMS[target.family](target.config, target.defaults)


def _relative_problems(config, defaults) -> list:
    """Return those of a model with relative positions that is no BEiT."""
    fixed = defaults | {
        "activation": "gelu",
        "position_embedding": "none",
    }
    problems = _unlike(config, fixed, RELATIVE_OPTIONS, "relative positions")
    after = config["norm_placement"] == "after"
    if after and config["layer_scale_init"] is not None:
        problems.append("has no layer_scale_init with norm_placement='after'")
    return problems


# What a BEiT may choose.
BEIT_OPTIONS = (
    *("relative_position_bias", "position_embedding", "key_bias"),
    *("norm_after_pooling", "layer_scale_init", "pixel_mean", "pixel_std"),
)


def _beit_problems(config, defaults) -> list:
    fixed = defaults | {"activation": "gelu"}
    return _unlike(config, fixed, BEIT_OPTIONS, "keys without bias")


def _unlike(config, fixed, options, what) -> list:
    """Return options that such a model does not have, and another pooling."""
    # Keras comes with it, which who reads class names alone may lack.
    from keras_vit.models.options import PLACES, TRAINING

    free = {*options, *RELATIVE_SIZES, *ANY}
    problems = [
        f"has {name}={fixed[name]!r} beside {what}, the model {config[name]!r}"
        for name, place in PLACES["vit"].items()
        if place != TRAINING
        and name not in free
        and config[name] != fixed[name]
    ]
    if config["pooling"] not in RELATIVE_POOLINGS:
        problems.append(f"has no pooling={config['pooling']!r} there")
    return problems


def _is_beit(config) -> bool:
    """Return whether it is of timm's BEiTs and not of its rotary models."""
    return not config["key_bias"] and config["rope"] is None


def _has_relative_positions(config) -> bool:
    """Return whether it is a relpos model; BEiT has keys without bias."""
    return config["relative_position_bias"] and config["key_bias"]


def _cait_problems(config) -> list:
    """Return what the config.json of such a model cannot say."""
    fixed = {"activation": "gelu", "layer_norm_epsilon": 1e-6}
    return [
        f"has {name}={value!r} beside class_attention_layers, the model "
        f"{config[name]!r}"
        for name, value in fixed.items()
        if config[name] != value
    ]


def _sam_problems(config, defaults) -> list:
    fixed = defaults | {
        **{"activation": "gelu", "layer_norm_epsilon": 1e-5},
        **{"class_token": False, "final_norm": False},
        "relative_position_kind": "decomposed"
        if config["relative_position_bias"]
        else config["relative_position_kind"],
    }
    problems = _unlike(config, fixed, SAM_OPTIONS, "a neck")
    if config["pooling"] == "none":
        problems.append("has no pooling='none' of tokens with a neck")
    return problems


def _is_eva(config) -> bool:
    """Return whether it is one of timm's rotary models, or like it."""
    grouped = config["key_value_heads"] or not config["mlp_layer_scale"]
    return bool(config["rope"] or grouped)


def _eva_problems(config, defaults) -> list:
    what = "rope or key_value_heads"
    problems = _unlike(config, defaults, EVA_OPTIONS, what)
    activation = "silu" if config["gated_mlp"] else "gelu"
    if ACTIVATIONS.get(config["activation"]) != activation:
        problems.append(f"has activation={activation!r} there")
    norm = config["normalization"], config["layer_norm_epsilon"]
    if norm not in EVA:
        problems.append(
            f"has no normalization={norm[0]!r} with layer_norm_epsilon="
            f"{norm[1]} there"
        )
    if config["patch_bias"] == config["norm_before_blocks"]:
        problems.append("has either patch_bias or norm_before_blocks")
    if config["gated_mlp"] and config["mlp_inner_norm"]:
        problems.append("has two layers for gated_mlp with mlp_inner_norm")
    if config["norm_placement"] == "after":
        problems += [
            f"has no {name} with norm_placement='after'"
            for name, value in EVA_AFTER.items()
            if config[name] != value
        ]
    return problems


def _vit_problems(config, defaults) -> list:
    if config["neck_dim"]:
        return _sam_problems(config, defaults)
    if _is_eva(config):
        return _eva_problems(config, defaults)
    if _has_relative_positions(config):
        return _relative_problems(config, defaults)
    if _is_beit(config):
        return _beit_problems(config, defaults)
    if config["class_attention_layers"]:
        return _cait_problems(config)
    problems = [
        f"has no words for {name}={config[name]!r}"
        for name in UNSPOKEN
        if config[name] != defaults[name]
    ]
    if not config["final_norm"] and config["pooling"] == "mean":
        problems.append("has no words for final_norm=False with a mean")
    if config["patch_bias"] == config["norm_before_blocks"]:
        problems.append(
            "has either patch_bias or norm_before_blocks, the model "
            f"{'both' if config['patch_bias'] else 'neither'}"
        )
    if config["distillation_token"] and config["pooling"] == "none":
        problems.append(
            "pools by prefix_mean beside a distillation_token, the model not"
        )
    units, width = config["resnet_units"], config["resnet_width"]
    if units is not None and (units not in HYBRIDS or width != 64):
        problems.append(
            f"has no architecture of resnet_units={units} and resnet_width="
            f"{width}"
        )
    if config["activation"] not in ACTIVATIONS:
        problems.append(
            f"has no act_layer for activation={config['activation']!r}"
        )
    fixed = units is not None or config["distillation_token"]
    fixed = fixed or config["mlp_placement"] == "beside"
    allowed = [1e-6] if fixed else list(EPSILONS)
    if config["layer_norm_epsilon"] not in allowed:
        problems.append(
            f"has layer_norm_epsilon={' or '.join(map(str, allowed))}, the "
            f"model {config['layer_norm_epsilon']}"
        )
    return problems


BIT_STYLE = (
    *("unit", "stem", "root_padding", "downsampling", "normalization"),
    "standardization",
)
RESNET_KEY = ("unit", "stem", "normalization")


def _mixer_problems(config, defaults) -> list:
    """Return why timm has no such Mixer."""
    return [*_mixer_sizes(config), *_mixer_layers(config)]


def _mixer_sizes(config) -> list:
    problems = []
    if _mixer_key(config) not in MIXERS:
        problems.append(
            f"has no Mixer of mixing={config['mixing']!r}, gated_mlp="
            f"{config['gated_mlp']}, patch_size="
            f"{config['patch_size']}, num_layers={config['num_layers']} and "
            f"hidden_dim={config['hidden_dim']}"
        )
    fixed = MIXER_RATIOS.get((config["mixing"], config["gated_mlp"]))
    if fixed and _mixer_ratios(config) != fixed:
        problems.append(
            "has other MLPs in such Mixers than of tokens_mlp_dim="
            f"{config['tokens_mlp_dim']} and channels_mlp_dim="
            f"{config['channels_mlp_dim']}"
        )
    return problems


def _mixer_layers(config) -> list:
    problems = []
    activations = ("silu", "swish") if config["gated_mlp"] else ("gelu",)
    if config["activation"] not in activations:
        problems.append(
            f"has activation={activations[0]!r} in its Mixers, the model "
            f"{config['activation']!r}"
        )
    is_linear = config["mixing"] == "linear"
    has_affine = config["normalization"] == "affine"
    has_scale = config["layer_scale_init"] is not None
    if {has_affine, has_scale} != {is_linear}:
        problems.append(
            "has normalization='affine' and layer_scale_init with "
            "mixing='linear' and nowhere else"
        )
    if config["layer_norm_epsilon"] != 1e-6 and not has_affine:
        problems.append("has layer_norm_epsilon=1e-06 in its Mixers")
    return problems


def _mixer_key(config) -> tuple:
    height, width = config["patch_size"]
    size = height if height == width else None
    return (
        *(config["mixing"], size, config["num_layers"], config["hidden_dim"]),
        config["gated_mlp"],
    )


def _bit_problems(config, defaults) -> list:
    """Return why timm has no such ResNet."""
    plain = config["standardization"] is None
    key, known = _bit_key(config), RESNETS if plain else BITS
    expected = {name: defaults[name] for name in BIT_STYLE}
    if plain:
        expected = {
            "standardization": None,
            "root_padding": "lowest",
            "downsampling": "convolution"
            if config["stem"] == "single"
            else "average",
        }
    problems = [
        f"has {name}={value!r} with standardization="
        f"{config['standardization']!r}, the model {config[name]!r}"
        for name, value in expected.items()
        if config[name] != value
    ]
    if key not in known or plain and config["width"] != 64:
        problems.append(
            f"has no ResNet of units={config['units']}, width="
            f"{config['width']}, unit={config['unit']!r}, stem="
            f"{config['stem']!r}, normalization={config['normalization']!r} "
            f"and standardization={config['standardization']!r}"
        )
    if config["activation"] not in ACTIVATIONS:
        problems.append(
            f"has no act_layer for activation={config['activation']!r}"
        )
    if not plain and config["standardization_epsilon"] != 1e-8:
        problems.append(
            "has standardization_epsilon=1e-08 in its BiTs, the model "
            f"{config['standardization_epsilon']}"
        )
    return problems


PROBLEMS = {
    "vit": _vit_problems,
    "mixer": _mixer_problems,
    "bit": _bit_problems,
}


def folder_files(layout, target, features, class_names) -> dict:
    """Return the JSON files of a folder that timm builds a model from."""
    return {"config.json": written_config(target, class_names)}


def metadata(target, class_names) -> dict:
    """Return what the header of a file says of its model to its readers.

    For whoever has the file alone, and wants the folder's config.json.
    """
    if find_folder_problems(target):
        return {}
    return {"timm_config": json.dumps(written_config(target, class_names))}


def written_config(target, class_names=None) -> dict:
    """Return the config.json of a model without `find_folder_problems`."""
    config = target.config
    architecture, classifier, arguments = MODELS[target.family](config)
    height, width = image_size(config)
    mean, deviation = pixels(config)
    pooling = WORDS_OF_POOLINGS[config["pooling"]]
    content = {
        "architecture": architecture,
        "num_classes": config["num_classes"],
        "num_features": config.get("hidden_dim") or _bit_features(config),
        "global_pool": pooling,
        "model_args": {**arguments, "global_pool": pooling},
        "pretrained_cfg": {
            "custom_load": False,
            "input_size": [config["channels"], height, width],
            "fixed_input_size": target.family != "bit",
            **_written_crop(target),
            "mean": mean,
            "std": deviation,
            "num_classes": config["num_classes"],
            "pool_size": None,
            "classifier": classifier,
        },
    }
    if class_names:
        content["label_names"] = list(class_names)
    return content


def _relative_arguments(config) -> tuple:
    names = ("qkv_bias", "qk_norm", "class_token")
    arguments = {
        **_sizes(config),
        **_widths(config),
        **{name: config[name] for name in names},
        "init_values": config["layer_scale_init"],
        "fc_norm": config["norm_after_pooling"],
        "rel_pos_type": RELATIVE_KINDS[config["relative_position_kind"]],
        "rel_pos_dim": config["relative_position_dim"],
        "shared_rel_pos": config["relative_positions_shared"],
    }
    return RELATIVE[config["norm_placement"]], "head", arguments


def _beit_arguments(config) -> tuple:
    arguments = {
        **_sizes(config),
        **_widths(config),
        "init_values": config["layer_scale_init"],
        "use_abs_pos_emb": config["position_embedding"] == "learned",
        "use_rel_pos_bias": config["relative_position_bias"],
        "use_fc_norm": config["norm_after_pooling"],
    }
    return BEIT, "head", arguments


def _widths(config) -> dict:
    return {
        "in_chans": config["channels"],
        "embed_dim": config["hidden_dim"],
        "depth": config["num_layers"],
        "num_heads": config["num_heads"],
    }


def _sizes(config) -> dict:
    return {
        "img_size": list(config["image_size"]),
        "patch_size": list(config["patch_size"]),
        "mlp_ratio": _ratio_of(config["mlp_dim"], config["hidden_dim"]),
    }


def _cait_arguments(config) -> tuple:
    sizes = _sizes(config)
    arguments = {
        **sizes,
        **_widths(config),
        "depth_token_only": config["class_attention_layers"],
        "mlp_ratio_token_only": sizes["mlp_ratio"],
        "qkv_bias": config["qkv_bias"],
        "init_values": config["layer_scale_init"],
    }
    return CAIT, "head", arguments


def _sam_arguments(config) -> tuple:
    arguments = {
        **_sizes(config),
        **_widths(config),
        "qkv_bias": config["qkv_bias"],
        "window_size": config["window_size"],
        "global_attn_indexes": list(config["global_attention_blocks"]),
        "use_abs_pos": config["position_embedding"] == "learned",
        "use_rel_pos": config["relative_position_bias"],
        "neck_chans": config["neck_dim"],
    }
    return SAM, "head.fc", arguments


def _eva_arguments(config) -> tuple:
    scale = config["layer_scale_init"]
    groups = config["key_value_heads"]
    arguments = {
        **_sizes(config),
        **_widths(config),
        "attn_type": "rope" if config["key_bias"] else "eva",
        "qkv_fused": groups is None,
        "num_kv_heads": list(groups) if groups else None,
        "qkv_bias": config["qkv_bias"],
        "qk_norm": config["qk_norm"],
        "swiglu_mlp": config["gated_mlp"],
        "swiglu_align_to": 0,
        "scale_mlp": config["mlp_inner_norm"],
        "scale_attn_inner": config["attention_inner_norm"],
        "init_values": scale,
        "attn_only_layer_scale": not config["mlp_layer_scale"],
        "class_token": config["class_token"],
        "num_reg_tokens": config["register_tokens"],
        "no_embed_class": bool(config["register_tokens"]),
        "use_abs_pos_emb": config["position_embedding"] == "learned",
        "use_post_norm": config["norm_placement"] == "after",
        "use_pre_transformer_norm": config["norm_before_blocks"],
        "use_fc_norm": config["norm_after_pooling"],
        "dynamic_img_size": False,
        **_rotary_arguments(config),
    }
    if not config["norm_after_pooling"]:
        arguments["use_post_transformer_norm"] = config["final_norm"]
    norm = config["normalization"], config["layer_norm_epsilon"]
    return EVA[norm], "head", arguments


# timm's words for where patches are.
ROPE_TYPES = {"axial": "cat", "centered": "dinov3"}
ROPE_INDEXING = {"row_first": "ij", "column_first": "xy"}


def _rotary_arguments(config) -> dict:
    if config["rope"] is None:
        return {"use_rot_pos_emb": False}
    grid = config["rope_reference_grid"]
    return {
        "use_rot_pos_emb": True,
        "rope_type": ROPE_TYPES[config["rope"]],
        "rope_temperature": config["rope_temperature"],
        "rope_grid_offset": config["rope_offset"],
        "rope_grid_indexing": ROPE_INDEXING[config["rope_axes"]],
        "rope_rotate_half": config["rope_pairs"] == "halves",
        "ref_feat_shape": list(grid) if grid else None,
    }


def _vit_arguments(config) -> tuple:
    if config["neck_dim"]:
        return _sam_arguments(config)
    if _is_eva(config):
        return _eva_arguments(config)
    if _has_relative_positions(config):
        return _relative_arguments(config)
    if _is_beit(config):
        return _beit_arguments(config)
    if config["class_attention_layers"]:
        return _cait_arguments(config)
    named = {
        argument: config[name]
        for name, argument in ARGUMENTS.items()
        if config[name] is not None
        and not (argument in LATER and config[name] == LATER[argument])
    }
    arguments = {
        **named,
        **_sizes(config),
        "act_layer": ACTIVATIONS[config["activation"]],
        "no_embed_class": bool(config["register_tokens"]),
    }
    del arguments["num_classes"]
    if config["distillation_token"]:
        return DISTILLED, ["head", "head_dist"], arguments
    if config["mlp_placement"] == "beside":
        arguments["init_values"] = config["layer_scale_init"]
        architecture = PARALLEL[config["differential_attention"]]
        return architecture, "head", arguments
    if config["differential_attention"]:
        arguments["attn_layer"] = "diff"
    if config["resnet_units"] is not None:
        return HYBRIDS[tuple(config["resnet_units"])], "head", arguments
    return EPSILONS[config["layer_norm_epsilon"]], "head", arguments


def _mixer_arguments(config) -> tuple:
    """Return architecture, name of the classifier, and arguments."""
    arguments: dict = {
        "img_size": list(config["image_size"]),
        "in_chans": config["channels"],
    }
    if not MIXER_RATIOS[config["mixing"], config["gated_mlp"]]:
        arguments["mlp_ratio"] = list(_mixer_ratios(config))
    return MIXERS[_mixer_key(config)], "head", arguments


def _mixer_ratios(config) -> tuple:
    """Return timm's mlp_ratio; a gated MLP's counts gates and values."""
    parts = 2 if config["gated_mlp"] else 1
    return tuple(
        _ratio_of(parts * config[name], config["hidden_dim"])
        for name in ("tokens_mlp_dim", "channels_mlp_dim")
    )


def _bit_arguments(config) -> tuple:
    """Return architecture, name of the classifier, and arguments."""
    arguments = {"in_chans": config["channels"]}
    if config["activation"] != "relu":
        arguments["act_layer"] = ACTIVATIONS[config["activation"]]
    architecture = {**BITS, **RESNETS}[_bit_key(config)]
    return architecture, "head.fc", arguments


def _ratio_of(size, hidden_dim) -> float:
    """Return the ratio that timm multiplies the width by and then cuts off."""
    ratio = size / hidden_dim
    return (
        ratio if int(hidden_dim * ratio) == size else (size + 0.5) / hidden_dim
    )


def _bit_features(config) -> int:
    """Return the channels of what its head reads."""
    last = config["width"] * 2 ** (len(config["units"]) - 1)
    return last if config["unit"] == "basic" else 4 * last


def _bit_key(config) -> tuple:
    units = tuple(config["units"])
    if config["standardization"] is None:
        return (units, *(config[name] for name in RESNET_KEY))
    return units, config["width"]


MODELS = {
    "vit": _vit_arguments,
    "mixer": _mixer_arguments,
    "bit": _bit_arguments,
}
