"""Tiny models of transformers, and what they compute.

Narrow, of two blocks, with random weights, none of them zero or one.
"""

import json
import warnings

import keras
import numpy as np
import pytest

from keras_vit.checkpoints import load_checkpoint

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZE = 32
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": SIZE,
    "patch_size": 8,
}
DINOV2 = {**VISION, "mlp_ratio": 2}
DINOV2.pop("intermediate_size")
BEIT = {**VISION, "use_relative_position_bias": True}
AIMV2 = {**VISION, "use_head": False}
TEXTS = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 8,
    "max_position_embeddings": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CLIP = {"text_config": TEXTS, "vision_config": VISION, "projection_dim": 12}
TIPSV2 = {
    "text_config": {**TEXTS, "hidden_size": VISION["hidden_size"]},
    "vision_config": DINOV2,
}
DECODER = {
    "mask_ratio": 0.0,
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32,
}
LABELS = {"num_labels": 5}
GELU = {"hidden_act": "gelu"}


def in_order(images):
    """The noise with which ViTMAE leaves all patches where they are."""
    count = (SIZE // 8) ** 2
    return torch.arange(count).float().expand(len(images), count)


def pooled(model, images):
    return model(images).pooler_output


def logits(model, images):
    return model(images).logits


def mean(model, images):
    return model(images).last_hidden_state.mean(dim=1)


def token_of_the_encoder(model, images):
    return model.base_model(images).last_hidden_state[:, 0]


def token_of_mae(model, images):
    noise = in_order(images)
    return model.base_model(images, noise=noise).last_hidden_state[:, 0]


def embeddings(model, images):
    return model(images).image_embeds


def image_features(model, images):
    return model.get_image_features(images).pooler_output


# The class, its config, and what it computes that a model here computes too.
KINDS = {
    "Dinov2Model": (DINOV2, pooled),
    "Dinov2ForImageClassification": ({**DINOV2, **LABELS}, logits),
    "Dinov2WithRegistersModel": ({**DINOV2, "num_register_tokens": 3}, pooled),
    "Dinov2WithRegistersForImageClassification": (
        {**DINOV2, **LABELS, "hidden_act": "gelu_new"},
        logits,
    ),
    "DINOv3ViTModel": ({**VISION, "num_register_tokens": 3}, pooled),
    "Aimv2VisionModel": (AIMV2, mean),
    "Aimv2Model": (CLIP, image_features),
    "BeitModel": (BEIT, pooled),
    "BeitForImageClassification": ({**BEIT, **LABELS}, logits),
    "Data2VecVisionModel": (BEIT, token_of_the_encoder),
    "Data2VecVisionForImageClassification": ({**BEIT, **LABELS}, logits),
    "SiglipVisionModel": (VISION, pooled),
    "SiglipModel": (CLIP, image_features),
    "SiglipForImageClassification": ({**CLIP, **LABELS}, logits),
    "CLIPVisionModel": (VISION, pooled),
    "CLIPVisionModelWithProjection": (
        {**VISION, **GELU, "projection_dim": 12},
        embeddings,
    ),
    "CLIPModel": (CLIP, image_features),
    "MetaClip2VisionModel": ({**VISION, **GELU}, pooled),
    "MetaClip2VisionModelWithProjection": (
        {**VISION, "projection_dim": 12},
        embeddings,
    ),
    "MetaClip2Model": (CLIP, image_features),
    "Tipsv2VisionModel": ({**DINOV2, "num_register_tokens": 3}, pooled),
    "Tipsv2Model": (TIPSV2, image_features),
    "ViTMAEModel": ({**VISION, "mask_ratio": 0.0}, token_of_mae),
    "ViTMAEForPreTraining": ({**VISION, **DECODER}, token_of_mae),
    "IJepaModel": (VISION, mean),
    "IJepaForImageClassification": ({**VISION, **LABELS}, logits),
    "ViTModel": ({**VISION, "pooler_output_size": 24}, pooled),
    "ViTForImageClassification": ({**VISION, **LABELS}, logits),
    "ViTForMaskedImageModeling": (
        {**VISION, "encoder_stride": 8},
        token_of_the_encoder,
    ),
    "DeiTForMaskedImageModeling": (
        {**VISION, "encoder_stride": 8},
        token_of_the_encoder,
    ),
    "DeiTForImageClassification": ({**VISION, **LABELS}, logits),
    "PixioModel": ({**DINOV2, "n_cls_tokens": 3}, pooled),
    "ViTMSNModel": (VISION, token_of_the_encoder),
    "ViTMSNForImageClassification": ({**VISION, **LABELS}, logits),
    "DPTModel": (VISION, pooled),
}

SWIGLU = {"use_swiglu_ffn": True, **DINOV2}
# The same with fields that make other tensors of it.
OPTIONS = {
    "vit without biases": ("ViTModel", {**VISION, "qkv_bias": False}, pooled),
    "dinov2 without biases": (
        "Dinov2Model",
        {**DINOV2, "qkv_bias": False},
        pooled,
    ),
    "swiglu": ("Dinov2Model", SWIGLU, pooled),
    "aimv2 with its head": ("Aimv2VisionModel", VISION, pooled),
    "tipsv2 with swiglu": ("Tipsv2VisionModel", SWIGLU, pooled),
    "swiglu with registers": (
        "Dinov2WithRegistersForImageClassification",
        {**SWIGLU, **LABELS},
        logits,
    ),
    "dinov3 without registers": (
        "DINOv3ViTModel",
        {**VISION, "rope_theta": 50.0, "layer_norm_eps": 1e-3},
        pooled,
    ),
    "dinov3 of 7B": (
        "DINOv3ViTModel",
        {
            **VISION,
            "num_register_tokens": 4,
            "use_gated_mlp": True,
            "hidden_act": "silu",
            "query_bias": False,
            "value_bias": False,
        },
        pooled,
    ),
    "beit with a class token": (
        "BeitForImageClassification",
        {
            **{**BEIT, **LABELS},
            "use_mean_pooling": False,
            "use_absolute_position_embeddings": True,
            "use_mask_token": True,
        },
        logits,
    ),
    "beit without relative positions": (
        "BeitModel",
        {**VISION, "use_absolute_position_embeddings": True},
        pooled,
    ),
    "data2vec without scales": (
        "Data2VecVisionModel",
        {**BEIT, "layer_scale_init_value": 0.0, "use_mean_pooling": False},
        token_of_the_encoder,
    ),
    "dinov3 of rectangles": (
        "DINOv3ViTModel",
        {**VISION, "patch_size": [8, 4], "use_gated_mlp": True},
        pooled,
    ),
}


def built(name, fields, **options):
    """A model of transformers, no weight zero or one."""
    model_class = getattr(transformers, name)
    model = model_class(model_class.config_class(**fields), **options)
    return randomized(model)


def randomized(model):
    random = np.random.default_rng(0)
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if tensor.dtype != torch.float32:
                continue
            size = max(1, tensor[0].numel()) if tensor.ndim else 1
            scale = 0.3 if tensor.ndim < 2 else size**-0.5
            center = float("norm" in key and key.endswith("weight"))
            drawn = random.normal(center, scale, tensor.shape)
            tensor.copy_(torch.from_numpy(np.asarray(drawn)).float())
    return model.eval()


def written(model, folder, **changes):
    """The folder of a model, fields of its config.json changed."""
    model.save_pretrained(folder)
    change(folder, **changes)
    return folder


def change(folder, **changes):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps(config))


def drawn(size=SIZE):
    """(images here, images of torch)."""
    images = np.random.default_rng(1).uniform(-1, 1, (2, size, size, 3))
    images = images.astype("float32")
    return images, torch.tensor(np.moveaxis(images, -1, 1))


def loaded(folder, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_checkpoint(folder, **options)


def close(found, wanted):
    found = keras.ops.convert_to_numpy(found)
    wanted = wanted.detach().numpy()
    scale = max(1, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5 * scale)


def tokens(model, images, **options):
    """All tokens after the last normalisation."""
    for name in ("vision_model", "base_model"):
        inner = getattr(model, name, model)
        # The base model of DINOv3 is its encoder alone.
        model = inner if "embeddings" in dict(inner.named_children()) else model
    if "MAE" in type(model).__name__:
        options["noise"] = in_order(images)
    x = model(images, **options).last_hidden_state
    # CLIP normalises the class token alone, which it takes.
    is_clip = "pre_layrnorm.weight" in model.state_dict()
    return model.post_layernorm(x) if is_clip else x
