"""The masked autoencoder, against ViTMAE of transformers in float64."""

import json
import pathlib
import shutil
import types

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_vit import load_checkpoint
from keras_vit.checkpoints.dialects.hugging_face import read_decoder
from keras_vit.models import VisionTransformer, ViTConfig
from keras_vit.training import ModelConfig
from keras_vit.training.tasks.hidden_patches import patch_pixels
from keras_vit.training.tasks.mae import (
    MAE,
    MAEBatches,
    MAEConfig,
    autoencoder,
    decoder_positions,
    fix_positions,
    normalized_patches,
    options_of,
)

REFERENCE = pathlib.Path(__file__).parents[1] / "reference"
FOLDER = REFERENCE / "hf_mae_tiny"
GOLDEN = MAEConfig(0.75, True, 16, 2, 2, 32)
TINY = MAEConfig(0.5, True, 8, 1, 2, 8)
TOLERANCE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def expected():
    with np.load(f"{FOLDER}.expected.npz") as arrays:
        return dict(arrays)


def recipe_of(folder, **mae):
    """What of a recipe `MAE` reads."""
    return types.SimpleNamespace(
        mae=MAEConfig(**mae),
        model=ModelConfig(weights=str(folder)),
        smoke=False,
    )


@pytest.fixture(scope="module")
def network():
    model = load_checkpoint(FOLDER, include_top=False)
    return MAE.make_network(recipe_of(FOLDER), model)


def inputs_of(expected):
    images = np.moveaxis(expected["pixel_values"], 1, -1)
    order = np.argsort(expected["noise"], axis=1).astype("int32")
    return {"image": images, "order": order}


def test_patches_are_reconstructed_as_in_the_original(network, expected):
    found = network.predict(inputs_of(expected), verbose=0)
    np.testing.assert_allclose(found, expected["reconstruction"], **TOLERANCE)
    positions = decoder_positions((6, 6), 16, 1)
    np.testing.assert_allclose(
        positions, expected["decoder_pos_embed"], **TOLERANCE
    )


def test_the_decoder_of_a_folder_is_read(tmp_path):
    """Its options, too, and by the names of older files."""
    config, decoder = options_of(recipe_of(FOLDER))
    assert config == GOLDEN
    assert options_of(recipe_of(FOLDER, mask_ratio=0.5))[0].mask_ratio == 0.5
    config, other = options_of(recipe_of(FOLDER, decoder_layers=1))
    assert config.decoder_dim == 16 and other is None
    assert options_of(recipe_of(FOLDER, kind="simmim"))[1] is None
    tensors = load_file(FOLDER / "model.safetensors")
    old = {
        name.replace("decoder_encoder.layer.", "decoder_layers."): x
        for name, x in tensors.items()
    }
    assert old.keys() != tensors.keys()
    save_file(old, tmp_path / "model.safetensors")
    shutil.copy(FOLDER / "config.json", tmp_path)
    content = json.loads((FOLDER / "config.json").read_text())
    for name, value in (
        ("decoder_hidden_size", "8"),
        ("decoder_num_hidden_layers", 10**9),
        ("norm_pix_loss", 1),
        ("mask_ratio", 2.0),
    ):
        wrong = json.dumps({**content, name: value})
        (tmp_path / "config.json").write_text(wrong)
        with pytest.raises(ValueError, match=f"config.json.*{value}"):
            read_decoder(tmp_path)
    shutil.copy(FOLDER / "config.json", tmp_path)
    renamed = read_decoder(tmp_path)
    assert renamed and decoder
    found, wanted = renamed.arrays(), decoder.arrays()
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array)


def test_positions_of_sines_stay(tmp_path):
    model = load_checkpoint(FOLDER, include_top=False)
    embedding = model.get_layer("position_embedding").embedding
    fix_positions(model, fresh=False)
    assert not embedding.trainable
    embedding.trainable = True
    before = keras.ops.convert_to_numpy(embedding).copy()
    embedding.assign(embedding + 0.01)
    fix_positions(model, fresh=False)
    assert embedding.trainable
    fix_positions(model, fresh=True)
    assert not embedding.trainable
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(embedding), before, **TOLERANCE
    )


