"""What benchmarks/input_pipeline.py compares: batches, made in several ways."""

import pathlib
from typing import Any

SIZE = 224
BATCH = 32


def plain(folder):
    """The loop that anyone would write."""
    import tensorflow as tf

    def image(path):
        pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        pixels = tf.image.resize(pixels, (SIZE, SIZE))
        return tf.cast(pixels, tf.uint8)

    paths = sorted(map(str, pathlib.Path(folder).rglob("*.jpg")))
    return (
        tf.data.Dataset.from_tensor_slices(paths)
        .repeat()
        .map(image, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )


def ours(folder, train, data=None, **augmentation):
    """keras_vit.data on the files of a folder, or on what `data` names."""
    fields: dict[str, Any] = data or {"folder": f"{folder}/images"}
    from keras_vit import data

    config = data.DataConfig(
        validation_fraction=0.0, test_fraction=0.0, **fields
    )
    return data.training_stream(
        data.open_dataset(config).train,
        2,
        image_size=SIZE,
        channels=3,
        batch_size=BATCH,
        preprocessing=data.PreprocessingConfig(
            train=train, flip=train != "squash"
        ),
        augmentation=data.AugmentationConfig(**augmentation),
    ).from_step(0)


def evaluation(folder):
    """What the plain loop does, through keras_vit.data."""
    return ours(folder, "squash")


def training(folder):
    """Inception crop and flip."""
    return ours(folder, "inception_crop")


def augreg(folder):
    """The same with the augmentation "light2" of AugReg."""
    return ours(
        folder, "inception_crop", rand_augment_layers=2, mixup_alpha=0.2
    )


def in_memory(change):
    """Batches of images in memory, each of which is changed."""
    import numpy as np
    import tensorflow as tf

    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (64, 14, 14, 3)).astype("float32")
    images = tf.cast(
        tf.image.resize(coarse, (SIZE, SIZE), method="bicubic"), tf.uint8
    )
    numbers = tf.data.Dataset.range(2**62)
    return (
        numbers.map(
            lambda number: change(images[number % 64], number),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )


def memory(folder):
    """The images as they are."""
    del folder
    return in_memory(lambda image, number: image)


def rand_augment(folder):
    """RandAugment(2, 10) of keras_vit."""
    from keras_vit.data.augmentation import rand_augment
    from keras_vit.data.seeds import key

    del folder
    return in_memory(
        lambda image, number: rand_augment(
            image, key("rand_augment", 0, 0, number)
        )
    )


def keras_cv(folder):
    """RandAugment of KerasCV with two operations an image, on batches."""
    import keras_cv
    import tensorflow as tf

    del folder
    layer = keras_cv.layers.RandAugment(
        value_range=(0, 255), augmentations_per_image=2, magnitude=0.5
    )
    batches = in_memory(lambda image, number: image)
    # On batches it takes no more CPU time than on single images.
    return batches.map(
        lambda images: layer(tf.cast(images, tf.float32)),
        num_parallel_calls=tf.data.AUTOTUNE,
    )


TASKS = {
    "plain": plain,
    "evaluation": evaluation,
    "training": training,
    "augreg": augreg,
    "memory": memory,
    "rand_augment": rand_augment,
    "keras_cv": keras_cv,
}
