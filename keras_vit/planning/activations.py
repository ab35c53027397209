"""What a training step keeps of its forward pass for the backward pass.

Letters: T tokens, D hidden dimension, M MLP dimension, H heads.
"""

from typing import NamedTuple

from keras_vit.models import ViTConfig
from keras_vit.planning.counts import num_tokens
from keras_vit.planning.settings import FLOAT32, PRECISIONS, Settings

__all__ = ["Kept", "activation_bytes", "kept_by_block"]


class Kept(NamedTuple):
    """A tensor that stays in memory until the backward pass reaches it."""

    name: str
    values: int
    """Numbers for one image."""
    size: int
    """Bytes of each."""
    divided: bool = False
    """Whether model_parallel divides it."""


def kept_by_block(config: ViTConfig, settings: Settings) -> list[Kept]:
    """What one block keeps for one image.

    "keeping" compilers keep what JAX saves
    (`jax.ad_checkpoint.print_saved_residuals`), less the products inside
    GELU. "fusing" compilers keep what goes into each product, once, and
    compute normalisations and GELU again where they are used.

    Args:
        config: a `ViTConfig`.
        settings: a `Settings`.

    Returns:
        A list of `Kept`.
    """
    tokens, dim = num_tokens(config), config.hidden_dim
    stream, compute = tokens * dim, PRECISIONS[settings.precision]
    softmax, mlp = config.num_heads * tokens**2, tokens * config.mlp_dim
    kept = [
        Kept("queries, keys, values", 3 * stream, compute, True),
        Kept("heads", stream, compute, True),
    ]
    if settings.compiler == "fusing":
        kept += [
            Kept("inputs of the normalisations", 2 * stream, compute),
            Kept("before GELU", mlp, compute, True),
        ]
    else:
        softmax *= 3  # The logits, their exponentials, the weights.
        kept += [
            Kept("inputs of the normalisations", 2 * stream, FLOAT32),
            Kept("normalised", 2 * stream, compute),
            Kept("before GELU, its tanh, after it", 3 * mlp, compute, True),
        ]
    if settings.attention == "flash":
        sums = config.num_heads * tokens  # Their logarithms.
        return [*kept, Kept("sums of the softmax", sums, FLOAT32, True)]
    return [*kept, Kept("softmax", softmax, compute, True)]


def activation_bytes(
    config: ViTConfig, settings: Settings, rematerialize: bool, shares: int
) -> float:
    """Bytes that one image needs on a device.

    Args:
        config: a `ViTConfig`.
        settings: a `Settings`.
        rematerialize: bool, whether only the inputs of blocks are kept.
        shares: int, into which devices divide what attention and MLPs
            compute.

    Returns:
        What is kept, with what the block at hand works on.
    """
    tokens, dim = num_tokens(config), config.hidden_dim
    compute = PRECISIONS[settings.precision]
    block = sum(
        kept.values * kept.size / (shares if kept.divided else 1)
        for kept in kept_by_block(config, settings)
    )
    # Embedded patches; the last normalisation.
    ends = tokens * dim * (compute + 3 * FLOAT32 + compute)
    is_explicit = settings.attention == "explicit"
    scores = config.num_heads * tokens if is_explicit else 0
    # The gradients of the stream and of the widest tensors beside it.
    widest = max(3 * dim + scores, config.mlp_dim) / shares
    working = tokens * (dim + widest) * compute
    if rematerialize:
        inputs = config.num_layers * tokens * dim * compute
        return inputs + block + ends + working
    return config.num_layers * block + ends + working
