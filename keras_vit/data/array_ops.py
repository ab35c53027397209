"""Functions of TensorFlow's for NumPy arrays, so that augmentation is one code.

What begins with `tf = ops_of(image)` runs inside tf.data, and on arrays where
there is no TensorFlow. The functions here have its names, arguments and
arithmetic.

Axes: H and W height and width, C channels.
"""

import types

import numpy as np

__all__ = ["ARRAYS", "ops_of", "transform_image"]

# tf.image.rgb_to_grayscale: ITU-R BT.601, and what it scales bytes with.
GREY = np.array([0.2989, 0.5870, 0.1140], "float32")
LARGEST, LARGEST_AND_HALF = np.float32(255), np.float32(255.5)


def ops_of(x):
    """TensorFlow for a tensor, `ARRAYS` for an array of NumPy's."""
    if isinstance(x, (np.ndarray, np.generic)):
        return ARRAYS
    import tensorflow as tf

    return tf


def transform_image(image, transform, *, interpolation: str, fill: float):
    """Read each pixel (x, y) where a matrix maps it to.

    Args:
        image: tensor or array (H, W, C), uint8 or float32.
        transform: six float32 scalars a to f: pixel (x, y) is read at
            (a x + b y + c, d x + e y + f).
        interpolation: "NEAREST" or "BILINEAR".
        fill: the value of what lies outside.

    Returns:
        The image of the same shape and dtype.
    """
    if isinstance(image, np.ndarray):
        return INTERPOLATIONS[interpolation](image, transform, fill)
    import tensorflow as tf

    row = [tf.cast(value, tf.float32) for value in (*transform, 0, 0)]
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=tf.stack(row)[None],
        output_shape=image.shape[:2],
        fill_value=fill,
        interpolation=interpolation,
        fill_mode="CONSTANT",
    )[0]


def _places(image, transform):
    """Return where the pixels are read at, x and y, float32 (H, W)."""
    a, b, c, d, e, f = np.array(transform, "float32")
    x = np.arange(image.shape[1], dtype="float32")
    y = np.arange(image.shape[0], dtype="float32")[:, None]
    return a * x + b * y + c, d * x + e * y + f


def _nearest(image, transform, fill):
    # Halves away from zero; in float64, where 0.49999997 + 0.5 is below 1.
    x, y = (
        np.copysign(np.floor(np.abs(place.astype(float)) + 0.5), place)
        for place in _places(image, transform)
    )
    return _read(image, x, y, fill)


def _bilinear(image, transform, fill):
    x, y = _places(image, transform)
    left, top = np.floor(x), np.floor(y)
    upper, lower = (
        (left + 1 - x)[..., None] * _read(image, left, row, fill)
        + (x - left)[..., None] * _read(image, left + 1, row, fill)
        for row in (top, top + 1)
    )
    found = (top + 1 - y)[..., None] * upper + (y - top)[..., None] * lower
    return found.astype(image.dtype)


def _read(image, x, y, fill):
    height, width = image.shape[:2]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    rows = y.clip(0, height - 1).astype(np.int32)
    columns = x.clip(0, width - 1).astype(np.int32)
    return np.where(
        inside[..., None], image[rows, columns], image.dtype.type(fill)
    )


INTERPOLATIONS = {"NEAREST": _nearest, "BILINEAR": _bilinear}


def _where(condition, x, y):
    found = np.where(condition, x, y)
    # Python's floats, which NumPy takes for 64 bits.
    return found.astype("float32") if found.dtype == float else found


def _gather(values, indices, batch_dims=0):
    if batch_dims:
        return np.take_along_axis(values, indices[:, None], axis=1)[:, 0]
    return np.take(values, indices, axis=0)


def _cumsum(x, axis, exclusive):
    return np.cumsum(x, axis) - (x if exclusive else 0)


def _rgb_to_grayscale(image):
    floats = image.astype("float32") * (1 / LARGEST)
    grey = (floats * GREY).sum(axis=-1, keepdims=True)
    return (grey * LARGEST_AND_HALF).astype(image.dtype)


def _one_hot(labels, num_classes):
    return (np.arange(num_classes) == labels[..., None]).astype("float32")


ARRAYS = types.SimpleNamespace(
    **{x: np.dtype(x) for x in ("bool", "float32", "int32", "uint8")},
    argsort=lambda x, stable: np.argsort(x, kind="stable"),
    bitwise=types.SimpleNamespace(bitwise_and=np.bitwise_and),
    cast=lambda x, dtype: np.asarray(x).astype(dtype),
    clip_by_value=np.clip,
    concat=np.concatenate,
    cond=lambda pred, true_fn, false_fn: (true_fn if pred else false_fn)(),
    constant=np.asarray,
    cos=np.cos,
    cumsum=_cumsum,
    exp=np.exp,
    floor=np.floor,
    gather=_gather,
    identity=lambda x: x,
    image=types.SimpleNamespace(rgb_to_grayscale=_rgb_to_grayscale),
    maximum=np.maximum,
    minimum=np.minimum,
    one_hot=_one_hot,
    range=lambda *bounds: np.arange(*bounds, dtype=np.int32),
    raw_ops=types.SimpleNamespace(
        DenseBincount=lambda input, size, weights: np.bincount(
            input, minlength=size
        )
    ),
    reduce_max=np.max,
    reduce_mean=np.mean,
    reduce_min=np.min,
    reduce_sum=lambda x, axis, keepdims=False: np.sum(
        x, axis, dtype=x.dtype, keepdims=keepdims
    ),
    repeat=np.repeat,
    reshape=np.reshape,
    reverse=np.flip,
    roll=np.roll,
    round=np.round,
    sin=np.sin,
    sqrt=np.sqrt,
    stack=np.stack,
    switch_case=lambda number, branches: branches[number](),
    transpose=np.transpose,
    unstack=list,
    where=_where,
    zeros=np.zeros,
)
