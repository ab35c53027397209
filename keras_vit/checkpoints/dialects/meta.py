"""Files of Meta's Segment Anything, its own and those made from them.

Source: facebookresearch/segment-anything (modeling/image_encoder.py).
"""

from keras_vit.checkpoints.dialects.shared import (
    EXACT_GELU,
    SAM_ENCODER,
    SAM_MARKS,
    SAM_SIGNS,
)
from keras_vit.checkpoints.engine.layout import Dialect, Layout

__all__ = ["LAYOUTS"]

# The file of a whole SAM also has what decodes masks.
SAM_DECODERS = (
    *(r"prompt_encoder\..*", r"mask_decoder\..*"),
    r"shared_image_embedding\..*",
)
# Meta's own files, and those of transformers.
SEGMENT_ANYTHING = (
    (r"image_encoder\.(.*)", r"\1"),
    (r"(?:vision_encoder|vision_model)\.(.*)", r"\1"),
    (r"patch_embed\.projection\.(.*)", r"patch_embed.proj.\1"),
    (r"layers\.(.*)", r"blocks.\1"),
    (r"(blocks\.\d+\.)layer_(norm[12]\..*)", r"\1\2"),
    (r"(blocks\.\d+\.mlp)\.lin([12]\..*)", r"\1.fc\2"),
    (r"neck\.conv1\.(.*)", r"neck.0.\1"),
    (r"neck\.layer_norm1\.(.*)", r"neck.1.\1"),
    (r"neck\.conv2\.(.*)", r"neck.2.\1"),
    (r"neck\.layer_norm2\.(.*)", r"neck.3.\1"),
)

# Of SAM, as its ResizeLongestSide and its padding with the mean.
USUAL = {
    "preprocessing": {
        "evaluation": "longer_side_pad",
        "resize_size": 1024,
        "resize_method": "bilinear",
        "antialias": True,
        "rounding": "nearest",
        "padding_colour": (124, 116, 104),
    },
    "image_size": (1024, 1024),
}
DIALECT = Dialect("Meta", usual_images=lambda layout, fields: USUAL)
LAYOUTS = (
    Layout(
        DIALECT,
        "segment_anything",
        "vit",
        SAM_ENCODER,
        marks=SAM_MARKS,
        signs=SAM_SIGNS,
        aliases=SEGMENT_ANYTHING,
        constants={**EXACT_GELU, "pooling": "none"},
        ignored=SAM_DECODERS,
        resampling="bicubic_antialiased",
        container="",
        needs=("neck_dim",),
    ),
)
