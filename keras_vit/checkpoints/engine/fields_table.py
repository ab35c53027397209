"""Where the formats have each field of a config, and what they call it.

A field without a row is refused when a model is written, unless it has its
default: `tests/checkpoints/test_save_every_option.py` finds those.
"""

import dataclasses

__all__ = [
    "COMMON",
    "EXPORTED",
    "FEATURES",
    "OPTIONS",
    "POOLINGS",
    "RECORD",
    "TENSORS",
    "TOKENS",
    "TRAINING",
    "Exported",
]

TENSORS = "tensors"  # Its value shows in the names or shapes of the tensors.
RECORD = "record"  # No tensor tells it; see `files/record.py`.
TRAINING = "training"  # It changes nothing in the outputs of a trained model.


@dataclasses.dataclass(frozen=True)
class Exported:
    """How files hold one field of a config.

    Args:
        place: `TENSORS`, `RECORD` or `TRAINING`.
        timm: str, the argument of timm's model in its config.json.
        hugging_face: str, the key in config.json of transformers.
        formats: names of the formats whose own code can compute other values
            than the default; None for all, or where the tensors or the
            constants of a format decide.
    """

    place: str
    timm: str = ""
    hugging_face: str = ""
    formats: tuple | None = None


TIMM = ("timm",)

COMMON = {
    "image_size": Exported(RECORD, "img_size", "image_size"),
    "channels": Exported(TENSORS, "in_chans", "num_channels"),
    "pooling": Exported(RECORD, "global_pool"),
    "num_classes": Exported(TENSORS, "num_classes"),
    "classifier_activation": Exported(RECORD),
    "head_bias": Exported(TRAINING),
    "include_preprocessing": Exported(RECORD),
}
TOKENS = {
    "patch_size": Exported(TENSORS, "patch_size", "patch_size"),
    "hidden_dim": Exported(TENSORS, "embed_dim", "hidden_size"),
    "stochastic_depth_rate": Exported(TRAINING),
    "layer_norm_epsilon": Exported(RECORD, "", "layer_norm_eps"),
    "activation": Exported(RECORD, "act_layer", "hidden_act"),
}

EXPORTED: dict[str, dict[str, Exported]] = {
    "vit": {
        **COMMON,
        **TOKENS,
        "num_layers": Exported(TENSORS, "depth", "num_hidden_layers"),
        "mlp_dim": Exported(TENSORS, "", "intermediate_size"),
        "num_heads": Exported(RECORD, "num_heads", "num_attention_heads"),
        "key_value_heads": Exported(TENSORS, formats=TIMM),
        "class_token": Exported(TENSORS, "class_token"),
        "distillation_token": Exported(TENSORS),
        "register_tokens": Exported(TENSORS, "reg_tokens"),
        "position_embedding": Exported(TENSORS),
        "representation_dim": Exported(TENSORS),
        "dropout_rate": Exported(TRAINING, "", "hidden_dropout_prob"),
        "attention_dropout_rate": Exported(
            TRAINING, "", "attention_probs_dropout_prob"
        ),
        "layer_scale_init": Exported(RECORD, "init_values"),
        "mlp_layer_scale": Exported(TENSORS, formats=TIMM),
        "patch_bias": Exported(TENSORS),
        "qkv_bias": Exported(TENSORS, "qkv_bias", "qkv_bias"),
        "rope": Exported(RECORD, formats=TIMM),
        "rope_temperature": Exported(RECORD, formats=TIMM),
        "rope_offset": Exported(RECORD, formats=TIMM),
        "rope_axes": Exported(RECORD, formats=TIMM),
        "rope_reference_grid": Exported(RECORD, formats=TIMM),
        "rope_pairs": Exported(RECORD, formats=TIMM),
        "relative_position_bias": Exported(TENSORS, formats=TIMM),
        "relative_position_kind": Exported(TENSORS, formats=TIMM),
        "relative_position_dim": Exported(TENSORS, formats=TIMM),
        "relative_positions_shared": Exported(TENSORS, formats=TIMM),
        "window_size": Exported(RECORD, formats=TIMM),
        "global_attention_blocks": Exported(RECORD, formats=TIMM),
        "key_bias": Exported(TENSORS, formats=TIMM),
        "projection_bias": Exported(TENSORS, "proj_bias", formats=TIMM),
        "qk_norm": Exported(TENSORS, "qk_norm", formats=TIMM),
        "attention_inner_norm": Exported(
            TENSORS, "scale_attn_norm", formats=TIMM
        ),
        "talking_heads": Exported(TENSORS, formats=TIMM),
        "differential_attention": Exported(TENSORS, formats=TIMM),
        "mlp_placement": Exported(TENSORS, formats=TIMM),
        "class_attention_layers": Exported(TENSORS, formats=TIMM),
        "mlp_inner_norm": Exported(TENSORS, "scale_mlp_norm", formats=TIMM),
        "gated_mlp": Exported(TENSORS, formats=TIMM),
        "normalization": Exported(TENSORS, formats=TIMM),
        "norm_placement": Exported(RECORD, formats=TIMM),
        "final_norm": Exported(TENSORS, "final_norm", formats=TIMM),
        "patch_norm": Exported(TENSORS, formats=TIMM),
        "neck_dim": Exported(TENSORS, formats=TIMM),
        "pool_prefix_tokens": Exported(
            RECORD, "pool_include_prefix", formats=TIMM
        ),
        "pool_num_heads": Exported(RECORD, formats=TIMM),
        "pool_mlp_dim": Exported(TENSORS, formats=TIMM),
        "norm_before_blocks": Exported(TENSORS, "pre_norm"),
        "norm_after_pooling": Exported(RECORD, "fc_norm", formats=("timm",)),
        "patch_stem": Exported(TENSORS, formats=TIMM),
        "patch_stem_dim": Exported(TENSORS, formats=TIMM),
        "resnet_units": Exported(TENSORS),
        "resnet_width": Exported(TENSORS),
        "resnet_standardization": Exported(RECORD),
        "resnet_standardization_epsilon": Exported(RECORD),
        "resnet_group_norm_epsilon": Exported(RECORD),
        "pixel_mean": Exported(RECORD),
        "pixel_std": Exported(RECORD),
        "flash_attention": Exported(TRAINING),
        "rematerialize": Exported(TRAINING),
    },
    "mixer": {
        **COMMON,
        **TOKENS,
        "num_layers": Exported(TENSORS),
        "tokens_mlp_dim": Exported(TENSORS),
        "channels_mlp_dim": Exported(TENSORS),
        "mixing": Exported(TENSORS, formats=TIMM),
        "gated_mlp": Exported(TENSORS, formats=TIMM),
        "normalization": Exported(TENSORS, formats=TIMM),
        "layer_scale_init": Exported(RECORD, formats=TIMM),
    },
    "bit": {
        **COMMON,
        "units": Exported(TENSORS, "", "depths"),
        "width": Exported(TENSORS, "", "embedding_size"),
        "unit": Exported(TENSORS, formats=TIMM),
        "stem": Exported(TENSORS, formats=TIMM),
        "root_padding": Exported(RECORD, formats=TIMM),
        "downsampling": Exported(RECORD, formats=TIMM),
        "normalization": Exported(TENSORS, formats=TIMM),
        "activation": Exported(RECORD, "act_layer", formats=TIMM),
        "standardization": Exported(RECORD, formats=TIMM),
        "standardization_epsilon": Exported(RECORD),
        "group_norm_epsilon": Exported(RECORD),
    },
}

