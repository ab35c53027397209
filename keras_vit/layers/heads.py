"""Scores, softmax and sums of the heads of attention.

Axes: B batch, N query tokens, M key tokens, H heads, d head dimension,
D = H * d hidden dimension.
"""

import keras
from keras import ops

from keras_vit.runtime.platforms import WIDE_HEADS, by_platform, recomputed

__all__ = [
    "attended",
    "causal",
    "first_tokens",
    "parts_first",
    "in_one_pass",
    "masked",
    "merge_heads",
    "over_heads",
    "precise_softmax",
    "recomputing",
    "scores_of_heads",
    "softmax_of_heads",
    "softmax_weights",
    "swap_heads_and_tokens",
    "with_repeated_keys",
]


def parts_first(qkv):
    """Query, key and value, each (B, H, N, d), of one (B, N, H, 3, d).

    One transposition, of which the three are parts side by side in memory.
    """
    return ops.unstack(ops.transpose(qkv, (3, 0, 2, 1, 4)), 3, axis=0)


def swap_heads_and_tokens(x):
    """(B, H, N, d) to (B, N, H, d), and back."""
    return ops.transpose(x, (0, 2, 1, 3))


def first_tokens(x, count: int | None):
    """The first tokens of (B, N, D) or of heads (B, H, N, d); None for all.

    For a slice, XLA for TPUs lays out the tokens of all blocks anew, and back
    in each. There a token is the sum of all, of which the others are zero.
    """
    if count is None:
        return x
    if not 1 <= count <= (x.shape[-2] or count):
        raise ValueError(
            "queries are the first of the tokens, from 1 to "
            f"{x.shape[-2]}. Received: queries={count}."
        )

    def sliced(x):
        return x[..., :count, :]

    def summed(x):
        places = ops.arange(x.shape[-2])[:, None]  # (N, 1)
        nothing = ops.zeros((), x.dtype)
        return ops.concatenate(
            [
                ops.sum(
                    ops.where(places == i, x, nothing), axis=-2, keepdims=True
                )
                for i in range(count)
            ],
            axis=-2,
        )

    return by_platform(x, cpu=sliced, gpu=sliced, other=summed)


def softmax_of_heads(query, key, valid=None):
    """`softmax(q k^T / sqrt(d))` of (B, H, N, d) and (B, H, M, d)."""
    scores = masked(scores_of_heads(query, key), valid)
    return precise_softmax(scores)  # (B, H, N, M)


def masked(scores, valid, nothing=float("-inf")):
    """The scores (B, H, N, M) without those of keys that are not valid."""
    if valid is None:
        return scores
    return ops.where(over_heads(valid), scores, nothing)


def over_heads(valid):
    """Give (B, M), or (B, N, M) of each query, the axes of scores."""
    return valid[:, None] if len(valid.shape) == 3 else valid[:, None, None]


def causal(valid, length: int):
    """Return (B or 1, N, N): of the valid keys those up to the query."""
    order = ops.arange(length)
    earlier = (order[:, None] >= order)[None]  # (1, N, N)
    return earlier if valid is None else earlier & valid[:, None]


def scores_of_heads(query, key):
    """`q k^T / sqrt(d)` of (B, H, N, d) and (B, H, M, d)."""
    return products(query * query.shape[-1] ** -0.5, key)  # (B, H, N, M)


def products(x, y):
    """`x y^T` of (B, H, N, d) and (B, H, M, d)."""
    return ops.matmul(x, ops.transpose(y, (0, 1, 3, 2)))  # (B, H, N, M)


def precise_softmax(scores):
    """Softmax over the last axis, computed in float32 at least."""
    precise = keras.backend.result_type(scores.dtype, "float32")
    weights = ops.softmax(ops.cast(scores, precise), axis=-1)
    return ops.cast(weights, scores.dtype)


def softmax_weights(query, key, valid=None):
    """`softmax_of_heads` of query (B, N, H, d) and key (B, M, H, d)."""
    query, key = map(swap_heads_and_tokens, (query, key))
    return softmax_of_heads(query, key, valid)


def merge_heads(x):
    """Joins the heads: (B, N, H, d) becomes (B, N, D)."""
    return ops.reshape(x, (*ops.shape(x)[:-2], x.shape[-2] * x.shape[-1]))


