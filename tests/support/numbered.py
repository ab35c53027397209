"""Images that say which one they are."""

import numpy as np
import tensorflow as tf

from keras_vit.data import Examples, PreprocessingConfig

PLAIN = PreprocessingConfig(train="squash", evaluation="squash", flip=False)


def numbered(count=10, **options):
    """Images whose pixels are their number, and labels as well."""
    images = np.arange(count, dtype=np.uint8)[:, None, None, None]
    images = np.tile(images, (1, 4, 4, 1))
    labels = np.arange(count, dtype=np.int32)
    return Examples(images, labels, source="numbers", **options)


def encoded(broken=(), count=10, on_broken_image="skip"):
    """PNG images of their number; some of them cut off."""
    contents = np.array(
        [
            tf.io.encode_png(image).numpy()[: 40 if i in broken else None]
            for i, image in enumerate(numbered(count).contents)
        ],
        object,
    )
    return Examples(
        contents,
        np.arange(count, dtype=np.int32),
        kind="encoded",
        source="numbers",
        on_broken_image=on_broken_image,
    )
