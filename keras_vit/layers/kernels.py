"""Dense and normalisation layers of tokens.

Axes: B batch, N tokens, D features.
"""

import functools

import keras
from keras import ops

from keras_vit.layers import choices
from keras_vit.runtime.platforms import by_platform, gathering
from keras_vit.runtime.workarounds import backend_is

__all__ = ["TokenDense", "TokenNormalization", "TokenRMSNormalization"]


@keras.saving.register_keras_serializable("keras_vit")
class TokenDense(keras.layers.Dense):
    """`keras.layers.Dense`, with a backward pass that suits CPUs.

    The gradient of the kernel sums over batch and tokens. By default JAX
    transposes the upstream gradient, and XLA for CPUs then computes the sums
    that lead to it, which grow with each block, again for each kernel. Here
    both axes are merged on CPUs, and nothing is transposed; on TPUs, where
    merging moves all tokens, they are not. On TensorFlow they are merged too,
    as oneDNN computes product and bias of matrices at once. Values and
    gradients are those of `keras.layers.Dense`.

    Args:
        units: int, M; this and all others as in `keras.layers.Dense`.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        (B, N, M).

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> TokenDense(3072)(tokens).shape
    (2, 197, 3072)
    """

    def call(self, inputs, training=None):
        if backend_is("tensorflow") and len(inputs.shape) > 2:
            rows = ops.reshape(inputs, (-1, inputs.shape[-1]))  # (B * N, D)
            rows = super().call(rows, training=training)  # (B * N, M)
            return ops.reshape(rows, (*ops.shape(inputs)[:-1], self.units))
        if not backend_is("jax"):
            return super().call(inputs, training=training)
        kernel = ops.convert_to_tensor(self.kernel)
        x = gathering(product, self.kernel)(inputs, kernel)  # (B, N, M)
        if self.bias is not None:
            x = ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)

    def is_plain(self) -> bool:
        """Whether it is a product and a bias, of kernels of its own dtype."""
        return self.quantization_mode is None and self.activation in (
            None,
            keras.activations.linear,
        )

    def in_parts(self, inputs, parts):
        """The columns of each part of the output, by a product of its own.

        What XLA makes of them for a TPU stays on the chip longer than one
        output of three times the size, of which each part is read alone.

        Args:
            inputs: (B, N, D).
            parts: (G, P, d), G groups of P parts of d columns.

        Returns:
            list of P tensors (B, N, G, d).
        """

        groups, count, dim = parts

        def part(x, columns):  # (D, G * d)
            columns = ops.reshape(columns, (-1, groups, dim))
            return ops.einsum("bnd,dge->bnge", x, columns)

        def shared_part(x, columns):
            # XLA for TPUs scatters no sums of three axes.
            x = multiplied(x, columns)  # (B, N, G * d)
            return ops.reshape(x, (*ops.shape(x)[:-1], groups, dim))

        x = ops.cast(inputs, self.compute_dtype)
        kernel = ops.reshape(ops.cast(self.kernel, x.dtype), (-1, *parts))
        kernels = [
            ops.reshape(kernel[:, :, i], (-1, groups * dim))
            for i in range(count)
        ]
        multiplied = gathering(product, self.kernel)
        multiply = part if multiplied is product else shared_part
        found = [multiply(x, y) for y in kernels]
        if self.bias is None:
            return found
        bias = ops.reshape(ops.cast(self.bias, x.dtype), parts)  # (G, P, d)
        return [x + bias[:, i] for i, x in enumerate(found)]

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras quantizes no subclass: it might compute something else.
        super().quantize(mode, type_check=False, config=config)


@ops.custom_gradient
def product(x, kernel):
    """The matrix product of x (B, N, D) and kernel (D, M)."""

    def gradient(upstream):  # (B, N, M)
        return by_platform(
            x, kernel, upstream, cpu=merged_gradient, other=kept_gradient
        )

    return ops.matmul(x, kernel), gradient


