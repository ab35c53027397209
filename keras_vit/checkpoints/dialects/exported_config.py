"""The `config.json` that timm builds a model from."""

from keras_vit.checkpoints.dialects.timm_mixers_and_resnets import (
    bit_arguments,
    bit_features,
    bit_problems,
    mixer_arguments,
    mixer_problems,
    ratio_of,
)
from keras_vit.checkpoints.dialects.timm_names_table import (
    BEIT,
    CAIT,
    DISTILLED,
    EPSILONS,
    EVA,
    EVA_AFTER,
    EVA_OPTIONS,
    HYBRIDS,
    LATER,
    NOT_BESIDE,
    NOT_DIFFERENTIAL,
    OF_CAIT,
    PARALLEL,
    RELATIVE,
    RELATIVE_OPTIONS,
    RELATIVE_POOLINGS,
    RELATIVE_SIZES,
    SAM,
    SAM_OPTIONS,
    TIMM_ACTIVATIONS,
    TIMM_POOLINGS,
    UNSPOKEN,
)
from keras_vit.checkpoints.engine.fields_table import (
    COMMON,
    EXPORTED,
    TOKENS,
    TRAINING,
)
from keras_vit.checkpoints.engine.matching import Target

__all__ = [
    "class_attention_problems",
    "image_size",
    "parallel_problems",
    "pixels",
    "timm_config",
    "timm_problems",
]

RELATIVE_KINDS = {"table": "bias", "mlp": "mlp", "mlp_swin": "mlp_swin"}

ANY_IMAGE = (224, 224)  # of a model that takes any size


def timm_problems(target: Target) -> list:
    """Why timm cannot build a model from a config.json; follows "it "."""
    return PROBLEMS[target.family](target.config, target.defaults)


def _relative_problems(config, defaults) -> list:
    """Those of a model with relative positions that is no BEiT."""
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
    """Options that such a model does not have, and another pooling."""
    free = {*options, *RELATIVE_SIZES, *COMMON}
    problems = [
        f"has {name}={fixed[name]!r} beside {what}, the model {config[name]!r}"
        for name, row in EXPORTED["vit"].items()
        if row.place != TRAINING
        and name not in free
        and config[name] != fixed[name]
    ]
    if config["pooling"] not in RELATIVE_POOLINGS:
        problems.append(f"has no pooling={config['pooling']!r} there")
    return problems


def _is_beit(config) -> bool:
    """Whether it is of timm's BEiTs and not of its rotary models."""
    return not config["key_bias"] and config["rope"] is None


def _has_relative_positions(config) -> bool:
    """Whether it is one of timm's relpos models; BEiT has keys without bias."""
    return config["relative_position_bias"] and config["key_bias"]


def class_attention_problems(format, target: Target) -> list:
    """Why timm has no model with class attention or talking heads like it."""
    config = target.config
    layers = config.get("class_attention_layers")
    if format.name != "timm" or not (layers or config.get("talking_heads")):
        return []
    if not layers or not config["talking_heads"]:
        return ["has talking_heads and class_attention_layers together only"]
    options = (*OF_CAIT, *TOKENS)
    problems = _unlike(config, target.defaults, options, OF_CAIT[1])
    if config["layer_scale_init"] is None:
        problems.append("needs layer_scale_init beside class_attention_layers")
    return problems


def parallel_problems(format, target: Target) -> list:
    """Why timm has no model with parallel blocks or differential attention."""
    config = target.config
    if format.name != "timm" or target.family != "vit":
        return []
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


def _cait_problems(config) -> list:
    """What the config.json of such a model cannot say."""
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
    """Whether it is one of timm's models with rotary positions, or like it."""
    grouped = config["key_value_heads"] or not config["mlp_layer_scale"]
    return bool(config["rope"] or grouped)


def _eva_problems(config, defaults) -> list:
    what = "rope or key_value_heads"
    problems = _unlike(config, defaults, EVA_OPTIONS, what)
    activation = "silu" if config["gated_mlp"] else "gelu"
    if TIMM_ACTIVATIONS.get(config["activation"]) != activation:
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
    if config["position_embedding"] == "none":
        problems.append("has no words for position_embedding='none'")
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
    if config["activation"] not in TIMM_ACTIVATIONS:
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


PROBLEMS = {
    "vit": _vit_problems,
    "mixer": mixer_problems,
    "bit": bit_problems,
}


def timm_config(target: Target, class_names=None) -> dict:
    """timm's config.json of a model without `timm_problems`."""
    config = target.config
    architecture, classifier, arguments = ARGUMENTS[target.family](config)
    height, width = image_size(config)
    mean, deviation = pixels(config)
    pooling = TIMM_POOLINGS[config["pooling"]]
    content = {
        "architecture": architecture,
        "num_classes": config["num_classes"],
        "num_features": config.get("hidden_dim") or bit_features(config),
        "global_pool": pooling,
        "model_args": {**arguments, "global_pool": pooling},
        "pretrained_cfg": {
            "custom_load": False,
            "input_size": [config["channels"], height, width],
            "fixed_input_size": target.family != "bit",
            "interpolation": "bilinear",
            "crop_pct": 1.0,
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
        "mlp_ratio": ratio_of(config["mlp_dim"], config["hidden_dim"]),
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
        row.timm: config[name]
        for name, row in EXPORTED["vit"].items()
        if row.timm
        and config.get(name) is not None
        and not (row.timm in LATER and config[name] == LATER[row.timm])
    }
    arguments = {
        **named,
        **_sizes(config),
        "act_layer": TIMM_ACTIVATIONS[config["activation"]],
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


ARGUMENTS = {
    "vit": _vit_arguments,
    "mixer": mixer_arguments,
    "bit": bit_arguments,
}


def image_size(config) -> tuple:
    size = config["image_size"]
    return ANY_IMAGE if None in size else size


def pixels(config) -> tuple[list, list]:
    """Mean and deviation of the pixels, which [-1, 1] has as well."""
    halves = (0.5,) * config["channels"]
    return (
        list(config.get("pixel_mean") or halves),
        list(config.get("pixel_std") or halves),
    )
