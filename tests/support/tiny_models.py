"""The smallest ViT that has every part of a plain one."""

from typing import Any

from keras_vit.models import VisionTransformer, ViTConfig

SMALLEST: dict[str, Any] = {
    "image_size": (8, 8),
    "patch_size": (4, 4),
    "hidden_dim": 8,
    "num_layers": 1,
    "mlp_dim": 8,
    "num_heads": 2,
    "num_classes": 3,
}


def tiny_vit(**changed) -> VisionTransformer:
    return VisionTransformer(ViTConfig(**{**SMALLEST, **changed}))
