"""Self-attention with relative positions.

Axes: B batch, N query tokens, M key tokens (N = M = T), H heads, d head
dimension, D = H * d hidden dimension, O = 2 * T - 1 offsets.
"""

import keras
from keras import ops

from keras_vit.layers import SelfAttention
from keras_vit.layers.configured_layer import ConfiguredLayer
from keras_vit.layers.embedding import check_grid
from keras_vit.layers.kernels import merge_heads, precise_softmax

__all__ = [
    "RelativePositionEmbedding",
    "RelativeSelfAttention",
    "by_key",
]


@keras.saving.register_keras_serializable("keras_vit")
class RelativePositionEmbedding(ConfiguredLayer):
    """The learned table that `RelativeSelfAttention` takes its keys from.

    Appendix D.4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929): an
    embedding for each offset p_q - p_k between the positions of a query and a
    key in the sequence, the class token at position 0 and the patches row by
    row after it. The paper does not say whether heads share them; here each
    head has its own d of the D numbers.

    It is a separate layer so that several blocks can share a table.

    Args:
        grid: (rows, columns) of the patches.
        num_prefix_tokens: int, tokens in front of the patches.
        stddev: float, standard deviation of the normal distribution that the
            table starts from.

    Input shape:
        (B, T, D), of which only the shape matters.

    Output shape:
        (O, D), from the offset T - 1 down to -(T - 1).

    Raises:
        ValueError: for a sequence whose length is not rows * columns +
            num_prefix_tokens.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> RelativePositionEmbedding((14, 14), num_prefix_tokens=1)(tokens).shape
    (393, 768)
    """

    def __init__(self, grid, *, num_prefix_tokens=0, stddev=0.02, **kwargs):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.stddev = stddev

    def build(self, input_shape):
        check_grid(input_shape, self.grid, self.num_prefix_tokens)
        self.offsets = self.add_weight(
            name="offsets",
            shape=self.compute_output_shape(input_shape),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, x):
        return ops.cast(self.offsets, x.dtype)  # (O, D)

    def compute_output_shape(self, input_shape):
        _, length, dim = input_shape
        return (2 * length - 1, dim)


@keras.saving.register_keras_serializable("keras_vit")
class RelativeSelfAttention(SelfAttention):
    """Multi-head self-attention with 1-D relative positions.

    Appendix D.4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929): the
    logits of a second attention, of the same queries with the embeddings of
    the offsets as keys, are added to those of the first before the softmax:
    `softmax((q k^T + q r^T) / sqrt(d)) v` in each head.

    Projections and their order are those of `SelfAttention`.

    Args:
        num_heads: int, H; it divides D.
        attention_dropout_rate: float in [0, 1), dropout on the softmax
            weights.
        flash_attention: None or False; no fused kernel adds logits that
            depend on the query, so the weights are computed explicitly.

    Input shape:
        (B, T, D) and the table of `RelativePositionEmbedding`, (O, D).

    Output shape:
        (B, T, D).

    Raises:
        ValueError: when built with flash_attention=True, or on a D that
            num_heads does not divide.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> offsets = RelativePositionEmbedding((14, 14), num_prefix_tokens=1)
    >>> RelativeSelfAttention(num_heads=12)(tokens, offsets(tokens)).shape
    (2, 197, 768)
    """

    def build(self, x_shape, offsets_shape=None):
        if self.flash_attention:
            raise ValueError(
                "No fused kernel adds logits that depend on the query. "
                "Received: flash_attention=True. Set it to None."
            )
        super().build(x_shape)

    def call(self, x, offsets, training=None):
        query, key, value = ops.unstack(self._project(x), 3, axis=-2)
        weights = self._weights(query, key, offsets)  # (B, H, N, M)
        weights = self.dropout(weights, training=training)
        x = ops.einsum("bhnm,bmhd->bnhd", weights, value)  # (B, N, H, d)
        return self.out(merge_heads(x))  # (B, N, D)

    def attention_weights(self, x, offsets):
        """The softmax weights that `call` uses.

        Args:
            x: tokens of shape (B, T, D).
            offsets: table of shape (O, D).

        Returns:
            Tensor of shape (B, H, N, M); the last axis sums to 1.
        """
        query, key, _ = ops.unstack(self._project(x), 3, axis=-2)
        return self._weights(query, key, offsets)  # (B, H, N, M)

    def compute_output_shape(self, x_shape, offsets_shape=None):
        return x_shape

    def _weights(self, query, key, offsets):
        query = query * query.shape[-1] ** -0.5
        offsets = ops.reshape(offsets, (-1, *query.shape[2:]))  # (O, H, d)
        content = ops.einsum("bnhd,bmhd->bhnm", query, key)  # (B, H, N, M)
        position = ops.einsum("bnhd,ohd->bhno", query, offsets)  # (B, H, N, O)
        return precise_softmax(content + by_key(position))  # (B, H, N, M)


def by_key(x):
    """From a number per offset, (B, H, N, O), to one per key, (B, H, N, M).

    Entry (n, m) is that of offset n - m: row n of the result is the part of
    row n that begins at T - 1 - n. As in "Music Transformer"
    (arXiv:1809.04281), section 3.4.1, no index is gathered: with a column
    more, each row of the flat array starts one place earlier than the last.

    Example:

    >>> x = np.arange(6).reshape(1, 1, 2, 3)  # offsets 1, 0, -1
    >>> by_key(x)[0, 0]  # the rows [1, 2] and [3, 4]
    """
    heads, tokens, offsets = x.shape[1:]
    x = ops.pad(x, [(0, 0), (0, 0), (0, 0), (0, 1)])  # (B, H, N, O + 1)
    x = ops.reshape(x, (-1, heads, tokens * (offsets + 1)))
    x = x[..., tokens - 1 : -1]  # (B, H, N * O)
    x = ops.reshape(x, (-1, heads, tokens, offsets))  # (B, H, N, O)
    return x[..., :tokens]  # (B, H, N, M)