def merged_gradient(x, kernel, upstream):
    """That of a product of x (B, N, D) and kernel (D, M), on rows of tokens."""
    rows = ops.reshape(upstream, (-1, upstream.shape[-1]))  # (B * N, M)
    tokens = ops.reshape(x, (-1, x.shape[-1]))  # (B * N, D)
    of_x = ops.matmul(rows, ops.transpose(kernel))  # (B * N, D)
    of_kernel = ops.matmul(ops.transpose(tokens), rows)  # (D, M)
    return (
        ops.cast(ops.reshape(of_x, x.shape), x.dtype),
        ops.cast(of_kernel, kernel.dtype),
    )


def kept_gradient(x, kernel, upstream):
    """The same, on tokens as they lie."""
    axes = list(range(len(x.shape) - 1))
    of_x = ops.matmul(upstream, ops.transpose(kernel))  # (B, N, D)
    of_kernel = ops.tensordot(x, upstream, axes=(axes, axes))  # (D, M)
    return ops.cast(of_x, x.dtype), ops.cast(of_kernel, kernel.dtype)


@keras.saving.register_keras_serializable("keras_vit")
class TokenNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization`, with a backward pass that suits CPUs.

    By default XLA for CPUs writes out what JAX broadcasts over the features,
    forward and backward. The closed form of the gradient
    (arXiv:1607.06450) keeps the input, a mean and a deviation per token.
    Values and gradients are those of `keras.layers.LayerNormalization`; other
    backends use that one's own.

    Args:
        **kwargs: those of `keras.layers.LayerNormalization`, without `axis`.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        That of the input.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> TokenNormalization(epsilon=1e-6)(tokens).shape
    (2, 197, 768)
    """

    def call(self, inputs):
        if not backend_is("jax"):
            return super().call(inputs)
        precise = keras.backend.result_type(inputs.dtype, "float32")
        weights = (ops.cast(w, precise) for w in (self.gamma, self.beta))
        return ops.cast(
            normalizing(self.epsilon)(inputs, *weights), self.compute_dtype
        )


@keras.saving.register_keras_serializable("keras_vit")
class TokenRMSNormalization(keras.layers.Layer):
    """Divides each token by its root mean square, then scales its features.

    Root mean square normalisation (arXiv:1910.07467): a layer normalisation
    without mean and offset. That of Keras calls its weight `scale`; here it
    has the name of the layer normalisation's, `gamma`.

    Args:
        epsilon: float, added to the mean square.

    Input shape:
        (B, N, D), or any shape that ends with D.

    Output shape:
        That of the input.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> TokenRMSNormalization(epsilon=1e-6)(tokens).shape
    (2, 197, 768)
    """

    def __init__(self, *, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma", shape=(input_shape[-1],), initializer="ones"
        )

    def call(self, inputs):
        precise = keras.backend.result_type(inputs.dtype, "float32")
        x = ops.cast(inputs, precise)
        square = ops.mean(ops.square(x), axis=-1, keepdims=True)  # (B, N, 1)
        x = x * ops.rsqrt(square + self.epsilon)
        return ops.cast(x * ops.cast(self.gamma, precise), self.compute_dtype)

    def get_config(self):
        return super().get_config() | {"epsilon": self.epsilon}


NORMALIZATIONS: dict[str, type] = dict(
    zip(
        choices.NORMALIZATIONS,
        (TokenNormalization, TokenRMSNormalization),
        strict=True,
    )
)


@functools.cache
def normalizing(epsilon: float):
    """The function of x (..., D), scale (D,) and offset (D,)."""

    @ops.custom_gradient
    def normalize(inputs, scale, offset):
        # The gradient keeps the input as it is, which may be of half the size.
        x = ops.cast(inputs, scale.dtype)
        mean = ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x - mean), axis=-1, keepdims=True)
        inverse = ops.rsqrt(variance + epsilon)  # (..., 1)

        def gradient(upstream):  # (..., D)
            unit = (ops.cast(inputs, scale.dtype) - mean) * inverse  # (..., D)
            axes = tuple(range(len(x.shape) - 1))
            scaled = upstream * scale
            along = ops.mean(scaled * unit, axis=-1, keepdims=True)
            shift = ops.mean(scaled, axis=-1, keepdims=True)
            of_x = inverse * (scaled - shift - along * unit)
            return (
                ops.cast(of_x, inputs.dtype),
                ops.sum(upstream * unit, axis=axes),
                ops.sum(upstream, axis=axes),
            )

        return (x - mean) * inverse * scale + offset, gradient

    return normalize
