"""SimMIM, against ViTForMaskedImageModeling of transformers in float64."""

import math

import keras
import numpy as np
import pytest

from keras_vit import load_checkpoint
from keras_vit.training.tasks.hidden_patches import patch_pixels
from keras_vit.training.tasks.mae import (
    LOSSES,
    MAEBatches,
    MAEConfig,
    autoencoder,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONFIG = MAEConfig(kind="simmim")
PATCH, GRID = 4, (3, 3)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The model with random weights, its folder, loss and gradients."""
    folder = tmp_path_factory.mktemp("simmim")
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=48, image_size=12, patch_size=PATCH,
        encoder_stride=PATCH, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = transformers.ViTForMaskedImageModeling(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for x in model.parameters():
            x.add_(0.2 * torch.randn(x.shape, generator=generator))
    model.save_pretrained(folder)
    return folder, model.double()


def test_loss_and_gradients_are_those_of_the_original(original):
    folder, theirs = original
    random = np.random.default_rng(0)
    images = random.uniform(-1, 1, (4, 12, 12, 3)).astype("float32")
    order = random.random((4, 9)).argsort(1).astype("int32")
    count = CONFIG.num_visible((12, 12), GRID)
    hidden = order.argsort(1) >= count
    result = theirs(
        torch.tensor(images, dtype=torch.float64).permute(0, 3, 1, 2),
        bool_masked_pos=torch.tensor(hidden),
    )
    result.loss.backward()
    network = autoencoder(load_checkpoint(folder, include_top=False), CONFIG)
    conv = theirs.decoder[0]
    # Its channels are by colour, row and column; ours by row, column, colour.
    places = np.arange(48).reshape(3, PATCH, PATCH).transpose(1, 2, 0).ravel()
    layer = network.get_layer("pixels")
    layer.kernel.assign(conv.weight.detach().numpy()[places, :, 0, 0].T)
    layer.bias.assign(conv.bias.detach().numpy()[places])
    mask = network.get_layer("corrupt_patches").mask
    mask.assign(theirs.vit.embeddings.mask_token.detach().numpy())
    inputs = {"image": images, "order": order}
    target = patch_pixels((images + 1) * 127.5, GRID)
    found = network.predict(inputs, verbose=0)
    wanted = result.reconstruction.detach().permute(0, 2, 3, 1).numpy()
    wanted = np.asarray(patch_pixels((wanted + 1) * 127.5, GRID))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    network.compile(keras.optimizers.SGD(1.0), LOSSES["simmim"]())
    before = {
        x.path: keras.ops.convert_to_numpy(x) + 0 for x in network.weights
    }
    weights = hidden[..., None] * np.float32(9 / (9 - count))
    loss = network.train_on_batch(inputs, target, sample_weight=weights)
    np.testing.assert_allclose(loss, result.loss.item(), rtol=1e-5)
    steps = {
        x.path: before[x.path] - keras.ops.convert_to_numpy(x)
        for x in network.weights
    }
    embeddings = theirs.vit.embeddings
    kernel = embeddings.patch_embeddings.projection.weight.grad
    for path, gradient in {
        "pixels/kernel": conv.weight.grad[places, :, 0, 0].T,
        "corrupt_patches/mask": embeddings.mask_token.grad,
        "patch_embed/projection/kernel": kernel.permute(2, 3, 1, 0),
        "class_token/token": embeddings.cls_token.grad,
    }.items():
        np.testing.assert_allclose(
            steps[path], gradient.numpy(), rtol=0, atol=1e-5, err_msg=path
        )


def test_batches_hide_six_tenths_and_predict_plain_pixels():
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3))
    images = images.astype("float32")
    batches = MAEBatches(CONFIG.filled(), (4, 4), 0, 2)
    inputs, target, weights = batches.training(0, (images, None))
    assert (weights[..., 0] > 0).sum(1).tolist() == [10, 10]
    patch = images[1, 2:4, 4:6].reshape(-1) / 127.5 - 1
    np.testing.assert_allclose(target[1, 6], patch, atol=1e-5)


def mask_generator(random, size, square, patch, ratio):
    """Section 4.1 of arXiv:2111.09886: squares are chosen, then enlarged."""
    side = size // square
    chosen = random.permutation(side**2)[: math.ceil(side**2 * ratio)]
    mask = np.zeros(side**2, bool)
    mask[chosen] = True
    each = np.ones((square // patch, square // patch), bool)
    return np.kron(mask.reshape(side, side), each)


@pytest.mark.parametrize(("kind", "ratio"), [("simmim", 0.6), ("mae", 0.75)])
def test_squares_are_hidden_as_a_whole(kind, ratio):
    """As many as the original hides, each as often as the others."""
    size, square, patch = 24, 8, 4
    side = size // patch
    config = MAEConfig(kind=kind, mask_patch_size=square).filled()
    batches = MAEBatches(config, (side, side), 0, 300)
    images = np.zeros((300, size, size, 3), "float32")
    _, _, weights = batches.training(0, (images, None))
    hidden = (np.asarray(weights)[..., 0] > 0).reshape(-1, side, side)
    original = mask_generator(
        np.random.default_rng(0), size, square, patch, ratio
    )
    assert set(hidden.sum((1, 2))) == {original.sum()}
    each = np.ones((2, 2), bool)
    for mask in hidden:
        assert (mask == np.kron(mask[::2, ::2], each)).all()
    share = math.ceil(9 * ratio) / 9
    # Four standard errors of 300 images.
    bound = 4 * (share * (1 - share) / 300) ** 0.5
    assert np.abs(hidden.mean(0) - share).max() < bound


@pytest.mark.parametrize("side", [6, 16, 32])
def test_squares_that_do_not_fit_are_refused(side):
    with pytest.raises(ValueError, match=f"mask_patch_size={side}"):
        MAEConfig(mask_patch_size=side).squares((24, 24), (6, 6))


def test_a_decoder_is_refused():
    with pytest.raises(ValueError, match="decoder_layers=2"):
        MAEConfig(kind="simmim", decoder_layers=2)
