"""The golden cases loaded by the package, and their outputs."""

import functools
import json
import pathlib

import keras
import numpy as np
from arrays import read_arrays

from keras_vit.checkpoints import load_checkpoint

FOLDER = pathlib.Path(__file__).parents[1] / "reference"
CASES = json.loads((FOLDER / "cases.json").read_text())
# float32 and float64 of the originals differ by less, the wrong form of GELU
# by more than 1.5e-4.
TOLERANCE = {"rtol": 0, "atol": 5e-5}


POOLINGS = {"avg": "mean", "map": "map"}
# The layer whose output the head reads, if there is one.
LAST = ("pre_logits", "pool", "neck", "encoder_norm")


def path_of(name):
    return FOLDER / CASES[name]["checkpoint"]


def options_of(name):
    """What the files cannot tell: heads, activation, size for sincos2d."""
    case = CASES[name]
    options = {}
    if case["format"] == "timm-safetensors" and case["family"] != "mixer":
        options["num_heads"] = case["arguments"].get("num_heads")
        if "act_layer" in case["arguments"]:
            options["activation"] = case["arguments"]["act_layer"]
    arguments = case.get("arguments", {})
    if "architecture" in case:
        options["architecture"] = case["architecture"]
    elif arguments.get("class_token") is False:  # As no published one is.
        epsilon = case["layer_norm_epsilon"]
        options = {"activation": "gelu", **options}
        options["layer_norm_epsilon"] = epsilon
        options["pooling"] = POOLINGS[arguments["global_pool"]]
    if arguments.get("fc_norm") is False:  # Not as its architecture.
        options["pooling"] = "mean"
    rotary = arguments.get("use_abs_pos_emb") is False
    # NaFlexViT, and relative positions that an MLP computes for any grid.
    any_grid = "model" in arguments or "rel_pos_dim" in arguments
    if case.get("posemb") == "sincos2d" or rotary or any_grid:
        options["input_shape"] = (*case["image_size"], 3)
    return options


def load(name, **options):
    return load_checkpoint(path_of(name), **{**options_of(name), **options})


@functools.cache
def expected(name):
    """The arrays to expect; BiT's are those of the pool padded with zeros."""
    arrays = read_arrays(FOLDER / CASES[name]["expected"])
    padded = "_zero_padded_pool"
    arrays |= {
        key.removesuffix(padded): value
        for key, value in arrays.items()
        if key.endswith(padded)
    }
    return arrays


def outputs(model, images):
    """Every array of `expected` that a model can be asked for."""
    names = [layer.name for layer in model.layers]
    blocks = [x for x in names if x.startswith("block_")]
    # Without pooling the head reads the tokens.
    last = next(x for x in LAST if x in names)
    tensors = {
        "pre_logits": model.get_layer(last).output,
        "output": model.output,
    }
    for key, name in (
        ("patch_embedding", "patch_embed"),
        ("neck", "neck"),
        ("encoded", "encoder_norm"),
    ):
        if name in names:
            tensors[key] = model.get_layer(name).output
    if getattr(model.config, "norm_after_pooling", False):
        tensors["pre_logits"] = tensors.pop("encoded")
        tensors["features"] = model.get_layer(blocks[-1]).output
    for name in blocks:
        tensors[name] = model.get_layer(name).input
    found = keras.Model(model.input, tensors)(images)
    found = {key: keras.ops.convert_to_numpy(x) for key, x in found.items()}
    found["logits" if "predictions" in names else "pre_logits"] = found.pop(
        "output"
    )
    if "position_embedding" in names:
        found["attention"] = np.stack(
            [weights(model.get_layer(x), found[x]) for x in blocks]
        )
    return found


def weights(block, x):
    tensor = block.attention.attention_weights(block.attention_norm(x))
    return keras.ops.convert_to_numpy(tensor)


def compare(found, wanted, keys):
    """Compares the arrays that both have; there must be some."""
    keys = [key for key in keys if key in wanted and key in found]
    assert keys
    for key in keys:
        np.testing.assert_allclose(
            found[key], wanted[key], err_msg=key, **TOLERANCE
        )
    return keys
