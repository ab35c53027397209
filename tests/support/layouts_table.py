"""Golden cases and random weights, written by hand in the layouts of others.

Nothing of keras_vit is used here: the names and axes are written out from
the originals' code, and the numbers to expect are golden or of NumPy.
"""

import dataclasses
import functools
import json
import pathlib
import re
import tempfile

import h5py
import numpy as np
import numpy_forward
from arrays import read_arrays
from safetensors.numpy import load_file, save_file

FOLDER = pathlib.Path(__file__).parents[1] / "reference"
KEPT = tempfile.TemporaryDirectory(prefix="layouts-")
# From the original ViT and big_vision to timm: names of modules.
TIMM = (
    ("^params/", ""),
    ("^cls$", "cls_token"),
    ("^embedding/", "patch_embed.proj/"),
    (r"^(Transformer/posembed_input/)?pos_embedding$", "pos_embed"),
    (r"^Transformer/encoderblock_(\d+)/", r"blocks.\1."),
    ("^Transformer/encoder_norm/", "norm/"),
    ("^conv_root/", "patch_embed.backbone.conv/"),
    ("^gn_root/", "patch_embed.backbone.norm/"),
    ("^pre_logits/", "pre_logits.fc/"),
    ("^MAPHead_0/probe$", "attn_pool.latent"),
    (r"^MAPHead_0/MultiHeadDotProductAttention_0/query/", "attn_pool.q/"),
    (r"^MAPHead_0/MultiHeadDotProductAttention_0/out/", "attn_pool.proj/"),
    (r"^MAPHead_0/MultiHeadDotProductAttention_0/", "attn_pool."),
    ("^MAPHead_0/LayerNorm_0/", "attn_pool.norm/"),
    ("^MAPHead_0/", "attn_pool."),
    (r"MultiHeadDotProductAttention_\d/out/", "attn.proj/"),
    (r"MultiHeadDotProductAttention_\d/", "attn."),
    ("LayerNorm_0/", "norm1/"),
    ("LayerNorm_[12]/", "norm2/"),
    (r"MlpBlock_\d/Dense_0/", "mlp.fc1/"),
    (r"MlpBlock_\d/Dense_1/", "mlp.fc2/"),
    ("/(kernel|scale)$", ".weight"),
    ("/bias$", ".bias"),
)
# From timm to the others.
TORCHVISION = (
    ("^cls_token", "class_token"),
    (r"^patch_embed\.proj", "conv_proj"),
    ("^pos_embed", "encoder.pos_embedding"),
    (r"^blocks\.", "encoder.layers.encoder_layer_"),
    (r"attn\.qkv\.", "self_attention.in_proj_"),
    (r"attn\.proj", "self_attention.out_proj"),
    (r"mlp\.fc1", "mlp.0"),
    (r"mlp\.fc2", "mlp.3"),
    (r"(\d)\.norm([12])", r"\1.ln_\2"),
    (r"^norm\.", "encoder.ln."),
    (r"^head\.", "heads.head."),
    (r"^pre_logits\.fc\.", "heads.pre_logits."),
)
ENCODER = (
    (r"^blocks\.(\d)\.norm1", r"encoder.layer.\1.layernorm_before"),
    (r"^blocks\.(\d)\.norm2", r"encoder.layer.\1.layernorm_after"),
    (
        r"^blocks\.(\d)\.attn\.proj",
        r"encoder.layer.\1.attention.output.dense",
    ),
    (
        r"^blocks\.(\d)\.attn\.(query|key|value)",
        r"encoder.layer.\1.attention.attention.\2",
    ),
    (r"^blocks\.(\d)\.mlp\.fc1", r"encoder.layer.\1.intermediate.dense"),
    (r"^blocks\.(\d)\.mlp\.fc2", r"encoder.layer.\1.output.dense"),
    (r"^norm\.", "layernorm."),
    ("^cls_token", "embeddings.cls_token"),
    ("^dist_token", "embeddings.distillation_token"),
    ("^pos_embed", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj", "embeddings.patch_embeddings.projection"),
)
HYBRID = (
    *ENCODER,
    (
        r"^patch_embed\.backbone",
        "embeddings.patch_embeddings.backbone.bit",
    ),
    (r"bit\.stem\.conv", "bit.embedder.convolution"),
    (r"bit\.stem\.norm", "bit.embedder.norm"),
    (r"bit\.stages\.(\d)\.blocks", r"bit.encoder.stages.\1.layers"),
    (r"^e", "vit.e"),
    (r"^layernorm", "vit.layernorm"),
    (r"^head\.", "classifier."),
)
DEIT = (
    *ENCODER,
    (r"^e", "deit.e"),
    (r"^layernorm", "deit.layernorm"),
)
DEIT_TEACHER = (
    *DEIT,
    (r"^head\.", "cls_classifier."),
    (r"^head_dist\.", "distillation_classifier."),
)
BIT = (
    (r"^stem\.conv", "bit.embedder.convolution"),
    (r"^stages\.(\d)\.blocks", r"bit.encoder.stages.\1.layers"),
    (r"^norm\.", "bit.norm."),
    (r"^head\.fc", "classifier.1"),
)
HUB_BLOCK = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block"
HUB_EMBEDDING = "layers/vi_t_patching_and_embedding"
KERAS_HUB = (
    ("^cls$", f"{HUB_EMBEDDING}/vars/0"),
    (r"^embedding/", f"{HUB_EMBEDDING}/patch_embedding/"),
    (
        "^Transformer/posembed_input/pos_embedding$",
        f"{HUB_EMBEDDING}/position_embedding/vars/0",
    ),
    ("^Transformer/encoder_norm/", "layers/vi_t_encoder/layer_norm/"),
    ("^Transformer/encoderblock_0/", f"{HUB_BLOCK}/"),
    (r"^Transformer/encoderblock_(\d+)/", rf"{HUB_BLOCK}_\1/"),
    ("LayerNorm_0", "layer_norm_1"),
    ("LayerNorm_2", "layer_norm_2"),
    ("MultiHeadDotProductAttention_1/out/", "mha/output_dense/"),
    (r"MultiHeadDotProductAttention_1/(\w+)/", r"mha/\1_dense/"),
    ("MlpBlock_3/Dense_0", "mlp/dense_1"),
    ("MlpBlock_3/Dense_1", "mlp/dense_2"),
    ("^pre_logits/", "layers/dense/"),
    ("^head/", "layers/dense_1/"),
    (r"/(kernel|scale)$", "/vars/0"),
    (r"/bias$", "/vars/1"),
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A file or folder, and what a model of it must give.

    Args:
        path: the file or folder.
        images: float32 (B, height, width, 3).
        logits: (B, classes).
        unseen: dict from our path to the part of the weight that no output
            shows, see `hidden_part`.
        options: arguments of `load_checkpoint`.
    """

    path: pathlib.Path
    images: np.ndarray
    logits: np.ndarray
    unseen: dict
    options: dict = dataclasses.field(default_factory=dict)


def hidden_part(path, value, heads):
    """What of one of our weights no output shows; empty where all is seen.

    Softmax cancels key biases; of two biases that are added up outputs show
    the sum.
    """
    if re.fullmatch(r"block_\d+/attention/qkv/bias", path):
        return value.reshape(heads, 3, -1)[:, 1].ravel()
    if path == "pool/key_value/bias":
        return value.reshape(heads, 2, -1)[:, 0].ravel()
    if re.fullmatch(r"class_block_\d+/attention/key_value/bias", path):
        return value.reshape(heads, 2, -1)[:, 0].ravel()
    if re.fullmatch(r"block_\d+/attention/logits_projection/bias", path):
        return value.ravel()
    if re.fullmatch(r"block_\d+/attention/lambdas", path):
        return value.ravel()  # Products of pairs show.
    if re.fullmatch(r"stage\d+_unit\d+_(norm3|shortcut_norm)/beta", path):
        return value
    if re.fullmatch(r"block_\d+/attention/key_norm/beta", path):
        return value
    if re.fullmatch(r"block_\d+/token_mixing/dense_1/bias", path):
        return value
    return np.zeros(0)


def renamed(tensors, changes):
    result = {}
    for key, value in tensors.items():
        for pattern, replacement in changes:
            key = re.sub(pattern, replacement, key)
        assert key not in result
        result[key] = np.ascontiguousarray(value)
    return result


def torch_array(name, x):
    """An array of Flax with torch's axes."""
    if re.search(r"(query|key|value)/kernel$", name):
        return x.reshape(len(x), -1).T  # (D, H, d) to (H d, D)
    if name.endswith("out/kernel"):
        return x.reshape(-1, x.shape[2]).T  # (H, d, D) to (D, H d)
    if re.search(r"(query|key|value)/bias$", name):
        return x.ravel()
    if name.endswith("kernel"):
        return x.T if x.ndim == 2 else x.transpose(3, 2, 0, 1)
    return x


def timm_arrays(params):
    """Weights of the original code in timm's layout, q, k, v apart."""
    arrays = {key: torch_array(key, x) for key, x in params.items()}
    return renamed(arrays, TIMM)


def fused(tensors):
    """Query, key and value under one another, as timm and torch do."""
    rest = dict(tensors)
    for name in tensors:
        if match := re.fullmatch(r"(.*attn\.)query\.(\w+)", name):
            parts = ("query", "key", "value")
            rest[f"{match[1]}qkv.{match[2]}"] = np.concatenate(
                [rest.pop(f"{match[1]}{x}.{match[2]}") for x in parts]
            )
        elif match := re.fullmatch(r"attn_pool\.key\.(\w+)", name):
            rest[f"attn_pool.kv.{match[1]}"] = np.concatenate(
                [rest.pop(f"attn_pool.{x}.{match[1]}") for x in KEY_VALUE]
            )
    return rest


KEY_VALUE = ("key", "value")


def separate(tensors):
    """Inverse of `fused` for the blocks."""
    rest = dict(tensors)
    for name in tensors:
        if match := re.fullmatch(r"(.*attn\.)qkv\.(\w+)", name):
            rows = np.split(rest.pop(name), 3)
            parts = ("query", "key", "value")
            for part, value in zip(parts, rows, strict=True):
                rest[f"{match[1]}{part}.{match[2]}"] = value
    return rest


def unseen_of(tensors):
    """Hidden parts by our path, from tensors in timm's names."""
    found = {}
    for name, value in tensors.items():
        if match := re.fullmatch(r"blocks\.(\d+)\.attn\.qkv\.bias", name):
            path = f"block_{match[1]}/attention/qkv/bias"
            found[path] = np.split(value, 3)[1]
        elif name == "attn_pool.kv.bias":
            found["pool/key_value/bias"] = np.split(value, 2)[0]
        elif match := re.fullmatch(
            r".*stages\.(\d)\.blocks\.(\d)\.(norm3|downsample\.norm)\.bias",
            name,
        ):
            kind = "norm3" if match[3] == "norm3" else "shortcut_norm"
            stage, unit = int(match[1]) + 1, int(match[2]) + 1
            found[f"stage{stage}_unit{unit}_{kind}/beta"] = value
    return found


def golden(name):
    """(weights, images, logits) of a golden case."""
    arrays = read_arrays(FOLDER / f"{name}.expected.npz")
    padded = arrays.get("logits_zero_padded_pool", arrays["logits"])
    path = FOLDER / f"{name}.npz"
    weights = (
        read_arrays(path)
        if path.exists()
        else load_file(path.with_suffix(".safetensors"))
    )
    return weights, arrays["image"], padded


def safetensors(name, tensors, config=None):
    """Writes a file, or with a config a folder of Hugging Face."""
    path = pathlib.Path(KEPT.name) / name
    tensors = {k: np.ascontiguousarray(x) for k, x in tensors.items()}
    if config is None:
        path = path.with_suffix(".safetensors")
        save_file(tensors, path)
        return path
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    return path


# The golden numbers of the original ViT are of GELU's tanh form, which the
# formats of torch leave to an argument.
TANH = {"activation": "gelu_tanh"}
GOOGLE_RESNET = {
    "resnet_standardization": "deviation",
    "resnet_standardization_epsilon": 1e-5,
    "resnet_group_norm_epsilon": 1e-6,
}
CONFIG = {"num_attention_heads": 4, "layer_norm_eps": 1e-6}


def from_google(name, golden_name, changes=(), **options):
    weights, images, logits = golden(golden_name)
    tensors = fused(timm_arrays(weights))
    path = safetensors(name, renamed(tensors, changes))
    options = {"num_heads": 4, **TANH, **options}
    return Layout(path, images, logits, unseen_of(tensors), options)


def from_timm(name, golden_name, changes):
    tensors, images, logits = golden(golden_name)
    renaming = renamed(separate(tensors), changes)
    if "classifier.1.weight" in renaming:  # a convolution in timm
        kernel = renaming["classifier.1.weight"]
        renaming["classifier.1.weight"] = kernel[:, :, 0, 0]
    config = CONFIG if "encoder.layer.0" in str(list(renaming)) else {}
    path = safetensors(name, renaming, config)
    return Layout(path, images, logits, unseen_of(tensors))


def distilled_arrays():
    """Random weights of a DeiT, in the layout of the original ViT."""
    weights, images, _ = golden("vit_tiny_bigvision_map")
    generator = np.random.default_rng(7)
    params = {
        key.removeprefix("params/"): generator.normal(0, 0.3, x.shape)
        for key, x in weights.items()
        if "MAPHead" not in key
    }
    params["cls"] = generator.normal(0, 0.3, (1, 1, 32))
    params["dist"] = generator.normal(0, 0.3, (1, 1, 32))
    length = 2 + params.pop("pos_embedding").shape[1]
    params["pos_embedding"] = generator.normal(0, 0.3, (1, length, 32))
    params["head_dist/kernel"] = generator.normal(0, 0.3, (32, 10))
    params["head_dist/bias"] = generator.normal(0, 0.3, 10)
    return {key: x.astype("float32") for key, x in params.items()}, images


def distilled_logits(params, images, teacher):
    """Logits of a DeiT, the two heads averaged or the first alone."""
    params = {key: x.astype("float64") for key, x in params.items()}
    kernel = params["embedding/kernel"]
    x = numpy_forward.conv(
        images.astype("float64"), kernel, len(kernel), "VALID"
    )
    x = (x + params["embedding/bias"]).reshape(len(x), -1, x.shape[-1])
    tokens = [np.repeat(params[k], len(x), 0) for k in ("cls", "dist")]
    x = np.concatenate([*tokens, x], axis=1) + params["pos_embedding"]
    i = 0
    while block := numpy_forward.subtree(
        params, f"Transformer/encoderblock_{i}/"
    ):
        x, _ = numpy_forward.block(block, x)
        i += 1
    norm = numpy_forward.subtree(params, "Transformer/encoder_norm/")
    x = numpy_forward.layer_norm(x, norm)
    logits = numpy_forward.dense(
        x[:, 0], numpy_forward.subtree(params, "head/")
    )
    if not teacher:
        return logits
    second = numpy_forward.subtree(params, "head_dist/")
    return (logits + numpy_forward.dense(x[:, 1], second)) / 2


def deit(name, changes=None, teacher=True):
    params, images = distilled_arrays()
    logits = distilled_logits(params, images, teacher)
    if not teacher:
        params = {k: x for k, x in params.items() if "head_dist" not in k}
    changes_of_tokens = (("^dist$", "dist_token"),)
    apart = renamed(timm_arrays(params), changes_of_tokens)
    tensors, unseen = fused(apart), unseen_of(fused(apart))
    if changes is None:
        path = safetensors(name, tensors)
        return Layout(path, images, logits, unseen, {"num_heads": 4, **TANH})
    config = {**CONFIG, "hidden_act": "gelu_new"}
    path = safetensors(name, renamed(apart, changes), config)
    return Layout(path, images, logits, unseen)


def without_position_of_the_token(name):
    tensors, images, logits = golden("timm_vit_tiny")
    unseen = unseen_of(tensors)
    table = tensors["pos_embed"]
    tensors["cls_token"] = tensors["cls_token"] + table[:, :1]
    tensors["pos_embed"] = table[:, 1:]
    path = safetensors(name, tensors)
    return Layout(path, images, logits, unseen, {"num_heads": 4})


def keras_hub(name):
    weights, images, logits = golden("vit_tiny_google")
    folder = pathlib.Path(KEPT.name) / name
    folder.mkdir()
    parts = {"model.weights.h5": {}, "task.weights.h5": {}}
    for key, value in weights.items():
        task = re.match("head|pre_logits", key)
        (key,) = renamed({key: value}, KERAS_HUB)
        value = value[0] if "position_embedding" in key else value
        parts["task.weights.h5" if task else "model.weights.h5"][key] = value
    for file, arrays in parts.items():
        with h5py.File(folder / file, "w") as h5:
            for key, value in arrays.items():
                h5[key] = value
    config = {"image_shape": [32, 32, 3], "num_heads": 4}
    config = {"registered_name": "keras_hub>ViTBackbone", "config": config}
    (folder / "config.json").write_text(json.dumps(config))
    task = {"pooling": "token", "num_classes": 10, "intermediate_dim": 24}
    (folder / "task.json").write_text(json.dumps({"config": task}))
    unseen = unseen_of(fused(timm_arrays(weights)))
    return Layout(folder, images, logits, unseen, TANH)


MAKERS = {
    "torchvision": lambda name: from_google(
        name, "vit_tiny_google", TORCHVISION
    ),
    "timm_pre_logits": lambda name: from_google(name, "vit_tiny_google"),
    "timm_map": lambda name: from_google(name, "vit_tiny_bigvision_map"),
    "timm_root_only": lambda name: from_google(
        name, "hybrid_tiny_root_only", **GOOGLE_RESNET
    ),
    "timm_patches_alone": without_position_of_the_token,
    "timm_deit": deit,
    "timm_deit_one_head": functools.partial(deit, teacher=False),
    "hugging_face_hybrid": lambda name: from_timm(
        name, "timm_hybrid_tiny", HYBRID
    ),
    "hugging_face_bit": lambda name: from_timm(
        name, "timm_resnetv2_bit_tiny", BIT
    ),
    "hugging_face_deit": lambda name: deit(
        name, (*DEIT, (r"^head\.", "classifier.")), teacher=False
    ),
    "hugging_face_deit_teacher": lambda name: deit(name, DEIT_TEACHER),
    "keras_hub": keras_hub,
}


@functools.cache
def layout(name):
    """A `Layout`, written once."""
    return MAKERS[name](name)
