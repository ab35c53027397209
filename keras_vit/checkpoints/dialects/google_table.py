"""Names in the `.npz` files of the original code and of big_vision.

Sources: google-research/vision_transformer (vit_jax/models_vit.py,
models_resnet.py, models_mixer.py), google-research/big_vision
(models/vit.py, models/bit_paper.py).
"""

from keras_vit.checkpoints.engine.transforms import flax_dense, flax_norm

__all__ = ["BIG_VISION", "BIT", "GOOGLE", "MIXER", "PREFIX_WITHOUT_POSITION"]

QUERY_KEY_VALUE = ("query", "key", "value")


def attention(ours, theirs):
    """Rows of a MultiHeadDotProductAttention of Flax."""
    return {
        f"{ours}/qkv/kernel": (
            tuple(f"{theirs}/{name}/kernel" for name in QUERY_KEY_VALUE),
            "heads_qkv",
        ),
        f"{ours}/qkv/bias": (
            tuple(f"{theirs}/{name}/bias" for name in QUERY_KEY_VALUE),
            "heads_qkv",
        ),
        **flax_dense(f"{ours}/out", f"{theirs}/out", kernel="heads_out"),
    }


def block(norm, attention_name, norm_1, mlp):
    """Rows of the encoder blocks under the names of one numbering."""
    theirs = "Transformer/encoderblock_{i}"
    return {
        **flax_norm("block_{i}/attention_norm", f"{theirs}/{norm}"),
        **attention("block_{i}/attention", f"{theirs}/{attention_name}"),
        **flax_norm("block_{i}/mlp_norm", f"{theirs}/{norm_1}"),
        **flax_dense("block_{i}/mlp/dense", f"{theirs}/{mlp}/Dense_0"),
        **flax_dense("block_{i}/mlp/dense_1", f"{theirs}/{mlp}/Dense_1"),
    }


def mixing(kind):
    """Rows of the "token" or the "channel" MLP of a block of MLP-Mixer."""
    ours = f"block_{{i}}/{kind}_mixing"
    theirs = f"MixerBlock_{{i}}/{kind}_mixing"
    options = {"kernel": "matrix", "bias": "vector"}
    return {
        **flax_dense(f"{ours}/dense", f"{theirs}/Dense_0", **options),
        **flax_dense(f"{ours}/dense_1", f"{theirs}/Dense_1", **options),
    }


RESNET = {
    "root_conv/kernel": ("conv_root/kernel", "same"),
    **flax_norm("root_norm", "gn_root", "vector_4d"),
    "stage{s}_unit{u}_conv1/kernel": ("block{s}/unit{u}/conv1/kernel", "same"),
    "stage{s}_unit{u}_conv2/kernel": ("block{s}/unit{u}/conv2/kernel", "same"),
    "stage{s}_unit{u}_conv3/kernel": ("block{s}/unit{u}/conv3/kernel", "same"),
    "stage{s}_unit{u}_shortcut/kernel": (
        "block{s}/unit{u}/conv_proj/kernel",
        "same",
    ),
    **flax_norm("stage{s}_unit{u}_norm1", "block{s}/unit{u}/gn1", "vector_4d"),
    **flax_norm("stage{s}_unit{u}_norm2", "block{s}/unit{u}/gn2", "vector_4d"),
    **flax_norm("stage{s}_unit{u}_norm3", "block{s}/unit{u}/gn3", "vector_4d"),
    **flax_norm(
        "stage{s}_unit{u}_shortcut_norm",
        "block{s}/unit{u}/gn_proj",
        "vector_4d",
    ),
}

SHARED = {
    **flax_dense("patch_embed/projection", "embedding"),
    "class_token/token": ("cls", "same"),
    **flax_norm("encoder_norm", "Transformer/encoder_norm"),
    **flax_dense("pre_logits", "pre_logits"),
    **flax_dense("predictions", "head"),
}

# The public files keep the module numbers of Flax before Linen.
GOOGLE = {
    **SHARED,
    "position_embedding/embedding": (
        "Transformer/posembed_input/pos_embedding",
        "same",
    ),
    **block(
        "LayerNorm_0",
        "MultiHeadDotProductAttention_1",
        "LayerNorm_2",
        "MlpBlock_3",
    ),
    **RESNET,
}

POOL = "MAPHead_0/MultiHeadDotProductAttention_0"

BIG_VISION = {
    **SHARED,
    "position_embedding/embedding": ("pos_embedding", "same"),
    **block(
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

MIXER = {
    **flax_dense("patch_embed/projection", "stem"),
    **flax_norm("block_{i}/token_norm", "MixerBlock_{i}/LayerNorm_0"),
    **mixing("token"),
    **flax_norm("block_{i}/channel_norm", "MixerBlock_{i}/LayerNorm_1"),
    **mixing("channel"),
    **flax_norm("encoder_norm", "pre_head_layer_norm"),
    **flax_dense("predictions", "head"),
}

UNIT = "resnet/block{s}/unit{uu}"


def bit_norm(ours, theirs):
    return {
        f"{ours}/gamma": (f"{theirs}/group_norm/gamma", "vector"),
        f"{ours}/beta": (f"{theirs}/group_norm/beta", "vector"),
    }


def bit_convolution(ours, theirs):
    return {f"{ours}/kernel": (f"{theirs}/standardized_conv2d/kernel", "same")}


BIT = {
    **bit_convolution("root_conv", "resnet/root_block"),
    **bit_norm("stage{s}_unit{u}_norm1", f"{UNIT}/a"),
    **bit_norm("stage{s}_unit{u}_norm2", f"{UNIT}/b"),
    **bit_norm("stage{s}_unit{u}_norm3", f"{UNIT}/c"),
    **bit_convolution("stage{s}_unit{u}_conv1", f"{UNIT}/a"),
    **bit_convolution("stage{s}_unit{u}_conv2", f"{UNIT}/b"),
    **bit_convolution("stage{s}_unit{u}_conv3", f"{UNIT}/c"),
    **bit_convolution("stage{s}_unit{u}_shortcut", f"{UNIT}/a/proj"),
    **bit_norm("encoder_norm", "resnet"),
    **flax_dense("predictions", "resnet/head/conv2d", "dense_1x1", "vector"),
}
