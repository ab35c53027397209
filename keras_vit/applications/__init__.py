"""The models of the papers by name, called as in `keras.applications`."""

from keras_vit.applications.families import bit, mixer, vision_transformer

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
]

ViT_Ti16 = vision_transformer("ViT_Ti16")
ViT_S16 = vision_transformer("ViT_S16")
ViT_S32 = vision_transformer("ViT_S32")
ViT_B8 = vision_transformer("ViT_B8")
ViT_B16 = vision_transformer("ViT_B16")
ViT_B32 = vision_transformer("ViT_B32")
ViT_L16 = vision_transformer("ViT_L16")
ViT_L32 = vision_transformer("ViT_L32")
ViT_H14 = vision_transformer("ViT_H14")
ViT_So400m14 = vision_transformer("ViT_So400m14")
ViT_g14 = vision_transformer("ViT_g14")
ViT_G14 = vision_transformer("ViT_G14")
ViT_R_Ti16 = vision_transformer("ViT_R_Ti16")
ViT_R26_S32 = vision_transformer("ViT_R26_S32")
ViT_R26_B32 = vision_transformer("ViT_R26_B32")
ViT_R50_B16 = vision_transformer("ViT_R50_B16")
ViT_R50_L32 = vision_transformer("ViT_R50_L32")
Mixer_S8 = mixer("Mixer_S8")
Mixer_S16 = mixer("Mixer_S16")
Mixer_S32 = mixer("Mixer_S32")
Mixer_B16 = mixer("Mixer_B16")
Mixer_B32 = mixer("Mixer_B32")
Mixer_L16 = mixer("Mixer_L16")
Mixer_L32 = mixer("Mixer_L32")
Mixer_H14 = mixer("Mixer_H14")
BiT_R50x1 = bit("BiT_R50x1")
BiT_R50x3 = bit("BiT_R50x3")
BiT_R101x1 = bit("BiT_R101x1")
BiT_R101x3 = bit("BiT_R101x3")
BiT_R152x2 = bit("BiT_R152x2")
BiT_R152x4 = bit("BiT_R152x4")