@pytest.mark.parametrize("normalized", [True, False])
def test_loss_and_gradients_are_those_of_the_original(
    network, expected, normalized
):
    images = inputs_of(expected)["image"]
    target = patch_pixels((images + 1) * 127.5, (6, 6))
    if normalized:
        target = normalized_patches(target)
        np.testing.assert_allclose(
            target, expected["target"], rtol=0, atol=1e-4
        )
    weights = expected["mask"][..., None] * (36 / 27)
    before = network.get_weights()
    network.compile(keras.optimizers.SGD(1.0), keras.losses.MeanSquaredError())
    loss = network.train_on_batch(
        inputs_of(expected), target, sample_weight=weights
    )
    steps = {
        variable.path: old - np.array(keras.ops.convert_to_numpy(variable))
        for variable, old in zip(network.weights, before, strict=True)
    }
    network.set_weights(before)
    name = "loss" if normalized else "loss_raw_pixels"
    np.testing.assert_allclose(loss, expected[name], rtol=1e-5)
    if not normalized:
        return
    kernel = expected["grad/vit.embeddings.patch_embeddings.projection.weight"]
    for path, wanted in {
        "patch_embed/projection/kernel": np.transpose(kernel, (2, 3, 1, 0)),
        "class_token/token": expected["grad/vit.embeddings.cls_token"],
        "from_visible/mask": expected["grad/decoder.mask_token"],
        "pixels/kernel": expected["grad/decoder.decoder_pred.weight"].T,
        "decoder_embed/kernel": expected["grad/decoder.decoder_embed.weight"].T,
    }.items():
        np.testing.assert_allclose(
            steps[path], wanted, rtol=0, atol=2e-5, err_msg=path
        )


def test_batches_hide_the_share_and_depend_on_the_number():
    images = np.random.default_rng(0).uniform(0, 255, (4, 8, 8, 3))
    images = images.astype("float32")
    batches = MAEBatches(TINY, (4, 4), 0, 4)
    found = [batches.training(step, (images, None)) for step in (0, 0, 1)]
    (inputs, target, weights), (again, _, _), (other, _, _) = found
    np.testing.assert_array_equal(inputs["order"], again["order"])
    assert (inputs["order"] != other["order"]).any()
    assert sorted(inputs["order"][0]) == [*range(16)]
    hidden = weights[..., 0] > 0
    assert (hidden.sum(1) == 8).all()
    assert weights.mean() == 1
    for image in range(4):
        assert not hidden[image, inputs["order"][image, :8]].any()
    patch = images[1, 2:4, 4:6].reshape(-1) / 127.5 - 1  # Of row 1, column 2.
    wanted = (patch - patch.mean()) / patch.std(ddof=1)
    np.testing.assert_allclose(target[1, 6], wanted, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"mask_ratio": 1.0},
        {"mask_ratio": float("nan")},
        {"decoder_dim": 6, "decoder_heads": 2},
        {"decoder_dim": 12, "decoder_heads": 8},
        {"decoder_layers": 0},
    ],
)
def test_wrong_options_are_named(options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"Received: .*{name}="):
        MAEConfig(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope": "axial", "rope_temperature": 100.0}, "a model with rope"),
        (
            {"window_size": 2, "class_token": False, "pooling": "mean"},
            "a model with window_size",
        ),
        ({"norm_after_pooling": True, "pooling": "mean"}, "norm_after_pooling"),
        ({"final_norm": False}, "final_norm=False"),
        ({"patch_size": 8}, "Of 1 patches mae.mask_ratio=0.75 leaves 0"),
    ],
)
def test_models_that_read_all_patches_are_refused(options, message):
    config = ViTConfig(
        **{"image_size": (8, 8), "patch_size": (4, 4), "hidden_dim": 8}
        | {"num_layers": 1, "num_heads": 2, "mlp_dim": 8, "num_classes": 0}
        | options
    )
    with pytest.raises(ValueError, match=message):
        autoencoder(VisionTransformer(config), GOLDEN)
