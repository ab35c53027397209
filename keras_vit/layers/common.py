"""What layers share: their config, and dense, norms and heads by platform.

Axes: B batch, N (query) tokens, M key tokens, H heads, d head dimension, D
features, H * d in attention.
"""

import functools
import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from keras_vit.io import checks
from keras_vit.runtime.platforms import (
    WIDE_HEADS,
    by_platform,
    gathering,
    recomputed,
)
from keras_vit.runtime.workarounds import backend_is, biased_product, sublayers

__all__ = [
    "ConfiguredLayer",
    "TokenDense",
    "TokenNormalization",
    "TokenRMSNormalization",
    "attended",
    "causal",
    "first_tokens",
    "in_one_pass",
    "masked",
    "merge_heads",
    "over_heads",
    "parts_first",
    "precise_softmax",
    "recomputing",
    "resolved_policy",
    "scores_of_heads",
    "serialized_dtype",
    "softmax_of_heads",
    "softmax_weights",
    "swap_heads_and_tokens",
    "with_repeated_keys",
]

# Numbers that may be below 0, and those that may be 0.
OF_ANY_SIGN = ("initial_value", "rope_offset")
MAY_BE_ZERO = ("num_prefix_tokens", "tokens_mlp_dim")


class ConfiguredLayer(keras.layers.Layer):
    """A Keras layer that keeps each constructor argument under its own name.

    Its config is read from those attributes. It also records the dtype
    policies of sub-layers that `quantize` has changed, without which a
    quantised model could be saved but not loaded.

    Raises:
        ValueError: for an argument that is not of its annotated type, a count
            of 0, or a number below 0 that is none of `OF_ANY_SIGN`.
    """

    def __new__(cls, *args, **kwargs):
        given = kwargs
        if args:  # A signature takes longer than all that follows.
            own = list(inspect.signature(cls.__init__).parameters)[1:]
            given = dict(zip(own, args, strict=False)) | kwargs
        for name, kind in cls.argument_kinds().items():
            if name in given and kind is not inspect.Parameter.empty:
                checks.check_kind(kind, **{name: given[name]})
                if name not in OF_ANY_SIGN and kind in (int, float):
                    least = int(kind is int and name not in MAY_BE_ZERO)
                    checks.check_at_least(SimpleNamespace(**given), least, name)
        return super().__new__(cls, *args, **kwargs)

    @classmethod
    @functools.cache
    def argument_kinds(cls) -> dict[str, Any]:
        """Types of constructor arguments, those of base classes included."""
        kinds = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, ConfiguredLayer) and "__init__" in vars(base):
                parameters = inspect.signature(base.__init__).parameters
                found = [*parameters.values()][1:-1]  # self, **kwargs
                kinds |= {x.name: x.annotation for x in found}
        return kinds

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], **others):
        """Makes the layer from the fields that are named as its arguments.

        Args:
            fields: dict, such as those of the config of a model.
            **others: arguments that differ from the fields, `name` and
                `dtype`.

        Returns:
            The layer.
        """
        names = cls.argument_kinds()
        return cls(**{x: fields[x] for x in names if x in fields} | others)

    def compute_output_shape(self, input_shape, *others):
        return input_shape  # Unless a layer says otherwise.

    def get_config(self):
        config = super().get_config()
        for name in self.argument_kinds():
            value = getattr(self, name)
            if isinstance(value, keras.layers.Layer):
                value = keras.saving.serialize_keras_object(value)
                value.pop("build_config", None)  # This layer builds it.
            config[name] = value
        config["dtype"] = serialized_dtype(self)
        return config

    @classmethod
    def from_config(cls, config):
        made = {
            name: keras.saving.deserialize_keras_object(value)
            for name, value in config.items()
            if name != "dtype" and is_serialized(value)
        }
        return super().from_config(config | made)

    def dtype_of(self, name: str):
        """The dtype policy for a sub-layer that is made in `build`.

        Keras's dense layers, once quantised, save only with a policy of their
        own, not with a map of policies.
        """
        return resolved_policy(self.dtype_policy, f"{self.path}/{name}")


def is_serialized(value) -> bool:
    """Whether a value of a config is a layer as Keras writes it down."""
    return isinstance(value, dict) and "class_name" in value


def serialized_dtype(layer: keras.layers.Layer) -> dict:
    """Serialises the dtype policy of a layer and of the layers inside it.

    Sub-layers inherit the policy of their parent; those that do not (after
    `quantize`, or a float32 head in a mixed-precision model) become entries
    of a `keras.dtype_policies.DTypePolicyMap`, keyed by their path.
    """
    default = resolved_policy(layer.dtype_policy, None)
    exceptions = {}
    for sublayer in sublayers(layer):
        policy = resolved_policy(sublayer.dtype_policy, sublayer.path)
        if not sublayers(sublayer) and policy.name != default.name:
            exceptions[sublayer.path] = policy
    if exceptions:
        default = keras.dtype_policies.DTypePolicyMap(default, exceptions)
    return keras.dtype_policies.serialize(default)


def resolved_policy(policy, path: str | None):
    """The policy for the path of a layer, where `policy` may be a map."""
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    return policy.default_policy if path is None else policy[path]


# --- Dense, norms and heads by platform ---


@keras.saving.register_keras_serializable("keras_vit")
class TokenDense(keras.layers.Dense):
    """`keras.layers.Dense`, with a backward pass that suits CPUs.

    The gradient of the kernel sums over batch and tokens. By default JAX
    transposes the upstream gradient, and XLA for CPUs then computes the sums
    that lead to it, which grow with each block, again for each kernel. Here
    both axes are merged on CPUs, and nothing is transposed; on TPUs, where
    merging moves all tokens, they are not. On TensorFlow they are merged too,
    as oneDNN computes product and bias of matrices at once; torch does so of
    tokens. Values and gradients are those of `keras.layers.Dense`.

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
        if backend_is("torch") and self.bias is not None:
            return biased_product(
                inputs, self.kernel, self.bias, self.activation
            )  # (B, N, M)
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
class TokenRMSNormalization(ConfiguredLayer):
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

    def __init__(self, *, epsilon: float = 1e-6, **kwargs):
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


NORMALIZATIONS: dict[str, type] = dict(
    zip(
        checks.NORMALIZATIONS,
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
