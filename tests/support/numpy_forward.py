"""The models in NumPy and float64, from the papers, as an oracle.

Nothing of keras_vit is used here. Parameters are dictionaries in the layout
of the original files. Axes: B batch, N tokens, H heads, d head dimension.
"""

import numpy as np


def vit(params, images, pooling="token"):
    """Forward pass of a ViT or hybrid in the layout of the original files.

    Returns:
        A dict of logits, pre_logits, encoded (B, N, D) and attention
        (layers, B, H, N, N).
    """
    params = {k: np.asarray(v, "float64") for k, v in params.items()}
    x = np.asarray(images, "float64")
    if "conv_root/kernel" in params:
        x = hybrid_trunk(params, x)
    kernel = params["embedding/kernel"]
    x = conv(x, kernel, kernel.shape[0], "VALID") + params["embedding/bias"]
    x = x.reshape(x.shape[0], -1, x.shape[-1])
    if "cls" in params:
        token = np.broadcast_to(params["cls"], (x.shape[0], 1, x.shape[-1]))
        x = np.concatenate([token, x], axis=1)
    x = x + params["Transformer/posembed_input/pos_embedding"]
    attention = []
    while (
        f"Transformer/encoderblock_{len(attention)}/LayerNorm_0/bias" in params
    ):
        prefix = f"Transformer/encoderblock_{len(attention)}/"
        x, weights = block(subtree(params, prefix), x)
        attention.append(weights)
    encoded = layer_norm(x, subtree(params, "Transformer/encoder_norm/"))
    y = encoded[:, 0] if pooling == "token" else encoded.mean(axis=1)
    if "pre_logits/kernel" in params:
        y = np.tanh(dense(y, subtree(params, "pre_logits/")))
    return {
        "logits": dense(y, subtree(params, "head/")),
        "pre_logits": y,
        "encoded": encoded,
        "attention": np.stack(attention),
    }


def block(params, x):
    """Pre-norm encoder block; returns tokens and softmax weights."""
    norms = sorted({k.split("/")[0] for k in params if "LayerNorm" in k})
    attention = next(k for k in params if "DotProductAttention" in k)
    mlp = next(k for k in params if "MlpBlock" in k)
    y, weights = self_attention(
        subtree(params, attention.split("/")[0] + "/"),
        layer_norm(x, subtree(params, norms[0] + "/")),
    )
    # LayerScale (arXiv:2103.17239), where there is one.
    x = x + y * params.get("attention_scale", 1)
    y = layer_norm(x, subtree(params, norms[1] + "/"))
    y = mlp_block(subtree(params, mlp.split("/")[0] + "/"), y)
    return x + y * params.get("mlp_scale", 1), weights


def self_attention(params, x):
    query, key, value = (
        np.einsum("bnD,Dhd->bhnd", x, params[f"{name}/kernel"])
        + params[f"{name}/bias"][:, None]
        for name in ("query", "key", "value")
    )
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = np.einsum("bhnd,hdD->bnD", weights @ value, params["out/kernel"])
    return mixed + params["out/bias"], weights


def mlp_block(params, x):
    x = gelu_tanh(dense(x, subtree(params, "Dense_0/")))
    return dense(x, subtree(params, "Dense_1/"))


def mixer(params, images):
    """Forward pass of MLP-Mixer; returns a dict of logits and so on."""
    params = {k: np.asarray(v, "float64") for k, v in params.items()}
    kernel = params["stem/kernel"]
    x = conv(np.asarray(images, "float64"), kernel, kernel.shape[0], "VALID")
    x = (x + params["stem/bias"]).reshape(x.shape[0], -1, x.shape[-1])
    i = 0
    while f"MixerBlock_{i}/LayerNorm_0/bias" in params:
        p = subtree(params, f"MixerBlock_{i}/")
        y = np.swapaxes(layer_norm(x, subtree(p, "LayerNorm_0/")), 1, 2)
        x = x + np.swapaxes(mlp_block(subtree(p, "token_mixing/"), y), 1, 2)
        y = layer_norm(x, subtree(p, "LayerNorm_1/"))
        x = x + mlp_block(subtree(p, "channel_mixing/"), y)
        i += 1
    encoded = layer_norm(x, subtree(params, "pre_head_layer_norm/"))
    pooled = encoded.mean(axis=1)
    return {
        "encoded": encoded,
        "pre_logits": pooled,
        "logits": dense(pooled, subtree(params, "head/")),
    }


