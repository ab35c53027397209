"""Handwritten digits that ship inside scikit-learn: real images, no network.

The 1797 test images of "Optical Recognition of Handwritten Digits" (Alpaydin
and Kaynak, UCI Machine Learning Repository, 1998), written by 13 people: 8x8
pixels of 17 grey levels, bright ink on black.
"""

import numpy as np

from keras_vit.data.dataset import Dataset, Split
from keras_vit.data.images import resize
from keras_vit.data.splits import stratified_split

__all__ = ["digits"]

BRIGHTEST = 16  # of the 17 grey levels 0 to 16.


def digits(
    *,
    image_size: tuple[int, int] = (16, 16),
    channels: int = 1,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.2,
    split_seed: int = 0,
) -> Dataset:
    """Loads the digits, resized, in a stratified split.

    Args:
        image_size: (height, width) that the 8x8 images are resized to.
        channels: 1 for grey, 3 for the same three times.
        validation_fraction: float, share of all images.
        test_fraction: float, share of all images.
        split_seed: int, the same seed gives the same split.

    Returns:
        A `Dataset` of 1797 images in 10 classes, "0" to "9".

    Raises:
        ValueError: when a part of the split is too small for ten classes.

    Example:
        >>> digits().train.images.shape
        (1258, 16, 16, 1)
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    images = np.rint(source.images * (255 / BRIGHTEST)).astype(np.uint8)
    images = np.stack(
        [resize(image, image_size, channels) for image in images]
    )  # (1797, H, W, C)
    labels = source.target.astype(np.int32)
    parts = stratified_split(
        labels,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        seed=split_seed,
    )
    splits = [Split(images[part], labels[part]) for part in parts]
    return Dataset(*splits, class_names=tuple(map(str, source.target_names)))
