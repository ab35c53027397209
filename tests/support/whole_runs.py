"""Whole runs on several virtual devices of this process, told as JSON.

`main(folder, options, choice, ...)` trains 30 steps of SGD in float32 for each
choice of devices, with clipping, a moving average, Mixup and an evaluation
whose last batch is filled up. The options are fields of the configs as JSON.
"""

import json
import pathlib

import keras
import numpy as np
import tiny_training as tiny

from keras_vit import data
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
    train,
)

DATASET = data.Dataset(
    tiny.examples(tiny.IMAGES, seed=0),
    tiny.examples(10, seed=1),
    None,
    tiny.CLASS_NAMES,
)
OF_THE_MACHINE = ("images_per_second", "peak_memory")


def _shards(folder, shards):
    # Several processes of TensorFlow read with no other.
    with_tensorflow = keras.backend.backend() == "tensorflow"
    return data.DataConfig(
        shards=shards,
        index_dir=str(folder.parent / "indexes"),
        reader="tensorflow" if with_tensorflow else "pillow",
    )


def recipe(folder, choice, *, model=None, training=None, shards=None):
    return Recipe(
        data=_shards(folder, shards) if shards else data.DataConfig(),
        model=ModelConfig(
            image_size=8,
            patch_size=4,
            channels=1,
            hidden_dim=16,
            num_layers=1,
            mlp_dim=32,
            num_heads=2,
            **(model or {}),
        ),
        optimizer=OptimizerConfig(
            name="sgd",
            learning_rate=0.1,
            schedule="linear",
            end_learning_rate=0.05,
            warmup_steps=2,
            clip_norm=0.3,
        ),
        training=TrainingConfig(
            **{
                "steps": 30,
                "batch_size": 16,
                "ema_decay": 0.9,
                "log_every_steps": 1,
                "checkpoint_every_steps": 10,
                **(training or {}),
            }
        ),
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
        augmentation=data.AugmentationConfig(shift=0.2, mixup_alpha=0.2),
        distribution=choice,
        run_dir=str(folder),
    )


def lines(folder):
    """The lines of metrics.jsonl, without what the machine decides."""
    text = (pathlib.Path(folder) / "metrics.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    return [
        {name: row[name] for name in row if name not in OF_THE_MACHINE}
        for row in rows
    ]


def dataset_of(recipe):
    """The images in memory, unless the recipe names shards."""
    return None if recipe.data.shards else DATASET


def told(folder, choice, **options):
    """The lines of metrics.jsonl, and a number of each weight at the end."""
    asked = recipe(folder / choice, choice, **options)
    run = train(asked, dataset=dataset_of(asked))
    return {
        "lines": lines(run.folder),
        "weights": [float(np.abs(x).sum()) for x in run.model.get_weights()],
    }


def main(folder, options, *choices):
    folder, options = pathlib.Path(folder), json.loads(options)
    found = {choice: told(folder, choice, **options) for choice in choices}
    print(json.dumps(found))


def check_same(one, other):
    """Raises where a run was not as the one on one device is."""
    assert [line["step"] for line in one["lines"]][-1] == 30
    losses = [line["loss"] for line in one["lines"]]
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    assert max(line["gradient_norm"] for line in one["lines"]) > 0.3
    assert sum("val_accuracy" in line for line in one["lines"]) == 3
    for line, expected in zip(other["lines"], one["lines"], strict=True):
        assert line.keys() == expected.keys()
        np.testing.assert_allclose(
            list(line.values()), list(expected.values()), 1e-5, err_msg=line
        )
    np.testing.assert_allclose(other["weights"], one["weights"], 1e-5)
