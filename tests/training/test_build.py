import json
import pathlib
import shutil

import golden
import keras
import numpy as np
import pytest

from keras_vit.prediction import load_classifier
from keras_vit.training import ModelConfig, Recipe, TrainingConfig
from keras_vit.training.build import freeze, make_model
from keras_vit.training.run.files import save_model
from keras_vit.training.stages import make_plan

NAMES = ("cat", "dog", "owl")


def built(names=NAMES, training=None, **model):
    return make_model(
        Recipe(
            model=ModelConfig(**model), training=training or TrainingConfig()
        ),
        names,
    )


def tiny(**fields):
    sizes = {"hidden_dim": 8, "num_layers": 2, "mlp_dim": 8, "num_heads": 2}
    return built(image_size=8, **sizes, **fields)


def weights(model):
    return {x.path: keras.ops.convert_to_numpy(x).copy() for x in model.weights}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A model whose weights are all different, in a run folder."""
    folder = tmp_path_factory.mktemp("run")
    model = tiny(representation_dim=6)
    generator = np.random.default_rng(0)
    for x in model.weights:
        if not x.path.startswith("dropout"):
            x.assign(generator.normal(size=x.shape))
    save_model(model, NAMES, folder / "model.keras")
    return folder, model


@pytest.mark.parametrize(
    "name", ["ViT_L16", "ViT_R50_B16", "ViT_R_Ti16", "Mixer_B16", "BiT_R50x1"]
)
def test_tiny_models_are_of_the_named_kind(name):
    model = built(name=name, size="tiny", image_size=32)
    assert model.input_shape == (None, 32, 32, 3)
    assert model.output_shape == (None, 3)
    assert model.count_params() < 3e6
    assert (
        type(model).__name__
        in {
            "V": "VisionTransformer",
            "M": "Mixer",
            "B": "BiT",
        }[name[0]]
    )


def test_named_models_have_the_sizes_of_their_name():
    config = ModelConfig(name="ViT_B32").vit(10)
    assert (config.hidden_dim, config.patch_size) == (768, (32, 32))
    assert config.image_size == (224, 224)
    assert config.pooling == "token"
    assert config.include_preprocessing
    changed = ModelConfig(
        name="ViT_R50_B16", hidden_dim=1024, num_layers=24, num_heads=16
    )
    assert changed.vit(10).hidden_dim == 1024
    assert changed.vit(10).resnet_units == (3, 4, 9)


def test_a_new_head_is_zero_with_the_bias_of_the_recipe():
    model = tiny()
    assert not weights(model)["predictions/kernel"].any()
    model = built(training=TrainingConfig(head_bias=-10.0), image_size=16)
    assert (weights(model)["predictions/bias"] == -10).all()


def test_weights_of_a_run_folder_but_the_head(run_folder):
    folder, old = run_folder
    model = built(weights=str(folder), training=TrainingConfig(head_bias=-2.0))
    old, new = weights(old), weights(model)
    # The head of the paper's fine-tuning: one layer, zero.
    assert not [path for path in new if path.startswith("pre_logits")]
    for path in new:
        if not path.startswith("predictions"):
            np.testing.assert_array_equal(new[path], old[path])
    assert not new["predictions/kernel"].any()
    assert (new["predictions/bias"] == -2).all()


def test_a_new_head_of_the_same_shape_is_zero(run_folder):
    model = built(weights=str(run_folder[0]), representation_dim=6)
    assert weights(model)["pre_logits/kernel"].any()
    assert not weights(model)["predictions/kernel"].any()


def test_a_kept_head_answers_as_before(run_folder):
    folder, old = run_folder
    model = built(weights=str(folder / "model.keras"), head="keep")
    images = np.random.default_rng(1).integers(0, 256, (2, 8, 8, 1), "uint8")
    np.testing.assert_allclose(
        *(x.predict(images, verbose=0) for x in (model, old)), atol=1e-5
    )


@pytest.mark.parametrize(
    "names", [("dog", "cat", "owl"), ("cat", "dog"), ("cat", "dog", "elk")]
)
def test_a_head_of_other_classes_is_not_kept(run_folder, names):
    with pytest.raises(ValueError, match="classes"):
        built(names, weights=str(run_folder[0]), head="keep")


def test_one_argument_changes_the_resolution(run_folder):
    folder, old = run_folder
    model = built(weights=str(folder), image_size=(16, 8))
    assert model.input_shape == (None, 16, 8, 1)
    assert "position_embedding/embedding" in model.load_report.resampled
    old = weights(old)["position_embedding/embedding"]
    new = weights(model)["position_embedding/embedding"]
    # Aligned corners: two rows become four, the outer ones stay.
    dim = old.shape[-1]
    old, new = old.reshape(2, 2, dim), new.reshape(4, 2, dim)
    thirds = np.arange(4).reshape(4, 1, 1) / 3
    expected = old[:1] * (1 - thirds) + old[1:] * thirds
    np.testing.assert_allclose(new, expected, atol=1e-5)


def test_weights_of_a_checkpoint_at_a_higher_resolution():
    path = golden.FOLDER / "vit_tiny_google.npz"
    model = built(weights=str(path), image_size=48)
    assert model.input_shape == (None, 48, 48, 3)
    with np.load(path) as file:
        kernel = file["embedding/kernel"]
    path = "patch_embed/projection/kernel"
    np.testing.assert_array_equal(weights(model)[path].ravel(), kernel.ravel())


def test_rates_of_the_recipe_reach_loaded_models(run_folder):
    model = built(weights=str(run_folder[0]), dropout_rate=0.25)
    assert model.config.dropout_rate == 0.25


def test_only_the_head_is_trained():
    model = tiny()
    freeze(model, "head")
    paths = [x.path for x in model.trainable_variables]
    assert paths == ["predictions/kernel", "predictions/bias"]
    freeze(model, "all")
    assert len(model.trainable_variables) == len(model.weights) - sum(
        "seed" in x.path for x in model.weights
    )


def test_mixed_precision_keeps_the_logits_in_float32():
    model = tiny(training=TrainingConfig(precision="mixed_bfloat16"))
    assert model.get_layer("block_0").compute_dtype == "bfloat16"
    assert model.get_layer("predictions").compute_dtype == "float32"
    assert {x.dtype for x in model.trainable_variables} == {"float32"}


def test_length_in_steps_or_in_epochs():
    assert make_plan(Recipe(training=TrainingConfig(epochs=7)), 11).total == 77
    training = TrainingConfig(epochs=7, steps=20)
    assert make_plan(Recipe(training=training), 11).total == 20


@pytest.mark.parametrize(
    ("model", "training", "message"),
    [
        ({"name": "Mixer_B16"}, {"rematerialize": True}, "rematerialize"),
        ({"name": "BiT_R50x1"}, {"rematerialize": True}, "rematerialize"),
    ],
)
def test_what_a_model_cannot_do_is_refused(model, training, message):
    with pytest.raises(ValueError, match=message):
        built(training=TrainingConfig(**training), size="tiny", **model)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "ViT_B17"}, "ViT_B16"),
        ({"name": "Mixer_B16", "dropout_rate": 0.1}, "no dropout_rate"),
        ({"name": "BiT_R50x1", "patch_size": 4}, "no patch_size"),
        ({"weights": "a.npz", "hidden_dim": 8}, "hidden_dim"),
        ({"head": "keep"}, "without weights"),
        ({"head": "old"}, "'new', 'probe', 'keep'"),
    ],
)
def test_models_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**fields)


def test_missing_weights_are_named():
    with pytest.raises(ValueError, match="nowhere.npz"):
        built(weights="nowhere.npz")


@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="other backends have it"
)
def test_several_steps_an_execution_are_refused_on_torch():
    with pytest.raises(ValueError, match="steps_per_execution=2"):
        tiny(training=TrainingConfig(steps_per_execution=2))


def test_weights_are_trained_at_the_size_that_their_images_are_prepared_in(
    tmp_path,
):
    """As they are predicted with, where no size is given."""
    source = pathlib.Path(__file__).parents[1] / "reference" / "hf_vit_tiny"
    folder = tmp_path / "vit"
    shutil.copytree(source, folder)
    assert built(weights=str(folder)).input_shape == (None, 32, 32, 3)
    processor = {
        **{"do_resize": True, "do_center_crop": True, "resample": 2},
        **{"size": {"shortest_edge": 20}, "do_rescale": True},
        **{"crop_size": {"height": 16, "width": 16}, "do_normalize": True},
        **{"image_mean": [0.5] * 3, "image_std": [0.5] * 3},
        "image_processor_type": "ViTImageProcessor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    assert load_classifier(folder).geometry.image_size == (16, 16)
    assert built(weights=str(folder)).input_shape == (None, 16, 16, 3)
    larger = built(weights=str(folder), image_size=24)
    assert larger.input_shape == (None, 24, 24, 3)
