"""Files of big_vision.

Source: google-research/big_vision (models/vit.py,
models/proj/image_text/text_transformer.py and two_towers.py).
"""

from pathlib import Path

from keras_vit.checkpoints.dialects.shared import (
    FLAX_COMPANIONS,
    FLAX_STACKS,
    FLAX_TOWERS,
    FLAX_VIT,
    PLAIN_OPTIONS,
    SIGLIP_TOKENIZER,
    TANH_GELU,
    flax_block,
    tokenizer_files,
)
from keras_vit.checkpoints.engine.layout import (
    Dialect,
    Layout,
    flax_dense,
    flax_norm,
)

__all__ = ["LAYOUTS", "TEXT_LAYOUTS"]

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


def read_text(checkpoint) -> dict:
    """Return what code and shapes tell of a tower of texts.

    Of SigLIP, whose tower pools the last token, and of LiT alike.
    """
    name = checkpoint.rows["block_0/attention/out/kernel"].names[0]
    folder = Path(checkpoint.file.path).parent
    # Gemma's tokenizer of SigLIP 2 is of another kind than that of C4.
    gemma = {"cleaning": (), "lowercase": True, "padding": 0}
    rules = (
        tokenizer_files(folder, SIGLIP_TOKENIZER, (("spiece.model",),)),
        tokenizer_files(folder, gemma, (("tokenizer.json",),)),
        tokenizer_files(folder, {**gemma, "end": 1}, (("tokenizer.model",),)),
    )
    return {
        "fields": {
            **TANH_GELU,
            "num_heads": checkpoint.file.tensors[name].shape[0],
            "causal": False,
            "pooling": "last",
        },
        "tokenizer": next(filter(None, rules), {}),
    }


TEXT_LAYOUTS = (
    Layout(
        DIALECT,
        "big_vision_text",
        "text",
        {
            "token_embedding/embeddings": ("Embed_0/embedding", "same"),
            "position_embedding/embedding": ("pos_embedding", "same"),
            **flax_block(
                "LayerNorm_0",
                "MultiHeadDotProductAttention_0",
                "LayerNorm_1",
                "MlpBlock_0",
            ),
            **flax_norm("encoder_norm", "Transformer/encoder_norm"),
            **flax_dense("projection", "head"),
            "logit_scale": ("t", "vector"),
            "logit_bias": ("b", "vector"),
        },
        marks=(("Embed_0/embedding", "Transformer/encoder_norm/scale"),),
        aliases=(
            (r"(?:params/)?txt/(.*)", r"\1"),
            (r"params/([tb])", r"\1"),
            (r"Encoder_0/(.*)", r"Transformer/\1"),
        ),
        ignored=(r"(params/)?img/.*", r"(opt|state|chrono)/.*"),
        stacks=FLAX_STACKS,
        container="",
        read_text=read_text,
    ),
)
