"""The network of masked patches and its loss, against NumPy."""

import keras
import numpy as np
import pytest
import tiny_training as tiny
from whole_runs import Unlabelled

from keras_vit.training.tasks.hidden_patches import CorruptPatches
from keras_vit.training.tasks.masked_patch import (
    MASKED_PATCH,
    MaskedBatches,
    MaskedPatchConfig,
    masked_network,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1), "uint8")


def test_embeddings_are_replaced_by_the_mask_or_one_another():
    random = np.random.default_rng(2)
    embeddings = random.normal(size=(2, 4, 8)).astype("float32")
    source = np.array([[0, -1, 3, 3], [-1, -1, 0, 1]])
    layer = CorruptPatches()
    found = keras.ops.convert_to_numpy(layer(embeddings, source))
    mask = keras.ops.convert_to_numpy(layer.mask)[0, 0]
    assert mask.std() > 0
    for image, row in enumerate(source):
        for patch, number in enumerate(row):
            expected = mask if number < 0 else embeddings[image, number]
            np.testing.assert_allclose(found[image, patch], expected, 1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "mean", "class_token": False, "norm_after_pooling": True},
    ],
    ids=["token", "mean"],
)
def test_answers_are_of_the_tokens_of_the_patches(options):
    """What is not hidden is seen as the model itself sees it."""
    model = tiny.model(dropout_rate=0.0, **options)
    network = masked_network(model, "downsized")
    random = np.random.default_rng(3)
    dense = network.get_layer("answers")
    kernel = random.normal(size=dense.kernel.shape).astype("float32")
    dense.kernel.assign(kernel)
    images = random.uniform(0, 255, (2, 8, 8, 1)).astype("float32")
    found = network({"image": images, "source": np.tile(np.arange(4), (2, 1))})
    assert tuple(found.shape) == (2, 4, 16, 8)
    block = keras.Model(model.input, model.get_layer("block_0").output)
    tokens = model.get_layer("encoder_norm")(block(images))[:, -4:]
    expected = keras.ops.convert_to_numpy(tokens) @ kernel
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(found).reshape(expected.shape),
        expected,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("target", ["mean_colour", "pixels"])
def test_the_loss_is_the_mean_over_hidden_patches(target):
    batches = MaskedBatches(MaskedPatchConfig(target), (2, 2), 5, len(IMAGES))
    _, answers, weights = (
        keras.tree.map_structure(np.asarray, part)
        for part in batches.training(0, (IMAGES, None))
    )
    hidden = weights[..., 0] > 0
    assert (hidden.sum(axis=1) == 2).all()
    random = np.random.default_rng(4)
    shape = (*answers.shape, 8) if target == "mean_colour" else answers.shape
    said = random.normal(size=shape).astype("float32")
    loss = MASKED_PATCH.make_loss(
        Unlabelled(masked_patch=MaskedPatchConfig(target))
    )
    if target == "pixels":
        expected = np.square(said - answers)[hidden].mean()
    else:
        odds = np.exp(said.astype("float64"))
        shares = odds / odds.sum(axis=-1, keepdims=True)
        picked = np.take_along_axis(shares, answers[..., None], -1)[..., 0]
        expected = -np.log(picked)[hidden].mean()
    assert float(loss(answers, said, weights)) == pytest.approx(
        expected, rel=1e-5
    )
    other = said.copy()
    other[~hidden] += random.normal(size=other[~hidden].shape)
    assert float(loss(answers, other, weights)) == pytest.approx(
        expected, rel=1e-5
    )


def test_accuracy_is_of_the_colours_of_hidden_patches():
    config = MaskedPatchConfig("downsized")
    batches = MaskedBatches(config, (2, 2), 5, len(IMAGES))
    _, answers, weights = (
        keras.tree.map_structure(np.asarray, part)
        for part in batches.training(0, (IMAGES, None))
    )
    said = np.random.default_rng(5).normal(size=(*answers.shape, 8))
    recipe = Unlabelled(masked_patch=config)
    (metric,) = MASKED_PATCH.make_metrics(recipe)
    metric.update_state(answers, said.astype("float32"), weights)
    right = (said.argmax(axis=-1) == answers)[weights[..., 0] > 0]
    assert 0 < right.mean() < 1
    assert float(metric.result()) == pytest.approx(right.mean(), abs=1e-6)
