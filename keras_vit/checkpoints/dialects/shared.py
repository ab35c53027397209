"""What several publishers' files have in common: rows, words and sizes.

It names none of them, so that each can be taken away alone.
"""

import numpy as np

from keras_vit.checkpoints.engine.layout import (
    flax_dense,
    flax_norm,
    torch_convolution,
    torch_dense,
    torch_norm,
)
from keras_vit.checkpoints.files.tensors import refuse

__all__ = [
    "ACTIVATIONS",
    "BATCH_NORM",
    "CHUNKS",
    "CONTRASTIVE",
    "EXACT_GELU",
    "FLAX_COMPANIONS",
    "FLAX_STACKS",
    "FLAX_TOWERS",
    "FLAX_VIT",
    "LOGITS",
    "PATCHES",
    "PERIODS",
    "PLAIN_BLOCK",
    "PLAIN_OPTIONS",
    "RESBLOCKS",
    "RESBLOCK_TEXTS",
    "SAM_ENCODER",
    "SAM_MARKS",
    "SAM_SIGNS",
    "SIGLIP_TOKENIZER",
    "TANH_GELU",
    "TEXT_TOWER",
    "TORCH_RESNET",
    "check_periods",
    "flax_attention",
    "flax_block",
    "image_size",
    "method_of",
    "pixels",
    "preactivated_unit",
    "tokenizer_files",
    "unit",
]

TANH_GELU = {"activation": "gelu_tanh", "layer_norm_epsilon": 1e-6}
EXACT_GELU = {"activation": "gelu", "layer_norm_epsilon": 1e-6}
TORCH_RESNET = {
    "resnet_standardization": "variance",
    "resnet_standardization_epsilon": 1e-8,
    "resnet_group_norm_epsilon": 1e-5,
}

# Of what a file may hold and the models here do not have.
BATCH_NORM = {
    r".*\.(running_mean|running_var|num_batches_tracked)": (
        "batch normalisation"
    ),
}

# The fields of a config of which each publisher's tensors, constants or
# configs hold other values than the default, where its code has them.
_COMMON = (
    *("image_size", "channels", "pooling", "num_classes"),
    *("classifier_activation", "head_bias", "include_preprocessing"),
)
_TOKENS = (
    *("patch_size", "hidden_dim", "stochastic_depth_rate"),
    *("layer_norm_epsilon", "activation", "num_layers"),
)
PLAIN_OPTIONS = {
    "vit": frozenset(
        (
            *(*_COMMON, *_TOKENS, "mlp_dim", "num_heads", "class_token"),
            *("distillation_token", "register_tokens", "position_embedding"),
            *("representation_dim", "dropout_rate", "attention_dropout_rate"),
            *("layer_scale_init", "patch_bias", "qkv_bias"),
            *("norm_before_blocks", "resnet_units", "resnet_width"),
            *("resnet_standardization", "resnet_standardization_epsilon"),
            *("resnet_group_norm_epsilon", "pixel_mean", "pixel_std"),
            *("flash_attention", "rematerialize"),
        )
    ),
    "mixer": frozenset(
        (*_COMMON, *_TOKENS, "tokens_mlp_dim", "channels_mlp_dim")
    ),
    "bit": frozenset(
        (
            *(*_COMMON, "units", "width"),
            *("standardization_epsilon", "group_norm_epsilon"),
        )
    ),
}

# What others call our activations.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
ANY_IMAGE = (224, 224)  # of a model that takes any size


def image_size(config) -> tuple:
    """Return (height, width) of the images that a config is written for."""
    size = config["image_size"]
    return ANY_IMAGE if None in size else size


def pixels(config) -> tuple[list, list]:
    """Return mean and deviation of the pixels, which [-1, 1] has as well."""
    halves = (0.5,) * config["channels"]
    return (
        list(config.get("pixel_mean") or halves),
        list(config.get("pixel_std") or halves),
    )


def method_of(rule) -> str:
    """Return how images are resampled, which has a default for each crop."""
    small = rule.get("evaluation") == "resize_small_central_crop"
    return rule.get("resize_method") or ("area" if small else "bilinear")


# What files of images and texts hold beside the tower of the images.
CONTRASTIVE = (
    *(r"logit_(scale|bias)", r"text(_decoder)?\..*", r"attn_mask"),
    *(r"context_length", r"vocab_size", r"input_resolution"),
)
TEXT_TOWER = (
    *(r"transformer\..*", r"token_embedding\..*", r"ln_final\..*"),
    *(r"positional_embedding", r"text_projection(\.\w+)?", r"cls_emb"),
)

# Blocks and names of OpenAI's CLIP, whose two towers have the same.
RESBLOCK = "transformer.resblocks.{i}"
RESBLOCKS = {
    **torch_norm("block_{i}/attention_norm", f"{RESBLOCK}.ln_1"),
    "block_{i}/attention/qkv/kernel": (
        f"{RESBLOCK}.attn.in_proj_weight",
        "torch_qkv_rows",
    ),
    "block_{i}/attention/qkv/bias": (
        f"{RESBLOCK}.attn.in_proj_bias",
        "torch_qkv_rows",
    ),
    **torch_dense("block_{i}/attention/out", f"{RESBLOCK}.attn.out_proj"),
    "block_{i}/attention_scale/gamma": (f"{RESBLOCK}.ls_1.gamma", "same"),
    **torch_norm("block_{i}/mlp_norm", f"{RESBLOCK}.ln_2"),
    **torch_dense("block_{i}/mlp/dense", f"{RESBLOCK}.mlp.c_fc"),
    **torch_dense("block_{i}/mlp/dense_1", f"{RESBLOCK}.mlp.c_proj"),
    "block_{i}/mlp_scale/gamma": (f"{RESBLOCK}.ls_2.gamma", "same"),
}
RESBLOCK_TEXTS = {
    "token_embedding/embeddings": ("token_embedding.weight", "same"),
    "position_embedding/embedding": ("positional_embedding", "rows"),
    **RESBLOCKS,
    **torch_norm("encoder_norm", "ln_final"),
}
# What makes scores of cosines.
LOGITS = {x: (x, "vector") for x in ("logit_scale", "logit_bias")}

