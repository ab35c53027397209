"""What masked patches hide and ask for, against loops in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_training as tiny

from keras_vit import data
from keras_vit.data import Share
from keras_vit.training.tasks.hidden_patches import (
    NumberedStream,
    patch_pixels,
)
from keras_vit.training.tasks.masked_patch import (
    MaskedBatches,
    MaskedPatchConfig,
    colour_classes,
    corruption,
    patch_colours,
)

PAPER = MaskedPatchConfig()
IMAGES = np.random.default_rng(0).uniform(0, 255, (3, 8, 12, 3))
IMAGES = IMAGES.astype("float32")
GRID = (2, 3)


def draws(*shape):
    return np.random.default_rng(1).random(shape).astype("float32")


def both(function, array, *options):
    """What it makes of an array, and so of a tensor."""
    found = function(array, *options)
    tensors = function(tf.constant(array), *options)
    for x, y in zip(found, tensors, strict=True):
        assert x.dtype == y.numpy().dtype
        np.testing.assert_allclose(x, y, rtol=1e-6)
    return found


def test_corruption_is_what_a_loop_makes_of_the_same_numbers():
    drawn = draws(5, 9, 3)
    config = MaskedPatchConfig(mask_rate=0.5, random_rate=0.3)
    source, hidden = both(corruption, drawn, config)
    for image in range(5):
        first = np.argsort(drawn[image, :, 0])[:4]  # of 9, half
        assert set(np.flatnonzero(hidden[image])) == set(first)
        for patch in range(9):
            kind, shift = drawn[image, patch, 1:]
            expected = patch
            if patch in first and kind < 0.5:
                expected = -1
            elif patch in first and kind < 0.8:
                expected = (patch + 1 + int(shift * 8)) % 9
            assert source[image, patch] == expected


def test_shares_are_those_of_the_paper():
    source, hidden = both(corruption, draws(400, 196, 3), PAPER)
    assert (hidden.sum(axis=1) == 98).all()
    own = source == np.arange(196)
    assert own[~hidden].all()
    found = [(source == -1)[hidden], own[hidden]]
    masks, kept = (x.mean() for x in found)
    # Four standard deviations of 39,200 draws.
    assert masks == pytest.approx(0.8, abs=4 * (0.16 / 39_200) ** 0.5)
    assert kept == pytest.approx(0.1, abs=4 * (0.09 / 39_200) ** 0.5)


def blocks(image, rows, columns):
    """The parts of an image, row by row."""
    return [
        part
        for band in np.split(image, rows, axis=0)
        for part in np.split(band, columns, axis=1)
    ]


@pytest.mark.parametrize("cells", [1, 4])
def test_colours_are_the_means_of_the_cells(cells):
    found = both(patch_colours, IMAGES, GRID, cells)
    assert found.shape == (3, 6, cells**2, 3)
    expected = [
        [
            [cell.mean(axis=(0, 1)) for cell in blocks(patch, cells, cells)]
            for patch in blocks(image.astype("float64"), *GRID)
        ]
        for image in IMAGES
    ]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_colours_have_three_bits_a_channel():
    colours = np.array([[255, 128, 0], [31.9, 32, 95.9]], "float32")
    assert both(colour_classes, colours).tolist() == [
        7 * 64 + 4 * 8 + 0,
        0 * 64 + 1 * 8 + 2,
    ]
    rounded = np.array([[256.1, -0.1, 0]], "float32")
    assert both(colour_classes, rounded).tolist() == [7 * 64]
    grey = np.arange(256, dtype="float32")[:, None]
    assert (
        both(colour_classes, grey).tolist() == np.repeat(range(8), 32).tolist()
    )


def test_pixels_are_those_of_the_patches():
    found = both(patch_pixels, IMAGES, GRID)
    expected = [
        [patch.ravel() / 127.5 - 1 for patch in blocks(image, *GRID)]
        for image in IMAGES.astype("float64")
    ]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def stream(share=None):
    share = share or Share()
    images = data.training_stream(
        tiny.examples(tiny.IMAGES, seed=0),
        3,
        image_size=8,
        channels=1,
        batch_size=tiny.BATCH,
        seed=5,
        share=share,
    )
    batches = MaskedBatches(PAPER, (2, 2), 5, tiny.BATCH, share)
    return NumberedStream(images, batches.training)


def batch(batches, step):
    found = next(batches.from_step(step).as_numpy_iterator())
    return keras.tree.flatten(found)


def test_batches_depend_on_the_step_alone():
    through = stream().from_step(0).as_numpy_iterator()
    whole = [keras.tree.flatten(next(through)) for _ in range(7)]
    for one, other in zip(batch(stream(), 6), whole[6], strict=True):
        np.testing.assert_array_equal(one, other)
    sources = [tuple(found[1].ravel()) for found in whole]
    assert len(set(sources)) == len(sources)


def test_shares_of_a_batch_make_up_the_whole():
    whole = batch(stream(), 3)
    halves = [batch(stream(Share(i, 2)), 3) for i in range(2)]
    for one, parts in zip(whole, zip(*halves, strict=True), strict=True):
        np.testing.assert_allclose(one, np.concatenate(parts), 1e-6)
