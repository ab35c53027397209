"""Files of big_vision.

Source: google-research/big_vision (models/vit.py).
"""

from keras_vit.checkpoints.dialects.shared import (
    FLAX_COMPANIONS,
    FLAX_STACKS,
    FLAX_TOWERS,
    FLAX_VIT,
    PLAIN_OPTIONS,
    TANH_GELU,
    flax_block,
)
from keras_vit.checkpoints.engine.layout import (
    Dialect,
    Layout,
    flax_dense,
    flax_norm,
)

__all__ = ["LAYOUTS"]

POOL = "MAPHead_0/MultiHeadDotProductAttention_0"
VIT = {
    **FLAX_VIT,
    "position_embedding/embedding": ("pos_embedding", "same"),
    **flax_block(
        "LayerNorm_0",
        "MultiHeadDotProductAttention_0",
        "LayerNorm_1",
        "MlpBlock_0",
    ),
    "pool/probe": ("MAPHead_0/probe", "same"),
    **flax_dense("pool/query", f"{POOL}/query", "heads", "heads"),
    "pool/key_value/kernel": (
        (f"{POOL}/key/kernel", f"{POOL}/value/kernel"),
        "heads_kv",
    ),
    "pool/key_value/bias": (
        (f"{POOL}/key/bias", f"{POOL}/value/bias"),
        "heads_kv",
    ),
    **flax_dense("pool/out", f"{POOL}/out", kernel="heads_out"),
    **flax_norm("pool/norm", "MAPHead_0/LayerNorm_0"),
    **flax_dense("pool/mlp/dense", "MAPHead_0/MlpBlock_0/Dense_0"),
    **flax_dense("pool/mlp/dense_1", "MAPHead_0/MlpBlock_0/Dense_1"),
}
# The class token is put in front after the positions were added.
PREFIX_WITHOUT_POSITION = {
    "position_embedding/embedding": ("pos_embedding", "behind_prefix"),
}

DIALECT = Dialect("big_vision")
LAYOUTS = (
    Layout(
        DIALECT,
        "big_vision",
        "vit",
        VIT,
        marks=(("Transformer/encoder_norm/scale",),),
        variants={"prefix_without_position": PREFIX_WITHOUT_POSITION},
        constants=TANH_GELU,
        ignored=FLAX_COMPANIONS,
        beside=FLAX_TOWERS,
        unsupported={r"(conv_root|gn_root|block\d+)/.*": "a ResNet"},
        stacks=FLAX_STACKS,
        has_fixed_positions=True,
        options=PLAIN_OPTIONS["vit"],
        poolings=("token", "mean", "map", "none"),
        poolings_without_token=("mean", "map", "none"),
        unpositioned="class_token",
    ),
)