def attended(query, key, value, valid=None, training=True):
    """`softmax(q k^T / sqrt(d)) v` of heads (B, H, N, d), for TPUs.

    In training, the weights, N numbers a token and head, are not kept for the
    backward pass, which they would reach through the slowest memory. GPUs
    without an attention of their own do well with that in predictions too.
    """
    scaled = query * query.shape[-1] ** -0.5
    added = ()
    if valid is not None:
        # (B, 1, 1, M), or (B, 1, N, M)
        added = (ops.where(over_heads(valid), 0.0, float("-inf")),)
    if training:
        return recomputing(scaled, key, value, *added)  # (B, H, N, d)
    if query.shape[1] * query.shape[3] > WIDE_HEADS:
        scaled, key, value = recomputed(scaled, key, value)
    return in_one_pass(scaled, key, value, *added)  # (B, H, N, d)


def in_one_pass(query, key, value, *added):
    """`softmax(q k^T + a) v`, of which nothing is kept for a gradient.

    XLA for TPUs computes scores, their exponentials and the sums of these in
    one fusion, as long as the scores are the float32 that a product sums in
    and nothing else reads them. The sums divide the result, which is smaller
    than the weights.
    """
    precise = keras.backend.result_type(query.dtype, "float32")

    def widened(x):
        return ops.cast(x, precise)

    s = sum(added, products(widened(query), widened(key)))  # (B, H, N, M)
    shares = ops.exp(s - ops.max(s, axis=-1, keepdims=True))
    total = ops.sum(shares, axis=-1, keepdims=True)  # (B, H, N, 1)
    shares = ops.cast(shares, value.dtype)
    x = ops.matmul(widened(shares), widened(value)) / total
    return ops.cast(x, value.dtype)  # (B, H, N, d)


@ops.custom_gradient
def recomputing(query, key, value, *added):
    """`softmax(q k^T + a) v`, whose gradient computes the weights again.

    The softmax is that of float32 at least. Its gradient takes the sum of
    weights and their gradients from the output, as in "FlashAttention"
    (arXiv:2205.14135, appendix B.4).
    """
    precise = keras.backend.result_type(query.dtype, "float32")

    def scores(query, key):  # (B, H, N, M)
        return sum(added, ops.cast(products(query, key), precise))

    s = scores(query, key)
    most = ops.max(s, axis=-1, keepdims=True)  # (B, H, N, 1)
    shares = ops.exp(s - most)  # (B, H, N, M)
    total = ops.sum(shares, axis=-1, keepdims=True)  # (B, H, N, 1)
    x = ops.matmul(ops.cast(shares / total, value.dtype), value)  # (B, H, N, d)
    exponent = most + ops.log(total)

    def gradient(upstream):  # (B, H, N, d)
        q, k, v, y, end, dy = recomputed(
            query, key, value, x, exponent, upstream
        )
        weights = ops.exp(scores(q, k) - end)  # (B, H, N, M)
        of_weights = ops.cast(products(dy, v), precise)  # (B, H, N, M)
        mean = ops.sum(
            ops.cast(y, precise) * ops.cast(dy, precise), axis=-1, keepdims=True
        )  # (B, H, N, 1)
        of_scores = ops.cast(weights * (of_weights - mean), q.dtype)
        weights = ops.cast(weights, v.dtype)
        return (
            ops.matmul(of_scores, k),  # (B, H, N, d)
            ops.matmul(swap_queries_and_keys(of_scores), q),  # (B, H, M, d)
            ops.matmul(swap_queries_and_keys(weights), dy),  # (B, H, M, d)
            *map(ops.zeros_like, added),
        )

    return x, gradient


def swap_queries_and_keys(x):
    """(B, H, N, M) to (B, H, M, N)."""
    return ops.transpose(x, (0, 1, 3, 2))


def with_repeated_keys(x):
    """Give each query the key and value of its group (arXiv:2305.13245).

    Args:
        x: (B, N, G, Q + 2, d): in each of G groups Q queries, a key and a
            value.

    Returns:
        Query, key and value of each head, (B, N, G * Q, 3, d).
    """
    query, shared = x[..., :-2, None, :], x[..., None, -2:, :]
    shared = ops.repeat(shared, query.shape[-3], axis=-3)  # (B,N,G,Q,2,d)
    x = ops.concatenate([query, shared], axis=-2)  # (B, N, G, Q, 3, d)
    shape = ops.shape(x)
    heads = x.shape[-4] * x.shape[-3]
    return ops.reshape(x, (*shape[:-4], heads, *shape[-2:]))
