"""Makes golden data, `python tools/make_golden.py NAME ...`.

Builds tiny models of timm, transformers and keras-hub with random weights, no
weight zero or one, and writes for each into tests/reference/ its file or
folder, what the original computes of two images, and its entry in cases.json,
which has the arguments that it was built with. Those named hub_* need
keras-hub, which is no dependency: `pip install --target FOLDER keras-hub`, with
the folder in PYTHONPATH.
"""

import argparse
import functools
import importlib
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "reference"
sys.path.append(str(ROOT / "tests" / "support"))

import golden_hugging_face  # noqa: E402
import golden_keras_hub  # noqa: E402
import golden_open_clip  # noqa: E402
from timm_models import randomised  # noqa: E402
from timm_stub import import_timm  # noqa: E402

MODULES = (golden_hugging_face, golden_keras_hub, golden_open_clip)
LEAST_SCALE = 0.1  # of the weights, so that each shows in the outputs
VIT = "vision_transformer.VisionTransformer"
EVA = "eva.Eva"
SAM = "vision_transformer_sam.VisionTransformerSAM"
NAFLEX = "naflexvit.NaFlexVit"  # made by name
MIXER = "mlp_mixer.MlpMixer"
RESNET = "resnetv2.ResNetV2"
STEM = "vision_transformer_hybrid.ConvStem"  # before a VisionTransformer
RELPOS = "vision_transformer_relpos.VisionTransformerRelPos"
TINY = {
    **{"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2},
    **{"num_heads": 4, "mlp_ratio": 2.0, "num_classes": 10},
}
TINY_MIXER = {
    **{"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_blocks": 2},
    "num_classes": 10,
}
TINY_RESNET = {
    **{"layers": [2, 1], "num_classes": 10, "stem_chs": 16},
    **{"channels": [64, 128], "conv_layer": "create_conv2d"},
    "norm_layer": "BatchNormAct2d",
}
GAP = {
    **{"class_token": False, "no_embed_class": True, "reg_tokens": 1},
    **{"global_pool": "avg", "init_values": 1e-5},
}
# By name: the class, its arguments, and the architecture that has them.
CASES = {
    "basic": (
        RESNET,
        {"basic": True, "bottle_ratio": 1.0, "channels": [16, 32]},
        "resnetv2_18",
    ),
    "tiered": (
        RESNET,
        {"stem_type": "tiered", "avg_down": True},
        "resnetv2_50t",
    ),
    "evolved": (
        RESNET,
        {
            **{"stem_type": "deep", "avg_down": True, "stem_chs": 64},
            **{"norm_layer": "EvoNorm2dS0", "layers": [1]},
            "channels": [256],
        },
        "resnetv2_50d_evos",
    ),
    "resmlp": (
        MIXER,
        {"mlp_ratio": 2, "block_layer": "ResBlock", "norm_layer": "Affine"},
        "resmlp_12_224",
    ),
    "gmlp": (
        MIXER,
        {
            **{"mlp_ratio": 3, "block_layer": "SpatialGatingBlock"},
            "mlp_layer": "GatedMlp",
        },
        "gmlp_ti16_224",
    ),
    "gmixer": (
        MIXER,
        {
            **{"mlp_ratio": [1.0, 2.0], "mlp_layer": "GluMlp"},
            "act_layer": "silu",
        },
        "gmixer_12_224",
    ),
    "eva02": (
        EVA,
        {
            **{"qkv_fused": False, "swiglu_mlp": True, "scale_mlp": True},
            **{"scale_attn_inner": True, "use_rot_pos_emb": True},
            **{"ref_feat_shape": (16, 16), "global_pool": "token"},
        },
        "eva02_base_patch16_clip_224",
    ),
    "dinov3": (
        EVA,
        {
            **{"init_values": 1e-5, "num_reg_tokens": 4, "qkv_bias": False},
            **{"rope_type": "dinov3", "rope_temperature": 100},
            **{"rope_rotate_half": True, "use_rot_pos_emb": True},
            **{"use_abs_pos_emb": False, "use_fc_norm": False},
            **{"norm_layer": ("LayerNorm", 1e-5), "global_pool": "token"},
        },
        "vit_base_patch16_lingbot",  # DINOv3 that reads the class token
    ),
    "sapiens2": (
        EVA,
        {
            **{"attn_type": "rope", "qkv_fused": False, "qk_norm": True},
            **{"num_kv_heads": (4, 2), "swiglu_mlp": True},
            **{"init_values": 1.0, "attn_only_layer_scale": True},
            **{"rope_type": "dinov3", "rope_temperature": 100},
            **{"rope_rotate_half": True, "use_rot_pos_emb": True},
            **{"use_abs_pos_emb": False, "num_reg_tokens": 4},
            **{"norm_layer": ("RmsNorm", 1e-6), "global_pool": "token"},
            "use_fc_norm": False,
        },
        "vit_base_patch16_sapiens2",
    ),
    "sam": (
        SAM,
        {
            **{"window_size": 3, "global_attn_indexes": (1,)},
            **{"use_rel_pos": True, "neck_chans": 16},
            "norm_layer": ("LayerNorm", 1e-5),
        },
        "samvit_base_patch16",
    ),
    "perception": (
        EVA,
        {
            **{"attn_type": "rope", "global_pool": "map"},
            **{"attn_pool_num_heads": 8, "attn_pool_mlp_ratio": 4.0},
            **{"use_pre_transformer_norm": True, "use_rot_pos_emb": True},
            **{"ref_feat_shape": (14, 14), "rope_grid_offset": 1.0},
            **{"rope_grid_indexing": "xy", "norm_layer": ("LayerNorm", 1e-5)},
        },
        "vit_pe_core_base_patch16_224",
    ),
    "rope_mixed": (
        EVA,
        {
            **{"attn_type": "rope", "init_values": 1e-5},
            **{"global_pool": "token", "rope_type": "mixed"},
            **{"rope_grid_indexing": "xy", "rope_temperature": 10.0},
            **{"use_abs_pos_emb": False, "use_rot_pos_emb": True},
        },
        "vit_base_patch16_rope_mixed_224",
    ),
    "post_norm": (
        EVA,
        {"global_pool": "token", "use_post_norm": True},
        "eva02_enormous_patch14_clip_224",
    ),
    "beit": (
        "beit.Beit",
        {
            **{"use_abs_pos_emb": False, "use_rel_pos_bias": True},
            "init_values": 0.1,
        },
        "beit_base_patch16_224",
    ),
    "aimv2": (
        VIT,
        {
            **{"class_token": False, "global_pool": "avg", "fc_norm": False},
            **{"qkv_bias": False, "proj_bias": False, "act_layer": "silu"},
            **{"norm_layer": ("RmsNorm", 1e-5), "mlp_layer": "SwiGLU"},
            "embed_norm_layer": ("RmsNorm", 1e-5),
        },
        "aimv2_large_patch14_224",
    ),
    "swiglu": (
        VIT,
        {"init_values": 1e-5, "mlp_layer": "SwiGLUPacked", "act_layer": "silu"},
        "vit_giant_patch14_dinov2",
    ),
    "naflex": (
        NAFLEX,
        {"model": "naflexvit_base_patch16_par_gap"},
        "naflexvit_base_patch16_par_gap",
    ),
    "naflex_axes": (
        NAFLEX,
        {"model": "naflexvit_base_patch16_parfac_gap"},
        "naflexvit_base_patch16_parfac_gap",
    ),
    "relpos": (
        RELPOS,
        {
            **{"class_token": True, "fc_norm": True, "init_values": 1e-5},
            **{"qkv_bias": False, "rel_pos_type": "mlp", "rel_pos_dim": 16},
        },
        "vit_relpos_base_patch16_clsgap_224",
    ),
    "relpos_shared": (
        RELPOS,
        {
            # Only beside a class token does the last bias show.
            **{"class_token": True, "init_values": 1e-5},
            **{"shared_rel_pos": True, "qkv_bias": False},
            **{"rel_pos_type": "mlp", "rel_pos_dim": 16},
        },
        "vit_srelpos_small_patch16_224",
    ),
    "relpos_swin": (
        RELPOS,
        {
            **{"block_fn": "ResPostRelPosBlock", "qkv_bias": False},
            **{"rel_pos_type": "mlp_swin", "rel_pos_dim": 16},
        },
        "vit_relpos_small_patch16_rpn_224",
    ),
    "relpos_shared_swin": (
        RELPOS,
        {
            **{"block_fn": "ResPostRelPosBlock", "shared_rel_pos": True},
            **{"rel_pos_type": "mlp_swin", "rel_pos_dim": 16},
        },
        "vit_relpos_base_patch32_plus_rpn_256",
    ),
    "relpos_table": (
        RELPOS,
        {
            **{"class_token": True, "global_pool": "token"},
            **{"qkv_bias": False, "rel_pos_type": "bias"},
        },
        "vit_relpos_base_patch16_cls_224",
    ),
    "relpos_shared_table": (
        RELPOS,
        {
            **{"shared_rel_pos": True, "class_token": True},
            **{"qkv_bias": False, "rel_pos_type": "bias", "fc_norm": True},
        },
        "vit_relpos_base_patch16_clsgap_224",
    ),
    "cait": (
        "cait.Cait",
        {"depth_token_only": 2, "mlp_ratio_token_only": 2.0},
        "cait_xxs24_224",
    ),
    "patch_stem": (
        STEM,
        {
            **{"patch_size": 1, "no_embed_class": True},
            "stem": {
                **{"channels": [8, 8, 32], "stride": [2, 2, 2]},
                **{"kernel_size": [2, 2, 2], "padding": 0},
            },
        },
        "vit_base_mci_224",
    ),
    "differential": (
        VIT,
        {**GAP, "attn_layer": "diff"},
        "vit_dwee_patch16_reg1_gap_256",
    ),
    "parallel": (
        VIT,
        {**GAP, "block_fn": "ParallelScalingBlock"},
        "vit_pwee_patch16_reg1_gap_256",
    ),
    "parallel_differential": (
        VIT,
        {**GAP, "block_fn": "DiffParallelScalingBlock"},
        "vit_dpwee_patch16_reg1_gap_256",
    ),
    "parallel_query_norm": (
        VIT,
        {
            **{"block_fn": "ParallelScalingBlock", "qkv_bias": False},
            **{"qk_norm": True, "global_pool": "avg", "fc_norm": False},
        },
        "vit_pwee_patch16_reg1_gap_256",
    ),
    "inner_norms": (
        VIT,
        {
            **{"qk_norm": True, "scale_attn_norm": True},
            **{"scale_mlp_norm": True, "global_pool": "avg"},
            **{"fc_norm": False, "norm_layer": ("LayerNorm", 1e-5)},
        },
        "beit3_base_patch16_224",
    ),
}


# Of kinds that are no Vision Transformers: family, word in the name, sizes.
FAMILIES = {
    MIXER: ("mixer", "mixer", TINY_MIXER),
    RESNET: ("bit_resnet_v2", "resnetv2", TINY_RESNET),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes golden data.")
    parser.add_argument("names", nargs="*", default=list(CASES))
    timm = import_timm()
    timm.layers.set_fused_attn(False)
    path = FOLDER / "cases.json"
    cases = json.loads(path.read_text())
    for name in parser.parse_args().names:
        if module := next((x for x in MODULES if name in x.CASES), None):
            cases[name] = module.write(name)
            continue
        family, word, _ = FAMILIES.get(CASES[name][0], ("vit", "vit", TINY))
        made = f"timm_{word}_tiny_{name}"
        cases[made] = write(made, family, *CASES[name])
        print(made)
    path.write_text(json.dumps(cases, indent=1) + "\n")


def write(name, family, kind, extra, architecture) -> dict:
    """Writes the files of a case; returns its entry in cases.json."""
    arguments = FAMILIES.get(kind, ("", "", TINY))[2] | extra
    model = built(kind, arguments)
    images = np.random.default_rng(1).uniform(-1, 1, (2, 32, 32, 3))
    images = images.astype("float32")
    state = {k: x.contiguous() for k, x in model.state_dict().items()}
    save_file(state, FOLDER / f"{name}.safetensors")
    entry = {"constructor": f"timm.models.{kind}", "arguments": arguments}
    text = json.dumps(entry, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    np.savez_compressed(
        FOLDER / f"{name}.expected.npz", **expected(model, images)
    )
    return {
        "checkpoint": f"{name}.safetensors",
        "expected": f"{name}.expected.npz",
        "family": family,
        "format": "timm-safetensors",
        "image_size": [32, 32],
        "architecture": architecture,
        **entry,
        "layer_norm_epsilon": epsilon_of(extra),
    }


# Arguments that are classes.
LAYERS = (
    *("mlp_layer", "block_layer", "block_fn", "norm_layer", "conv_layer"),
)


def built(kind, arguments) -> torch.nn.Module:
    """The model, with random weights."""
    if kind == NAFLEX:
        return randomised(made_by_name(dict(arguments)), LEAST_SCALE)
    if kind == STEM:
        return randomised(made_with_stem(dict(arguments)), LEAST_SCALE)
    module, name = kind.rsplit(".", 1)
    layers = importlib.import_module("timm.layers")
    arguments = dict(arguments)
    models = importlib.import_module(f"timm.models.{module}")
    for key in ("norm_layer", "embed_norm_layer"):
        if isinstance(arguments.get(key), tuple):
            layer, epsilon = arguments[key]
            arguments[key] = with_epsilon(getattr(layers, layer), epsilon)
    for key in LAYERS:
        if isinstance(word := arguments.get(key), str):
            arguments[key] = getattr(models, word, getattr(layers, word, None))
    if arguments.get("act_layer") == "silu":
        arguments["act_layer"] = torch.nn.SiLU
    made = getattr(models, name)
    return randomised(made(**arguments), LEAST_SCALE)


def made_by_name(arguments) -> torch.nn.Module:
    name = arguments.pop("model")
    del arguments["img_size"]
    return import_timm().create_model(name, pretrained=False, **arguments)


def made_with_stem(arguments) -> torch.nn.Module:
    """A model whose patches are made by convolutions, as MobileCLIP's."""
    hybrid = importlib.import_module("timm.models.vision_transformer_hybrid")
    stem = {
        name: tuple(x) if isinstance(x, list) else x
        for name, x in arguments.pop("stem").items()
    }
    backbone = hybrid.ConvStem(**stem, act_layer=torch.nn.GELU)
    embed = functools.partial(hybrid.HybridEmbed, backbone=backbone, proj=False)
    return hybrid.VisionTransformer(**arguments, embed_layer=embed)


def with_epsilon(layer, epsilon):
    def made(*args, **kwargs):
        return layer(*args, **{"eps": epsilon, **kwargs})

    return made


def epsilon_of(arguments) -> float:
    told = arguments.get("norm_layer")
    return told[1] if isinstance(told, tuple) else 1e-6


def kept_weights(blocks) -> list:
    """A list that gets the weights of each block when it computes."""
    attention = []

    def keep(module, inputs, output, layer):
        weights = output
        if hasattr(layer, "lambda_q1"):  # Each head has two, in turn.
            factor = layer._compute_lambda()
            weights = output[:, ::2] - factor * output[:, 1::2]
        attention.append(weights.detach().numpy())

    for block in blocks:
        layer = getattr(block, "attn", block)  # Of parallel blocks its own.
        if hasattr(layer, "attn_drop"):
            hook = functools.partial(keep, layer=layer)
            layer.attn_drop.register_forward_hook(hook)
    return attention


def expected(model, images) -> dict:
    """What timm computes."""
    attention = kept_weights(getattr(model, "blocks", [None]))
    late = kept_weights(getattr(model, "blocks_token_only", [None]))
    with torch.no_grad():
        features = model.forward_features(
            torch.tensor(np.moveaxis(images, -1, 1))
        )
        found = {
            "image": images,
            "logits": model.forward_head(features).numpy(),
            "pre_logits": model.forward_head(features, pre_logits=True).numpy(),
        }
    if hasattr(model, "neck"):
        found["attention"] = np.stack(
            [
                of_all_patches(weights, block.window_size, len(images))
                for weights, block in zip(attention, model.blocks, strict=True)
            ]
        )
        channels_last = np.moveaxis(features.numpy(), 1, -1)
        found["neck"] = channels_last.reshape(
            len(images), -1, features.shape[1]
        )
        return found
    found |= {"attention": np.stack(attention)} if attention else {}
    if hasattr(model, "embeds"):
        found |= of_several_ratios(model)
    if late:
        found["class_attention"] = np.stack(late)[:, :, :, 0]
    if not hasattr(model, "blocks"):
        return found
    is_normed = not isinstance(model.norm, torch.nn.Identity)
    return {**found, "encoded" if is_normed else "features": features.numpy()}


SIDE = TINY["img_size"] // TINY["patch_size"]


def of_all_patches(weights, window, batch) -> np.ndarray:
    """Weights (B, H, T, T) of those within windows, (B * W * H, P, P)."""
    size = window or SIDE
    across = -(-SIDE // size)  # windows beside each other
    places = [divmod(i, SIDE) for i in range(SIDE**2)]
    weights = weights.reshape(batch, across**2, -1, *weights.shape[1:])
    found = np.zeros((batch, weights.shape[2], SIDE**2, SIDE**2), "float32")
    for i, (row, column) in enumerate(places):
        number = row // size * across + column // size
        query = row % size * size + column % size
        for j, (y, x) in enumerate(places):
            if y // size * across + x // size == number:
                key = y % size * size + x % size
                found[:, :, i, j] = weights[:, number, :, query, key]
    return found


# (rows, columns) of the patches of a batch of several aspect ratios.
GRIDS = ((3, 5), (6, 2), (1, 4))


def of_several_ratios(model) -> dict:
    """What a NaFlexViT computes of patches with their coordinates."""
    random = np.random.default_rng(2)
    longest = max(rows * columns for rows, columns in GRIDS)
    patches = random.uniform(-1, 1, (len(GRIDS), longest, 192))
    places = np.zeros((len(GRIDS), longest, 2), "int64")
    valid = np.zeros((len(GRIDS), longest), "bool")
    for i, grid in enumerate(GRIDS):
        count = grid[0] * grid[1]
        places[i, :count] = np.indices(grid).reshape(2, -1).T
        valid[i, :count] = True
    batch = {"patches": patches.astype("float32")}
    batch |= {"patch_coord": places, "patch_valid": valid}
    with torch.no_grad():
        logits = model({x: torch.tensor(y) for x, y in batch.items()})
    return {
        "sequence_patches": batch["patches"],
        "sequence_coordinates": places,
        "sequence_valid": valid,
        "sequence_logits": logits.numpy(),
    }


if __name__ == "__main__":
    main()
