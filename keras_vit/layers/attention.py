"""Multi-head self-attention.

Axes: B batch, N query tokens, M key tokens, H heads, d head dimension,
D = H * d hidden dimension.
"""

import functools
import math

import keras
from keras import ops

from keras_vit.io.checks import check_choice, check_heads
from keras_vit.layers.common import (
    NORMALIZATIONS,
    ConfiguredLayer,
    TokenDense,
    TokenRMSNormalization,
    attended,
    causal,
    first_tokens,
    masked,
    merge_heads,
    over_heads,
    parts_first,
    precise_softmax,
    scores_of_heads,
    softmax_of_heads,
    swap_heads_and_tokens,
    with_repeated_keys,
)
from keras_vit.runtime.platforms import (
    by_platform,
    has_fused_attention,
    with_gradients,
)
from keras_vit.runtime.workarounds import attend_in_place, backend_is

__all__ = ["SelfAttention"]

HEADS_EPSILON = 1e-5  # of the normalisation in differential attention


@keras.saving.register_keras_serializable("keras_vit")
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention with one projection to query, key and value.

    Equations 5 to 8 (appendix A) of "An Image Is Worth 16x16 Words"
    (arXiv:2010.11929): `softmax(q k^T / sqrt(d)) v` in each head, with biases
    on all four projections unless `qkv_bias` says otherwise. Where the device
    may have a fused (flash) kernel it runs on
    `keras.ops.dot_product_attention`;
    elsewhere on two matrix products of whole heads.

    The columns of the kernel of `qkv`, shape (D, 3 * D), are ordered by head,
    then query, key, value, then feature, so that a slice of columns holds
    whole heads. With `key_value_heads` they are ordered by these, then the
    queries that read it, key, value.

    Args:
        num_heads: int, H; it divides D.
        key_value_heads: None, or the number of heads of keys and values, each
            of which as many heads of queries read in turn ("GQA",
            arXiv:2305.13245); it divides H.
        attention_dropout_rate: float in [0, 1), dropout on the softmax
            weights. Above zero the weights are computed explicitly and no
            fused kernel is used, as these have no dropout in Keras.
        qkv_bias: bool, whether query, key and value have biases.
        key_bias: bool, whether that of the key is learned; False keeps it at
            zero, as BEiT (arXiv:2106.08254) does.
        projection_bias: bool, whether the last projection has a bias.
        qk_norm: bool, whether query and key are normalised in each head
            (arXiv:2302.05442).
        attention_inner_norm: bool, whether the heads are normalised together
            before the last projection, as in BEiT-3 (arXiv:2208.10442).
        talking_heads: bool, whether the heads exchange their scores before
            the softmax and their weights after it, each by a learned (H, H)
            matrix and bias ("Talking-Heads Attention", arXiv:2003.02436), as
            in CaiT (arXiv:2103.17239). There is no fused kernel for it.
        differential_lambda: None, or the lambda_init of "Differential
            Transformer" (arXiv:2410.05258): each head has two softmaxes, of
            the first and of the second half of query and key, and the second,
            times a learned lambda, is taken from the first; the heads are
            normalised. See `lambda_of_block`; it has no fused kernel.
        causal: bool, whether a token reads itself and those before it alone,
            as in the text tower of CLIP (arXiv:2103.00020).
        normalization: "layer_norm" or "rms_norm", for both.
        layer_norm_epsilon: float, added to the variance by both.
        rotary: None, or a `RotaryEmbedding` for queries and keys.
        position_bias: None, or a `RelativePositionBias` or
            `DecomposedPositionBias` for the scores.
        flash_attention: None takes a fused kernel where it can be used (in
            float16 only if asked for) and `keras.config` does not disable
            it, True demands one, False forbids it.

    Input shape:
        (B, N, D), and None or a bool tensor (B, N) that is False for tokens
        that no other may read: padding.

    Output shape:
        (B, N, D); with the argument `queries`, Q, of the call (B, Q, D): the
        first Q tokens, which read all. Of them no fused kernel is used.

    Raises:
        ValueError: when built on a D that num_heads does not divide, or with
            flash_attention=True and a position_bias, talking_heads or
            differential_lambda; for differential_lambda with another option
            of queries, keys and scores; for key_value_heads that do not
            divide num_heads, or with key_bias=False.

    Example:

    >>> tokens = keras.random.normal((2, 197, 768))
    >>> attention = SelfAttention(num_heads=12)
    >>> attention(tokens).shape
    (2, 197, 768)
    >>> attention.attention_weights(tokens).shape
    (2, 12, 197, 197)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        key_value_heads: int | None = None,
        attention_dropout_rate: float = 0.0,
        qkv_bias: bool = True,
        key_bias: bool = True,
        projection_bias: bool = True,
        qk_norm: bool = False,
        attention_inner_norm: bool = False,
        talking_heads: bool = False,
        differential_lambda: float | None = None,
        causal: bool = False,
        normalization: str = "layer_norm",
        layer_norm_epsilon: float = 1e-6,
        rotary: keras.layers.Layer | None = None,
        position_bias: keras.layers.Layer | None = None,
        flash_attention: bool | None = None,
        **kwargs,
    ):
        check_choice("normalization", normalization, NORMALIZATIONS)
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_value_heads = key_value_heads
        self.attention_dropout_rate = attention_dropout_rate
        self.qkv_bias = qkv_bias
        self.key_bias = key_bias
        self.projection_bias = projection_bias
        self.qk_norm = qk_norm
        self.attention_inner_norm = attention_inner_norm
        self.talking_heads = talking_heads
        self.differential_lambda = differential_lambda
        self.causal = causal
        self.normalization = normalization
        self.layer_norm_epsilon = layer_norm_epsilon
        self.rotary = rotary
        self.position_bias = position_bias
        self.flash_attention = flash_attention
        self.query_norm = self._norm("query_norm", qk_norm)
        self.key_norm = self._norm("key_norm", qk_norm)
        self.inner_norm = self._norm("inner_norm", attention_inner_norm)
        if differential_lambda is not None:
            self.heads_norm = TokenRMSNormalization(
                epsilon=HEADS_EPSILON,
                dtype=self.dtype_policy,
                name="heads_norm",
            )
        self.dropout = keras.layers.Dropout(
            attention_dropout_rate, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, x_shape, valid_shape=None):
        dim = x_shape[-1]
        check_heads(dim, self.num_heads)
        check_fused(self)
        check_differential(self, dim)
        check_groups(self)
        self.head_dim = dim // self.num_heads
        groups = self.key_value_heads or self.num_heads  # G
        # Each with its queries, key and value.
        self._groups = (groups, self.num_heads // groups + 2, self.head_dim)
        self._with_all_heads = keras.activations.linear  # Returns its input.
        if groups < self.num_heads:
            self._with_all_heads = with_repeated_keys
        self.qkv = TokenDense(
            math.prod(self._groups),
            use_bias=self.qkv_bias,
            kernel_initializer=projection_initializer(dim),
            bias_initializer="zeros",
            bias_constraint=self._bias_constraint(),
            dtype=self.dtype_of("qkv"),
            name="qkv",
        )
        self.out = TokenDense(
            dim,
            use_bias=self.projection_bias,
            kernel_initializer="glorot_uniform",
            bias_initializer="zeros",
            dtype=self.dtype_of("out"),
            name="out",
        )
        self.qkv.build(x_shape)
        self.out.build(x_shape)
        self._build_parts(x_shape)

    def _build_parts(self, x_shape):
        """Builds what the options add."""
        heads = (x_shape[0], self.num_heads, x_shape[1], self.head_dim)
        scores = (*heads[:3], heads[2])
        if self.qk_norm:
            self.query_norm.build(heads)
            self.key_norm.build(heads)
        if self.attention_inner_norm:
            self.inner_norm.build(x_shape)
        if self.rotary:
            self.rotary.build(heads)
        # One that blocks share is built by then.
        if self.position_bias and not self.position_bias.built:
            self.position_bias.build(scores)
        if self.talking_heads:
            self.logits_projection = self._across_heads("logits_projection")
            self.weights_projection = self._across_heads("weights_projection")
            self.logits_projection.build(scores)
            self.weights_projection.build(scores)
        if self.differential_lambda is not None:
            self.lambdas = self.add_weight(
                name="lambdas",
                shape=(4, self.head_dim // 2),
                initializer=keras.initializers.RandomNormal(stddev=0.1),
            )
            self.heads_norm.build(heads)

    def call(self, x, valid=None, training=None, queries=None):
        check_queries(self, queries)
        valid = causal(valid, x.shape[1]) if self.causal else valid
        fused = queries is None and self._is_fused()
        query, key, value = self._heads(x, heads_first=not fused)  # Equation 5
        query = first_tokens(query, queries)
        x = self._attend(
            query, key, value, fused, valid, training, queries
        )  # Equations 6 and 7, (B, Q, H, d)
        return self.out(self.inner_norm(merge_heads(x)))  # Equation 8, (B,Q,D)

    def compute_output_spec(self, x, valid=None, training=None, queries=None):
        return output_spec(x, queries, self.compute_dtype)

    def attention_weights(self, x, valid=None):
        """The softmax weights that `call` uses, computed explicitly.

        Args:
            x: tokens of shape (B, N, D).
            valid: None, or bool of shape (B, N) as for `call`.

        Returns:
            Tensor of shape (B, H, N, M): how much each query (N) takes from
            each key (M); the last axis sums to 1. With `talking_heads` and
            `differential_lambda` what the values are multiplied by, of any
            sign and sum.
        """
        query, key, _ = self._heads(x)
        valid = causal(valid, x.shape[1]) if self.causal else valid
        return self._weights(query, key, valid)  # (B, H, N, M)

    def _project(self, x):
        qkv = ops.reshape(self.qkv(x), (*ops.shape(x)[:-1], *self._groups))
        return self._with_all_heads(qkv)  # (B, N, H, 3, d)

    def _heads(self, x, heads_first=True):
        """Return query, key and value, placed, each (B, H, N, d).

        They are (B, N, H, d) with heads_first=False.
        """

        def project(x):
            return tuple(parts_first(self._project(x)))

        if not heads_first:
            # Not by their numbers: torch's gradient of each is a whole qkv.
            query, key, value = ops.unstack(self._project(x), 3, axis=-2)
        elif self._groups[1] == 3 and self.qkv.is_plain():
            # Not the method itself: JAX keeps what it traced of a function
            # that is equal, with the weights of another program.
            query, key, value = by_platform(
                x, cpu=project, gpu=project, other=lambda x: self._parts(x)
            )
        else:
            query, key, value = project(x)
        return *self._placed(query, key, heads_first), value

    def _parts(self, x):
        """Return the same, for TPUs: a product each."""
        return tuple(
            map(swap_heads_and_tokens, self.qkv.in_parts(x, self._groups))
        )

    def _may_be_fused(self):
        if self.attention_dropout_rate or self.talking_heads:
            return False
        if self.differential_lambda is not None:
            return False
        # JAX has no float16 product with float32 sums on CPUs, which its
        # fused attention asks for.
        return bool(self.flash_attention) or self.compute_dtype != "float16"

    def _is_fused(self):
        """Whether it is on each platform; Keras says so where it cannot."""
        always = self.flash_attention or backend_is("torch")
        return self._may_be_fused() and always

    def _attend(self, query, key, value, fused, valid, training, queries):
        """Return `softmax(q k^T / sqrt(d)) v`, by the kernel for it.

        Heads stand behind the tokens in what it returns, and in what it gets
        for a fused kernel. Of the first tokens alone no kernel is used.
        """
        if fused:
            return self._fused(query, key, value, valid)  # (B, N, H, d)
        options = {"valid": valid, "training": training}
        explicit = functools.partial(self._attend_explicitly, **options)
        if queries is not None or not self._may_be_fused():
            return swap_heads_and_tokens(explicit(query, key, value))

        def by_keras(*heads):
            query, key, value = map(swap_heads_and_tokens, heads)
            return swap_heads_and_tokens(self._fused(query, key, value, valid))

        lean = functools.partial(attended, valid=valid)
        predicting = functools.partial(attended, **options)
        paths: dict = {"gpu": lean, "other": predicting}
        if self.position_bias is not None:
            paths = {"other": by_keras}
        elif valid is None and backend_is("jax") and has_fused_attention():
            paths["gpu"] = by_keras  # JAX has none with a mask for each key.
        x = by_platform(query, key, value, cpu=explicit, **paths)
        return swap_heads_and_tokens(x)  # (B, N, H, d)

    def _fused(self, query, key, value, valid):
        """By Keras, of placed heads (B, N, H, d)."""

        def explicit(*heads):
            heads = map(swap_heads_and_tokens, heads)
            return swap_heads_and_tokens(attended(*heads, valid=valid))

        bias, flash = None, self.flash_attention
        mask = None if valid is None else over_heads(valid)
        if flash is None:
            flash = keras.config.is_flash_attention_enabled()
        if self.position_bias is not None:
            # Keras's flash attention takes none.
            bias, flash = self.position_bias.fused_bias(query), False
        options = {"bias": bias, "mask": mask, "flash_attention": flash}
        attend = functools.partial(ops.dot_product_attention, **options)
        if bias is None and mask is None and not flash:
            attend = functools.partial(attend_in_place, flash=flash)
        if bias is None:
            attend = with_gradients(attend, explicit)
        return attend(query, key, value)  # (B, N, H, d)

    def _attend_explicitly(self, query, key, value, valid, training):
        weights = self._weights(query, key, valid)  # (B, H, N, M)
        weights = self.dropout(weights, training=training)
        x = ops.matmul(weights, value)  # (B, H, N, d)
        if self.differential_lambda is not None:
            x = self.heads_norm(x) * (1 - self.differential_lambda)
        return x

    def _placed(self, query, key, heads_first=True):
        """Query and key, normalised and rotated as the options say."""
        query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is None:
            return query, key
        return tuple(
            self.rotary(x, heads_first=heads_first) for x in (query, key)
        )

    def _weights(self, query, key, valid):
        """The softmax weights of heads in front of the tokens."""
        if self.differential_lambda is not None:
            return self._difference(query, key, valid)
        scores = scores_of_heads(query, key)  # (B, H, N, M)
        if self.position_bias is not None:
            scores = self.position_bias(scores, query)
        if not self.talking_heads:
            return precise_softmax(masked(scores, valid))
        scores = masked(self.logits_projection(scores), valid)
        weights = self.weights_projection(precise_softmax(scores))
        # Its bias reaches padding as well.
        return masked(weights, valid, 0.0)  # (B, H, N, M)

    def _difference(self, query, key, valid):
        """Equations 1 and 2 of arXiv:2410.05258, of heads in front."""
        first, second = (
            softmax_of_heads(*halves, valid)
            for halves in zip(
                ops.split(query, 2, axis=-1),
                ops.split(key, 2, axis=-1),
                strict=True,
            )
        )  # (B, H, N, M) each
        lambdas = ops.cast(self.lambdas, "float32")  # q1, k1, q2, k2
        factor = (
            ops.exp(ops.sum(lambdas[0] * lambdas[1]))
            - ops.exp(ops.sum(lambdas[2] * lambdas[3]))
            + self.differential_lambda
        )
        return first - ops.cast(factor, second.dtype) * second

    def _across_heads(self, name):
        """A dense layer from all heads (h) to all heads (g)."""
        return keras.layers.EinsumDense(
            "bhnm,hg->bgnm",
            output_shape=(self.num_heads, None, None),
            bias_axes="g",
            dtype=self.dtype_of(name),
            name=name,
        )

    def _norm(self, name, is_there):
        if not is_there:
            return keras.activations.linear  # Returns its input.
        return NORMALIZATIONS[self.normalization](
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def _bias_constraint(self):
        if self.key_bias or not self.qkv_bias:
            return None
        return WithoutKey(self.num_heads)


def output_spec(x, queries: int | None, dtype: str) -> keras.KerasTensor:
    """Return what comes of the first tokens of (B, N, D), or of all."""
    count = x.shape[1] if queries is None else queries
    return keras.KerasTensor((x.shape[0], count, x.shape[2]), dtype)


def check_queries(attention, queries: int | None) -> None:
    """Refuse queries of some tokens where the scores of all are added to."""
    of_all = attention.causal or attention.position_bias is not None
    if queries is not None and of_all:
        raise ValueError(
            "A position_bias and causal=True are of the scores of all tokens. "
            f"Received: queries={queries}. Call the layer without."
        )


def check_groups(attention) -> None:
    """Refuse heads of keys and values that queries do not share alike."""
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


def check_fused(attention) -> None:
    """Refuses a fused kernel where scores or weights are changed."""
    changed = {
        "a position_bias": attention.position_bias is not None,
        "talking_heads=True": attention.talking_heads,
        "a differential_lambda": attention.differential_lambda is not None,
    }
    found = [name for name, is_there in changed.items() if is_there]
    if found and attention.flash_attention:
        raise ValueError(
            "Keras's fused kernels add nothing to the scores and change no "
            f"weights. Received: flash_attention=True with {found[0]}. Set "
            "it to None."
        )


def check_differential(attention, dim: int) -> None:
    """Refuses what two softmaxes of half a head each cannot have."""
    if attention.differential_lambda is None:
        return
    others = {
        "qk_norm": attention.qk_norm,
        "talking_heads": attention.talking_heads,
        "rotary": attention.rotary,
        "position_bias": attention.position_bias,
    }
    found = [name for name, value in others.items() if value]
    half = dim / attention.num_heads / 2
    if found or half != int(half):
        raise ValueError(
            "Differential attention has neither of "
            f"{', '.join(others)}, and an even number of features per head. "
            f"Received: {', '.join(found) or 'none of them'}, and "
            f"{2 * half:g} features per head. Leave it out."
        )


def lambda_of_block(i: int) -> float:
    """The lambda_init of block i, counted from 0 (arXiv:2410.05258, 2.1).

    Example:

    >>> lambda_of_block(0)
    0.2
    """
    return 0.8 - 0.6 * math.exp(-0.3 * i)


class WithoutKey(keras.constraints.Constraint):
    """Zeros for the key in the bias (3 * D,) of query, key and value."""

    def __init__(self, num_heads: int):
        self.num_heads = num_heads

    def __call__(self, bias):
        parts = ops.reshape(bias, (self.num_heads, 3, -1))  # (H, 3, d)
        kept = ops.convert_to_tensor([[1.0], [0.0], [1.0]], dtype=bias.dtype)
        return ops.reshape(parts * kept, bias.shape)  # (3 * D,)

    def get_config(self):
        return {"num_heads": self.num_heads}


def projection_initializer(dim: int) -> keras.initializers.Initializer:
    """Xavier uniform of one (D, D) projection inside a fused kernel.

    The original initialises query, key and value each as a (D, D) matrix;
    Keras would take the fused matrix's own, larger fans.
    """
    limit = (6 / (2 * dim)) ** 0.5
    return keras.initializers.RandomUniform(-limit, limit)