# What a file of Flax may hold besides one tower's parameters.
FLAX_COMPANIONS = (r"opt/.*", r"state/.*", r"params/(txt/.*|t|b)", r"chrono/.*")
# The tower of the texts, and the decoder of CapPa.
FLAX_TOWERS = (r"txt/.*", r"[tb]", r"decoder/.*", r"pos_embedding_decoder")
FLAX_STACKS = {
    r"Transformer/encoderblock/(.*)": (
        0,
        r"Transformer/encoderblock_{i}/\1",
    )
}
QUERY_KEY_VALUE = ("query", "key", "value")


def flax_attention(ours, theirs):
    """Return the rows of a MultiHeadDotProductAttention of Flax."""
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


def flax_block(norm, attention_name, norm_1, mlp):
    """Return the rows of encoder blocks under the names of one numbering."""
    theirs = "Transformer/encoderblock_{i}"
    return {
        **flax_norm("block_{i}/attention_norm", f"{theirs}/{norm}"),
        **flax_attention("block_{i}/attention", f"{theirs}/{attention_name}"),
        **flax_norm("block_{i}/mlp_norm", f"{theirs}/{norm_1}"),
        **flax_dense("block_{i}/mlp/dense", f"{theirs}/{mlp}/Dense_0"),
        **flax_dense("block_{i}/mlp/dense_1", f"{theirs}/{mlp}/Dense_1"),
    }


FLAX_VIT = {
    **flax_dense("patch_embed/projection", "embedding"),
    "class_token/token": ("cls", "same"),
    **flax_norm("encoder_norm", "Transformer/encoder_norm"),
    **flax_dense("pre_logits", "pre_logits"),
    **flax_dense("predictions", "head"),
}


def preactivated_unit(theirs):
    """Return the rows of a unit of BiT; several publishers call it the same."""
    ours = "stage{s}_unit{u}"
    rows = torch_convolution(f"{ours}_shortcut", f"{theirs}.downsample.conv")
    for i in (1, 2, 3):
        rows |= torch_convolution(f"{ours}_conv{i}", f"{theirs}.conv{i}")
        rows |= torch_norm(f"{ours}_norm{i}", f"{theirs}.norm{i}")
    return rows


def unit(theirs):
    """Return the rows of a hybrid's unit, whose shortcuts are normalised."""
    shortcut = "stage{s}_unit{u}_shortcut_norm"
    return {
        **preactivated_unit(theirs),
        **torch_norm(shortcut, f"{theirs}.downsample.norm"),
    }


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

# Blocks in chunks, as training with shards writes them: the second number
# counts all blocks.
CHUNKS = ((r"blocks\.\d+\.(\d+\..*)", r"blocks.\1"),)

# The image encoder of SAM, whose positions are a map and whose neck is torch's
# convolutions.
SAM_ENCODER = {
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
SAM_MARKS = (
    (
        "patch_embed.proj.weight",
        "blocks.0.attn.qkv.weight",
        "neck.0.weight",
    ),
)
SAM_SIGNS = {"position_map": "pos_embed"}


# SigLIP's, whose texts are canonical: its end is its padding.
SIGLIP_TOKENIZER = {
    "cleaning": ("canonical",),
    "padding": 1,
    "end": 1,
    "marks": {"</s>": 1, "<unk>": 2},
}
# What a folder may hold of a tokenizer, the first that is there; each name is
# that of files which belong together.
TOKENIZERS = (
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("spiece.model",),
    ("tokenizer.model",),
)


def tokenizer_files(folder, rule: dict, among: tuple = TOKENIZERS) -> dict:
    """Return the rule of a tokenizer with its files, {} where there is none.

    Args:
        folder: a `pathlib.Path`.
        rule: dict, that of `keras_vit.text.Tokenizer` without its files.
        among: tuples of names of files, of which the first that is there is
            taken.
    """
    for names in among:
        if all((folder / x).is_file() for x in names):
            return {**rule, "files": tuple(str(folder / x) for x in names)}
    return {}


PERIODS = "rope_embed.periods"


def check_periods(checkpoint, fields) -> None:
    """Refuse periods of rotary positions that are not those of the model.

    A model computes them from its `rope_temperature`, to the power of 4 i / d
    for each i below a quarter of the d numbers of a head.
    """
    if PERIODS not in checkpoint.file.tensors:
        return
    found = checkpoint.file.read(PERIODS)
    size = fields["hidden_dim"] // fields["num_heads"]
    temperature = fields.get("rope_temperature", 100.0)
    wanted = temperature ** (4 * np.arange(size // 4) / size)
    # Half precision has three digits.
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=1e-2):
        refuse(
            checkpoint.file.path,
            f"has periods to {np.max(found, initial=0):.4g}, but heads of "
            f"{size} numbers and rope_temperature={temperature:g} have "
            f"{len(wanted)} to {wanted[-1]:.4g}",
            "Give the num_heads and the rope_temperature that it was trained "
            "with.",
            PERIODS,
        )
