"""Runs of masked patch prediction, and what starts from them."""

import dataclasses

import keras
import numpy as np
import pytest
import tiny_training as tiny
from tiny_runs import (
    DATASET,
    Interrupt,
    recipe,
    values,
)
from whole_runs import Unlabelled

from keras_vit import data
from keras_vit.training import ModelConfig, build, train
from keras_vit.training.tasks import MASKED_PATCH, MaskedPatchConfig

COLOURS = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), "uint8")
COLOUR_DATASET = dataclasses.replace(
    DATASET,
    train=data.Examples(COLOURS, (np.arange(12) % 3).astype("int32")),
    validation=None,
)


def masked(run_dir, *, target="mean_colour", **options):
    made = recipe(run_dir, **options)
    return Unlabelled(**vars(made), masked_patch=MaskedPatchConfig(target))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked") / "run"
    return train(masked(folder), dataset=DATASET, task=MASKED_PATCH)


def test_the_network_learns_from_what_it_sees(run):
    assert run.history["loss"][-1] < run.history["loss"][0]
    assert 0 <= run.history["val_accuracy"][-1] <= 1
    assert run.model.output_shape == (None, 8)
    assert "predictions" not in {layer.name for layer in run.model.layers}


@pytest.mark.once
def test_an_interrupted_run_ends_with_the_same_weights(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(
            masked(tmp_path / "run"),
            dataset=DATASET,
            task=MASKED_PATCH,
            callbacks=[Interrupt()],
        )
    other = train(masked(tmp_path / "run"), dataset=DATASET, task=MASKED_PATCH)
    for one, two in zip(
        values(run.network), values(other.network), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.once
def test_fine_tuning_starts_from_what_was_learned(run, tmp_path):
    started = masked(tmp_path / "tuned")
    weights = ModelConfig(weights=str(run.folder), image_size=8)
    started = dataclasses.replace(started, model=weights)
    model = build.make_model(started, DATASET.class_names)
    for name in ("patch_embed", "block_0", "encoder_norm"):
        for one, two in zip(
            values(model.get_layer(name)),
            values(run.model.get_layer(name)),
            strict=True,
        ):
            np.testing.assert_array_equal(one, two)
    tuned = train(started, dataset=DATASET)
    assert tuned.model.output_shape == (None, 3)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["downsized", "pixels"])
def test_the_other_targets_train_on_colour_images(tmp_path, target):
    options = {"batch_size": 6, "best_metric": "val_loss"}
    made = masked(tmp_path / "run", target=target, training=options)
    model = dataclasses.replace(made.model, channels=3)
    trained = train(
        dataclasses.replace(made, model=model),
        dataset=COLOUR_DATASET,
        task=MASKED_PATCH,
    )
    size = {"downsized": (16, 512), "pixels": (48,)}[target]
    assert trained.network.output_shape == (None, 4, *size)
    assert np.isfinite(trained.history["loss"]).all()


@pytest.mark.slow
def test_parts_of_a_batch_and_an_average_of_the_weights(tmp_path):
    options = {"accumulation_steps": 2, "ema_decay": 0.9, "keep": "last"}
    trained = train(
        masked(tmp_path / "run", training=options),
        dataset=DATASET,
        task=MASKED_PATCH,
    )
    saved = keras.saving.load_model(trained.folder / "model.keras")
    average = keras.saving.load_model(
        trained.folder / "checkpoints" / "average.keras"
    )
    for one, two in zip(values(saved), values(average), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.once
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": "colour"}, "mean_colour"),
        ({"corruption_rate": 0.0}, "corruption_rate=0.0"),
        ({"mask_rate": 0.8, "random_rate": 0.3}, "random_rate=0.3"),
        ({"random_rate": -0.1}, "random_rate=-0.1"),
    ],
)
def test_wrong_settings_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        MaskedPatchConfig(**fields)


def replaced(made, **groups):
    return dataclasses.replace(
        made,
        **{
            group: dataclasses.replace(getattr(made, group), **fields)
            for group, fields in groups.items()
        },
    )


@pytest.mark.once
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"model": {"patch_size": 8}}, "that are one patch"),
        (
            {
                "model": {"patch_size": 2},
                "masked_patch": {"target": "downsized"},
            },
            "multiple of 4 pixels",
        ),
        (
            {
                "masked_patch": {"target": "pixels"},
                "training": {"best_metric": "val_accuracy"},
            },
            "Set it to val_loss",
        ),
        ({"training": {"class_weight": "balanced"}}, "without classes.*'bal"),
        ({"training": {"trainable": "head"}}, "the whole model.*'head'"),
        ({"training": {"lora_rank": 2}}, "lora_rank=2"),
        ({"training": {"loss": "sigmoid"}}, "without classes.*'sigmoid'"),
        ({"training": {"label_smoothing": 0.2}}, "label_smoothing=0.2. Leave"),
        ({"training": {"head_bias": -1.0}}, "without classes.*head_bias=-1.0"),
    ],
)
def test_what_cannot_be_masked_is_refused(tmp_path, groups, message):
    made = replaced(masked(tmp_path / "run"), **groups)
    with pytest.raises(ValueError, match=message):
        train(made, dataset=DATASET, task=MASKED_PATCH)
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_other_networks_have_no_patches_to_mask(tmp_path):
    made = masked(tmp_path / "run")
    made = dataclasses.replace(
        made, model=ModelConfig(name="Mixer_B16", size="tiny")
    )
    with pytest.raises(ValueError, match="Received: a Mixer"):
        train(made, dataset=DATASET, task=MASKED_PATCH)


def test_batches_without_tf_data_are_refused(tmp_path):
    images = np.zeros((8, 8, 8, 1), "uint8")
    stream = data.FitStream((images, np.eye(3)[np.zeros(8, int)]), batch_size=8)
    foreign = dataclasses.replace(DATASET, train=stream, validation=None)
    with pytest.raises(ValueError, match="FitStream"):
        train(masked(tmp_path / "run"), dataset=foreign, task=MASKED_PATCH)


def once(made, model):
    batches = MASKED_PATCH.make_validation(made, DATASET, model)
    return batches.as_numpy_iterator()


def test_validation_hides_the_same_patches_each_time(tmp_path):
    made = masked(tmp_path / "run")
    model = MASKED_PATCH.make_model(made, ())
    twice = [
        [keras.tree.flatten(found) for found in once(made, model)]
        for _ in range(2)
    ]
    for one, other in zip(*twice, strict=True):
        for first, second in zip(one, other, strict=True):
            np.testing.assert_array_equal(first, second)
    plain = build.make_validation(made, DATASET, tiny.model())
    weights = np.concatenate([found[3].mean(axis=(1, 2)) for found in twice[0]])
    assert plain is not None
    expected = np.concatenate([x for _, _, x in plain.as_numpy_iterator()])
    np.testing.assert_allclose(weights, expected, 1e-6)
