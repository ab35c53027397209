"""From the bytes of an image to its pixels, in TensorFlow.

Axes: H and W height and width, C channels.
"""

from collections.abc import Callable

__all__ = ["decode", "guarded", "is_readable"]


def decode(data, channels: int):
    """Decodes a JPEG, PNG, GIF (first frame) or BMP image.

    As `decode` in big_vision's `pp/ops_image.py`, with more kinds of BMP.

    Args:
        data: string scalar, the bytes of the file.
        channels: 1 for grey, 3 for colour.

    Returns:
        uint8 tensor of shape (H, W, C).
    """
    import tensorflow as tf

    def as_stored():
        image = tf.io.decode_image(data, expand_animations=False)
        return to_channels(image, channels)

    def converted():
        return tf.io.decode_image(data, channels, expand_animations=False)

    # TensorFlow converts the channels of JPEG and PNG while it decodes, and
    # refuses to for the others.
    start = tf.strings.substr(data, 0, 2)
    stored = (start == b"BM") | (start == b"GI")
    image = tf.cond(stored, as_stored, converted)
    return tf.ensure_shape(image, [None, None, channels])


def to_channels(image, channels: int):
    """Brings a decoded image of 1, 3 or 4 channels to 1 or 3.

    Args:
        image: uint8 tensor of shape (H, W, any).
        channels: 1 for grey, 3 for colour.

    Returns:
        uint8 tensor of shape (H, W, channels).
    """
    import tensorflow as tf

    image = tf.cond(
        tf.shape(image)[-1] == 1,
        lambda: tf.repeat(image[..., :1], 3, axis=-1),
        lambda: image[..., :3],
    )
    image = tf.ensure_shape(image, [None, None, 3])
    return image if channels == 3 else tf.image.rgb_to_grayscale(image)


def guarded(read: Callable, channels: int) -> Callable:
    """Makes a function return an empty image where it would fail.

    An op that fails ends a tf.data pipeline without saying which image it
    was; a pipeline of one element inside can be told to leave it out. It
    costs some 40 microseconds.

    Args:
        read: function of tensors that returns a uint8 tensor (H, W, C).
        channels: C.

    Returns:
        A function of the same tensors, whose result has the shape (0, 0, C)
        where `read` fails.
    """
    import tensorflow as tf

    def attempt(*inputs):
        image = tf.data.Dataset.from_tensors(inputs).map(read).ignore_errors()
        empty = tf.zeros([0, 0, channels], tf.uint8)
        either = image.concatenate(tf.data.Dataset.from_tensors(empty))
        return either.take(1).get_single_element()

    return attempt


def is_readable(content, from_path: bool) -> bool:
    """Decodes an image to see whether that works.

    Args:
        content: the path of the file, or its bytes.
        from_path: bool, which of the two.

    Returns:
        Whether it does.
    """
    import tensorflow as tf

    try:
        decode(tf.io.read_file(content) if from_path else content, 3)
    except tf.errors.OpError:
        return False
    return True
