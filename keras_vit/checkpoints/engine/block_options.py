"""What the weights of a file show of the blocks of a Vision Transformer."""

import math
import re

from keras_vit.checkpoints.engine.grids import relative_positions, times
from keras_vit.checkpoints.files.tensors import DAMAGED, refuse

__all__ = [
    "biases",
    "block_options",
    "class_blocks",
    "count",
    "patch_stem",
    "prefix_tokens",
]


def patch_stem(source, projected) -> dict:
    """The convolutions before the projection of the patches."""
    kernels = [
        source.checked_shape(path, 4)
        for path in ("stem_conv1/kernel", "stem_conv2/kernel")
        if path in source.rows
    ]
    if not kernels:
        return {}
    strides = tuple(kernel[0] for kernel in kernels)
    return {
        "channels": kernels[0][2],
        "patch_size": times(projected, (math.prod(strides),) * 2),
        "patch_stem": strides,
        "patch_stem_dim": kernels[0][3],
    }


def prefix_tokens(source) -> tuple[int, int]:
    """How many tokens stand before the patches, and how many are registers."""
    path = "class_token/token"
    prefix = source.checked_shape(path, 3)[1] if path in source.rows else 0
    if "registers_alone" in source.features:
        return prefix, prefix
    others = 1 + ("distillation_token" in source.features)
    return prefix, max(prefix - others, 0)


def class_blocks(source) -> int:
    """How many blocks there are of class attention."""
    if not any(path.startswith("class_block_") for path in source.rows):
        return 0
    return count(source, r"class_block_(\d+)/.*")


def biases(source) -> dict:
    """Which of the biases that the format may leave out are there."""
    head = {"predictions/kernel", "predictions/bias"} & set(source.rows)
    without = {"head_bias": None} if head == {"predictions/kernel"} else {}
    paths = {
        "patch_bias": "patch_embed/projection/bias",
        "qkv_bias": "block_0/attention/qkv/bias",
        "projection_bias": "block_0/attention/out/bias",
    }
    return without | {
        name: name not in source.format.optional or path in source.rows
        for name, path in paths.items()
    }


def block_options(source, told, facts) -> dict:
    """The options of the block that its weights show."""
    there = {
        "attention_inner_norm": "block_0/attention/inner_norm/gamma",
        "final_norm": "encoder_norm/gamma",
        "mlp_inner_norm": "block_0/mlp/inner_norm/gamma",
        "qk_norm": "block_0/attention/query_norm/gamma",
        "talking_heads": "block_0/attention/logits_projection/kernel",
        "differential_attention": "block_0/attention/lambdas",
    }
    fields: dict = {x: path in source.rows for x, path in there.items()}
    fields |= relative_positions(source)
    hidden = source.checked_shape("block_0/mlp/dense_1/kernel", 2, facts)[0]
    first = source.checked_shape("block_0/mlp/dense/kernel", 2, facts)[1]
    fields["gated_mlp"] = first == 2 * hidden
    if "block_0/attention_norm/beta" not in source.rows:
        fields["normalization"] = "rms_norm"
    row = source.rows.get("block_0/attention/qkv/bias")
    keyless = row is not None and row.transform.endswith("query_value")
    if "grouped_qkv" in source.features:
        fields["key_value_heads"] = _key_value_heads(source, facts)
    elif keyless or "separate_qkv" in source.features:
        fields["key_bias"] = False
    scales = [f"block_0/{x}_scale/gamma" for x in ("attention", "mlp")]
    if "parallel" in source.features:
        fields["mlp_placement"] = "beside"
    elif [x in source.rows for x in scales] == [True, False]:
        fields["mlp_layer_scale"] = False
    if "block_0/attention/rotary/frequencies" in source.rows:
        fields["rope"] = "mixed"
    if "neck/projection/kernel" in source.rows:
        neck = source.checked_shape("neck/projection/kernel", 2)
        fields["neck_dim"] = neck[1]
    if "pool/mlp/dense/kernel" in source.rows:
        pooled = source.checked_shape("pool/mlp/dense/kernel", 2, facts)[1]
        fields["pool_mlp_dim"] = pooled if pooled != hidden else 0
    return fields


def _key_value_heads(source, facts) -> tuple:
    """Heads of keys and values in each block, whose biases tell them."""
    blocks = range(count(source, r"block_(\d+)/.*"))
    widths = (
        source.checked_shape(f"block_{i}/attention/qkv/bias", 1, facts)[0]
        for i in blocks
    )
    head_dim = facts.hidden_dim // facts.num_heads
    return tuple((x - facts.hidden_dim) // (2 * head_dim) for x in widths)


def count(source, pattern) -> int:
    """How many blocks or units there are, numbered without a gap from 0."""
    found = {
        int(match[1]) for x in source.rows if (match := re.match(pattern, x))
    }
    missing = set(range(max(found, default=0) + 1)) - found
    if missing:
        refuse(
            source.file.path,
            f"lacks numbers {sorted(missing)[:20]} of its blocks",
            DAMAGED,
        )
    return len(found)
