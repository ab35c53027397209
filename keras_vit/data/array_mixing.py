"""Augmentation of batches without TensorFlow.

Boxes are drawn as Keras's CutMix and RandomErasing draw them, from numbers of
their own: a batch of tf.data has other boxes.

Axes: B images of a batch, H and W height and width, C channels, K classes.
"""

from collections.abc import Callable

import numpy as np

from keras_vit.data.augmentation import mixup
from keras_vit.data.config import AugmentationConfig
from keras_vit.data.seeds import key

__all__ = [
    "array_batch_augmenter",
    "check_augmentation",
    "cutmix",
    "random_erasing",
]

ERASED = (0.02, 0.33)  # Squares of the shares of the sides, as in Keras


def array_batch_augmenter(config: AugmentationConfig, seed: int) -> Callable:
    """Makes the function that augments a batch of arrays.

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
    """Raises a ValueError for a layer of KerasCV, which is TensorFlow's."""
    if config.keras_cv:
        raise ValueError(
            "Layers of KerasCV run where TensorFlow reads the images. "
            f"Received: augmentation.keras_cv={config.keras_cv!r} and the "
            "data.reader 'pillow'. Leave it out, or install TensorFlow: pip "
            'install "keras-vision-transformer[recipes,cv]".'
        )


def random_erasing(images, labels, key, rate: float):
    """Fills a box of some of the images with noise."""
    random = np.random.default_rng(key)
    count = len(images)
    boxes = _boxes(random, images, np.sqrt(random.uniform(*ERASED, (count, 2))))
    erased = boxes & _to_images(random.random(count) < rate)
    noise = random.normal(0, 255, images.shape).clip(0, 255)
    images = np.where(erased, noise, images).astype("float32")
    return images, labels


def cutmix(images, labels, key, alpha: float):
    """Replaces a box of each image by that of another; mixes the labels."""
    random = np.random.default_rng(key)
    count = len(images)
    shares = np.sqrt(1 - random.beta(alpha, alpha, count))
    boxes = _boxes(random, images, np.stack([shares, shares], axis=1))
    others = random.permutation(count)
    own = (1 - shares**2).astype("float32")[:, None]  # (B, 1)
    labels = own * labels + (1 - own) * labels[others]
    return np.where(boxes, images[others], images).astype("float32"), labels


def _boxes(random, images, shares):
    """A box at a random place of each image, bool (B, H, W, 1).

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
