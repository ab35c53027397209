"""Names in the files of Hugging Face transformers.

Sources: transformers 5.23.0 (models/vit, deit, bit, dinov2,
dinov2_with_registers, dinov3_vit, aimv2, beit, data2vec, clip, siglip,
tipsv2) and 4.40.2 (vit_hybrid).
"""

from keras_vit.checkpoints.dialects.torch_table import preactivated_unit, unit
from keras_vit.checkpoints.engine.transforms import (
    torch_convolution,
    torch_dense,
    torch_norm,
)

__all__ = [
    "HUGGING_FACE",
    "HUGGING_FACE_AIMV2",
    "HUGGING_FACE_AIMV2_PROJECTED",
    "HUGGING_FACE_AVERAGED_HEADS",
    "HUGGING_FACE_BEIT",
    "HUGGING_FACE_BIT",
    "HUGGING_FACE_CLIP",
    "HUGGING_FACE_DINOV2",
    "HUGGING_FACE_DINOV3",
    "HUGGING_FACE_DINOV3_GATES",
    "HUGGING_FACE_DISTILLED",
    "HUGGING_FACE_GATES",
    "HUGGING_FACE_NORM_AFTER_POOLING",
    "HUGGING_FACE_REGISTERS",
    "HUGGING_FACE_SIGLIP",
    "HUGGING_FACE_SIGLIP_CLASSIFIER",
    "HUGGING_FACE_TIPSV2",
    "HUGGING_FACE_TIPSV2_GATES",
]

LAYER = "encoder.layer.{i}"
PROJECTIONS = ("query", "key", "value")
BIT_BACKBONE = "embeddings.patch_embeddings.backbone.bit"

ENCODER = {
    **torch_dense(
        "patch_embed/projection",
        "embeddings.patch_embeddings.projection",
        kernel="convolution",
    ),
    "class_token/token": ("embeddings.cls_token", "same"),
    "position_embedding/embedding": (
        "embeddings.position_embeddings",
        "same",
    ),
    **torch_norm("block_{i}/attention_norm", f"{LAYER}.layernorm_before"),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{LAYER}.attention.attention.{x}.weight" for x in PROJECTIONS),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple(f"{LAYER}.attention.attention.{x}.bias" for x in PROJECTIONS),
        "torch_qkv",
    ),
    **torch_dense("block_{i}/attention/out", f"{LAYER}.attention.output.dense"),
    **torch_norm("block_{i}/mlp_norm", f"{LAYER}.layernorm_after"),
    **torch_dense("block_{i}/mlp/dense", f"{LAYER}.intermediate.dense"),
    **torch_dense("block_{i}/mlp/dense_1", f"{LAYER}.output.dense"),
    **torch_norm("encoder_norm", "layernorm"),
    **torch_dense("predictions", "classifier"),
}

HUGGING_FACE = {
    **ENCODER,
    **torch_dense("pre_logits", "pooler.dense"),
    **torch_convolution("root_conv", f"{BIT_BACKBONE}.embedder.convolution"),
    **torch_norm("root_norm", f"{BIT_BACKBONE}.embedder.norm"),
    **unit(BIT_BACKBONE + ".encoder.stages.{s0}.layers.{u0}"),
}

HUGGING_FACE_DISTILLED = {
    "class_token/token": (
        ("embeddings.cls_token", "embeddings.distillation_token"),
        "tokens",
    ),
}

HUGGING_FACE_AVERAGED_HEADS = {
    "predictions/kernel": (
        ("cls_classifier.weight", "distillation_classifier.weight"),
        "average_heads",
    ),
    "predictions/bias": (
        ("cls_classifier.bias", "distillation_classifier.bias"),
        "average_biases",
    ),
}

HUGGING_FACE_BIT = {
    **torch_convolution("root_conv", "embedder.convolution"),
    **preactivated_unit("encoder.stages.{s0}.layers.{u0}"),
    **torch_norm("encoder_norm", "norm"),
    **torch_dense("predictions", "classifier.1"),
}

HUGGING_FACE_DINOV2 = {
    **ENCODER,
    **torch_norm("block_{i}/attention_norm", f"{LAYER}.norm1"),
    **torch_norm("block_{i}/mlp_norm", f"{LAYER}.norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{LAYER}.mlp.fc1"),
    **torch_dense("block_{i}/mlp/dense_1", f"{LAYER}.mlp.fc2"),
    "block_{i}/attention_scale/gamma": (
        f"{LAYER}.layer_scale1.lambda1",
        "same",
    ),
    "block_{i}/mlp_scale/gamma": (f"{LAYER}.layer_scale2.lambda1", "same"),
}

# SwiGLU of DINOv2, gates before values in one tensor.
HUGGING_FACE_GATES = {
    **torch_dense("block_{i}/mlp/dense", f"{LAYER}.mlp.weights_in"),
    **torch_dense("block_{i}/mlp/dense_1", f"{LAYER}.mlp.weights_out"),
}

