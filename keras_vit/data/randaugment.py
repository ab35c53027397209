"""RandAugment(l, m) as AugReg trained with it.

RandAugment: arXiv 1909.13719. AugReg ("How to train your ViT?", arXiv
2106.10270, section 3.3) used the 16 operations and the ranges of EfficientNet's
code, which big_vision keeps in `pp/archive/autoaugment.py`: each of the l
layers draws one operation, all equally likely, and applies it at the magnitude
m, where 10 is the whole range. The direction of rotations, shears and
translations is drawn as well. RandAugment(2, 0) is therefore not the identity.

Three things differ from that code: a threshold or a number of bits beyond the
range of a byte (m of 10 and above) leaves the image unchanged, grey images are
accepted, and Contrast blends with the mean grey, as it was meant to; that code
takes the number of pixels over 256 for it.

Axes: H and W height and width, C channels.
"""

import functools
import math

from keras_vit.data.array_ops import ops_of, transform_image
from keras_vit.data.seeds import uniform

__all__ = ["OPERATIONS", "rand_augment"]

MAX_MAGNITUDE = 10.0
LEVELS = 256
GREY = 128  # Of pixels that come from outside of the image.
HALF = 128  # solarize_add changes the levels below it.


def rand_augment(image, key, *, num_layers: int = 2, magnitude: float = 10):
    """Apply `num_layers` of the 16 operations, drawn at random.

    Args:
        image: tensor or array (H, W, C) in [0, 255], C 1 or 3; fractions are
            cut off.
        key: see `seeds.key`.
        num_layers: int, l.
        magnitude: float, m, their strength.

    Returns:
        uint8 of the same shape.
    """
    tf = ops_of(image)
    image = tf.cast(image, tf.uint8)
    draws = uniform((num_layers, 3), key)
    for layer in range(num_layers):
        number = tf.cast(draws[layer, 0] * len(OPERATIONS), tf.int32)
        where = draws[layer, 1:]
        branches = [
            functools.partial(function, image, strength(magnitude), where)
            for function, strength in OPERATIONS.values()
        ]
        image = tf.switch_case(number, branches)
    return image


# Each operation takes the image, its strength and two numbers in [0, 1).


def autocontrast(image, strength, where):
    """Stretch each channel to the whole range."""
    del strength, where
    tf = ops_of(image)
    low = tf.cast(tf.reduce_min(image, axis=(0, 1)), tf.float32)  # (C,)
    high = tf.cast(tf.reduce_max(image, axis=(0, 1)), tf.float32)  # (C,)
    flat = high <= low
    scale = 255.0 / tf.where(flat, 255.0, high - low)
    offset = tf.where(flat, 0.0, -low * scale)
    return _bytes(tf.cast(image, tf.float32) * scale + offset)


