"""The models: a frozen config and a functional Keras model each."""

from keras_vit.models.mixer import Mixer, MixerConfig
from keras_vit.models.naflex import NaFlexTransformer
from keras_vit.models.resnet import BiT, BiTConfig
from keras_vit.models.vit import VisionTransformer
from keras_vit.models.vit_config import ViTConfig

__all__ = [
    "BiT",
    "BiTConfig",
    "Mixer",
    "MixerConfig",
    "NaFlexTransformer",
    "ViTConfig",
    "VisionTransformer",
]
