"""Files of torchvision.

Source: torchvision (models/vision_transformer.py).
"""

from keras_vit.checkpoints.dialects.shared import EXACT_GELU, PLAIN_OPTIONS
from keras_vit.checkpoints.engine.layout import (
    Dialect,
    Layout,
    torch_dense,
    torch_norm,
)

__all__ = ["LAYOUTS"]

ENCODER_LAYER = "encoder.layers.encoder_layer_{i}"
VIT = {
    **torch_dense("patch_embed/projection", "conv_proj", kernel="convolution"),
    "class_token/token": ("class_token", "same"),
    "position_embedding/embedding": ("encoder.pos_embedding", "same"),
    **torch_norm("block_{i}/attention_norm", f"{ENCODER_LAYER}.ln_1"),
    "block_{i}/attention/qkv/kernel": (
        f"{ENCODER_LAYER}.self_attention.in_proj_weight",
        "torch_qkv_rows",
    ),
    "block_{i}/attention/qkv/bias": (
        f"{ENCODER_LAYER}.self_attention.in_proj_bias",
        "torch_qkv_rows",
    ),
    **torch_dense(
        "block_{i}/attention/out", f"{ENCODER_LAYER}.self_attention.out_proj"
    ),
    **torch_norm("block_{i}/mlp_norm", f"{ENCODER_LAYER}.ln_2"),
    **torch_dense("block_{i}/mlp/dense", f"{ENCODER_LAYER}.mlp.0"),
    **torch_dense("block_{i}/mlp/dense_1", f"{ENCODER_LAYER}.mlp.3"),
    **torch_norm("encoder_norm", "encoder.ln"),
    **torch_dense("pre_logits", "heads.pre_logits"),
    **torch_dense("predictions", "heads.head"),
}

# Of ViT_B_16_Weights.IMAGENET1K_V1 and most of its others.
USUAL = {
    "preprocessing": {
        "evaluation": "cover_crop",
        "resize_size": 256,
        "resize_method": "bilinear",
        "antialias": True,
        "rounding": "nearest",
    },
    "image_size": (224, 224),
}
DIALECT = Dialect("torchvision", usual_images=lambda layout, fields: USUAL)
LAYOUTS = (
    Layout(
        DIALECT,
        "torchvision",
        "vit",
        VIT,
        marks=(("conv_proj.weight", "encoder.pos_embedding"),),
        aliases=(
            (r"(.*)\.mlp\.linear_1\.(\w+)", r"\1.mlp.0.\2"),
            (r"(.*)\.mlp\.linear_2\.(\w+)", r"\1.mlp.3.\2"),
        ),
        constants=EXACT_GELU,
        unsupported={r"conv_proj\.\d+\..*": "a convolutional stem"},
        resampling="bicubic",
        container="safetensors",
        options=PLAIN_OPTIONS["vit"],
        poolings=("token",),
    ),
)
