"""Names in the files of timm and torchvision.

Sources: timm 1.0.31 (models/vision_transformer.py, deit.py, mlp_mixer.py,
resnetv2.py), torchvision (models/vision_transformer.py).
"""

from keras_vit.checkpoints.engine.transforms import (
    torch_convolution,
    torch_dense,
    torch_norm,
)

__all__ = [
    "SAM",
    "TIMM",
    "TIMM_AFFINE",
    "TIMM_AVERAGED_HEADS",
    "TIMM_BIT",
    "TIMM_DISTILLED",
    "TIMM_FLAT_PATCHES",
    "TIMM_FUSED_OUTPUT",
    "TIMM_GAMMAS",
    "TIMM_GATES_LAST",
    "TIMM_GROUPED_QKV",
    "TIMM_MIXER",
    "TIMM_MLP_BIAS",
    "TIMM_NORM_AFTER_POOLING",
    "TIMM_PARALLEL",
    "TIMM_PATCH_STEM",
    "TIMM_POSITION_AXES",
    "TIMM_POSITION_GRID",
    "TIMM_PREFIX_WITHOUT_POSITION",
    "TIMM_REGISTERS",
    "TIMM_RELATIVE_TABLES",
    "TIMM_QUERY_VALUE_BIASES",
    "TIMM_REGISTERS_ALONE",
    "TIMM_ROOT_ONLY",
    "TIMM_SAM",
    "TIMM_SEPARATE_GATES",
    "TIMM_SEPARATE_QKV",
    "TIMM_SPATIAL_GATING",
    "TORCHVISION",
    "preactivated_unit",
    "unit",
]


def unit(theirs):
    """Rows of a hybrid's bottleneck unit, whose shortcuts are normalised."""
    shortcut = "stage{s}_unit{u}_shortcut_norm"
    return {
        **preactivated_unit(theirs),
        **torch_norm(shortcut, f"{theirs}.downsample.norm"),
    }


def position_mlp(ours, theirs):
    """Rows of relative positions that an MLP computes."""
    layers = {"hidden": "fc1", "head": "fc2"}
    rows = {}
    for name, linear in layers.items():
        rows[f"{ours}/{name}_weight"] = f"{theirs}.{linear}.weight", "linear"
        rows[f"{ours}/{name}_bias"] = f"{theirs}.{linear}.bias", "same"
    return rows


def batch_norm(ours, theirs):
    """Rows of a batch normalisation."""
    return {
        **torch_norm(ours, theirs),
        f"{ours}/moving_mean": (f"{theirs}.running_mean", "same"),
        f"{ours}/moving_variance": (f"{theirs}.running_var", "same"),
    }


def resnet_norm(ours, theirs):
    """Rows of a normalisation of ResNets, whichever it is."""
    return {
        **batch_norm(ours, theirs),
        f"{ours}/gate": (f"{theirs}.v", "same"),
    }


def preactivated_unit(theirs):
    """Rows of a unit of BiT; timm and Hugging Face call it the same."""
    ours = "stage{s}_unit{u}"
    rows = torch_convolution(f"{ours}_shortcut", f"{theirs}.downsample.conv")
    for i in (1, 2, 3):
        rows |= torch_convolution(f"{ours}_conv{i}", f"{theirs}.conv{i}")
        rows |= torch_norm(f"{ours}_norm{i}", f"{theirs}.norm{i}")
    return rows


def heads_dense(ours, theirs):
    """Rows of a linear layer from heads to heads."""
    return torch_dense(ours, theirs, bias="heads_bias")


