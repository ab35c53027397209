"""Names in the preset folders of keras-hub.

Source: keras-hub 0.32.0 (src/models/*/*_layers.py, *_backbone.py,
*_vision_encoder.py), and how Keras names what it saves. Towers of images and
arrays of embeddings have the names that `keras_hub.py` gives them.
"""

__all__ = [
    "DINOV2_BLOCK",
    "DINOV3_BLOCK",
    "KERAS_HUB",
    "KERAS_HUB_CLIP",
    "KERAS_HUB_DEIT",
    "KERAS_HUB_DINOV2",
    "KERAS_HUB_DINOV3",
    "KERAS_HUB_DINOV3_GATES",
    "KERAS_HUB_DINOV3_KEY_BIAS",
    "KERAS_HUB_DINOV3_REGISTERS",
    "KERAS_HUB_GATES",
    "KERAS_HUB_METACLIP_2",
    "KERAS_HUB_PALI_GEMMA",
    "KERAS_HUB_REGISTERS",
    "KERAS_HUB_SIGLIP",
]


def layer(ours, theirs, names=("kernel", "bias"), kernel="same"):
    """Rows of a layer of two weights."""
    return {
        f"{ours}/{names[0]}": (f"{theirs}/vars/0", kernel),
        f"{ours}/{names[1]}": (f"{theirs}/vars/1", "same"),
    }


def norm(ours, theirs):
    return layer(ours, theirs, ("gamma", "beta"))


def attention(theirs):
    """Rows of Keras's `MultiHeadAttention` in a block."""
    parts = [f"{theirs}/{x}_dense" for x in ("query", "key", "value")]
    return {
        f"block_{{i}}/attention/qkv/{ours}": (
            tuple(f"{x}/vars/{j}" for x in parts),
            "heads_qkv",
        )
        for j, ours in enumerate(("kernel", "bias"))
    } | layer(
        "block_{i}/attention/out",
        f"{theirs}/output_dense",
        kernel="heads_out",
    )


def block(theirs, names):
    """Rows of a block.

    Args:
        theirs: str, its layer.
        names: those of its norm, its attention, and of the norm and the two
            layers of its MLP.
    """
    first_norm, heads, second_norm, first, second = names
    return {
        **norm("block_{i}/attention_norm", f"{theirs}/{first_norm}"),
        **attention(f"{theirs}/{heads}"),
        **norm("block_{i}/mlp_norm", f"{theirs}/{second_norm}"),
        **layer("block_{i}/mlp/dense", f"{theirs}/{first}"),
        **layer("block_{i}/mlp/dense_1", f"{theirs}/{second}"),
    }


EMBEDDING = "layers/vi_t_patching_and_embedding"
KERAS_HUB = {
    **layer("patch_embed/projection", f"{EMBEDDING}/patch_embedding"),
    "class_token/token": (f"{EMBEDDING}/vars/0", "same"),
    "position_embedding/embedding": (
        f"{EMBEDDING}/position_embedding/vars/0",
        "rows",
    ),
    **block(
        "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block_{i}",
        ("layer_norm_1", "mha", "layer_norm_2", "mlp/dense_1", "mlp/dense_2"),
    ),
    **norm("encoder_norm", "layers/vi_t_encoder/layer_norm"),
    **layer("pre_logits", "pre_logits"),
    **layer("predictions", "predictions"),
}

DEIT = "layers/dei_t_embeddings"
KERAS_HUB_DEIT = {
    **layer("patch_embed/projection", f"{DEIT}/patch_embedding"),
    "class_token/token": ((f"{DEIT}/vars/0", f"{DEIT}/vars/1"), "tokens"),
    "position_embedding/embedding": (f"{DEIT}/vars/2", "same"),
    **block(
        "layers/dei_t_encoder/encoder_layers/dei_t_encoder_block_{i}",
        (
            *("layer_norm_1", "mha", "layer_norm_2"),
            *("mlp/dense", "output_layer/dense"),
        ),
    ),
    **norm("encoder_norm", "layers/dei_t_encoder/layer_norm"),
    **layer("predictions", "predictions"),
}

