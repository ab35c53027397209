"""Pre-training by DINO: runs, how they go on and end, what starts from them."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from recipe_scripts import script
from tiny_runs import DATASET, Interrupt, recipe, values

from keras_vit import data
from keras_vit.training import ModelConfig, train
from keras_vit.training.tasks import DINO, DINOConfig

PRETRAIN = script("pretrain")
CONFIG = DINOConfig(
    local_crops=1,
    head_dim=16,
    bottleneck_dim=8,
    out_dim=16,
    blur_sigma=0.5,
    collapse_steps=4,
    ibot_weight=0.5,
    ibot_head="own",
    ibot_masks="blocks",
)


def cropped(run_dir, dino=CONFIG, training=None, **options):
    training = {"keep": "last", **(training or {})}
    made = recipe(run_dir, training=training, **options)
    model = dataclasses.replace(made.model, patch_size=2)
    fields = {**vars(made), "model": model}
    fields["optimizer"] = dataclasses.replace(
        made.optimizer, learning_rate=None, weight_decay=None
    )
    return PRETRAIN.PretrainRecipe(**fields, method="dino", dino=dino)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dino") / "run"
    return train(cropped(folder), dataset=DATASET, task=DINO)


def test_the_teachers_encoder_is_kept_alone(run):
    network = run.network
    for new, old in network.pairs.x:
        assert (values_of(new) != values_of(old)).any(), old.path
    saved = keras.saving.load_model(run.folder / "model.keras")
    assert saved.output_shape == (None, 8)
    assert saved.trainable_weights
    for one, (_, old) in zip(saved.weights, network.pairs.x, strict=True):
        np.testing.assert_array_equal(values_of(one), values_of(old))


def values_of(variable):
    return np.array(keras.ops.convert_to_numpy(variable))


@pytest.mark.once
def test_an_interrupted_run_ends_with_the_same_weights(run, tmp_path):
    made = cropped(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(made, dataset=DATASET, task=DINO, callbacks=[Interrupt()])
    other = train(made, dataset=DATASET, task=DINO)
    assert other.history["loss"] == run.history["loss"]
    for one, two in zip(
        values(run.network), values(other.network), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.once
def test_the_result_and_what_starts_from_the_run(run, tmp_path):
    result = PRETRAIN.report(run, cropped(run.folder))
    page = (run.folder / "report.html").read_text("utf-8")
    assert "Spread of features" in page and "of its mean" in page
    assert result["method"] == "dino"
    assert json.loads((run.folder / "result.json").read_text())["val_loss"] > 0
    for name in ("teacher_entropy", "mean_entropy", "val_feature_spread"):
        assert run.history[name][-1] > 0
    made = cropped(tmp_path / "more")
    weights = ModelConfig(weights=str(run.folder), image_size=8)
    # From weights: a 20th of the rate.
    more = PRETRAIN.PretrainRecipe(
        **{**vars(recipe(tmp_path / "more")), "model": weights,
           "optimizer": type(made.optimizer)(warmup_steps=1)},
        method="dino", dino=CONFIG,
    )  # fmt: skip
    rates = made.optimizer.learning_rate, more.optimizer.learning_rate
    np.testing.assert_allclose(rates[0] / rates[1], 20)
    started = DINO.make_model(more, DATASET.class_names)
    for old, new in zip(values(run.model), values(started), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.once
def test_constant_images_end_the_run_with_the_best_model_kept(tmp_path, capsys):
    """And few images in a batch, and a high temperature, are warned of."""
    images = np.full((24, 8, 8, 1), 100, "uint8")
    same = data.Examples(images, np.zeros(24, "int32"))
    dataset = data.Dataset(same, same, same, ("one",))
    dino = dataclasses.replace(
        CONFIG, color_jitter=0, blur_sigma=0, teacher_temperature=0.08
    )
    made = cropped(tmp_path / "run", dino, {"epochs": 4, "keep": "best"})
    with pytest.raises(ValueError, match="features of all images are the same"):
        train(made, dataset=dataset, task=DINO)
    assert (tmp_path / "run" / "model.keras").exists()
    said = capsys.readouterr().out
    assert "a batch of 8 images is small" in said
    assert "teacher_temperature=0.08" in said


@pytest.mark.once
@pytest.mark.parametrize(
    "training",
    [
        {"trainable": "head"},
        {"ema_decay": 0.9},
        {"accumulation_steps": 2},
        {"best_metric": "val_accuracy"},
        {"batch_size": 1},
    ],
)
def test_training_options_without_use_are_refused(training, tmp_path):
    name = next(iter(training))
    with pytest.raises(ValueError, match=f"training.{name}="):
        train(cropped(tmp_path, training=training), dataset=DATASET, task=DINO)


@pytest.mark.once
def test_crops_of_the_pipeline_are_refused(tmp_path):
    made = cropped(tmp_path)
    preprocessing = dataclasses.replace(made.preprocessing, train="squash")
    made = dataclasses.replace(made, preprocessing=preprocessing)
    with pytest.raises(ValueError, match="preprocessing.train="):
        train(made, dataset=DATASET, task=DINO)


@pytest.mark.once
def test_one_image_is_refused(tmp_path):
    one = data.Examples(np.zeros((1, 8, 8, 1), "uint8"), np.zeros(1, "int32"))
    dataset = data.Dataset(one, None, None, ("one",))
    made = cropped(tmp_path, training={"batch_size": 1})
    with pytest.raises(ValueError, match="1 training image "):
        train(made, dataset=dataset, task=DINO)


@pytest.mark.once
def test_options_of_dino_are_refused_elsewhere(tmp_path):
    with pytest.raises(ValueError, match="'supervised' does not read dino"):
        PRETRAIN.PretrainRecipe(run_dir=str(tmp_path), dino=CONFIG)