def class_block(ours, theirs):
    """Rows of a class-attention block of CaiT."""
    key_value = {
        f"{ours}/attention/key_value/{weight}": (
            (f"{theirs}.attn.k.{name}", f"{theirs}.attn.v.{name}"),
            "torch_kv",
        )
        for weight, name in {"kernel": "weight", "bias": "bias"}.items()
    }
    return {
        **torch_norm(f"{ours}/attention_norm", f"{theirs}.norm1"),
        **torch_dense(f"{ours}/attention/query", f"{theirs}.attn.q"),
        **key_value,
        **torch_dense(f"{ours}/attention/out", f"{theirs}.attn.proj"),
        f"{ours}/attention_scale/gamma": (f"{theirs}.gamma_1", "same"),
        **torch_norm(f"{ours}/mlp_norm", f"{theirs}.norm2"),
        **torch_dense(f"{ours}/mlp/dense", f"{theirs}.mlp.fc1"),
        **torch_dense(f"{ours}/mlp/dense_1", f"{theirs}.mlp.fc2"),
        f"{ours}/mlp_scale/gamma": (f"{theirs}.gamma_2", "same"),
    }


BACKBONE = "patch_embed.backbone"
LAMBDAS = ("q1", "k1", "q2", "k2")  # of differential attention

PATCHES = torch_dense(
    "patch_embed/projection", "patch_embed.proj", kernel="convolution"
)
PLAIN_BLOCK = {
    **torch_norm("block_{i}/attention_norm", "blocks.{i}.norm1"),
    **torch_dense(
        "block_{i}/attention/qkv",
        "blocks.{i}.attn.qkv",
        "torch_qkv_rows",
        "torch_qkv_rows",
    ),
    **torch_dense("block_{i}/attention/out", "blocks.{i}.attn.proj"),
    **torch_norm("block_{i}/mlp_norm", "blocks.{i}.norm2"),
    **torch_dense("block_{i}/mlp/dense", "blocks.{i}.mlp.fc1"),
    **torch_dense("block_{i}/mlp/dense_1", "blocks.{i}.mlp.fc2"),
}

TIMM = {
    **PATCHES,
    "patch_norm/gamma": ("patch_embed.norm.weight", "same"),  # of AIMv2, RMS
    **torch_convolution("stem_conv1", f"{BACKBONE}.0.conv"),
    **batch_norm("stem_norm1", f"{BACKBONE}.0.bn"),
    **torch_convolution("stem_conv2", f"{BACKBONE}.1.conv"),
    **batch_norm("stem_norm2", f"{BACKBONE}.1.bn"),
    "class_token/token": ("cls_token", "same"),
    "position_embedding/embedding": ("pos_embed", "same"),
    **torch_norm("first_norm", "norm_pre"),
    **PLAIN_BLOCK,
    **torch_norm("block_{i}/attention/query_norm", "blocks.{i}.attn.q_norm"),
    **torch_norm("block_{i}/attention/key_norm", "blocks.{i}.attn.k_norm"),
    "block_{i}/attention/rotary/frequencies": ("rope.freqs.{i}", "same"),
    "block_{i}/attention/position_bias/table": (
        "blocks.{i}.attn.relative_position_bias_table",
        "same",
    ),
    **position_mlp(
        "block_{i}/attention/position_bias", "blocks.{i}.attn.rel_pos.mlp"
    ),
    "position_bias/table": (
        "shared_rel_pos.relative_position_bias_table",
        "same",
    ),
    **position_mlp("position_bias", "shared_rel_pos.mlp"),
    **torch_norm("block_{i}/attention/inner_norm", "blocks.{i}.attn.norm"),
    **heads_dense(
        "block_{i}/attention/logits_projection", "blocks.{i}.attn.proj_l"
    ),
    **heads_dense(
        "block_{i}/attention/weights_projection", "blocks.{i}.attn.proj_w"
    ),
    "block_{i}/attention/lambdas": (
        tuple("blocks.{i}.attn.lambda_" + x for x in LAMBDAS),
        "stacked_vectors",
    ),
    "block_{i}/attention/heads_norm/gamma": (
        "blocks.{i}.attn.sub_norm.weight",
        "same",
    ),
    "block_{i}/attention_scale/gamma": ("blocks.{i}.ls1.gamma", "same"),
    **torch_norm("block_{i}/mlp/inner_norm", "blocks.{i}.mlp.norm"),
    "block_{i}/mlp_scale/gamma": ("blocks.{i}.ls2.gamma", "same"),
    **class_block("class_block_{i}", "blocks_token_only.{i}"),
    **torch_norm("encoder_norm", "norm"),
    "pool/probe": ("attn_pool.latent", "same"),
    **torch_dense("pool/query", "attn_pool.q"),
    **torch_dense(
        "pool/key_value", "attn_pool.kv", "torch_kv_rows", "torch_kv_rows"
    ),
    **torch_dense("pool/out", "attn_pool.proj"),
    **torch_norm("pool/norm", "attn_pool.norm"),
    **torch_dense("pool/mlp/dense", "attn_pool.mlp.fc1"),
    **torch_dense("pool/mlp/dense_1", "attn_pool.mlp.fc2"),
    **torch_dense("pre_logits", "pre_logits.fc"),
    **torch_dense("predictions", "head"),
    **torch_convolution("root_conv", f"{BACKBONE}.stem.conv"),
    **torch_norm("root_norm", f"{BACKBONE}.stem.norm"),
    **unit(BACKBONE + ".stages.{s0}.blocks.{u0}"),
}

