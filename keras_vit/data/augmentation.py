"""Augmentation of single images and of batches.

That of batches is a layer of Keras or KerasCV where TensorFlow reads the
images, and a function of arrays where Pillow does: the boxes of CutMix and
random erasing are drawn alike, from other numbers.

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

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

import functools
import math
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.data.array_ops import ops_of, transform_image
from keras_vit.data.config import AugmentationConfig
from keras_vit.data.seeds import key, uniform

__all__ = [
    "OPERATIONS",
    "array_batch_augmenter",
    "batch_augmenter",
    "check_augmentation",
    "cutmix",
    "image_augmenter",
    "mixup",
    "rand_augment",
    "random_erasing",
    "rows_needed",
]

ERASED = (0.02, 0.33)  # Squares of the shares of the sides, as in Keras
MAX_MAGNITUDE = 10.0
LEVELS = 256
GREY = 128  # Of pixels that come from outside of the image.
HALF = 128  # solarize_add changes the levels below it.


def image_augmenter(
    config: AugmentationConfig, *, flip: bool, seed: int
) -> Callable:
    """Make the function that augments one image.

    Args:
        config: whose options of single images are used.
        flip: bool, whether to mirror at random.
        seed: non-negative int.

    Returns:
        A function of an image (H, W, C), the epoch and the example, tensors
        or an array and ints, which returns an image of the same shape and
        dtype; uint8 after RandAugment.
    """

    def augment(image, epoch, example):
        if flip:
            image = _random_flip(image, key("flip", seed, epoch, example))
        if config.shift or config.rotation or config.zoom:
            drawn = key("affine", seed, epoch, example)
            image = _random_affine(image, config, drawn)
        if config.rand_augment_layers:
            image = rand_augment(
                image,
                key("rand_augment", seed, epoch, example),
                num_layers=config.rand_augment_layers,
                magnitude=config.rand_augment_magnitude,
            )
        return image

    return augment


def _random_flip(image, key):
    """Mirror half of the images."""
    tf = ops_of(image)
    # A slice of step -1 takes TensorFlow a hundred times as long.
    return tf.cond(
        uniform((), key) < 0.5, lambda: tf.reverse(image, [1]), lambda: image
    )


def _random_affine(image, config: AugmentationConfig, key):
    """Shift, rotate and zoom bilinearly about the middle; black outside."""
    tf = ops_of(image)
    down, right, angle, zoom = tf.unstack(2 * uniform((4,), key) - 1)
    height, width = image.shape[:2]
    down = down * config.shift * height  # Pixels.
    right = right * config.shift * width
    angle = angle * config.rotation * (math.pi / 180)  # Counter-clockwise.
    scale = 1 + zoom * config.zoom
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    cosine, sine = tf.cos(angle) / scale, tf.sin(angle) / scale
    # Where a pixel (x, y) of the result comes from: the inverse map.
    left = middle_x - cosine * (middle_x + right) + sine * (middle_y + down)
    top = middle_y - sine * (middle_x + right) - cosine * (middle_y + down)
    moved = transform_image(
        tf.cast(image, tf.float32),
        [cosine, -sine, left, sine, cosine, top],
        interpolation="BILINEAR",
        fill=0.0,
    )
    if image.dtype == tf.uint8:
        moved = tf.round(moved)
    return tf.cast(moved, image.dtype)


def batch_augmenter(config: AugmentationConfig, seed: int) -> Callable:
    """Make the function that augments a batch of tensors.

    Args:
        config: whose options of batches are used.
        seed: non-negative int.

    Returns:
        A function of images (B, H, W, C), labels (B, K) and the step, which
        returns images, uint8 if nothing changed them and else float32, and
        labels.

    Raises:
        ValueError: when the KerasCV layer does not exist, or KerasCV is not
            installed.
    """
    layers = [
        _with_step_seeds(make_layer(config), purpose, seed)
        for purpose, (field, make_layer) in KERAS_LAYERS.items()
        if getattr(config, field)
    ]
    if config.keras_cv:
        layers.append(_keras_cv_layer(config))

    def augment(images, labels, step):
        for layer in layers:
            images, labels = layer(images, labels, step)
        if config.mixup_alpha:
            mixup_key = key("mixup", seed, 0, step)
            images, labels = mixup(
                images, labels, mixup_key, alpha=config.mixup_alpha
            )
        return images, labels

    return augment


def rows_needed(
    config: AugmentationConfig, rows: list[int], batch_size: int
) -> list[int]:
    """Return which images of a batch must be read to augment some of them.

    Augmented together, the images of `rows` become what they become in the
    whole batch; what becomes of the others means nothing.

    Args:
        config: an `AugmentationConfig`, the options in force.
        rows: numbers of images in the batch.
        batch_size: int, B.

    Returns:
        list of int, in ascending order.

    Example:
        >>> rows_needed(AugmentationConfig(mixup_alpha=0.2), [0, 1], 8)
        [0, 1, 7]
    """
    mixing = [field for field, _ in KERAS_LAYERS.values()]
    if config.keras_cv or any(getattr(config, field) for field in mixing):
        return list(range(batch_size))
    if config.mixup_alpha:
        # In this order each one follows the one that it is mixed with.
        before = [(row - 1) % batch_size for row in rows]
        return sorted({*rows, *before})
    return rows


def mixup(images, labels, key, *, alpha: float):
    """Mix each image of a batch with the one before it.

    As `get_mixup` in big_vision's `utils.py`: one weight for the batch, drawn
    from Beta(alpha, alpha) and turned so that the image itself has the larger
    part. Mixup: arXiv 1710.09412.

    Args:
        images: tensor or array (B, H, W, C).
        labels: float32 tensor or array (B, K).
        key: see `seeds.key`.
        alpha: float above 0.

    Returns:
        Images and labels, float32.
    """
    tf = ops_of(images)
    weight = _beta(key, alpha)
    weight = tf.maximum(weight, 1 - weight)

    def mixed(values):
        values = tf.cast(values, tf.float32)
        return weight * values + (1 - weight) * tf.roll(values, 1, axis=0)

    return mixed(images), mixed(labels)


def _beta(key, alpha: float):
    """Draw a number from Beta(alpha, alpha), float32, by NumPy."""
    if isinstance(key, np.ndarray):
        return np.float32(np.random.default_rng(key).beta(alpha, alpha))
    import tensorflow as tf

    drawn = tf.numpy_function(lambda key: _beta(key, alpha), [key], tf.float32)
    return tf.ensure_shape(drawn, ())


def _cutmix(config: AugmentationConfig):
    # Keras draws the parameter of the Beta distribution from this range.
    alpha = config.cutmix_alpha
    return keras.layers.CutMix(factor=(alpha, alpha), dtype="float32")


def _random_erasing(config: AugmentationConfig):
    rate = config.random_erasing_rate
    return keras.layers.RandomErasing(
        factor=(rate, rate), value_range=(0, 255), dtype="float32"
    )


# Purpose to the field that switches it on, and the layer of Keras.
KERAS_LAYERS = {
    "random_erasing": ("random_erasing_rate", _random_erasing),
    "cutmix": ("cutmix_alpha", _cutmix),
}


class _StepSeeds(keras.random.SeedGenerator):
    """Seeds for a Keras layer that depend on the step alone.

    Keras's own generator counts its calls in a variable, so that what a layer
    does depends on the batches before.
    """

    def __init__(self, purpose, seed):
        super().__init__(seed=0)
        self.purpose = purpose
        self.run_seed = seed
        self.step = None
        self.calls = 0

    def begin(self, step):
        self.step, self.calls = step, 0

    def next(self, ordered=True):
        import tensorflow as tf

        del ordered
        self.calls += 1
        drawn = key(self.purpose, self.run_seed, self.calls, self.step)
        # Keras's TensorFlow ops take seeds of two int32.
        bounds = {"minval": None, "maxval": None, "dtype": tf.int32}
        return tf.random.stateless_uniform((2,), drawn, **bounds)


def _with_step_seeds(layer, purpose: str, seed: int) -> Callable:
    """Run a layer of Keras on the seeds of a step."""
    import tensorflow as tf

    seeds = _StepSeeds(purpose, seed)
    # What Keras does itself where a layer is called inside tf.data.
    layer.backend.set_backend("tensorflow")

    def run(images, labels, step):
        seeds.begin(step)
        drawn = layer.get_random_transformation(
            {"images": images, "labels": labels}, training=True, seed=seeds
        )
        images = layer.transform_images(images, drawn, training=True)
        labels = layer.transform_labels(labels, drawn, training=True)
        return tf.cast(images, tf.float32), labels

    return run


def _keras_cv_layer(config: AugmentationConfig) -> Callable:
    try:
        import keras_cv
    except ImportError as error:
        raise ValueError(
            f"keras_cv={config.keras_cv!r} needs KerasCV: pip install "
            '"keras-vision-transformer[cv]".'
        ) from error
    layer_class = getattr(keras_cv.layers, config.keras_cv or "", None)
    if layer_class is None:
        raise ValueError(
            f"There is no layer keras_cv.layers.{config.keras_cv}; examples "
            "are 'RandAugment', 'AugMix' and 'GridMask'."
        )
    layer = layer_class(dtype="float32", **(config.keras_cv_arguments or {}))

    def run(images, labels, step):
        import tensorflow as tf

        del step
        batch = {"images": tf.cast(images, tf.float32), "labels": labels}
        batch = layer(batch, training=True)
        return batch["images"], batch["labels"]

    return run


def array_batch_augmenter(config: AugmentationConfig, seed: int) -> Callable:
    """Make the function that augments a batch of arrays.

    Args:
        config: whose options of batches are used.
        seed: non-negative int.

    Returns:
        A function of images (B, H, W, C), labels (B, K) and the step, an int,
        which returns images, uint8 if nothing changed them and else float32,
        and labels.
    """

    def augment(images, labels, step):
        for purpose, (field, function) in FUNCTIONS.items():
            value = getattr(config, field)
            if value:
                images, labels = function(
                    images, labels, key(purpose, seed, 0, step), value
                )
        return images, labels

    return augment


def check_augmentation(config: AugmentationConfig) -> None:
    """Raise a ValueError for a layer of KerasCV, which is TensorFlow's."""
    if config.keras_cv:
        raise ValueError(
            "Layers of KerasCV run where TensorFlow reads the images. "
            f"Received: augmentation.keras_cv={config.keras_cv!r} and the "
            "data.reader 'pillow'. Leave it out, or install TensorFlow: pip "
            'install "keras-vision-transformer[recipes,cv]".'
        )


