"""What is written is read by the library of the format, or it is refused."""

import json
import os

import keras
import numpy as np
import pytest
from timm_stub import import_timm

from keras_vit.checkpoints import load_checkpoint, save_checkpoint
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.models.configured_model import BlockFeatures

COMMON = {
    "image_size": (32, 32),
    "patch_size": (8, 8),
    "hidden_dim": 48,
    "num_layers": 2,
    "mlp_dim": 96,
    "num_heads": 4,
    "num_classes": 5,
    "activation": "gelu",
}
WITHOUT_KEY_BIAS = {"key_bias": False, "layer_scale_init": 0.1}
# The kinds of models that transformers has classes for.
KINDS = {
    "vit": {"layer_norm_epsilon": 1e-12},
    "dinov2": {
        "layer_norm_epsilon": 1e-6,
        "layer_scale_init": 1.0,
        "pooling": "token_and_mean",
    },
    "beit": {
        **WITHOUT_KEY_BIAS,
        "layer_norm_epsilon": 1e-12,
        "relative_position_bias": True,
        "relative_position_kind": "table",
        "position_embedding": "none",
    },
    "dinov3": {
        **WITHOUT_KEY_BIAS,
        "layer_norm_epsilon": 1e-5,
        "rope": "centered",
        "rope_temperature": 100.0,
        "rope_pairs": "halves",
        "position_embedding": "none",
        "register_tokens": 2,
        "num_classes": 0,
    },
    "clip": {
        "activation": "quick_gelu",
        "layer_norm_epsilon": 1e-5,
        "norm_before_blocks": True,
        "patch_bias": False,
        "head_bias": None,
    },
    "siglip": {
        "activation": "gelu_tanh",
        "layer_norm_epsilon": 1e-6,
        "class_token": False,
        "pooling": "map",
        "num_classes": 0,
    },
}
POOLINGS = ("token", "mean", "none", "map", "token_and_mean", "max")
VARIED = {
    "pooling": POOLINGS,
    "num_classes": (0, 5),
    "image_size": ((32, 32), (16, 32)),
    "register_tokens": (0, 2),
    "norm_after_pooling": (False, True),
    "head_bias": (0.0, None),
    "qkv_bias": (True, False),
    "gated_mlp": (False, True),
    "representation_dim": (0, 48),
}


def varied(kind, seed):
    """A model of a kind with some options drawn at random, or None."""
    random = np.random.default_rng([seed, len(kind)])
    drawn = {
        name: values[random.integers(len(values))]
        for name, values in VARIED.items()
        if random.random() < 0.25
    }
    try:
        config = ViTConfig(**{**COMMON, **KINDS[kind], **drawn})
        return randomised(VisionTransformer(config))
    except ValueError:
        return None  # The options exclude one another.


def randomised(model):
    random = np.random.default_rng(1)
    for weight in model.weights:
        values = random.normal(size=weight.shape) * 0.2
        if model.config.key_bias is False and "qkv/bias" in weight.path:
            parts = values.reshape(model.config.num_heads, 3, -1)
            parts[:, 1] = 0
        weight.assign(values + 0.5 * ("gamma" in weight.path))
    return model


def images_of(model):
    shape = (2, *model.config.image_size, 3)
    return np.random.default_rng(2).normal(size=shape).astype("float32")


def channels_first(images):
    import torch

    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def of_transformers(folder, images, model):
    """The outputs of the class that a folder names, by their meaning."""
    import torch
    import transformers

    config = json.loads((folder / "config.json").read_text())
    (name,) = config["architectures"]
    loaded, report = getattr(transformers, name).from_pretrained(
        folder, output_loading_info=True
    )
    fresh = {x for x in report["missing_keys"] if "pooler.dense" not in x}
    assert not fresh, f"{name} draws {fresh}"
    with torch.no_grad():
        found = loaded.eval()(channels_first(images))
    if model.config.num_classes:
        scores = getattr(found, "logits", None)
        return found.image_embeds if scores is None else scores
    tokens, pooling = found.last_hidden_state, model.config.pooling
    if name == "CLIPVisionModel":  # Its last norm is after the pooling.
        return loaded.post_layernorm(
            tokens if pooling == "none" else tokens[:, 0]
        ).detach()
    if pooling == "none":
        return tokens
    if pooling == "map" or model.config.representation_dim:
        return found.pooler_output
    first = model.config.num_prefix_tokens
    if pooling == "mean" and not model.config.norm_after_pooling:
        return tokens[:, first:].mean(dim=1)
    return found.pooler_output if pooling == "mean" else tokens[:, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_gives_the_numbers_of_what_is_written(tmp_path, kind):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    written = 0
    for seed in range(40):
        model = varied(kind, seed)
        folder = tmp_path / str(seed)
        if model is None:
            continue
        try:
            save_checkpoint(model, folder, format="hugging_face")
        except ValueError:
            continue
        written += 1
        images = images_of(model)
        expected = keras.ops.convert_to_numpy(model(images))
        found = of_transformers(folder, images, model).numpy()
        np.testing.assert_allclose(
            found, expected, atol=1e-4, err_msg=str(model.config)
        )
    assert written >= 3


# --- Tokens are those of the original ---

FEATURES = {
    "token": ("vit_base_patch16_224", {}),
    "mean": ("vit_base_patch16_224", {"global_pool": "avg"}),
    "mean of normalised tokens": (
        "vit_base_patch16_224",
        {"global_pool": "avg", "fc_norm": False},
    ),
    "norm after the token": ("vit_base_patch16_224", {"fc_norm": True}),
    "map": ("vit_base_patch16_224", {"global_pool": "map"}),
    "beit": ("beit_base_patch16_224", {}),
    "eva02": ("eva02_base_patch16_clip_224", {}),
    "distilled": ("deit_base_distilled_patch16_224", {}),
}


@pytest.mark.parametrize("kind", FEATURES)
def test_tokens_and_features_are_those_of_timm(tmp_path, kind):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    timm = import_timm()
    architecture, options = FEATURES[kind]
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2}
    arguments = {**sizes, "num_heads": 4, **options}
    theirs = timm.create_model(architecture, num_classes=5, **arguments).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in theirs.parameters():
            drawn = torch.randn(value.shape, generator=generator)
            value.copy_(0.1 * drawn + 0.5 * (value.ndim == 1))
    safetensors.save_file(
        theirs.state_dict(), os.fspath(tmp_path / "model.safetensors")
    )
    content = {
        "architecture": architecture,
        "num_classes": 5,
        "model_args": arguments,
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 3))
    images = images.astype("float32")
    with torch.no_grad():
        tokens = theirs.forward_features(channels_first(images))
        pooled = theirs.forward_head(tokens, pre_logits=True).numpy()
    model = load_checkpoint(tmp_path)
    blocks = [model.config.num_layers - 1]
    for found, expected in (
        (load_checkpoint(tmp_path, include_top=False), tokens.numpy()),
        (BlockFeatures(model, blocks, pool=False), tokens.numpy()),
        (load_checkpoint(tmp_path, classes=0), pooled),
    ):
        output = found(images)
        output = output[0] if isinstance(output, list) else output
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(output), expected, atol=5e-5
        )