# The image encoder of SAM, whose positions are a map and whose neck is torch's
# convolutions.
SAM = {
    **PATCHES,
    **PLAIN_BLOCK,
    "position_embedding/embedding": ("pos_embed", "grid_behind_prefix"),
    "block_{i}/attention/position_bias/rows": (
        "blocks.{i}.attn.rel_pos_h",
        "same",
    ),
    "block_{i}/attention/position_bias/columns": (
        "blocks.{i}.attn.rel_pos_w",
        "same",
    ),
    "neck/projection/kernel": ("neck.0.weight", "linear_1x1"),
    **torch_norm("neck/projection_norm", "neck.1"),
    **torch_convolution("neck/convolution", "neck.2"),
    **torch_norm("neck/convolution_norm", "neck.3"),
}
TIMM_SAM = {**SAM, **torch_dense("predictions", "head.fc")}

# Blocks whose attention and MLP share their first projection ...
TIMM_PARALLEL = {
    **torch_norm("block_{i}/attention_norm", "blocks.{i}.in_norm"),
    **{
        f"block_{{i}}/{ours}/{weight}": (f"blocks.{{i}}.in_proj.{name}", part)
        for ours, part in (
            ("attention/qkv", "qkv_behind_mlp"),
            ("mlp/dense", "mlp_before_qkv"),
        )
        for weight, name in (("kernel", "weight"), ("bias", "bias"))
    },
    **torch_norm("block_{i}/attention/query_norm", "blocks.{i}.q_norm"),
    **torch_norm("block_{i}/attention/key_norm", "blocks.{i}.k_norm"),
    "block_{i}/attention/lambdas": (
        tuple("blocks.{i}.lambda_" + x for x in LAMBDAS),
        "stacked_vectors",
    ),
    "block_{i}/attention/heads_norm/gamma": (
        "blocks.{i}.sub_norm.weight",
        "same",
    ),
    "block_{i}/attention/out/kernel": (
        "blocks.{i}.attn_out_proj.weight",
        "linear",
    ),
    "block_{i}/attention/out/bias": (
        (
            "blocks.{i}.attn_out_proj.bias",
            "blocks.{i}.mlp_out_proj.bias",
        ),
        "summed",
    ),
    "block_{i}/mlp/dense_1/kernel": (
        "blocks.{i}.mlp_out_proj.weight",
        "linear",
    ),
    "block_{i}/attention_scale/gamma": ("blocks.{i}.ls.gamma", "same"),
}
# ... without biases for query, key and value ...
TIMM_MLP_BIAS = {"block_{i}/mlp/dense/bias": ("blocks.{i}.mlp_bias", "same")}
# ... and the last projection.
TIMM_FUSED_OUTPUT = {
    "block_{i}/attention/out/kernel": (
        "blocks.{i}.out_proj.weight",
        "out_before_mlp",
    ),
    "block_{i}/attention/out/bias": ("blocks.{i}.out_proj.bias", "same"),
    "block_{i}/mlp/dense_1/kernel": (
        "blocks.{i}.out_proj.weight",
        "mlp_behind_out",
    ),
}

