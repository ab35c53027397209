"""The variants of the paper in NumPy and float64, as an oracle.

Nothing of keras_vit is used here but the names of its weights. Axes: B batch,
T tokens, R and C rows and columns of patches, H heads, d head dimension.
"""

import numpy as np
from numpy_forward import dense, gelu_tanh, layer_norm, subtree


def logits(weights, images, *, grid, patch_size, num_heads, variant):
    """Forward pass of a variant.

    Args:
        weights: dict from path to array.
        images: array (B, height, width, channels).
        grid: (R, C).
        patch_size: int.
        num_heads: int, H.
        variant: dict of the fields of `VariantConfig`.

    Returns:
        Array (B, classes).
    """
    weights = {k: np.asarray(v, "float64") for k, v in weights.items()}
    x = patches(np.asarray(images, "float64"), grid, patch_size)
    kernel = weights["patch_embed/projection/kernel"]
    x = x @ kernel.reshape(-1, kernel.shape[-1])
    x = x + weights["patch_embed/projection/bias"]
    has_token = "class_token/token" in weights
    if has_token:
        token = weights["class_token/token"][0]
        x = np.stack([np.concatenate([token, image]) for image in x])
    layer = 0
    while f"block_{layer}/attention_norm/gamma" in weights:
        position = table_of(weights, layer, variant["position_at"])
        if position and "offsets" not in position:
            x = x + added(position, grid, has_token)
        block = subtree(weights, f"block_{layer}/")
        x = pre_norm_block(block, x, num_heads, position)
        layer += 1
    x = norm(x, weights, "encoder_norm")
    pooled = x[:, 0] if has_token else x.mean(axis=1)
    return dense(pooled, subtree(weights, "predictions/"))


def patches(images, grid, size):
    """The pixels of each patch, row by row: (B, R * C, size**2 * channels)."""
    rows, columns = grid
    cut = [
        images[:, i * size : (i + 1) * size, j * size : (j + 1) * size]
        for i in range(rows)
        for j in range(columns)
    ]
    return np.stack([x.reshape(len(images), -1) for x in cut], axis=1)


def table_of(weights, layer, position_at):
    """The tables of a layer by name, {} where it has none."""
    if position_at is None or (position_at == "stem" and layer > 0):
        return {}
    own = position_at == "every_layer" and layer > 0
    name = f"position_embedding_{layer}/" if own else "position_embedding/"
    return subtree(weights, name)


def added(table, grid, has_token):
    """What is added to each token: (T, D)."""
    if "embedding" in table:
        return table["embedding"][0]
    vectors = [
        np.concatenate([table["columns"][column], table["rows"][row]])
        for row in range(grid[0])
        for column in range(grid[1])
    ]
    nothing = [np.zeros_like(vectors[0])] * has_token
    return np.stack(nothing + vectors)


def pre_norm_block(weights, x, num_heads, position):
    y = norm(x, weights, "attention_norm")
    x = x + attention(
        subtree(weights, "attention/"), y, num_heads, position.get("offsets")
    )
    y = norm(x, weights, "mlp_norm")
    return x + mlp(subtree(weights, "mlp/"), y)


def attention(weights, x, num_heads, offsets=None):
    """Each head and each pair of query and key on its own."""
    batch, tokens, dim = x.shape
    d = dim // num_heads
    qkv = dense(x, subtree(weights, "qkv/"))
    qkv = qkv.reshape(batch, tokens, num_heads, 3, d)
    heads = []
    for h in range(num_heads):
        query, key, value = (qkv[:, :, h, i] for i in range(3))
        scores = np.empty((batch, tokens, tokens))
        for q in range(tokens):
            for k in range(tokens):
                content = (query[:, q] * key[:, k]).sum(axis=-1)
                if offsets is not None:
                    # The first row is of the largest offset, tokens - 1.
                    row = offsets[tokens - 1 - (q - k)][h * d : (h + 1) * d]
                    content = content + (query[:, q] * row).sum(axis=-1)
                scores[:, q, k] = content / np.sqrt(d)
        weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(weight / weight.sum(axis=-1, keepdims=True) @ value)
    return dense(np.concatenate(heads, axis=-1), subtree(weights, "out/"))


def mlp(weights, x):
    x = gelu_tanh(dense(x, subtree(weights, "dense/")))
    return dense(x, subtree(weights, "dense_1/"))


def norm(x, weights, name):
    gamma, beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]
    return layer_norm(x, {"scale": gamma, "bias": beta})
