"""Files of Google's original code: Vision Transformers, MLP-Mixer and BiT.

Sources: google-research/vision_transformer (vit_jax/models_vit.py,
models_resnet.py, models_mixer.py), google-research/big_transfer.
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


def mixing(kind):
    """Return the rows of a block's "token" or "channel" MLP."""
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
# The public files keep the module numbers of Flax before Linen.
VIT = {
    **FLAX_VIT,
    "position_embedding/embedding": (
        "Transformer/posembed_input/pos_embedding",
        "same",
    ),
    **flax_block(
        "LayerNorm_0",
        "MultiHeadDotProductAttention_1",
        "LayerNorm_2",
        "MlpBlock_3",
    ),
    **RESNET,
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
GOOGLE_RESNET = {
    "resnet_standardization": "deviation",
    "resnet_standardization_epsilon": 1e-5,
    "resnet_group_norm_epsilon": 1e-6,
}
BLOCK = r"(Transformer/encoderblock(?:_\d+)?)"
PRE_LINEN = (
    (r"Transformer/pos_embedding", "Transformer/posembed_input/pos_embedding"),
    (BLOCK + r"/LayerNorm_1/(.*)", r"\1/LayerNorm_2/\2"),
    (
        BLOCK + r"/MultiHeadDotProductAttention_0/(.*)",
        r"\1/MultiHeadDotProductAttention_1/\2",
    ),
    (BLOCK + r"/MlpBlock_0/(.*)", r"\1/MlpBlock_3/\2"),
)
OLD_MIXER = (
    (r"embedding/(kernel|bias)", r"stem/\1"),
    (r"Mixer/encoder_norm/(.*)", r"pre_head_layer_norm/\1"),
    (
        r"Mixer/encoderblock_(\d+)/(token|channel)_mixing_phase_0/(\w+)1",
        r"MixerBlock_\1/\2_mixing/Dense_0/\3",
    ),
    (
        r"Mixer/encoderblock_(\d+)/(token|channel)_mixing_phase_0/(\w+)2",
        r"MixerBlock_\1/\2_mixing/Dense_1/\3",
    ),
    (
        r"(?:Mixer/encoderblock|MixerBlock)_(\d+)/LayerNorm_0/(.*)",
        r"MixerBlock_\1/LayerNorm_0/\2",
    ),
    # Numbered 1, or by Flax before Linen, which counted all modules, higher.
    (
        r"(?:Mixer/encoderblock|MixerBlock)_(\d+)/LayerNorm_[1-9]/(.*)",
        r"MixerBlock_\1/LayerNorm_1/\2",
    ),
)

SQUASH = {
    "evaluation": "squash",
    "resize_method": "bilinear",
    "rounding": "float32",
}
DIALECT = Dialect(
    "Google", usual_images=lambda layout, fields: {"preprocessing": SQUASH}
)
LAYOUTS = (
    Layout(
        DIALECT,
        "google",
        "vit",
        VIT,
        marks=(
            (
                "Transformer/encoder_norm/scale",
                "Transformer/posembed_input/pos_embedding",
            ),
        ),
        aliases=PRE_LINEN,
        constants={**TANH_GELU, **GOOGLE_RESNET},
        ignored=FLAX_COMPANIONS,
        beside=FLAX_TOWERS,
        stacks=FLAX_STACKS,
        # Named as in the others of its hybrids.
        variants={"root_only": {}},
        options=PLAIN_OPTIONS["vit"],
        poolings=("token", "mean", "none"),
        poolings_without_token=("mean",),
    ),
    Layout(
        DIALECT,
        "mixer",
        "mixer",
        MIXER,
        marks=(("pre_head_layer_norm/scale", "stem/kernel"),),
        aliases=OLD_MIXER,
        constants=TANH_GELU,
        ignored=FLAX_COMPANIONS,
        beside=FLAX_TOWERS,
        options=PLAIN_OPTIONS["mixer"],
        poolings=("mean",),
    ),
    Layout(
        DIALECT,
        "bit",
        "bit",
        BIT,
        marks=(("resnet/root_block/standardized_conv2d/kernel",),),
        aliases=((r"(.*/standardized_conv2d)_\d+/(.*)", r"\1/\2"),),
        constants={
            "standardization_epsilon": 1e-10,
            "group_norm_epsilon": 1e-5,
        },
        ignored=FLAX_COMPANIONS,
        beside=FLAX_TOWERS,
        options=PLAIN_OPTIONS["bit"],
        poolings=("mean",),
    ),
)
