"""The models: a frozen config and a functional Keras model each."""

from keras_vit.models.mixer import Mixer
from keras_vit.models.naflex import NaFlexTransformer
from keras_vit.models.options import BiTConfig, MixerConfig, ViTConfig
from keras_vit.models.resnet import BiT
from keras_vit.models.vit import VisionTransformer

__all__ = [
    "BiT",
    "BiTConfig",
    "Mixer",
    "MixerConfig",
    "NaFlexTransformer",
    "ViTConfig",
    "VisionTransformer",
]
