"""`weights=` of the applications: files of several formats, one door."""

import golden
import keras
import numpy as np
import pytest
import shrunken
from arrays import read_arrays
from shrunken import images, shake

import keras_vit
from keras_vit import sizes
from keras_vit.checkpoints import save_checkpoint
from keras_vit.models import VisionTransformer, ViTConfig

# The golden ViT as an application: its sizes stand in for those of B/16.
TINY = {
    "hidden_dim": 32,
    "num_layers": 2,
    "mlp_dim": 64,
    "num_heads": 4,
    "patch_size": (8, 8),
}
FILES = {
    "google": "vit_tiny_google.npz",
    "hugging_face": "hf_vit_tiny",
    "timm": "timm_vit_tiny.safetensors",
}


@pytest.fixture
def golden_sizes(monkeypatch):
    monkeypatch.setitem(sizes.VIT, "ViT_B16", TINY)


@pytest.mark.parametrize("family", FILES)
def test_file_gives_its_own_numbers(family, golden_sizes):
    """GELU, epsilon, size, classes and hidden layer are those of the file."""
    name = FILES[family]
    case = name.split(".")[0]
    expected = read_arrays(golden.FOLDER / f"{case}.expected.npz")
    model = keras_vit.ViT_B16(
        weights=golden.FOLDER / name, classifier_activation=None
    )
    np.testing.assert_allclose(
        model.predict(expected["image"], verbose=0),
        expected["logits"],
        rtol=0,
        atol=5e-5,
    )


def test_other_classes_size_and_input_tensor(golden_sizes):
    inputs = keras.Input((48, 24, 3))
    model = keras_vit.ViT_B16(
        weights=golden.FOLDER / "vit_tiny_google.npz",
        input_tensor=inputs,
        classes=7,
        classifier_activation=None,
    )
    assert model.output_shape == (None, 7)
    logits = model.predict(np.zeros((1, 48, 24, 3)), verbose=0)
    np.testing.assert_array_equal(logits, 0)  # a new head starts at zero


def test_a_file_of_images_that_are_no_squares(golden_sizes, tmp_path):
    config = ViTConfig(**TINY, image_size=(16, 40), num_classes=3)
    model = shake(VisionTransformer(config))
    save_checkpoint(model, tmp_path / "saved.npz", format="google")
    # As the original writes it: without the record of the model.
    np.savez(tmp_path / "wide.npz", **read_arrays(tmp_path / "saved.npz"))
    loaded = keras_vit.ViT_B16(
        weights=tmp_path / "wide.npz",
        input_shape=(16, 40, 3),
        classifier_activation=None,
    )
    image = np.random.default_rng(0).uniform(-1, 1, (1, 16, 40, 3))
    np.testing.assert_array_equal(
        loaded.predict(image, verbose=0), model.predict(image, verbose=0)
    )


def test_weights_of_another_architecture_are_refused():
    with pytest.raises(
        ValueError, match="not those of ViT_S16.*hidden_dim=32 instead of 384"
    ):
        keras_vit.ViT_S16(weights=golden.FOLDER / "vit_tiny_google.npz")


def test_head_of_zeros_is_pointed_out(golden_sizes, tmp_path):
    file = read_arrays(golden.FOLDER / "vit_tiny_google.npz")
    file["head/kernel"] *= 0
    np.savez(tmp_path / "zeros.npz", **file)
    with pytest.warns(UserWarning, match="all zeros.*include_top=False"):
        keras_vit.ViT_B16(weights=tmp_path / "zeros.npz")
    keras_vit.ViT_B16(weights=tmp_path / "zeros.npz", include_top=False)
    keras_vit.ViT_B16(weights=tmp_path / "zeros.npz", classes=3)


def test_default_weights_are_imagenet_and_need_a_network(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError, match="(?s)https://storage.googleapis.com"):
        keras_vit.ViT_B16()


def test_model_without_public_weights_says_so():
    with pytest.raises(ValueError, match="ViT_g14"):
        keras_vit.ViT_g14()


def test_misspelt_name_gets_the_nearest():
    with pytest.raises(ValueError, match="imagenet21k"):
        keras_vit.ViT_B16(weights="imagenet21kk")


@pytest.mark.parametrize("file", ["model.weights.h5", "model.keras"])
def test_keras_files_fill_the_same_architecture(file, monkeypatch, tmp_path):
    shrunken.shrink(monkeypatch)
    model = shake(shrunken.build("ViT_B16"))
    expected = model.predict(images("ViT_B16"), verbose=0)
    saver = model.save if file.endswith(".keras") else model.save_weights
    saver(tmp_path / file)
    loaded = shrunken.build("ViT_B16", weights=tmp_path / file)
    np.testing.assert_array_equal(
        loaded.predict(images("ViT_B16"), verbose=0), expected
    )


@pytest.mark.parametrize(
    "changes", [{"classes": 7}, {"input_shape": (32, 16, 4)}]
)
def test_keras_weights_of_other_classes_or_channels_are_refused(
    changes, monkeypatch, tmp_path
):
    shrunken.shrink(monkeypatch)
    path = tmp_path / "five_classes.weights.h5"
    shrunken.build("ViT_B16").save_weights(path)
    with pytest.raises(ValueError, match="five_classes.weights.h5"):
        shrunken.build("ViT_B16", weights=path, **changes)
