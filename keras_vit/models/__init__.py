"""The models: a frozen config and a functional Keras model each."""

from typing import TYPE_CHECKING

from keras_vit.runtime.environment import lazy_names

__all__ = [
    "BiT",
    "BiTConfig",
    "Mixer",
    "MixerConfig",
    "NaFlexTransformer",
    "ViTConfig",
    "VisionTransformer",
]

if TYPE_CHECKING:
    from keras_vit.models.mixer import Mixer
    from keras_vit.models.options import BiTConfig, MixerConfig, ViTConfig
    from keras_vit.models.resnet import BiT
    from keras_vit.models.vit import NaFlexTransformer, VisionTransformer
else:  # They need Keras.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "keras_vit.models.mixer": ("Mixer",),
            "keras_vit.models.options": (
                "BiTConfig",
                "MixerConfig",
                "ViTConfig",
            ),
            "keras_vit.models.resnet": ("BiT",),
            "keras_vit.models.vit": ("NaFlexTransformer", "VisionTransformer"),
        },
    )