def random_erasing(images, labels, key, rate: float):
    """Fill a box of some of the images with noise."""
    random = np.random.default_rng(key)
    count = len(images)
    boxes = _boxes(random, images, np.sqrt(random.uniform(*ERASED, (count, 2))))
    erased = boxes & _to_images(random.random(count) < rate)
    noise = random.normal(0, 255, images.shape).clip(0, 255)
    images = np.where(erased, noise, images).astype("float32")
    return images, labels


def cutmix(images, labels, key, alpha: float):
    """Replace a box of each image by that of another; mix the labels."""
    random = np.random.default_rng(key)
    count = len(images)
    shares = np.sqrt(1 - random.beta(alpha, alpha, count))
    boxes = _boxes(random, images, np.stack([shares, shares], axis=1))
    others = random.permutation(count)
    own = (1 - shares**2).astype("float32")[:, None]  # (B, 1)
    labels = own * labels + (1 - own) * labels[others]
    return np.where(boxes, images[others], images).astype("float32"), labels


def _boxes(random, images, shares):
    """Return a box at a random place of each image, bool (B, H, W, 1).

    Args:
        random: a generator of NumPy's.
        images: array of shape (B, H, W, C).
        shares: float array of shape (B, 2), of the height and the width.
    """
    inside = []
    for axis, length in enumerate(images.shape[1:3]):
        size = shares[:, axis] * length  # (B,)
        start = random.random(len(images)) * (length - size)  # (B,)
        place = np.arange(length)
        inside.append(
            (place >= start[:, None]) & (place < (start + size)[:, None])
        )
    down, right = inside
    return down[:, :, None, None] & right[:, None, :, None]


def _to_images(values):
    return values[:, None, None, None]


def _mixup(images, labels, key, alpha):
    return mixup(images, labels, key, alpha=alpha)


# In the order of `batch_augmenter`: purpose to the field that switches it on,
# and the function.
FUNCTIONS = {
    "random_erasing": ("random_erasing_rate", random_erasing),
    "cutmix": ("cutmix_alpha", cutmix),
    "mixup": ("mixup_alpha", _mixup),
}


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
