"""What the first linear layer looks for in the pixels.

Axes: K components, D hidden dimension, h and w height and width of a patch,
C channels.
"""

import numpy as np
from keras import ops

from keras_vit.analysis.blocks import check_model
from keras_vit.models import VisionTransformer

__all__ = ["patch_filters"]


def patch_filters(
    model: VisionTransformer, num_components: int = 28
) -> np.ndarray:
    """Principal components of the filters that embed the patches.

    Figure 7 (left) of "An Image Is Worth 16x16 Words" (arXiv:2010.11929),
    where 28 of L/32 are shown: the D filters are points in the space of
    pixels; their mean is taken off, and the directions of the largest
    variance are returned, the largest first. They look like a basis for the
    fine structure inside a patch.

    Of a hybrid the filters of its root convolution are taken, as its patch
    embedding sees no pixels.

    Args:
        model: a `VisionTransformer`.
        num_components: int, K, at most D and at most h * w * C.

    Returns:
        float32 array of shape (K, h, w, C), each of length 1. The sign, which
        means nothing, makes the largest value of each positive.

    Raises:
        ValueError: when there are not that many components.

    Example:
        >>> patch_filters(keras_vit.ViT_L32(weights=None)).shape
        (28, 32, 32, 3)
    """
    check_model(model)
    layer = (
        model.get_layer("patch_embed").projection
        if model.config.resnet_units is None
        else model.get_layer("root_conv")
    )
    kernel = np.asarray(ops.convert_to_numpy(layer.kernel), "float32")
    filters = kernel.reshape(-1, kernel.shape[-1]).T  # (D, h * w * C)
    available = min(filters.shape)
    if not 1 <= num_components <= available:
        raise ValueError(
            f"There are {available} components: the model has "
            f"{filters.shape[0]} filters of {filters.shape[1]} weights. "
            f"Received: num_components={num_components}."
        )
    filters = filters - filters.mean(axis=0)
    _, _, components = np.linalg.svd(filters, full_matrices=False)
    components = components[:num_components]  # (K, h * w * C)
    peaks = np.abs(components).argmax(axis=1)[:, None]
    components *= np.sign(np.take_along_axis(components, peaks, axis=1))
    return components.reshape(num_components, *kernel.shape[:-1])
