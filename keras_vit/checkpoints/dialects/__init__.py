"""The publishers of weights, one module each.

To add one: a module with `LAYOUTS`, and its line here. To take one away: the
line and its module.
"""

from keras_vit.checkpoints.dialects import (
    big_vision,
    google,
    hugging_face,
    hugging_face_text,
    keras_hub,
    meta,
    open_clip,
    timm,
    torchvision,
)
from keras_vit.checkpoints.dialects.hugging_face import (
    Decoder,
    read_decoder,
)

__all__ = [
    "LAYOUTS",
    "LIBRARIES",
    "PAIR_CONFIG",
    "PAIR_WEIGHTS",
    "TEXT_LAYOUTS",
    "Decoder",
    "read_decoder",
]

# In the order in which they are tried and named.
LAYOUTS = (
    *google.LAYOUTS,
    *big_vision.LAYOUTS,
    *timm.LAYOUTS,
    *meta.LAYOUTS,
    *hugging_face.LAYOUTS,
    *open_clip.LAYOUTS,
    *torchvision.LAYOUTS,
    *keras_hub.LAYOUTS,
)
# Of towers of texts.
TEXT_LAYOUTS = (
    *hugging_face_text.TEXT_LAYOUTS,
    *open_clip.TEXT_LAYOUTS,
    *big_vision.TEXT_LAYOUTS,
    *keras_hub.TEXT_LAYOUTS,
)
# Libraries that load folders of ours, the one that most people use first.
LIBRARIES = (hugging_face.LIBRARY, timm.LIBRARY)
# Both halves of an image-text model, beside the image tower alone or without.
PAIR_CONFIG, PAIR_WEIGHTS = open_clip.CONFIG, open_clip.WEIGHTS[0]