DINOV2 = "layers/dinov2_embedding"
DINOV2_BLOCK = "layers/dinov2_encoder/layers/dinov2_layer_{i}"
KERAS_HUB_DINOV2 = {
    **layer("patch_embed/projection", f"{DINOV2}/patch_embeddings/projection"),
    "class_token/token": (f"{DINOV2}/cls_token", "same"),
    "position_embedding/embedding": (f"{DINOV2}/positions", "same"),
    **block(
        DINOV2_BLOCK,
        ("norm1", "attention/attention", "norm2", "mlp/fc1", "mlp/fc2"),
    ),
    "block_{i}/attention_scale/gamma": (
        f"{DINOV2_BLOCK}/layer_scale1/vars/0",
        "same",
    ),
    "block_{i}/mlp_scale/gamma": (
        f"{DINOV2_BLOCK}/layer_scale2/vars/0",
        "same",
    ),
    **norm("encoder_norm", "layers/layer_normalization"),
}
# SwiGLU, gates before values in one array.
KERAS_HUB_GATES = {
    **layer("block_{i}/mlp/dense", f"{DINOV2_BLOCK}/mlp/weights_in"),
    **layer("block_{i}/mlp/dense_1", f"{DINOV2_BLOCK}/mlp/weights_out"),
}
# Registers come after the positions have been added.
KERAS_HUB_REGISTERS = {
    "class_token/token": (
        (f"{DINOV2}/cls_token", f"{DINOV2}/register_tokens"),
        "token_and_registers",
    ),
    "position_embedding/embedding": (
        f"{DINOV2}/positions",
        "around_registers",
    ),
}

DINOV3 = "layers/dinov3_embedding"
DINOV3_BLOCK = "layers/dinov3_encoder/layers/dinov3_layer_{i}"


def dinov3_projections(names, weight):
    return tuple(
        f"{DINOV3_BLOCK}/attention/{x}_dense/vars/{weight}" for x in names
    )


KERAS_HUB_DINOV3 = {
    **layer("patch_embed/projection", f"{DINOV3}/patch_embeddings/projection"),
    "class_token/token": (f"{DINOV3}/cls_token", "same"),
    **norm("block_{i}/attention_norm", f"{DINOV3_BLOCK}/norm1"),
    "block_{i}/attention/qkv/kernel": (
        dinov3_projections(("query", "key", "value"), 0),
        "dense_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        dinov3_projections(("query", "value"), 1),
        "dense_query_value",
    ),
    **layer(
        "block_{i}/attention/out", f"{DINOV3_BLOCK}/attention/output_dense"
    ),
    "block_{i}/attention_scale/gamma": (
        f"{DINOV3_BLOCK}/layer_scale1/vars/0",
        "same",
    ),
    **norm("block_{i}/mlp_norm", f"{DINOV3_BLOCK}/norm2"),
    **layer("block_{i}/mlp/dense", f"{DINOV3_BLOCK}/mlp/up_proj"),
    **layer("block_{i}/mlp/dense_1", f"{DINOV3_BLOCK}/mlp/down_proj"),
    "block_{i}/mlp_scale/gamma": (
        f"{DINOV3_BLOCK}/layer_scale2/vars/0",
        "same",
    ),
    **norm("encoder_norm", "layers/layer_normalization"),
}
KERAS_HUB_DINOV3_KEY_BIAS = {
    "block_{i}/attention/qkv/bias": (
        dinov3_projections(("query", "key", "value"), 1),
        "dense_qkv",
    ),
}
KERAS_HUB_DINOV3_GATES = {
    f"block_{{i}}/mlp/dense/{ours}": (
        tuple(f"{DINOV3_BLOCK}/mlp/{x}_proj/vars/{j}" for x in ("gate", "up")),
        "columns",
    )
    for j, ours in enumerate(("kernel", "bias"))
}
KERAS_HUB_DINOV3_REGISTERS = {
    "class_token/token": (
        (f"{DINOV3}/cls_token", f"{DINOV3}/register_tokens"),
        "token_and_registers",
    ),
}


