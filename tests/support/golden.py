"""Golden cases: the models they belong to, their weights set by hand.

The mapping is written out here on its own, apart from the package's loaders.
"""

import json
import pathlib

import numpy as np
from arrays import read_arrays

from keras_vit.models import (
    BiT,
    BiTConfig,
    Mixer,
    MixerConfig,
    VisionTransformer,
    ViTConfig,
)

FOLDER = pathlib.Path(__file__).parents[1] / "reference"
CASES = json.loads((FOLDER / "cases.json").read_text())
POOLINGS = {"token": "token", "gap": "mean"}


def arrays(name):
    """Checkpoint and expected arrays of a case in `.npz` form."""
    case = CASES[name]
    return tuple(
        read_arrays(FOLDER / case[kind]) for kind in ("checkpoint", "expected")
    )


def vit_model(name, dtype=None, **changes):
    """The ViT or hybrid of a case, with its weights."""
    case = CASES[name]
    resnet = case.get("resnet")
    config = ViTConfig(
        **{
            "image_size": case["image_size"],
            "patch_size": case["patch_size"],
            "hidden_dim": case["hidden_size"],
            "num_layers": case["num_layers"],
            "mlp_dim": case["mlp_dim"],
            "num_heads": case["num_heads"],
            "pooling": POOLINGS[case["classifier"]],
            "class_token": case["classifier"] == "token",
            "representation_dim": case["representation_size"] or 0,
            "num_classes": case["num_classes"],
            "resnet_units": resnet and resnet["num_layers"],
            "resnet_width": int(64 * resnet["width_factor"]) if resnet else 64,
            **changes,
        }
    )
    model = VisionTransformer(config, dtype=dtype)
    set_weights(model, vit_weights(arrays(name)[0]))
    return model


def mixer_model(name):
    case = CASES[name]
    config = MixerConfig(
        image_size=case["image_size"],
        patch_size=case["patch_size"],
        hidden_dim=case["hidden_dim"],
        num_layers=case["num_blocks"],
        tokens_mlp_dim=case["tokens_mlp_dim"],
        channels_mlp_dim=case["channels_mlp_dim"],
        num_classes=case["num_classes"],
    )
    model = Mixer(config)
    set_weights(model, mixer_weights(arrays(name)[0]))
    return model


def bit_model(name):
    case = CASES[name]
    config = BiTConfig(
        image_size=case["image_size"],
        units=case["depth"],
        width=int(64 * case["width"]),
        num_classes=case["num_classes"],
    )
    model = BiT(config)
    set_weights(model, bit_weights(arrays(name)[0]))
    return model


def set_weights(model, weights):
    """Assigns arrays by path; every weight must get one, every array go."""
    paths = {w.path: w for w in model.weights}
    assert set(paths) == set(weights), set(paths) ^ set(weights)
    for path, weight in paths.items():
        assert tuple(weight.shape) == weights[path].shape, path
        weight.assign(weights[path])


def vit_weights(file):
    weights = {
        "patch_embed/projection/kernel": file["embedding/kernel"],
        "patch_embed/projection/bias": file["embedding/bias"],
        "position_embedding/embedding": file[
            "Transformer/posembed_input/pos_embedding"
        ],
        **norm("encoder_norm", file, "Transformer/encoder_norm"),
        **dense("predictions", file, "head"),
    }
    if "cls" in file:
        weights["class_token/token"] = file["cls"]
    if "pre_logits/kernel" in file:
        weights |= dense("pre_logits", file, "pre_logits")
    i = 0
    while f"Transformer/encoderblock_{i}/LayerNorm_0/bias" in file:
        weights |= block_weights(i, file)
        i += 1
    if "conv_root/kernel" in file:
        weights |= hybrid_weights(file)
    return weights


