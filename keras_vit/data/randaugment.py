"""RandAugment(l, m) as AugReg trained with it, in TensorFlow.

RandAugment: arXiv 1909.13719. AugReg ("How to train your ViT?", arXiv
2106.10270, section 3.3) used the 16 operations and the ranges of EfficientNet's
code, which big_vision keeps in `pp/archive/autoaugment.py`: each of l times
one operation is drawn, each as likely, and applied at the magnitude m, where
10 is the whole range; the direction of rotations, shears and translations is
drawn as well. RandAugment(2, 0) is therefore not the identity.

Two things differ from that code. A threshold or a number of bits beyond the
range of a byte (m above 10) leaves the image as it is, and grey images are
taken too.

Axes: H and W height and width, C channels.
"""

import math

from keras_vit.data import image_ops
from keras_vit.data.stateless import uniform

__all__ = ["OPERATIONS", "rand_augment"]

MAX_MAGNITUDE = 10.0


def nothing(magnitude):
    """The operation has no strength."""
    del magnitude
    return None


def share_of(whole: float):
    """The strength is a share of the whole at full magnitude."""
    return lambda magnitude: magnitude / MAX_MAGNITUDE * whole


def whole_share_of(whole: int):
    """The same, rounded down."""
    return lambda magnitude: int(magnitude / MAX_MAGNITUDE * whole)


def enhancement(magnitude: float) -> float:
    """Factor of a colour change; 1 is no change."""
    return magnitude / MAX_MAGNITUDE * 1.8 + 0.1


# In the order of the original: the function and how its strength comes of
# the magnitude. Degrees, bits, grey levels and pixels are absolute.
OPERATIONS = {
    "AutoContrast": (image_ops.autocontrast, nothing),
    "Equalize": (image_ops.equalize, nothing),
    "Invert": (image_ops.invert, nothing),
    "Rotate": (image_ops.rotate, share_of(math.radians(30))),
    "Posterize": (image_ops.posterize, whole_share_of(4)),
    "Solarize": (image_ops.solarize, whole_share_of(256)),
    "Color": (image_ops.color, enhancement),
    "Contrast": (image_ops.contrast, enhancement),
    "Brightness": (image_ops.brightness, enhancement),
    "Sharpness": (image_ops.sharpness, enhancement),
    "ShearX": (image_ops.shear_x, share_of(0.3)),
    "ShearY": (image_ops.shear_y, share_of(0.3)),
    "TranslateX": (image_ops.translate_x, share_of(100)),
    "TranslateY": (image_ops.translate_y, share_of(100)),
    "Cutout": (image_ops.cutout, whole_share_of(40)),
    "SolarizeAdd": (image_ops.solarize_add, whole_share_of(110)),
}


def rand_augment(image, key, *, num_layers: int = 2, magnitude: float = 10):
    """Applies some of the 16 operations, one after the other.

    Args:
        image: tensor of shape (H, W, C) in [0, 255], C 1 or 3; fractions are
            cut off.
        key: int64 tensor of shape (2,).
        num_layers: int, l, how many operations.
        magnitude: float, m, their strength.

    Returns:
        uint8 tensor of the same shape.

    Example:
        >>> image = np.zeros((32, 32, 3), "uint8")
        >>> rand_augment(image, key("rand_augment", 0, 0, 7)).shape
        TensorShape([32, 32, 3])
    """
    import tensorflow as tf

    image = tf.cast(image, tf.uint8)
    draws = uniform((num_layers, 3), key)
    for layer in range(num_layers):
        chosen = tf.cast(draws[layer, 0] * len(OPERATIONS), tf.int32)
        where = draws[layer, 1:]
        branches = [
            _branch(image, function, strength(magnitude), where)
            for function, strength in OPERATIONS.values()
        ]
        image = tf.switch_case(chosen, branches)
    return image


def _branch(image, function, strength, where):
    return lambda: function(image, strength, where)
