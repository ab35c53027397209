"""What timm's names of Google's weights say."""

import re

from keras_vit.checkpoints.public.catalog_table import TIMM_MODELS
from keras_vit.checkpoints.public.entry import Preprocessing

__all__ = ["data_of", "image_size_of", "model_of", "preprocessing_of"]


def model_of(timm_name: str) -> str:
    """The application: "vit_base_patch16_224.orig_in21k" is ViT_B16."""
    architecture = timm_name.split(".")[0]
    return TIMM_MODELS[re.sub(r"_(224|384)$", "", architecture)]


def data_of(timm_name: str) -> str | None:
    """Data of the classes; timm ships the original 21k files without head."""
    if timm_name.endswith("orig_in21k"):
        return None
    return "imagenet21k" if timm_name.endswith("_in21k") else "imagenet2012"


def image_size_of(timm_name: str) -> int:
    """Pixels that timm evaluates at: BiT fine-tuned at more than it says."""
    if re.match(r"resnetv2.*goog_in21k_ft_in1k$", timm_name):
        return 480 if "152x4" in timm_name else 448
    return 384 if "_384" in timm_name else 224


def preprocessing_of(timm_name: str) -> Preprocessing:
    """transforms_imagenet_eval of timm: PIL, shorter side, central crop."""
    small_crop = 0.9 if timm_name.startswith("vit_") else 0.875
    crop = small_crop if image_size_of(timm_name) == 224 else 1.0
    bilinear = re.match(r"resnetv2.*goog_in21k", timm_name)
    interpolation = "bilinear" if bilinear else "bicubic"
    return Preprocessing("shorter_side", interpolation, True, crop)
