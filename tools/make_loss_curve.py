"""Makes tests/reference/loss_curve.npz: a training of a ViT in plain JAX.

Run by hand, once; the tests hold the losses of every backend against it:

    python tools/make_loss_curve.py

It shares no code with keras_vit. The model is that of the paper
(arXiv:2010.11929, equations 1 to 4) with the weights of
tests/reference/vit_tiny_google.npz; the update is SGD with momentum as Keras
documents it (velocity = momentum * velocity - rate * gradient), the gradients
clipped to a global norm of 1, the rate after a linear warm-up a cosine to 0.

Axes: B images of a batch, N tokens, D features, H heads.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "tests" / "reference"
SIZE, PATCH, CLASSES, LAYERS = 32, 8, 10, 2
STEPS, WARMUP, BATCH, IMAGES = 50, 5, 8, 40
RATE, MOMENTUM, CLIP = 0.03, 0.9, 1.0


def main() -> None:
    with np.load(REFERENCE / "vit_tiny_google.npz") as file:
        weights = {name: jnp.asarray(file[name]) for name in file}
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (IMAGES, SIZE, SIZE, 3), "uint8")
    labels = random.integers(0, CLASSES, IMAGES, "int32")
    order = np.stack(
        [random.choice(IMAGES, BATCH, replace=False) for _ in range(STEPS)]
    )
    losses, norms = [], []
    velocity = {name: jnp.zeros_like(x) for name, x in weights.items()}
    for step, batch in enumerate(order):
        loss, norm, weights, velocity = update(
            weights, velocity, images[batch], labels[batch], rate(step)
        )
        losses.append(float(loss))
        norms.append(float(norm))
    np.savez(
        REFERENCE / "loss_curve.npz",
        images=images,
        labels=labels,
        order=order.astype("int32"),
        rates=np.array([rate(step) for step in range(STEPS)]),
        losses=np.array(losses),
        norms=np.array(norms),
    )
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, norm {min(norms):.2f} up")


def rate(step: int) -> float:
    progress = max(0.0, (step - WARMUP) / (STEPS - WARMUP))
    warm = min(1.0, step / WARMUP)
    return warm * RATE * 0.5 * (1 + np.cos(np.pi * progress))


@jax.jit
def update(weights, velocity, images, labels, rate):
    loss, gradients = jax.value_and_grad(cross_entropy)(weights, images, labels)
    squares = [jnp.sum(x**2) for x in gradients.values()]
    norm = jnp.sqrt(sum(squares))
    scale = jnp.minimum(1.0, CLIP / norm)
    velocity = {
        name: MOMENTUM * old - rate * scale * gradients[name]
        for name, old in velocity.items()
    }
    weights = {name: x + velocity[name] for name, x in weights.items()}
    return loss, norm, weights, velocity


def cross_entropy(weights, images, labels):
    scores = jax.nn.log_softmax(logits(weights, images))
    return -jnp.mean(scores[jnp.arange(len(labels)), labels])


def logits(weights, images):
    x = images.astype(jnp.float32) / 127.5 - 1
    x = jax.lax.conv_general_dilated(
        x,
        weights["embedding/kernel"],
        (PATCH, PATCH),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    x = x + weights["embedding/bias"]
    x = x.reshape(len(x), -1, x.shape[-1])  # (B, N - 1, D)
    cls = jnp.broadcast_to(weights["cls"], (len(x), 1, x.shape[-1]))
    x = jnp.concatenate([cls, x], axis=1)  # (B, N, D)
    x = x + weights["Transformer/posembed_input/pos_embedding"]
    for layer in range(LAYERS):
        block = f"Transformer/encoderblock_{layer}/"
        x = x + attention(
            weights, block, norm(weights, f"{block}LayerNorm_0", x)
        )
        x = x + mlp(weights, block, norm(weights, f"{block}LayerNorm_2", x))
    x = norm(weights, "Transformer/encoder_norm", x)[:, 0]  # (B, D)
    x = jnp.tanh(dense(weights, "pre_logits", x))
    return dense(weights, "head", x)  # (B, 10)


def attention(weights, block, x):
    name = f"{block}MultiHeadDotProductAttention_1/"
    query, key, value = (
        jnp.einsum("bnd,dhe->bnhe", x, weights[f"{name}{part}/kernel"])
        + weights[f"{name}{part}/bias"]
        for part in ("query", "key", "value")
    )
    scores = jnp.einsum("bnhe,bmhe->bhnm", query, key)
    scores = jax.nn.softmax(scores / np.sqrt(query.shape[-1]))
    mixed = jnp.einsum("bhnm,bmhe->bnhe", scores, value)
    out = jnp.einsum("bnhe,hed->bnd", mixed, weights[f"{name}out/kernel"])
    return out + weights[f"{name}out/bias"]


def mlp(weights, block, x):
    x = dense(weights, f"{block}MlpBlock_3/Dense_0", x)
    x = jax.nn.gelu(x, approximate=True)
    return dense(weights, f"{block}MlpBlock_3/Dense_1", x)


def dense(weights, name, x):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def norm(weights, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    return x * weights[f"{name}/scale"] + weights[f"{name}/bias"]


if __name__ == "__main__":
    main()