TIMM_DISTILLED = {
    "class_token/token": (("cls_token", "dist_token"), "tokens"),
}

# MobileCLIP's, whose last convolution is the projection.
TIMM_PATCH_STEM = torch_dense(
    "patch_embed/projection", f"{BACKBONE}.2.conv", kernel="convolution"
)

TIMM_REGISTERS = {
    "class_token/token": (("cls_token", "reg_token"), "token_and_registers"),
}

TIMM_REGISTERS_ALONE = {"class_token/token": ("reg_token", "same")}

# DeiT III's own files.
TIMM_GAMMAS = {
    "block_{i}/attention_scale/gamma": ("blocks.{i}.gamma_1", "same"),
    "block_{i}/mlp_scale/gamma": ("blocks.{i}.gamma_2", "same"),
}

# NaFlexViT's: a dense layer of patches, and a grid of positions, or one for the
# rows and one for the columns.
TIMM_FLAT_PATCHES = {
    "patch_embed/projection/kernel": ("patch_embed.flat.weight", "patches"),
}

TIMM_POSITION_GRID = {
    "position_embedding/embedding": ("pos_grid", "grid_behind_prefix"),
}

TIMM_POSITION_AXES = {
    "position_embedding/embedding": (("pos_y", "pos_x"), "axes_behind_prefix"),
}

# EVA's and BEiT's, whose keys have no bias.
TIMM_QUERY_VALUE_BIASES = {
    "block_{i}/attention/qkv/bias": (
        ("blocks.{i}.attn.q_bias", "blocks.{i}.attn.v_bias"),
        "torch_query_value",
    ),
}

# Those of relpos models, in a module of their own.
TIMM_RELATIVE_TABLES = {
    "block_{i}/attention/position_bias/table": (
        "blocks.{i}.attn.rel_pos.relative_position_bias_table",
        "same",
    ),
}

TIMM_SEPARATE_QKV = {
    "block_{i}/attention/qkv/kernel": (
        tuple("blocks.{i}.attn." + f"{x}_proj.weight" for x in "qkv"),
        "torch_qkv",
    ),
    "block_{i}/attention/qkv/bias": (
        tuple("blocks.{i}.attn." + f"{x}_proj.bias" for x in "qv"),
        "torch_query_value",
    ),
}

# Sapiens2's, whose keys have a bias and may have fewer heads.
TIMM_GROUPED_QKV = {
    f"block_{{i}}/attention/qkv/{weight}": (
        tuple(f"blocks.{{i}}.attn.{x}_proj.{name}" for x in "qkv"),
        "torch_grouped_qkv",
    )
    for weight, name in {"kernel": "weight", "bias": "bias"}.items()
}

TIMM_SEPARATE_GATES = {
    "block_{i}/mlp/dense/kernel": (
        ("blocks.{i}.mlp.fc1_g.weight", "blocks.{i}.mlp.fc1_x.weight"),
        "gates_and_values",
    ),
    "block_{i}/mlp/dense/bias": (
        ("blocks.{i}.mlp.fc1_g.bias", "blocks.{i}.mlp.fc1_x.bias"),
        "gate_and_value_biases",
    ),
}

TIMM_AVERAGED_HEADS = {
    "predictions/kernel": (
        ("head.weight", "head_dist.weight"),
        "average_heads",
    ),
    "predictions/bias": (("head.bias", "head_dist.bias"), "average_biases"),
}

TIMM_NORM_AFTER_POOLING = torch_norm("encoder_norm", "fc_norm")

