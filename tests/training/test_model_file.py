import zipfile

import keras
import numpy as np
import pytest

from keras_vit import checkpoints
from keras_vit.checkpoints.engine.keras_files import load_model
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training.run import files as run_folder

NAMES = ("cat", "dog", "cow")


@pytest.fixture
def model():
    return VisionTransformer(
        ViTConfig(
            image_size=(8, 8),
            channels=1,
            patch_size=(4, 4),
            hidden_dim=8,
            num_layers=1,
            mlp_dim=8,
            num_heads=2,
            num_classes=3,
            head_bias=0.5,
        )
    )


@pytest.fixture
def path(model, tmp_path):
    run_folder.save_model(model, NAMES, tmp_path / "model.keras")
    return tmp_path / "model.keras"


def test_class_names_come_back_in_their_order(path):
    assert load_model(path)[1] == NAMES


def test_weights_come_back(model, path):
    loaded, _ = load_model(path)
    for old, new in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(old), keras.ops.convert_to_numpy(new)
        )


def test_keras_loads_the_file_by_itself(model, path):
    loaded = keras.saving.load_model(path, safe_mode=True)
    assert loaded.config == model.config


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_a_model_of_mixed_precision_is_read(model, tmp_path, precision):
    mixed = VisionTransformer(model.config, dtype=precision)
    mixed.set_weights(model.get_weights())
    mixed.save(tmp_path / "mixed.keras")
    with pytest.warns(UserWarning, match="all zeros"):
        loaded = checkpoints.load_checkpoint(tmp_path / "mixed.keras")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 1))
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(loaded(images)),
        keras.ops.convert_to_numpy(model(images)),
        rtol=1e-5,
    )


def test_a_name_too_few_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="3 classes. Received: 2"):
        run_folder.save_model(model, NAMES[:2], tmp_path / "model.keras")
    assert not list(tmp_path.iterdir())


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="There is no file .*nowhere.keras"):
        load_model(tmp_path / "nowhere.keras")


def test_text_is_no_model(tmp_path):
    path = tmp_path / "model.keras"
    path.write_text("no model")
    with pytest.raises(ValueError, match="not a .keras file"):
        load_model(path)


def test_model_without_names_is_refused(model, tmp_path):
    path = tmp_path / "model.keras"
    model.save(path)
    with pytest.raises(ValueError, match="no class names"):
        load_model(path)


def test_names_lie_beside_the_members_of_keras(path):
    with zipfile.ZipFile(path) as archive:
        assert "config.json" in archive.namelist()
        assert archive.testzip() is None
