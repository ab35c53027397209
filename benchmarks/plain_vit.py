"""A Vision Transformer of its equations in JAX alone, to compare programs with.

arXiv:2010.11929, equations 1 to 4, written as JAX's own examples are: einsums,
`jax.nn.softmax`, `jax.nn.gelu`, gradients by `jax.grad`. Products in bfloat16
of weights kept in float32; softmax, normalisation and loss in float32.

Axes: B batch, N tokens, H heads, d head dimension, D = H * d hidden dimension,
M hidden dimension of the MLP, P pixels on the side of a patch.
"""

import functools

import jax
import jax.numpy as jnp

EPSILON = 1e-6  # of the normalisation
BETAS, ADAM_EPSILON, DECAY = (0.9, 0.999), 1e-7, 0.004  # of AdamW


def shapes(config) -> dict:
    """The shape of each weight, in the order of the equations.

    Args:
        config: a `ViTConfig`.

    Returns:
        dict, which JAX takes as a tree.
    """
    dim, hidden = config.hidden_dim, config.mlp_dim
    rows, columns = (
        size // patch
        for size, patch in zip(
            config.image_size, config.patch_size, strict=True
        )
    )
    block = {
        "norm": {"scale": (dim,), "offset": (dim,)},
        "qkv": {"kernel": (dim, 3 * dim), "bias": (3 * dim,)},
        "out": {"kernel": (dim, dim), "bias": (dim,)},
        "mlp_norm": {"scale": (dim,), "offset": (dim,)},
        "dense": {"kernel": (dim, hidden), "bias": (hidden,)},
        "dense_1": {"kernel": (hidden, dim), "bias": (dim,)},
    }
    return {
        "patches": {"kernel": (*config.patch_size, 3, dim), "bias": (dim,)},
        "class_token": (1, 1, dim),
        "positions": (1, rows * columns + 1, dim),
        "blocks": [block] * config.num_layers,
        "norm": {"scale": (dim,), "offset": (dim,)},
        "head": {
            "kernel": (dim, config.num_classes),
            "bias": (config.num_classes,),
        },
    }


def logits(weights, images, num_heads):
    """(B, classes) of images (B, height, width, 3)."""
    x = patches(weights["patches"], images.astype(jnp.bfloat16))  # (B, N, D)
    token = weights["class_token"].astype(x.dtype)
    token = jnp.broadcast_to(token, (x.shape[0], 1, x.shape[-1]))
    x = jnp.concatenate([token, x], axis=1)  # (B, N, D), one token more
    x = x + weights["positions"].astype(x.dtype)
    for block in weights["blocks"]:
        x = x + attention(block, normalized(block["norm"], x), num_heads)
        x = x + mlp(block, normalized(block["mlp_norm"], x))
    x = normalized(weights["norm"], x[:, 0])  # (B, D)
    return dense(weights["head"], x)


def patches(weights, images):
    kernel = weights["kernel"].astype(images.dtype)
    x = jax.lax.conv_general_dilated(
        images,
        kernel,
        kernel.shape[:2],
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # (B, rows, columns, D)
    x = x + weights["bias"].astype(x.dtype)
    return x.reshape(x.shape[0], -1, x.shape[-1])  # (B, N, D)


def dense(weights, x):
    return x @ weights["kernel"].astype(x.dtype) + weights["bias"].astype(
        x.dtype
    )


def normalized(weights, x):
    y = x.astype(jnp.float32)
    mean = y.mean(-1, keepdims=True)  # (B, N, 1)
    variance = jnp.square(y - mean).mean(-1, keepdims=True)  # (B, N, 1)
    y = (y - mean) * jax.lax.rsqrt(variance + EPSILON)
    return (y * weights["scale"] + weights["offset"]).astype(x.dtype)


def attention(weights, x, num_heads):
    qkv = dense(weights["qkv"], x)  # (B, N, 3 * D)
    query, key, value = (
        part.reshape(*x.shape[:2], num_heads, -1)  # (B, N, H, d)
        for part in jnp.split(qkv, 3, axis=-1)
    )
    query = query * query.shape[-1] ** -0.5
    scores = jnp.einsum("bnhd,bmhd->bhnm", query, key)
    shares = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
    x = jnp.einsum("bhnm,bmhd->bnhd", shares, value)  # (B, N, H, d)
    return dense(weights["out"], x.reshape(*x.shape[:2], -1))  # (B, N, D)


def mlp(weights, x):
    x = jax.nn.gelu(dense(weights["dense"], x))  # (B, N, M)
    return dense(weights["dense_1"], x)  # (B, N, D)


def loss(weights, images, labels, num_heads):
    """The cross-entropy, a mean over the batch."""
    found = logits(weights, images, num_heads).astype(jnp.float32)
    found = jax.nn.log_softmax(found)  # (B, classes)
    return -jnp.take_along_axis(found, labels[:, None], axis=-1).mean()


def training_step(state, images, labels, *, num_heads, learning_rate):
    """The state after a step of AdamW (arXiv:1711.05101), and the loss.

    Args:
        state: step, weights, and their first and second moments.
        images: float32 (B, height, width, 3).
        labels: int32 (B,).
        num_heads: int, H.
        learning_rate: float.

    Returns:
        The state and a float32 number.
    """
    step, weights, *moments = state
    value, gradients = jax.value_and_grad(loss)(
        weights, images, labels, num_heads
    )
    step = step + 1
    ends = [1 - beta ** step.astype(jnp.float32) for beta in BETAS]
    rate = learning_rate * jnp.sqrt(ends[1]) / ends[0]

    def update(weight, first, second, gradient):
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * jnp.square(gradient)
        weight = weight * (1 - learning_rate * DECAY)
        weight -= rate * first / (jnp.sqrt(second) + ADAM_EPSILON)
        return weight, first, second

    updated = jax.tree.map(update, weights, *moments, gradients)
    parts = jax.tree.transpose(
        jax.tree.structure(weights), jax.tree.structure((0,) * 3), updated
    )
    return (step, *parts), value


def programs(config, learning_rate: float) -> dict:
    """The functions of both tasks, of state and batch."""
    heads = config.num_heads
    return {
        "training": functools.partial(
            training_step, num_heads=heads, learning_rate=learning_rate
        ),
        "inference": functools.partial(logits, num_heads=heads),
    }