# Registers come after the positions have been added.
HUGGING_FACE_REGISTERS = {
    **HUGGING_FACE_DINOV2,
    "class_token/token": (
        ("embeddings.cls_token", "embeddings.register_tokens"),
        "token_and_registers",
    ),
    "position_embedding/embedding": (
        "embeddings.position_embeddings",
        "around_registers",
    ),
}

# Of Data2Vec as well. The keys have no bias.
HUGGING_FACE_BEIT = {
    **ENCODER,
    "block_{i}/attention/qkv/bias": (
        tuple(
            f"{LAYER}.attention.attention.{x}.bias" for x in PROJECTIONS[::2]
        ),
        "torch_query_value",
    ),
    "block_{i}/attention/position_bias/table": (
        f"{LAYER}.attention.attention.relative_position_bias"
        ".relative_position_bias_table",
        "same",
    ),
    "block_{i}/attention_scale/gamma": (f"{LAYER}.lambda_1", "same"),
    "block_{i}/mlp_scale/gamma": (f"{LAYER}.lambda_2", "same"),
}

HUGGING_FACE_NORM_AFTER_POOLING = torch_norm("encoder_norm", "pooler.layernorm")

DINOV3_LAYER = "layer.{i}"
HUGGING_FACE_DINOV3 = {
    **torch_dense(
        "patch_embed/projection",
        "embeddings.patch_embeddings",
        kernel="convolution",
    ),
    "class_token/token": (
        ("embeddings.cls_token", "embeddings.register_tokens"),
        "token_and_registers",
    ),
    **torch_norm("block_{i}/attention_norm", f"{DINOV3_LAYER}.norm1"),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{DINOV3_LAYER}.attention.{x}_proj.weight" for x in "qkv"),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple(f"{DINOV3_LAYER}.attention.{x}_proj.bias" for x in "qv"),
        "torch_query_value",
    ),
    **torch_dense(
        "block_{i}/attention/out", f"{DINOV3_LAYER}.attention.o_proj"
    ),
    "block_{i}/attention_scale/gamma": (
        f"{DINOV3_LAYER}.layer_scale1.lambda1",
        "same",
    ),
    **torch_norm("block_{i}/mlp_norm", f"{DINOV3_LAYER}.norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{DINOV3_LAYER}.mlp.up_proj"),
    **torch_dense("block_{i}/mlp/dense_1", f"{DINOV3_LAYER}.mlp.down_proj"),
    "block_{i}/mlp_scale/gamma": (
        f"{DINOV3_LAYER}.layer_scale2.lambda1",
        "same",
    ),
    **torch_norm("encoder_norm", "norm"),
}

HUGGING_FACE_DINOV3_GATES = {
    f"block_{{i}}/mlp/dense/{ours}": (
        tuple(f"{DINOV3_LAYER}.mlp.{x}_proj.{theirs}" for x in ("gate", "up")),
        transform,
    )
    for ours, theirs, transform in (
        ("kernel", "weight", "gates_and_values"),
        ("bias", "bias", "gate_and_value_biases"),
    )
}

TOWER_LAYER = "encoder.layers.{i}"
TOWER_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
# What the vision towers of CLIP and SigLIP share.
TOWER = {
    "position_embedding/embedding": (
        "embeddings.position_embedding.weight",
        "rows",
    ),
    **torch_norm("block_{i}/attention_norm", f"{TOWER_LAYER}.layer_norm1"),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{TOWER_LAYER}.self_attn.{x}.weight" for x in TOWER_PROJECTIONS),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple(f"{TOWER_LAYER}.self_attn.{x}.bias" for x in TOWER_PROJECTIONS),
        "torch_qkv",
    ),
    **torch_dense(
        "block_{i}/attention/out", f"{TOWER_LAYER}.self_attn.out_proj"
    ),
    **torch_norm("block_{i}/mlp_norm", f"{TOWER_LAYER}.layer_norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{TOWER_LAYER}.mlp.fc1"),
    **torch_dense("block_{i}/mlp/dense_1", f"{TOWER_LAYER}.mlp.fc2"),
    **torch_norm("encoder_norm", "post_layernorm"),
}

