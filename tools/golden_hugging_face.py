"""Golden data of folders of Hugging Face, see `make_golden.py`.

transformers must be installed; the folders are those that it saves.
"""

import contextlib
import os
import pathlib
import shutil

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "torch")
import torch  # noqa: E402
from transformers_models import built, drawn, tokens  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "reference"
SIZES = {
    **{"num_hidden_layers": 2, "image_size": 32, "patch_size": 8},
    **{"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32},
}
RATIO = {x: y for x, y in SIZES.items() if x != "intermediate_size"}
RATIO |= {"mlp_ratio": 2}
WIDE = {
    **SIZES,
    **{"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64},
}
TEXTS = {
    **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 8, "vocab_size": 8, "max_position_embeddings": 4},
    **{"bos_token_id": 1, "eos_token_id": 2},
}
TOWERS = {"text_config": TEXTS, "vision_config": SIZES}
LABELS = {"num_labels": 10}
RELATIVE = {"use_relative_position_bias": True}
# By name: the class and its config.
CASES = {
    "hf_vit_tiny": ("ViTForImageClassification", {**WIDE, **LABELS}),
    "hf_vit_tiny_in21k": ("ViTModel", WIDE),
    "hf_dinov2_tiny": ("Dinov2Model", RATIO),
    "hf_dinov2_registers_tiny": (
        "Dinov2WithRegistersForImageClassification",
        {**RATIO, **LABELS, "num_register_tokens": 3},
    ),
    "hf_dinov2_swiglu_tiny": ("Dinov2Model", {**RATIO, "use_swiglu_ffn": True}),
    "hf_dinov3_tiny": ("DINOv3ViTModel", {**SIZES, "num_register_tokens": 3}),
    "hf_dinov3_gated_tiny": (
        "DINOv3ViTModel",
        {
            **{**SIZES, "num_register_tokens": 3, "use_gated_mlp": True},
            "hidden_act": "silu",
        },
    ),
    "hf_tipsv2_tiny": (
        "Tipsv2VisionModel",
        {**RATIO, "num_register_tokens": 2},
    ),
    "hf_tipsv2_swiglu_tiny": (
        "Tipsv2VisionModel",
        {**RATIO, "use_swiglu_ffn": True},
    ),
    "hf_aimv2_tiny": ("Aimv2VisionModel", {**SIZES, "use_head": False}),
    "hf_aimv2_head_tiny": ("Aimv2VisionModel", SIZES),
    "hf_aimv2_projection_tiny": (
        "Aimv2Model",
        {**TOWERS, "projection_dim": 10},
    ),
    "hf_beit_tiny": (
        "BeitForImageClassification",
        {**SIZES, **RELATIVE, **LABELS},
    ),
    "hf_beit_token_tiny": (
        "BeitModel",
        {
            **{**SIZES, **RELATIVE, "use_mean_pooling": False},
            "use_absolute_position_embeddings": True,
        },
    ),
    "hf_clip_tiny": (
        "CLIPVisionModelWithProjection",
        {**SIZES, "projection_dim": 10},
    ),
    "hf_sam_tiny": (
        "SamVisionModel",
        {
            **{x: y for x, y in SIZES.items() if x != "intermediate_size"},
            **{"mlp_dim": 32, "output_channels": 8, "window_size": 3},
            "global_attn_indexes": [1],
        },
    ),
    "hf_siglip_tiny": ("SiglipVisionModel", SIZES),
    "hf_siglip_classifier_tiny": (
        "SiglipForImageClassification",
        {**TOWERS, **LABELS},
    ),
}
HEADS = ("classifier", "visual_projection")
LARGER = 48  # pixels of the images that positions are resampled for


def write(name) -> dict:
    """Writes the files of a case; returns its entry in cases.json."""
    kind, fields = CASES[name]
    path = FOLDER / name
    shutil.rmtree(path, ignore_errors=True)
    model = built(kind, fields)
    model.save_pretrained(path)
    arrays = outputs(model, 32)
    if kind.startswith("ViT"):
        model.set_attn_implementation("eager")
        arrays |= details(model)
    if kind == "ViTForImageClassification":
        larger = outputs(model, LARGER, interpolate_pos_encoding=True)
        larger |= positions(model)
        arrays |= {f"resized_{LARGER}_{x}": y for x, y in larger.items()}
    np.savez_compressed(FOLDER / f"{name}.expected.npz", **arrays)
    return {
        "checkpoint": f"{name}/",
        "expected": f"{name}.expected.npz",
        "family": "vit",
        "format": "huggingface",
        "model_class": kind,
        **fields,
    }


@torch.no_grad()
def outputs(model, size, **options) -> dict:
    """What transformers computes of two images."""
    images, theirs = drawn(size)
    if hasattr(model, "vision_encoder"):  # SAM's, of features (B, K, R, C)
        found = model(theirs).last_hidden_state.flatten(2).transpose(1, 2)
        found = found.numpy()
        return {"image": images, "neck": found, "pre_logits": found}
    encoded = tokens(model, theirs, **options)
    arrays = {
        "image": images,
        "encoded": encoded,
        **head(model, theirs, options),
    }
    pooler = getattr(model.base_model, "pooler", None)
    if getattr(pooler, "layernorm", None) is not None:
        # BEiT normalises the mean alone.
        arrays["features"] = model.base_model(theirs).last_hidden_state
        del arrays["encoded"]
    return {x: np.asarray(y) for x, y in arrays.items()}


def head(model, images, options) -> dict:
    """What goes into the last layer, and what comes out."""
    found = {}
    layers = dict(model.named_modules())
    last = [layers[x] for x in HEADS if x in layers]
    take = getattr(model, "get_image_features", model)
    with contextlib.ExitStack() as stack:
        for layer in last:
            hook = layer.register_forward_hook(
                lambda _, inputs, output: found.update(
                    pre_logits=inputs[0], logits=output
                )
            )
            stack.callback(hook.remove)
        output = take(images, **options)
    pooled = output.get("pooler_output")
    if not last and pooled is None:
        pooled = output.last_hidden_state.mean(dim=1)
    return found or {"pre_logits": pooled}


@torch.no_grad()
def details(model) -> dict:
    """Embedded patches and the attention of each block."""
    _, images = drawn(32)
    attention = model(images, output_attentions=True).attentions
    patches = model.base_model.embeddings.patch_embeddings(images)
    return {
        "patch_embedding": patches.numpy(),
        "attention": torch.stack(attention).numpy(),
    }


@torch.no_grad()
def positions(model) -> dict:
    """The positions of larger images."""
    embeddings = model.base_model.embeddings
    count = (LARGER // 8) ** 2 + 1
    like = torch.zeros(1, count, embeddings.position_embeddings.shape[-1])
    table = embeddings.interpolate_pos_encoding(like, LARGER, LARGER)
    return {"position_embedding": table.numpy()}
