"""TensorFlow and Pillow read the same images in the same order."""

import dataclasses
import importlib.util
import io
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit import data
from keras_vit.data.config import chosen_reader, data_packages
from keras_vit.data.image_reader import crop_window, pillow_reader
from keras_vit.data.resizing import (
    Geometry,
    inception_window,
    random_window,
    resize,
)
from keras_vit.data.seeds import key, random_bits, uniform
from keras_vit.prediction.images import read_pixels

COUNT, BATCH, CLASSES = 14, 4, 5
LABELS = np.arange(COUNT, dtype="int32") % CLASSES
AUGMENTED = data.AugmentationConfig(
    shift=0.1, rotation=20, zoom=0.1, mixup_alpha=0.3
)
VARIED = data.AugmentationConfig(rand_augment_layers=2)


def pictures(channels=3):
    shape = (COUNT, 40, 52, channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype="uint8")


def encoded(kind):
    contents = np.empty(COUNT, object)
    for i, pixels in enumerate(pictures()):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        contents[i] = file.getvalue()
    return data.Examples(contents, LABELS, kind="encoded")


def arrays(channels=3):
    return data.Examples(pictures(channels), LABELS)


def both(examples, function):
    """What a function makes of the examples, read by one and the other."""
    return [
        function(dataclasses.replace(examples, reader=reader))
        for reader in ("tensorflow", "pillow")
    ]


def training(examples, channels=3, **options):
    stream = data.training_stream(
        examples,
        CLASSES,
        image_size=(18, 24),
        channels=channels,
        batch_size=BATCH,
        seed=3,
        **options,
    )
    # From the second batch of the first epoch to the third epoch.
    batches = itertools.islice(iter(stream.from_step(1)), 6)
    return [tuple(map(np.asarray, batch)) for batch in batches]


def evaluation(examples, channels=3, **options):
    batches = data.evaluation_batches(
        examples,
        image_size=(18, 24),
        channels=channels,
        batch_size=BATCH,
        **options,
    )
    return [tuple(map(np.asarray, batch)) for batch in batches]