TIMM_PREFIX_WITHOUT_POSITION = {
    "position_embedding/embedding": ("pos_embed", "behind_prefix"),
}

TIMM_ROOT_ONLY = {
    **torch_convolution("root_conv", f"{BACKBONE}.conv"),
    **torch_norm("root_norm", f"{BACKBONE}.norm"),
}

TIMM_MIXER = {
    **torch_dense("patch_embed/projection", "stem.proj", kernel="convolution"),
    **torch_norm("block_{i}/token_norm", "blocks.{i}.norm1"),
    **torch_dense("block_{i}/token_mixing/dense", "blocks.{i}.mlp_tokens.fc1"),
    **torch_dense(
        "block_{i}/token_mixing/dense_1", "blocks.{i}.mlp_tokens.fc2"
    ),
    **torch_norm("block_{i}/channel_norm", "blocks.{i}.norm2"),
    **torch_dense(
        "block_{i}/channel_mixing/dense", "blocks.{i}.mlp_channels.fc1"
    ),
    **torch_dense(
        "block_{i}/channel_mixing/dense_1", "blocks.{i}.mlp_channels.fc2"
    ),
    **torch_norm("encoder_norm", "norm"),
    **torch_dense("predictions", "head"),
    # Of ResMLP.
    **torch_dense("block_{i}/token_mixing", "blocks.{i}.linear_tokens"),
    "block_{i}/token_scale/gamma": ("blocks.{i}.ls1", "same"),
    "block_{i}/channel_scale/gamma": ("blocks.{i}.ls2", "same"),
}

TIMM_AFFINE = {
    f"{ours}/{weight}": (f"{theirs}.{name}", "vector_3d")
    for ours, theirs in (
        ("block_{i}/token_norm", "blocks.{i}.norm1"),
        ("block_{i}/channel_norm", "blocks.{i}.norm2"),
        ("encoder_norm", "norm"),
    )
    for weight, name in (("gamma", "alpha"), ("beta", "beta"))
}

# Of gMLP.
TIMM_SPATIAL_GATING = {
    **torch_norm("block_{i}/channel_norm", "blocks.{i}.norm"),
    **torch_norm(
        "block_{i}/channel_mixing/gate/norm",
        "blocks.{i}.mlp_channels.gate.norm",
    ),
    **torch_dense(
        "block_{i}/channel_mixing/gate/dense",
        "blocks.{i}.mlp_channels.gate.proj",
    ),
}

# Of gMixer, whose gates come after the values.
TIMM_GATES_LAST = {
    **torch_dense(
        "block_{i}/token_mixing/dense",
        "blocks.{i}.mlp_tokens.fc1",
        "gates_last",
        "gates_last_biases",
    ),
    **torch_dense(
        "block_{i}/channel_mixing/dense",
        "blocks.{i}.mlp_channels.fc1",
        "gates_last",
        "gates_last_biases",
    ),
}


RESNET_UNIT = "stages.{s0}.blocks.{u0}"
TIMM_BIT = {
    **torch_convolution("root_conv", "stem.conv"),
    **torch_convolution("root_conv1", "stem.conv1"),
    **resnet_norm("root_norm1", "stem.norm1"),
    **torch_convolution("root_conv2", "stem.conv2"),
    **resnet_norm("root_norm2", "stem.norm2"),
    **torch_convolution("root_conv3", "stem.conv3"),
    **preactivated_unit(RESNET_UNIT),
    **resnet_norm("stage{s}_unit{u}_norm1", f"{RESNET_UNIT}.norm1"),
    **resnet_norm("stage{s}_unit{u}_norm2", f"{RESNET_UNIT}.norm2"),
    **resnet_norm("stage{s}_unit{u}_norm3", f"{RESNET_UNIT}.norm3"),
    **resnet_norm("encoder_norm", "norm"),
    **torch_dense("predictions", "head.fc", kernel="linear_1x1"),
}

ENCODER_LAYER = "encoder.layers.encoder_layer_{i}"

TORCHVISION = {
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