def block_weights(i, file):
    theirs = f"Transformer/encoderblock_{i}/"
    old = f"{theirs}LayerNorm_2/bias" in file
    attention = theirs + "MultiHeadDotProductAttention_" + "01"[old]
    mlp = theirs + "MlpBlock_" + "03"[old]
    qkv = [file[f"{attention}/{n}/kernel"] for n in ("query", "key", "value")]
    bias = [file[f"{attention}/{n}/bias"] for n in ("query", "key", "value")]
    dim = qkv[0].shape[0]
    return {
        **norm(f"block_{i}/attention_norm", file, theirs + "LayerNorm_0"),
        **norm(f"block_{i}/mlp_norm", file, theirs + "LayerNorm_" + "12"[old]),
        f"block_{i}/attention/qkv/kernel": np.stack(qkv, axis=2).reshape(
            dim, 3 * dim
        ),
        f"block_{i}/attention/qkv/bias": np.stack(bias, axis=1).ravel(),
        f"block_{i}/attention/out/kernel": file[
            f"{attention}/out/kernel"
        ].reshape(dim, dim),
        f"block_{i}/attention/out/bias": file[f"{attention}/out/bias"],
        **dense(f"block_{i}/mlp/dense", file, f"{mlp}/Dense_0"),
        **dense(f"block_{i}/mlp/dense_1", file, f"{mlp}/Dense_1"),
    }


def hybrid_weights(file):
    weights = {
        "root_conv/kernel": file["conv_root/kernel"],
        **norm("root_norm", file, "gn_root"),
    }
    for key in file:
        if key.startswith("block"):
            stage, unit, name, kind = key.split("/")
            number = {"conv_proj": "shortcut", "gn_proj": "shortcut_norm"}.get(
                name, name.replace("gn", "norm")
            )
            ours = f"stage{stage[5:]}_unit{unit[4:]}_{number}"
            if kind == "kernel":
                weights[f"{ours}/kernel"] = file[key]
            else:
                weights |= norm(ours, file, key.rsplit("/", 1)[0])
    return weights


def mixer_weights(file):
    weights = {
        "patch_embed/projection/kernel": file["stem/kernel"],
        "patch_embed/projection/bias": file["stem/bias"],
        **norm("encoder_norm", file, "pre_head_layer_norm"),
        **dense("predictions", file, "head"),
    }
    i = 0
    while f"MixerBlock_{i}/LayerNorm_0/bias" in file:
        theirs, ours = f"MixerBlock_{i}/", f"block_{i}/"
        weights |= norm(ours + "token_norm", file, theirs + "LayerNorm_0")
        weights |= norm(ours + "channel_norm", file, theirs + "LayerNorm_1")
        for mixing in ("token_mixing", "channel_mixing"):
            for ours_dense, number in (("dense", 0), ("dense_1", 1)):
                weights |= dense(
                    f"{ours}{mixing}/{ours_dense}",
                    file,
                    f"{theirs}{mixing}/Dense_{number}",
                )
        i += 1
    return weights


def bit_weights(file):
    weights = {
        "predictions/kernel": file["resnet/head/conv2d/kernel"][0, 0],
        "predictions/bias": file["resnet/head/conv2d/bias"],
    }
    places = {"root_block": "root_conv", "": "encoder_norm"}
    numbers = {"a": "1", "b": "2", "c": "3"}
    for key, value in file.items():
        parts = key.removeprefix("resnet/").split("/")
        if parts[0].startswith("head"):
            continue
        kind = parts[-1]
        place = parts[:-2]
        if len(place) < 2:
            ours = places["".join(place)]
        else:
            stage, unit = place[0][5:], int(place[1][4:])
            last = "norm" if "group_norm" in key else "conv"
            end = "shortcut" if "proj" in place else last + numbers[place[2]]
            ours = f"stage{stage}_unit{unit}_{end}"
        weights[f"{ours}/{kind}"] = value
    return weights


def norm(ours, file, theirs):
    return {
        f"{ours}/gamma": file[f"{theirs}/scale"].ravel(),
        f"{ours}/beta": file[f"{theirs}/bias"].ravel(),
    }


def dense(ours, file, theirs):
    return {
        f"{ours}/kernel": file[f"{theirs}/kernel"],
        f"{ours}/bias": file[f"{theirs}/bias"],
    }