def assert_same(found, expected, levels, share=0.01):
    """The same but for a few pixels, and these by a few levels."""
    differences = []
    for batch, other in zip(found, expected, strict=True):
        for x, y in zip(batch[1:], other[1:], strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
        assert batch[0].dtype == other[0].dtype
        assert batch[0].shape == other[0].shape
        differences.append(np.abs(batch[0].astype(float) - other[0]))
    assert np.max(differences) <= levels
    assert np.mean(np.array(differences) > 0.02) <= share


@pytest.mark.parametrize(
    "crop", ["inception_crop", "resize_small_random_crop", "resize_random_crop"]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_images_in_memory_are_the_same_in_training(crop, channels):
    options = {"preprocessing": data.PreprocessingConfig(train=crop)}
    found = both(arrays(), lambda x: training(x, channels, **options))
    assert_same(*found, levels=1)


@pytest.mark.parametrize("rounding", ["uint8", "float32"])
@pytest.mark.parametrize("crop", ["squash", "resize_small_central_crop"])
def test_images_in_memory_are_the_same_in_evaluation(crop, rounding):
    config = data.PreprocessingConfig(evaluation=crop, rounding=rounding)
    found = both(arrays(), lambda x: evaluation(x, preprocessing=config))
    assert len(found[0]) == 4
    levels = 1 if rounding == "uint8" else 0.01
    assert_same(*found, levels=levels)


def test_augmentation_is_the_same():
    config = data.PreprocessingConfig(rounding="float32")
    found = both(
        arrays(),
        lambda x: training(x, augmentation=AUGMENTED, preprocessing=config),
    )
    assert_same(*found, levels=0.01)


def test_rand_augment_is_the_same():
    # Of images whose sides stay, in which nothing is rounded before.
    config = data.PreprocessingConfig(train="squash")
    images = data.Examples(pictures()[:, :18, :24], LABELS)
    found = both(
        images, lambda x: training(x, augmentation=VARIED, preprocessing=config)
    )
    assert_same(*found, levels=0)


@pytest.mark.parametrize("kind", ["png", "bmp", "gif"])
def test_files_without_loss_are_the_same(kind):
    assert_same(*both(encoded(kind), training), levels=1)
    assert_same(*both(encoded(kind), evaluation), levels=1)


def test_decoded_jpegs_differ_by_a_few_levels():
    """TensorFlow asks the same library for its faster transform.

    At the edges of a crop colours differ by more: it decodes only the crop.
    """
    smooth = Image.fromarray(pictures()[0, :10, :13]).resize((52, 40))
    file = io.BytesIO()
    smooth.save(file, "jpeg", quality=95)
    contents = np.array([file.getvalue()] * COUNT, object)
    examples = data.Examples(contents, LABELS, kind="encoded")
    for batches, levels in ((training, 40), (evaluation, 20)):
        found, expected = both(examples, batches)
        assert_same(found, expected, levels, share=1)
        images, others = (
            np.array([x.astype(float) for x, *_ in part])
            for part in (found, expected)
        )
        assert np.abs(images - others).mean() < 3


@pytest.mark.parametrize("size", [(), (4,), (2, 3), (9, 7, 5)])
def test_random_numbers_are_those_of_tensorflow(size):
    for seed, epoch, example in [(0, 0, 0), (5, 3, 7), (2**50, 2**22, 2**39)]:
        drawn = key("crop", seed, epoch, example)
        numbers = [tf.constant(x, tf.int64) for x in (epoch, example)]
        asked = key("crop", seed, *numbers)
        np.testing.assert_array_equal(drawn, asked)
        np.testing.assert_array_equal(
            uniform(size, drawn), uniform(size, asked)
        )


def test_purposes_have_draws_of_their_own():
    """Those with a number keep it, others need none."""
    assert key("mixup", 2, 1, 3).tolist() == [132, 2**40 + 3]
    streams = {
        int(key(purpose, seed, 0, 0)[0])
        for purpose in ("flip", "mixup", "blur", "grey")
        for seed in (0, 1, 2**56)
    }
    assert len(streams) == 12
    assert all(0 <= stream < 2**63 for stream in streams)


@pytest.mark.parametrize("count", [1, 5, 32, 33, 70])
def test_few_words_are_the_first_of_many(count):
    drawn = key("crop", 1, 2, 3)
    np.testing.assert_array_equal(
        random_bits(drawn, count), random_bits(drawn, 90)[:count]
    )


@pytest.mark.parametrize("least_area", (0.05, 0.2, 0.67))
def test_crop_windows_are_those_of_tensorflow(least_area):
    count = 2000
    random = np.random.default_rng(0)
    shapes = random.integers(1, 700, (count, 3))
    shapes[:300, :2] = random.integers(1, 12, (300, 2))
    shapes[300:600] = [375, 500, 3]
    shapes[600:700] = [5000, 40, 3]  # No box fits: the whole.
    keys = np.stack([key("crop", 3, i % 5, i) for i in range(count)])
    drawn = tf.data.Dataset.from_tensor_slices((shapes.astype("int32"), keys))
    windows = drawn.map(lambda shape, x: crop_window(shape, x, least_area))
    expected = [*windows.as_numpy_iterator()]
    found = [
        inception_window(int(height), int(width), x, least_area)
        for (height, width, _), x in zip(shapes, keys, strict=True)
    ]
    np.testing.assert_array_equal(found, expected)


def test_pillow_crops_of_the_whole_area_are_the_whole_image():
    image = pictures()[0][:40, :40]
    examples = data.Examples(image[None], LABELS[:1])
    config = data.PreprocessingConfig(least_area=1.0)
    geometry = Geometry((8, 8), 3, config)
    read = pillow_reader(examples, "inception_crop", geometry, seed=3)
    expected = resize(image, (8, 8)).astype(int)
    for epoch in range(5):
        assert np.abs(read(epoch, 0) - expected).max() <= 1


def test_random_windows_are_those_of_tensorflow():
    places = np.stack(np.meshgrid(range(30), range(41), indexing="ij"), -1)
    for example in range(50):
        drawn = key("crop", 0, 0, example)
        crop = tf.image.stateless_random_crop(places, (24, 24, 2), seed=drawn)
        window = random_window((30, 41), (24, 24), drawn)
        np.testing.assert_array_equal(crop[0, 0], window)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_crop_of_any_image_is_one_of_what_prediction_reads(
    mode, channels, orientation, tmp_path
):
    pixels = pictures()[0]
    image = (
        Image.fromarray(pixels[..., 0].astype("uint16") * 256)
        if mode == "I;16"
        else Image.fromarray(pixels).convert(mode)
    )
    kind = "jpeg" if mode == "CMYK" else "png"
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = str(tmp_path / f"image.{kind}")
    image.save(path, exif=exif.tobytes())
    whole = read_pixels(path, channels)
    assert whole.shape[0] == (40 if orientation == 1 else 52)
    examples = data.Examples(np.array([path], object), LABELS[:1], kind="path")
    geometry = Geometry((18, 24), channels, data.PreprocessingConfig())
    read = pillow_reader(examples, "inception_crop", geometry, seed=3)
    for epoch in range(3):
        drawn = key("crop", 3, epoch, 0)
        rows, columns, _ = whole.shape
        top, left, height, width = inception_window(rows, columns, drawn)
        part = whole[top : top + height, left : left + width]
        expected = resize(part, (18, 24)).astype(int)
        assert np.abs(read(epoch, 0) - expected).max() <= 1


@pytest.mark.parametrize(
    ("installed", "asked", "reader"),
    [
        (True, "auto", "tensorflow"),
        (False, "auto", "pillow"),
        (True, "pillow", "pillow"),
        (False, "tensorflow", "tensorflow"),
    ],
)
def test_tensorflow_reads_where_it_is_installed(
    installed, asked, reader, monkeypatch
):
    spec = object() if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert chosen_reader(asked) == reader


def test_what_needs_tensorflow_is_known():
    for name in ("digits", "hf://datasets/a/b"):
        assert data_packages(data.DataConfig(name=name)) == ()
    for name in ("cifar10", "beans/x"):
        assert "tensorflow" in data_packages(data.DataConfig(name=name))
    own = data.DataConfig(name="own/dtd")
    assert data_packages(own, {"own": None}) == ()
    config = data.DataConfig(folder="x", reader="tensorflow")
    assert data_packages(config) == ("tensorflow",)


def test_a_layer_of_keras_cv_is_refused_before_anything_is_read():
    examples = dataclasses.replace(arrays(), reader="pillow")
    config = data.AugmentationConfig(keras_cv="AugMix")
    with pytest.raises(ValueError, match="keras_cv='AugMix'.*'pillow'"):
        training(examples, augmentation=config)
