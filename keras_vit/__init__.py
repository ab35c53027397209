"""Vision Transformers for Keras 3.

`keras_vit.ViT_B16(...)` and its kin build the models of the papers, with the
signature of `keras.applications`; `keras_vit.layers` and `keras_vit.models`
have their parts, `keras_vit.variants` what the paper compares them with.
"""

from typing import TYPE_CHECKING

from keras_vit import _environment

_environment.check()

from keras_vit import analysis, checkpoints, layers, models, variants
from keras_vit.applications import (
    BiT_R50x1,
    BiT_R50x3,
    BiT_R101x1,
    BiT_R101x3,
    BiT_R152x2,
    BiT_R152x4,
    Mixer_B16,
    Mixer_B32,
    Mixer_H14,
    Mixer_L16,
    Mixer_L32,
    Mixer_S8,
    Mixer_S16,
    Mixer_S32,
    ViT_B8,
    ViT_B16,
    ViT_B32,
    ViT_G14,
    ViT_g14,
    ViT_H14,
    ViT_L16,
    ViT_L32,
    ViT_R26_B32,
    ViT_R26_S32,
    ViT_R50_B16,
    ViT_R50_L32,
    ViT_R_Ti16,
    ViT_S16,
    ViT_S32,
    ViT_So400m14,
    ViT_Ti16,
)
from keras_vit.checkpoints import (
    load_checkpoint,
    load_weights,
    save_checkpoint,
)
from keras_vit.preprocessing import decode_predictions, preprocess_input
from keras_vit.version import __version__

if TYPE_CHECKING:
    from keras_vit.explanation import explain
    from keras_vit.prediction import predict

__all__ = [
    "BiT_R101x1",
    "BiT_R101x3",
    "BiT_R152x2",
    "BiT_R152x4",
    "BiT_R50x1",
    "BiT_R50x3",
    "Mixer_B16",
    "Mixer_B32",
    "Mixer_H14",
    "Mixer_L16",
    "Mixer_L32",
    "Mixer_S16",
    "Mixer_S32",
    "Mixer_S8",
    "ViT_B16",
    "ViT_B32",
    "ViT_B8",
    "ViT_G14",
    "ViT_H14",
    "ViT_L16",
    "ViT_L32",
    "ViT_R26_B32",
    "ViT_R26_S32",
    "ViT_R50_B16",
    "ViT_R50_L32",
    "ViT_R_Ti16",
    "ViT_S16",
    "ViT_S32",
    "ViT_So400m14",
    "ViT_Ti16",
    "ViT_g14",
    "__version__",
    "analysis",
    "checkpoints",
    "decode_predictions",
    "explain",
    "layers",
    "load_checkpoint",
    "load_weights",
    "models",
    "predict",
    "preprocess_input",
    "save_checkpoint",
    "variants",
]


def __getattr__(name):
    # On demand: they take as long to import as everything else.
    if name == "predict":
        from keras_vit.prediction import predict

        return predict
    if name == "explain":
        from keras_vit.explanation import explain

        return explain
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
