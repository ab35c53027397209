"""Files of Meta's own code: Segment Anything, DINOv2 and DINOv3.

DINOv2 without registers has timm's names, as do DINO, MAE and I-JEPA.

Sources: facebookresearch/segment-anything (modeling/image_encoder.py), dinov2
(models/vision_transformer.py), dinov3 (models/vision_transformer.py,
layers/attention.py, layers/ffn_layers.py).
"""

from keras_vit.checkpoints.dialects.shared import (
    CHUNKS,
    EXACT_GELU,
    PATCHES,
    PLAIN_BLOCK,
    SAM_ENCODER,
    SAM_MARKS,
    SAM_SIGNS,
    check_periods,
)
from keras_vit.checkpoints.engine.layout import (
    Dialect,
    Layout,
    torch_dense,
    torch_norm,
)

__all__ = ["LAYOUTS"]

# The file of a whole SAM also has what decodes masks.
SAM_DECODERS = (
    *(r"prompt_encoder\..*", r"mask_decoder\..*"),
    r"shared_image_embedding\..*",
)
# Meta's own files, and those of transformers.
SEGMENT_ANYTHING = (
    (r"image_encoder\.(.*)", r"\1"),
    (r"(?:vision_encoder|vision_model)\.(.*)", r"\1"),
    (r"patch_embed\.projection\.(.*)", r"patch_embed.proj.\1"),
    (r"layers\.(.*)", r"blocks.\1"),
    (r"(blocks\.\d+\.)layer_(norm[12]\..*)", r"\1\2"),
    (r"(blocks\.\d+\.mlp)\.lin([12]\..*)", r"\1.fc\2"),
    (r"neck\.conv1\.(.*)", r"neck.0.\1"),
    (r"neck\.layer_norm1\.(.*)", r"neck.1.\1"),
    (r"neck\.conv2\.(.*)", r"neck.2.\1"),
    (r"neck\.layer_norm2\.(.*)", r"neck.3.\1"),
)

DINO = {
    **PATCHES,
    "class_token/token": ("cls_token", "same"),
    "position_embedding/embedding": ("pos_embed", "same"),
    **PLAIN_BLOCK,
    "block_{i}/attention_scale/gamma": ("blocks.{i}.ls1.gamma", "same"),
    "block_{i}/mlp_scale/gamma": ("blocks.{i}.ls2.gamma", "same"),
    **torch_norm("encoder_norm", "norm"),
}
# Registers have no positions.
REGISTERS = {
    "class_token/token": (
        ("cls_token", "register_tokens"),
        "token_and_registers",
    ),
    "position_embedding/embedding": ("pos_embed", "around_registers"),
}
STORAGE = {
    "class_token/token": (
        ("cls_token", "storage_tokens"),
        "token_and_registers",
    ),
}
GATES = {
    **torch_dense("block_{i}/mlp/dense", "blocks.{i}.mlp.w12"),
    **torch_dense("block_{i}/mlp/dense_1", "blocks.{i}.mlp.w3"),
}
# The bias of the keys is multiplied by a mask of zeros, that of the queries and
# values by one of ones.
DINOV3 = {
    **DINO,
    "block_{i}/attention/qkv/bias": (
        "blocks.{i}.attn.qkv.bias",
        "torch_rows_query_value",
    ),
}
DINOV3_GATES = {
    "block_{i}/mlp/dense/kernel": (
        ("blocks.{i}.mlp.w1.weight", "blocks.{i}.mlp.w2.weight"),
        "gates_and_values",
    ),
    "block_{i}/mlp/dense/bias": (
        ("blocks.{i}.mlp.w1.bias", "blocks.{i}.mlp.w2.bias"),
        "gate_and_value_biases",
    ),
    **torch_dense("block_{i}/mlp/dense_1", "blocks.{i}.mlp.w3"),
}
IMPLIED = {
    "block_0/attention_scale/gamma": {"layer_scale_init": 1.0},
    "gates": {"activation": "silu"},
}
IMAGENET = {
    "pixel_mean": (0.485, 0.456, 0.406),
    "pixel_std": (0.229, 0.224, 0.225),
}

EXACT = {"antialias": True, "rounding": "nearest"}
# Of SAM, as its ResizeLongestSide and its padding with the mean; of DINOv2 as
# make_classification_eval_transform; of DINOv3 as its page shows.
USUAL = {
    "segment_anything": {
        "preprocessing": {
            "evaluation": "longer_side_pad",
            "resize_size": 1024,
            "resize_method": "bilinear",
            "padding_colour": (124, 116, 104),
            **EXACT,
        },
        "image_size": (1024, 1024),
    },
    "dinov2": {
        "preprocessing": {
            "evaluation": "cover_crop",
            "resize_size": 256,
            "resize_method": "bicubic",
            **EXACT,
        },
        "image_size": (224, 224),
    },
    "dinov3": {
        "preprocessing": {
            "evaluation": "squash",
            "resize_method": "bilinear",
            **EXACT,
        },
        "image_size": (256, 256),
    },
}
DIALECT = Dialect(
    "Meta", usual_images=lambda layout, fields: USUAL[layout.name]
)
LAYOUTS = (
    Layout(
        DIALECT,
        "segment_anything",
        "vit",
        SAM_ENCODER,
        marks=SAM_MARKS,
        signs=SAM_SIGNS,
        aliases=SEGMENT_ANYTHING,
        constants={**EXACT_GELU, "pooling": "none"},
        ignored=SAM_DECODERS,
        resampling="bicubic_antialiased",
        container="",
        needs=("neck_dim",),
    ),
    Layout(
        DIALECT,
        "dinov2",
        "vit",
        DINO,
        marks=(
            ("register_tokens", "pos_embed", "blocks.0.mlp.fc1.weight"),
            ("blocks.0.ls1.gamma", "pos_embed", "blocks.0.mlp.w12.weight"),
        ),
        variants={"registers": REGISTERS, "gates": GATES},
        signs={
            "registers": "register_tokens",
            "gates": "blocks.0.mlp.w12.weight",
        },
        aliases=CHUNKS,
        constants={**EXACT_GELU, **IMAGENET},
        implied=IMPLIED,
        ignored=(r"mask_token",),
        resampling="bicubic_antialiased",
        container="",
        is_specific=True,
    ),
    Layout(
        DIALECT,
        "dinov3",
        "vit",
        DINOV3,
        marks=(
            ("blocks.0.attn.qkv.bias_mask", "blocks.0.ls1.gamma"),
            ("storage_tokens", "rope_embed.periods", "blocks.0.ls1.gamma"),
        ),
        variants={"registers": STORAGE, "gates": DINOV3_GATES},
        signs={
            "registers": "storage_tokens",
            "gates": "blocks.0.mlp.w1.weight",
        },
        aliases=CHUNKS,
        constants={
            **{"activation": "gelu", "layer_norm_epsilon": 1e-5},
            **{"rope": "centered", "rope_pairs": "halves"},
            "rope_temperature": 100.0,
            **IMAGENET,
        },
        implied=IMPLIED,
        ignored=(
            *(r"mask_token", r"rope_embed\.periods", r"local_cls_norm\..*"),
            r"blocks\.\d+\.attn\.qkv\.bias_mask",
        ),
        container="",
        check_values=check_periods,
        optional=("qkv_bias",),
        is_specific=True,
    ),
)