def equalize(image, strength, where):
    """Equalize the histogram of each channel."""
    del strength, where
    tf = ops_of(image)
    channels = image.shape[-1]
    levels = tf.cast(image, tf.int32) + tf.range(channels) * LEVELS
    counts = tf.raw_ops.DenseBincount(
        input=tf.reshape(levels, [-1]),
        size=channels * LEVELS,
        weights=tf.constant([], tf.int32),
    )
    counts = tf.reshape(counts, [channels, LEVELS])
    # The brightest level that occurs is not counted.
    brightest = tf.reduce_max(tf.where(counts > 0, tf.range(LEVELS), 0), axis=1)
    last = tf.gather(counts, brightest, batch_dims=1)
    step = (tf.reduce_sum(counts, axis=1) - last) // 255  # (C,)
    divisor = tf.maximum(step, 1)[:, None]
    below = tf.cumsum(counts, axis=1, exclusive=True)
    table = (below + divisor // 2) // divisor  # (C, LEVELS)
    # The lowest level stays 0, whatever the rounding.
    table = tf.concat([tf.zeros([channels, 1], tf.int32), table[:, 1:]], 1)
    table = tf.where(step[:, None] == 0, tf.range(LEVELS), table)
    table = tf.cast(tf.clip_by_value(table, 0, 255), tf.uint8)
    return tf.gather(tf.reshape(table, [-1]), levels)


def invert(image, strength, where):
    """Invert all levels."""
    del strength, where
    return 255 - image


def posterize(image, strength, where):
    """Keep only the `strength` highest bits, and the first in any case."""
    del where  # TensorFlow, and so the original, shifts by 7 bits at most.
    tf = ops_of(image)
    bits = min(max(strength, 1), 8)
    mask = (0xFF << (8 - bits)) & 0xFF
    return tf.bitwise.bitwise_and(image, tf.constant(mask, tf.uint8))


def solarize(image, strength, where):
    """Invert the levels from `strength` on."""
    del where
    tf = ops_of(image)
    if strength >= LEVELS:
        return tf.identity(image)
    return tf.where(image < strength, image, 255 - image)


def solarize_add(image, strength, where):
    """Add `strength` to the darker half of the levels."""
    del where
    tf = ops_of(image)
    strength = min(strength, 255)
    # In bytes, which takes a quarter of the time: no sum exceeds 255.
    added = tf.minimum(image, 255 - strength) + strength
    return tf.where(image < HALF, added, image)


def color(image, strength, where):
    """Blend with the grey image."""
    del where
    tf = ops_of(image)
    if image.shape[-1] == 1:
        return tf.identity(image)
    return _blend(tf.image.rgb_to_grayscale(image), image, strength)


def contrast(image, strength, where):
    """Blend with the mean grey of the image."""
    del where
    tf = ops_of(image)
    grey = image if image.shape[-1] == 1 else tf.image.rgb_to_grayscale(image)
    mean = tf.reduce_mean(tf.cast(grey, tf.float32))
    return _blend(tf.floor(mean), image, strength)


def brightness(image, strength, where):
    """Blend with black."""
    del where
    return _blend(0.0, image, strength)


def sharpness(image, strength, where):
    """Blend with the smoothed image; the outermost pixels stay."""
    del where
    tf = ops_of(image)
    floats = tf.cast(image, tf.float32)
    rows = floats[:-2] + floats[1:-1] + floats[2:]
    nine = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    inside = floats[1:-1, 1:-1]
    smooth = tf.floor((nine + 4.0 * inside) / 13.0)
    blended = _blend(smooth, inside, strength)
    middle = tf.concat([image[1:-1, :1], blended, image[1:-1, -1:]], axis=1)
    return tf.concat([image[:1], middle, image[-1:]], axis=0)


def rotate(image, strength, where):
    """Rotate about the middle by `strength` radians, either way."""
    tf = ops_of(image)
    angle = _random_sign(strength, where)
    height, width = image.shape[0] - 1, image.shape[1] - 1
    cosine, sine = tf.cos(angle), tf.sin(angle)
    left = (width - (cosine * width - sine * height)) / 2
    top = (height - (sine * width + cosine * height)) / 2
    return _transform(image, [cosine, -sine, left, sine, cosine, top])


def shear_x(image, strength, where):
    """Shift each row by `strength` pixels more than the one above."""
    return _transform(image, [1, _random_sign(strength, where), 0, 0, 1, 0])


def shear_y(image, strength, where):
    """Shift each column by `strength` pixels more than the one before."""
    return _transform(image, [1, 0, 0, _random_sign(strength, where), 1, 0])


def translate_x(image, strength, where):
    """Shift by `strength` pixels to the left or the right."""
    return _transform(image, [1, 0, _random_sign(strength, where), 0, 1, 0])


def translate_y(image, strength, where):
    """Shift by `strength` pixels up or down."""
    return _transform(image, [1, 0, 0, 0, 1, _random_sign(strength, where)])


def cutout(image, strength, where):
    """Fill a square with sides of 2 * `strength`, which may reach outside."""
    tf = ops_of(image)
    height, width = image.shape[:2]
    sides = tf.constant([height, width], tf.float32)
    centre = tf.cast(where * sides, tf.int32)
    inside = [
        (tf.range(side) >= middle - strength)
        & (tf.range(side) < middle + strength)
        for side, middle in zip(
            (height, width), tf.unstack(centre), strict=True
        )
    ]
    square = inside[0][:, None, None] & inside[1][None, :, None]
    return tf.where(square, tf.constant(GREY, tf.uint8), image)


def _random_sign(strength, where):
    """Return the strength with a random sign."""
    tf = ops_of(where)
    return tf.where(where[0] < 0.5, -strength, strength)


def _blend(degenerate, image, factor):
    """Blend two images, or extrapolate where the factor is above 1."""
    tf = ops_of(image)
    degenerate = tf.cast(degenerate, tf.float32)
    difference = tf.cast(image, tf.float32) - degenerate
    return _bytes(degenerate + factor * difference)


def _bytes(image):
    """Clip to [0, 255] and round down."""
    tf = ops_of(image)
    return tf.cast(tf.clip_by_value(image, 0.0, 255.0), tf.uint8)


def _transform(image, matrix):
    """Read each pixel (x, y) where the two rows of a matrix map it to."""
    return transform_image(
        image, matrix, interpolation="NEAREST", fill=float(GREY)
    )


def _none(magnitude):
    del magnitude
    return None


def _share_of(whole: float):
    """Return the strength in proportion to the magnitude, `whole` at 10."""
    return lambda magnitude: magnitude / MAX_MAGNITUDE * whole


def _whole_share_of(whole: int):
    """Return the same, rounded down."""
    return lambda magnitude: int(magnitude / MAX_MAGNITUDE * whole)


def _enhancement(magnitude: float) -> float:
    """Return the factor of a colour change; 1 is no change."""
    return magnitude / MAX_MAGNITUDE * 1.8 + 0.1


# In the order of the original: the function, and the one that computes its
# strength from the magnitude. Degrees, bits, levels and pixels are absolute.
OPERATIONS = {
    "AutoContrast": (autocontrast, _none),
    "Equalize": (equalize, _none),
    "Invert": (invert, _none),
    "Rotate": (rotate, _share_of(math.radians(30))),
    "Posterize": (posterize, _whole_share_of(4)),
    "Solarize": (solarize, _whole_share_of(256)),
    "Color": (color, _enhancement),
    "Contrast": (contrast, _enhancement),
    "Brightness": (brightness, _enhancement),
    "Sharpness": (sharpness, _enhancement),
    "ShearX": (shear_x, _share_of(0.3)),
    "ShearY": (shear_y, _share_of(0.3)),
    "TranslateX": (translate_x, _share_of(100)),
    "TranslateY": (translate_y, _share_of(100)),
    "Cutout": (cutout, _whole_share_of(40)),
    "SolarizeAdd": (solarize_add, _whole_share_of(110)),
}
