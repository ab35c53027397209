"""Heads of keys and values that several heads of queries read.

"GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
Checkpoints" (arXiv:2305.13245).

Axes: B batch, N tokens, H heads of queries, G of keys and values, Q = H / G
queries in a group, d head dimension.
"""

from keras import ops

__all__ = ["check_groups", "with_repeated_keys"]


def check_groups(attention) -> None:
    """Refuses heads of keys and values that queries do not share alike."""
    groups, heads = attention.key_value_heads, attention.num_heads
    if groups is None:
        return
    if groups < 1 or heads % groups or not attention.key_bias:
        raise ValueError(
            f"Each head of keys and values is read by as many of {heads} heads "
            "of queries, and key_bias is True. Received: key_value_heads="
            f"{groups}, key_bias={attention.key_bias}. Choose one of "
            f"{[n for n in range(1, heads + 1) if heads % n == 0]}."
        )


def with_repeated_keys(x):
    """Gives each query the key and value of its group.

    Args:
        x: (B, N, G, Q + 2, d), Q queries, a key and a value in each group.

    Returns:
        Query, key and value of each head, (B, N, G * Q, 3, d).
    """
    query, shared = x[..., :-2, None, :], x[..., None, -2:, :]
    shared = ops.repeat(shared, query.shape[-3], axis=-3)  # (B,N,G,Q,2,d)
    x = ops.concatenate([query, shared], axis=-2)  # (B, N, G, Q, 3, d)
    shape = ops.shape(x)
    heads = x.shape[-4] * x.shape[-3]
    return ops.reshape(x, (*shape[:-4], heads, *shape[-2:]))
