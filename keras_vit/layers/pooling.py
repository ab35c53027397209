"""From a sequence of tokens to one vector of features.

Axes: B batch, T tokens, P of them prefix tokens, D hidden dimension.
"""

import keras
from keras import ops

from keras_vit.layers.base import ConfiguredLayer

__all__ = ["TokenPooling"]

POOLINGS = {
    "token": lambda x, prefix: x[:, 0],
    "prefix": lambda x, prefix: ops.reshape(
        x[:, :prefix], (-1, prefix * x.shape[-1])
    ),
    "mean": lambda x, prefix: ops.mean(x[:, prefix:], axis=1),
    "max": lambda x, prefix: ops.max(x[:, prefix:], axis=1),
}


@keras.saving.register_keras_serializable("keras_vit")
class TokenPooling(ConfiguredLayer):
    """Takes the class token, or the mean or maximum of the patch tokens.

    Equation 4 of "An Image Is Worth 16x16 Words" (arXiv:2010.11929) for the
    class token, appendix D.3 for the mean.

    Args:
        pooling: "token", "mean", "max", or "prefix" for all prefix tokens
            one after the other: a head on them is the average of DeiT's two
            heads.
        num_prefix_tokens: int, tokens in front of the patches (the class
            token), left out of mean and maximum.

    Input shape:
        (B, T, D).

    Output shape:
        (B, D), or (B, P * D) with "prefix".

    Raises:
        ValueError: for an unknown pooling.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> TokenPooling("mean", num_prefix_tokens=1)(tokens).shape
    (2, 768)
    """

    def __init__(self, pooling="token", *, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        if pooling not in POOLINGS:
            raise ValueError(
                f"Unknown pooling: {pooling!r}. Expected one of "
                f"{', '.join(map(repr, POOLINGS))}."
            )
        self.pooling = pooling
        self.num_prefix_tokens = num_prefix_tokens

    def call(self, x):
        return POOLINGS[self.pooling](x, self.num_prefix_tokens)  # (B, D)

    def compute_output_shape(self, input_shape):
        vectors = self.num_prefix_tokens if self.pooling == "prefix" else 1
        return (input_shape[0], vectors * input_shape[-1])