def hybrid_trunk(params, x):
    """ResNet v1 with group norm, TensorFlow's "same" padding."""

    def norm(x, name):
        scale, bias = params[f"{name}/scale"], params[f"{name}/bias"]
        return group_norm(x, scale.ravel(), bias.ravel(), 1e-6)

    def weights(name):
        kernel = params[f"{name}/kernel"]
        centred = kernel - kernel.mean(axis=(0, 1, 2))
        return centred / (kernel.std(axis=(0, 1, 2)) + 1e-5)

    x = norm(conv(x, weights("conv_root"), 2, "SAME"), "gn_root")
    x = max_pool(pad_same(np.maximum(x, 0), 3, 2, -np.inf))
    stage = unit = 1
    while f"block{stage}/unit{unit}/conv1/kernel" in params:
        name = f"block{stage}/unit{unit}"
        stride = 2 if stage > 1 and unit == 1 else 1
        y = norm(conv(x, weights(f"{name}/conv1"), 1, "SAME"), f"{name}/gn1")
        y = conv(np.maximum(y, 0), weights(f"{name}/conv2"), stride, "SAME")
        y = np.maximum(norm(y, f"{name}/gn2"), 0)
        y = norm(conv(y, weights(f"{name}/conv3"), 1, "SAME"), f"{name}/gn3")
        if f"{name}/conv_proj/kernel" in params:
            x = conv(x, weights(f"{name}/conv_proj"), stride, "SAME")
            x = norm(x, f"{name}/gn_proj")
        x = np.maximum(x + y, 0)
        unit += 1
        if f"block{stage}/unit{unit}/conv1/kernel" not in params:
            stage, unit = stage + 1, 1
    return x


def bit(params, images):
    """Forward pass of BiT (ResNet v2), the root's pool padded with zeros."""
    params = {
        k.removeprefix("resnet/"): np.asarray(v, "float64")
        for k, v in params.items()
    }

    def norm_relu(x, name):
        scale, shift = (params[f"{name}group_norm/{g}"] for g in GAMMA_BETA)
        return np.maximum(group_norm(x, scale, shift, 1e-5), 0)

    def weights(name):
        kernel = params[f"{name}/standardized_conv2d/kernel"]
        centred = kernel - kernel.mean(axis=(0, 1, 2))
        return centred / np.sqrt(kernel.var(axis=(0, 1, 2)) + 1e-10)

    x = pad(np.asarray(images, "float64"), 3)
    x = max_pool(pad(conv(x, weights("root_block"), 2, "VALID"), 1))
    stage = unit = 1
    while f"block{stage}/unit{unit:02}/a/group_norm/gamma" in params:
        name = f"block{stage}/unit{unit:02}"
        stride = 2 if stage > 1 and unit == 1 else 1
        y = norm_relu(x, f"{name}/a/")
        if unit == 1:
            x = conv(y, weights(f"{name}/a/proj"), stride, "VALID")
        y = norm_relu(conv(y, weights(f"{name}/a"), 1, "VALID"), f"{name}/b/")
        y = conv(pad(y, 1), weights(f"{name}/b"), stride, "VALID")
        y = norm_relu(y, f"{name}/c/")
        x = x + conv(y, weights(f"{name}/c"), 1, "VALID")
        unit += 1
        if f"block{stage}/unit{unit:02}/a/group_norm/gamma" not in params:
            stage, unit = stage + 1, 1
    pooled = norm_relu(x, "").mean(axis=(1, 2))
    kernel, bias = params["head/conv2d/kernel"], params["head/conv2d/bias"]
    return {"pre_logits": pooled, "logits": pooled @ kernel[0, 0] + bias}


GAMMA_BETA = ("gamma", "beta")


def subtree(params, prefix):
    n = len(prefix)
    return {k[n:]: v for k, v in params.items() if k.startswith(prefix)}


def dense(x, params):
    return x @ params["kernel"] + params["bias"]


def gelu_tanh(x):
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def layer_norm(x, params, epsilon=1e-6):
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    return centred / deviation * params["scale"] + params["bias"]


def group_norm(x, scale, bias, epsilon, groups=32):
    shape = x.shape
    x = x.reshape(shape[0], shape[1] * shape[2], groups, -1)
    x = x - x.mean(axis=(1, 3), keepdims=True)
    x = x / np.sqrt(x.var(axis=(1, 3), keepdims=True) + epsilon)
    return x.reshape(shape) * scale + bias


def conv(x, kernel, stride, padding):
    size = kernel.shape[0]
    if padding == "SAME":
        x = pad_same(x, size, stride, 0.0)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    return np.einsum(
        "bhwcij,ijcd->bhwd",
        windows[:, ::stride, ::stride],
        kernel,
        optimize=True,
    )


def max_pool(x):
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    return windows[:, ::2, ::2].max(axis=(-1, -2))


def pad(x, pixels, value=0.0):
    width = [(0, 0), (pixels, pixels), (pixels, pixels), (0, 0)]
    return np.pad(x, width, constant_values=value)


def pad_same(x, size, stride, value):
    widths = [(0, 0)]
    for n in x.shape[1:3]:
        total = max((-(-n // stride) - 1) * stride + size - n, 0)
        widths.append((total // 2, total - total // 2))
    return np.pad(x, [*widths, (0, 0)], constant_values=value)
