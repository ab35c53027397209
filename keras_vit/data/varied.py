"""Changes of single images: flip, affine and RandAugment, in TensorFlow.

Axes: H and W height and width, C channels.
"""

from collections.abc import Callable

from keras_vit.data.augmentation import AugmentationConfig
from keras_vit.data.randaugment import rand_augment
from keras_vit.data.stateless import key, uniform

__all__ = ["image_augmenter", "random_affine", "random_flip"]


def image_augmenter(
    config: AugmentationConfig, *, flip: bool, seed: int
) -> Callable:
    """Makes the function that varies one image.

    Args:
        config: an `AugmentationConfig`; what concerns batches is not used.
        flip: bool, whether every second image is mirrored.
        seed: non-negative int.

    Returns:
        A function of an image (H, W, C), the epoch and the example, which
        returns an image of the same shape and dtype.
    """

    def augment(image, epoch, example):
        if flip:
            image = random_flip(image, key("flip", seed, epoch, example))
        if config.shift or config.rotation or config.zoom:
            drawn = key("affine", seed, epoch, example)
            image = random_affine(image, config, drawn)
        if config.rand_augment_layers:
            image = rand_augment(
                image,
                key("rand_augment", seed, epoch, example),
                num_layers=config.rand_augment_layers,
                magnitude=config.rand_augment_magnitude,
            )
        return image

    return augment


def random_flip(image, key):
    """Mirrors every second image.

    Args:
        image: tensor of shape (H, W, C).
        key: int64 tensor of shape (2,).

    Returns:
        Tensor of the same shape.
    """
    import tensorflow as tf

    return tf.cond(
        uniform((), key) < 0.5, lambda: image[:, ::-1], lambda: image
    )


def random_affine(image, config: AugmentationConfig, key):
    """Shifts, rotates and zooms at random; what comes in is black.

    Bilinear, about the middle; the same distribution as `RandomAffine`.

    Args:
        image: tensor of shape (H, W, C).
        config: `shift`, `rotation` and `zoom` of it are used.
        key: int64 tensor of shape (2,).

    Returns:
        Tensor of the same shape and dtype.
    """
    import tensorflow as tf

    down, right, angle, zoom = tf.unstack(2 * uniform((4,), key) - 1)
    height, width = image.shape[:2]
    return affine(
        image,
        down=down * config.shift * height,
        right=right * config.shift * width,
        angle=angle * config.rotation * (3.141592653589793 / 180),
        scale=1 + zoom * config.zoom,
    )


def affine(image, *, down, right, angle, scale):
    """Rotates and scales about the middle, then shifts.

    Args:
        image: tensor of shape (H, W, C).
        down: float, pixels.
        right: float, pixels.
        angle: float, radians, counter-clockwise.
        scale: float, above 1 enlarges.

    Returns:
        Tensor of the same shape and dtype.
    """
    import tensorflow as tf

    height, width = image.shape[:2]
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    cosine, sine = tf.cos(angle) / scale, tf.sin(angle) / scale
    # Where a pixel (x, y) of the result comes from: the inverse map.
    left = middle_x - cosine * (middle_x + right) + sine * (middle_y + down)
    top = middle_y - sine * (middle_x + right) - cosine * (middle_y + down)
    zero = tf.zeros_like(cosine)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(image, tf.float32)[None],
        transforms=tf.stack(
            [cosine, -sine, left, sine, cosine, top, zero, zero]
        )[None],
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )[0]
    if image.dtype == tf.uint8:
        moved = tf.round(moved)
    return tf.cast(moved, image.dtype)