# How the format's own code pools. Encoded tokens are what it has in any case:
# features without pooling can be written in all formats.
POOLINGS = {
    ("google", "vit"): ("token", "mean", "none"),
    ("big_vision", "vit"): ("token", "mean", "map", "none"),
    ("hugging_face", "vit"): ("token", "prefix"),
    ("timm", "vit"): (
        *("token", "mean", "max", "map", "prefix", "prefix_mean", "none"),
    ),
    ("torchvision", "vit"): ("token",),
    ("mixer", "mixer"): ("mean",),
    ("timm", "mixer"): ("mean", "none"),
    ("bit", "bit"): ("mean",),
    ("timm", "bit"): ("mean", "max", "none"),
    ("hugging_face", "bit"): ("mean",),
}

# The options that weights and variants of tables are there for.
OPTIONS = {
    "/gate/": "mixing",
    "/token_mixing/": "mixing",
    "class_token/": "class_token",
    "first_norm/": "norm_before_blocks",
    "_scale/gamma": "layer_scale_init",
    "attention/inner_norm": "attention_inner_norm",
    "position_bias/": "relative_position_bias",
    "attention/query_norm": "qk_norm",
    "attention/rotary": "rope",
    "attention/logits_projection": "talking_heads",
    "attention/lambdas": "differential_attention",
    "attention/heads_norm": "differential_attention",
    "class_block_": "class_attention_layers",
    "mlp/inner_norm": "mlp_inner_norm",
    "neck/": "neck_dim",
    "encoder_norm/": "final_norm",
    "position_bias/rows": "relative_position_kind",
    "pool/": "pooling",
    "pre_logits/": "representation_dim",
    "predictions/": "num_classes",
    "stem_": "patch_stem",
    "root_conv1/": "stem",
    "root_norm1/": "stem",
    "/moving_": "normalization",
    "norm1/gate": "normalization",
    "root_": "resnet_units",
}
FEATURES = {
    "averaged_heads": "pooling='prefix'",
    "registers": "register_tokens",
    "registers_alone": "register_tokens",
    "affine": "normalization='affine'",
    "gates_last": "gated_mlp",
    "spatial_gating": "mixing='spatial_gating'",
    "root_only": "resnet_units=()",
    "patch_stem": "patch_stem",
}