AIMV2_LAYER = "encoder.layers.{i}"
HUGGING_FACE_AIMV2 = {
    **torch_dense(
        "patch_embed/projection", "embeddings.patch_embed", kernel="convolution"
    ),
    "patch_norm/gamma": ("embeddings.rms_norm.weight", "same"),
    "position_embedding/embedding": (
        "embeddings.position_embedding.weight",
        "rows",
    ),
    "block_{i}/attention_norm/gamma": (
        f"{AIMV2_LAYER}.rms_norm1.weight",
        "same",
    ),
    "block_{i}/attention/qkv/kernel": (
        tuple(f"{AIMV2_LAYER}.attention.{x}_proj.weight" for x in "qkv"),
        "torch_qkv",
    ),
    "block_{i}/attention/out/kernel": (
        f"{AIMV2_LAYER}.attention.out_proj.weight",
        "linear",
    ),
    "block_{i}/mlp_norm/gamma": (f"{AIMV2_LAYER}.rms_norm2.weight", "same"),
    "block_{i}/mlp/dense/kernel": (
        tuple(f"{AIMV2_LAYER}.ffn.{x}_proj.weight" for x in ("gate", "up")),
        "gates_and_values",
    ),
    "block_{i}/mlp/dense_1/kernel": (
        f"{AIMV2_LAYER}.ffn.down_proj.weight",
        "linear",
    ),
    "encoder_norm/gamma": ("rms_norm.weight", "same"),
    "pool/probe": ("head.cls_token", "same"),
    "pool/key_value/kernel": (
        ("head.k_proj.weight", "head.v_proj.weight"),
        "torch_kv",
    ),
    **torch_dense("pool/out", "head.output_proj"),
}
# Of the model of images and texts.
HUGGING_FACE_AIMV2_PROJECTED = {
    **HUGGING_FACE_AIMV2,
    "predictions/kernel": ("visual_projection.weight", "linear"),
}

# transformers writes TIPSv2 under the names of its authors, not its own.
TIPSV2_BLOCK = "blocks.{i}"
HUGGING_FACE_TIPSV2 = {
    **torch_dense(
        "patch_embed/projection", "patch_embed.proj", kernel="convolution"
    ),
    "class_token/token": (
        ("cls_token", "register_tokens"),
        "token_and_registers",
    ),
    "position_embedding/embedding": ("pos_embed", "around_registers"),
    **torch_norm("block_{i}/attention_norm", f"{TIPSV2_BLOCK}.norm1"),
    **torch_dense(
        "block_{i}/attention/qkv",
        f"{TIPSV2_BLOCK}.attn.qkv",
        "torch_qkv_rows",
        "torch_qkv_rows",
    ),
    **torch_dense("block_{i}/attention/out", f"{TIPSV2_BLOCK}.attn.proj"),
    "block_{i}/attention_scale/gamma": (f"{TIPSV2_BLOCK}.ls1.gamma", "same"),
    **torch_norm("block_{i}/mlp_norm", f"{TIPSV2_BLOCK}.norm2"),
    **torch_dense("block_{i}/mlp/dense", f"{TIPSV2_BLOCK}.mlp.c_fc"),
    **torch_dense("block_{i}/mlp/dense_1", f"{TIPSV2_BLOCK}.mlp.c_proj"),
    "block_{i}/mlp_scale/gamma": (f"{TIPSV2_BLOCK}.ls2.gamma", "same"),
    **torch_norm("encoder_norm", "norm"),
}
HUGGING_FACE_TIPSV2_GATES = {
    **torch_dense("block_{i}/mlp/dense", f"{TIPSV2_BLOCK}.mlp.w12"),
    **torch_dense("block_{i}/mlp/dense_1", f"{TIPSV2_BLOCK}.mlp.w3"),
}

HUGGING_FACE_CLIP = {
    **torch_convolution("patch_embed/projection", "embeddings.patch_embedding"),
    "class_token/token": ("embeddings.class_embedding", "single_token"),
    **torch_norm("first_norm", "pre_layrnorm"),
    **TOWER,
    "predictions/kernel": ("visual_projection.weight", "linear"),
}

SIGLIP = {
    **torch_dense(
        "patch_embed/projection",
        "embeddings.patch_embedding",
        kernel="patches",
    ),
    **TOWER,
}

HUGGING_FACE_SIGLIP = {
    **SIGLIP,
    "pool/probe": ("head.probe", "same"),
    # torch's MultiheadAttention has query, key and value in one tensor.
    "pool/query/kernel": (
        "head.attention.in_proj_weight",
        "torch_query_of_rows",
    ),
    "pool/query/bias": ("head.attention.in_proj_bias", "torch_query_of_rows"),
    "pool/key_value/kernel": (
        "head.attention.in_proj_weight",
        "torch_kv_of_rows",
    ),
    "pool/key_value/bias": ("head.attention.in_proj_bias", "torch_kv_of_rows"),
    **torch_dense("pool/out", "head.attention.out_proj"),
    **torch_norm("pool/norm", "head.layernorm"),
    **torch_dense("pool/mlp/dense", "head.mlp.fc1"),
    **torch_dense("pool/mlp/dense_1", "head.mlp.fc2"),
}

# SiglipForImageClassification averages the tokens; it has a head all the same.
HUGGING_FACE_SIGLIP_CLASSIFIER = {
    **SIGLIP,
    **torch_dense("predictions", "classifier"),
}
