"""Patch embeddings of another patch size or number of channels.

Axes: C channels, D hidden dimension, h and w height and width of a patch.
"""

import numpy as np

from keras_vit.checkpoints.surgery.resample import resize_matrix

__all__ = ["adapt_channels", "resize_patches"]


def resize_patches(kernel: np.ndarray, patch_size: tuple) -> np.ndarray:
    """Resizes a patch embedding by the pseudo-inverse of resizing patches.

    "FlexiViT: One Model for All Patch Sizes" (arXiv:2212.08013, section
    3.4): the new weights give resized patches the embeddings that the old
    ones give the patches, exactly when patches grow, in the least squares
    otherwise. Patches are resized bilinearly.

    Args:
        kernel: float array (h, w, C, D).
        patch_size: (height, width) that is wanted.

    Returns:
        float32 array (height, width, C, D).
    """
    # Resizing is separable, so its pseudo-inverse is too.
    rows, columns = (
        np.linalg.pinv(resize_matrix(old, new, "linear"))
        for old, new in zip(kernel.shape[:2], patch_size, strict=True)
    )  # (h, height), (w, width)
    resized = np.einsum("hH,wW,hwcd->HWcd", rows, columns, kernel)
    return resized.astype("float32")


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Adapts the first convolution to another number of channels.

    timm's rule: one channel gets the sum over the old ones, so that a grey
    image gives what it gave as RGB; more get the old ones in turn, scaled so
    that the sum stays about the same.

    Args:
        kernel: float array (h, w, C, D).
        channels: int.

    Returns:
        float32 array (h, w, channels, D).
    """
    old = kernel.shape[2]
    if channels == 1:
        adapted = kernel.sum(axis=2, keepdims=True)
    else:
        repeats = -(-channels // old)
        adapted = np.tile(kernel, (1, 1, repeats, 1))[:, :, :channels]
        adapted = adapted * (old / channels)
    return adapted.astype("float32")
