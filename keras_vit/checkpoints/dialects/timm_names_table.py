"""Which of timm's architectures has the sizes and options of a model."""

__all__ = [
    "BEIT",
    "BITS",
    "CAIT",
    "DISTILLED",
    "EVA",
    "EVA_AFTER",
    "EVA_OPTIONS",
    "EPSILONS",
    "HYBRIDS",
    "MIXERS",
    "MIXER_RATIOS",
    "PARALLEL",
    "RELATIVE",
    "SAM",
    "SAM_OPTIONS",
    "RESNETS",
    "TIMM_POOLINGS",
    "TIMM_ACTIVATIONS",
    "OF_CAIT",
    "NOT_BESIDE",
    "NOT_DIFFERENTIAL",
    "RELATIVE_OPTIONS",
    "RELATIVE_SIZES",
    "RELATIVE_POOLINGS",
    "LATER",
    "UNSPOKEN",
]

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

# timm's words for what the head sees.
TIMM_POOLINGS = {
    "token": "token",
    "prefix": "token",
    "prefix_mean": "token",
    "mean": "avg",
    "max": "max",
    "map": "map",
    "none": "",
}

TIMM_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
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