def clip(name):
    """Rows of the image encoder of CLIP and MetaCLIP 2."""
    embedding = f"layers/{name}_vision_embedding"
    return {
        "patch_embed/projection/kernel": (
            f"{embedding}/patch_embedding/vars/0",
            "same",
        ),
        "class_token/token": (f"{embedding}/vars/0", "single_token"),
        "position_embedding/embedding": (
            f"{embedding}/position_embedding/vars/0",
            "rows",
        ),
        **norm("first_norm", "layers/layer_normalization"),
        **block(
            f"layers/{name}_encoder_layer_{{i}}",
            ("layer_norm_1", "attention", "layer_norm_2", "dense_1", "dense_2"),
        ),
        "predictions/kernel": ("outer/dense/vars/0", "same"),
    }


KERAS_HUB_CLIP = {
    **clip("clip"),
    **norm("encoder_norm", "layers/layer_normalization_1"),
}
# The norm is that of the model of images and texts.
KERAS_HUB_METACLIP_2 = {
    **clip("meta_clip2"),
    **norm("encoder_norm", "outer/layer_normalization"),
}

SIGLIP = "layers/sig_lip_vision_embedding"
KEY_VALUE = ("key", "value")
POOL = "layers/sig_lip_multi_head_attention_pooling"
KERAS_HUB_SIGLIP = {
    **layer("patch_embed/projection", f"{SIGLIP}/patch_embedding"),
    "position_embedding/embedding": (
        f"{SIGLIP}/position_embedding/vars/0",
        "rows",
    ),
    **block(
        "layers/sig_lip_encoder_layer_{i}",
        ("layer_norm1", "self_attn", "layer_norm2", "mlp/fc1", "mlp/fc2"),
    ),
    **norm("encoder_norm", "layers/layer_normalization"),
    "pool/probe": (f"{POOL}/vars/0", "same"),
    "pool/query/kernel": (f"{POOL}/attention/query_dense/vars/0", "heads"),
    "pool/query/bias": (f"{POOL}/attention/query_dense/vars/1", "heads"),
    **{
        f"pool/key_value/{ours}": (
            tuple(f"{POOL}/attention/{x}_dense/vars/{j}" for x in KEY_VALUE),
            "heads_kv",
        )
        for j, ours in enumerate(("kernel", "bias"))
    },
    **layer("pool/out", f"{POOL}/attention/output_dense", kernel="heads_out"),
    **norm("pool/norm", f"{POOL}/layer_norm"),
    **layer("pool/mlp/dense", f"{POOL}/mlp/fc1"),
    **layer("pool/mlp/dense_1", f"{POOL}/mlp/fc2"),
}

PALI_GEMMA = "layers/pali_gemma_vit_encoder"
PALI_GEMMA_BLOCK = f"{PALI_GEMMA}/resblocks/pali_gemma_vit_encoder_block_{{i}}"
KERAS_HUB_PALI_GEMMA = {
    **layer(
        "patch_embed/projection",
        f"{PALI_GEMMA}/vision_embeddings/patch_embedding",
    ),
    "position_embedding/embedding": (
        f"{PALI_GEMMA}/vision_embeddings/position_embedding/vars/0",
        "rows",
    ),
    **block(
        PALI_GEMMA_BLOCK,
        ("layer_norm_1", "attn", "layer_norm_2", "mlp_dense_1", "mlp_dense_2"),
    ),
    **{
        f"block_{{i}}/attention/qkv/{ours}": (
            tuple(
                f"{PALI_GEMMA_BLOCK}/attn/{x}_proj/vars/{j}"
                for x in ("query", "key", "value")
            ),
            "dense_qkv",
        )
        for j, ours in enumerate(("kernel", "bias"))
    },
    **layer("block_{i}/attention/out", f"{PALI_GEMMA_BLOCK}/attn/out_proj"),
    **norm("encoder_norm", f"{PALI_GEMMA}/encoder_layer_norm"),
    **layer("predictions", "layers/dense"),
}
