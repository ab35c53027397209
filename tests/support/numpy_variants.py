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
    while subtree(weights, f"block_{layer}/"):
        position = table_of(weights, layer, variant["position_at"])
        if position and "offsets" not in position:
            x = x + added(position, grid, has_token)
        block = subtree(weights, f"block_{layer}/")
        offsets = position.get("offsets")
        if variant["attention"] == "axial":
            for axis, sequences in along_axes(grid).items():
                half = subtree(block, f"{axis}/")
                x = pre_norm_block(half, x, num_heads, grid, sequences)
        else:
            everyone = [range(x.shape[1])]
            x = pre_norm_block(block, x, num_heads, grid, everyone, offsets)
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


def along_axes(grid):
    """Which tokens attend to each other, in rows and then in columns."""
    numbers = np.arange(grid[0] * grid[1]).reshape(grid)
    return {"rows": list(numbers), "columns": list(numbers.T)}


def pre_norm_block(weights, x, num_heads, grid, sequences, offsets=None):
    """Attention within each sequence of tokens, then the MLP."""
    y, mixed = norm(x, weights, "attention_norm"), np.empty_like(x)
    own = {
        k.replace("attention/attention/", "attention/"): v
        for k, v in weights.items()
    }
    for tokens in sequences:
        mixed[:, tokens] = attention(
            subtree(own, "attention/"), y[:, tokens], num_heads, offsets
        )
    x = x + mixed
    y = norm(x, weights, "mlp_norm")
    return x + mlp(subtree(weights, "mlp/"), y, grid)


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


def mlp(weights, x, grid):
    x = gelu_tanh(dense(x, subtree(weights, "dense/")))
    if "convolution/kernel" in weights:
        prefix = x.shape[1] - grid[0] * grid[1]
        image = x[:, prefix:].reshape(len(x), *grid, -1)
        y = gelu_tanh(neighbours(subtree(weights, "convolution/"), image))
        y = y.reshape(len(x), grid[0] * grid[1], -1)
        x = np.concatenate([x[:, :prefix], y], axis=1)
    return dense(x, subtree(weights, "dense_1/"))


def neighbours(weights, image):
    """Each channel of (B, R, C, M) with its 3x3 kernel; zeros around it."""
    _, rows, columns, _ = image.shape
    y = np.zeros_like(image) + weights["bias"]
    for row in range(rows):
        for column in range(columns):
            for i in range(-1, 2):
                for j in range(-1, 2):
                    if 0 <= row + i < rows and 0 <= column + j < columns:
                        pixel = image[:, row + i, column + j]
                        y[:, row, column] += (
                            pixel * weights["kernel"][i + 1, j + 1, :, 0]
                        )
    return y


def norm(x, weights, name):
    gamma, beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]
    return layer_norm(x, {"scale": gamma, "bias": beta})
