"""The resizing and cropping of the original code, in TensorFlow.

Names and arithmetic are those of big_vision's `pp/ops_image.py`
(https://github.com/google-research/big_vision); vision_transformer's
`input_pipeline.py` does the same without rounding.

Axes: H and W height and width, C channels.
"""

__all__ = [
    "central_crop",
    "crop_window",
    "random_crop",
    "resize",
    "resize_small",
    "value_range",
]

AREA_RANGE = (0.05, 1.0)
ASPECT_RATIO_RANGE = (0.75, 1.33)
# The others give means of pixels, which need no clipping.
OVERSHOOTING = ("bicubic", "lanczos3")


def crop_window(shape, key):
    """Draws the box of an inception crop.

    5 to 100 % of the area at a ratio of width to height of 0.75 to 1.33; the
    whole image where 100 attempts find no such box inside.

    Args:
        shape: int32 tensor (H, W, C) of the image.
        key: int64 tensor of shape (2,).

    Returns:
        int32 tensor (top, left, height, width).
    """
    import tensorflow as tf

    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([0, 0, 4], tf.float32),
        seed=key,
        min_object_covered=0.0,
        area_range=AREA_RANGE,
        aspect_ratio_range=ASPECT_RATIO_RANGE,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def resize(
    image,
    size,
    *,
    method: str = "bilinear",
    antialias: bool = False,
    rounding: str = "uint8",
):
    """Scales both sides, whatever the ratio.

    Args:
        image: uint8 or float32 tensor of shape (H, W, C), in [0, 255].
        size: (height, width) of the result.
        method: of `tf.image.resize`.
        antialias: see there.
        rounding: "uint8" rounds down, as big_vision; "float32" does not, as
            vision_transformer.

    Returns:
        Tensor of that dtype and of shape (height, width, C).
    """
    import tensorflow as tf

    image = tf.image.resize(image, size, method=method, antialias=antialias)
    if method in OVERSHOOTING:
        image = tf.clip_by_value(image, 0.0, 255.0)
    return tf.cast(image, rounding)


def resize_small(image, smaller_size: int, *, method: str = "area", **options):
    """Scales the shorter side to a size and keeps the ratio.

    Args:
        image: uint8 tensor of shape (H, W, C).
        smaller_size: int, pixels.
        method: of `tf.image.resize`.
        **options: `antialias` and `rounding`, see `resize`.

    Returns:
        Tensor whose shorter side is `smaller_size`.
    """
    import tensorflow as tf

    sides = tf.cast(tf.shape(image)[:2], tf.float32)
    factor = tf.cast(smaller_size, tf.float32) / tf.reduce_min(sides)
    size = tf.cast(tf.round(sides * factor), tf.int32)
    return resize(image, size, method=method, **options)


def central_crop(image, size: tuple[int, int]):
    """Cuts out the middle.

    Args:
        image: tensor of shape (H, W, C), at least `size`.
        size: (height, width) of the result.

    Returns:
        Tensor of shape (height, width, C).
    """
    import tensorflow as tf

    top, left = tf.unstack((tf.shape(image)[:2] - tf.constant(size)) // 2)
    return tf.image.crop_to_bounding_box(image, top, left, *size)


def random_crop(image, size: tuple[int, int], key):
    """Cuts out any part, each as likely.

    Args:
        image: tensor of shape (H, W, C), at least `size`.
        size: (height, width) of the result.
        key: int64 tensor of shape (2,).

    Returns:
        Tensor of shape (height, width, C).
    """
    import tensorflow as tf

    shape = (*size, image.shape[-1])
    return tf.image.stateless_random_crop(image, shape, seed=key)


def value_range(image, low: float = -1.0, high: float = 1.0):
    """Scales [0, 255] to another range; the models do it inside.

    Args:
        image: tensor in [0, 255].
        low: float, what 0 becomes.
        high: float, what 255 becomes.

    Returns:
        float32 tensor of the same shape.

    Example:
        >>> value_range(np.array([0, 255], "uint8")).numpy()
        array([-1.,  1.], dtype=float32)
    """
    import tensorflow as tf

    return tf.cast(image, tf.float32) / 255.0 * (high - low) + low
