"""Tiny runs of `train` in a folder: their recipe, their data, their files."""

import keras
import numpy as np
import tiny_training as tiny

from keras_vit import data
from keras_vit.training import (
    ModelConfig,
    OptimizerConfig,
    Recipe,
    TrainingConfig,
)

DATASET = data.Dataset(
    tiny.examples(tiny.IMAGES, seed=0),
    tiny.examples(10, seed=1),
    tiny.examples(10, seed=2),
    tiny.CLASS_NAMES,
)
# On torch, half of the time of a run would go into programs of tf.data.
READER = "pillow" if keras.backend.backend() == "torch" else "auto"


def recipe(run_dir, *, training=None, **options):
    given = data.DataConfig("given", reader=READER)
    options = {"data": given, **options}
    return Recipe(
        model=ModelConfig(
            image_size=8,
            patch_size=4,
            channels=1,
            hidden_dim=8,
            num_layers=1,
            mlp_dim=8,
            num_heads=2,
        ),
        optimizer=OptimizerConfig(warmup_steps=1),
        training=TrainingConfig(
            **{"epochs": 2, "batch_size": 8, **(training or {})}
        ),
        preprocessing=data.PreprocessingConfig(evaluation="squash"),
        run_dir=str(run_dir),
        **options,
    )


def values(model):
    return [np.array(keras.ops.convert_to_numpy(x)) for x in model.weights]


class Interrupt(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def files(folder):
    found = {path for path in folder.rglob("*") if path.is_file()}
    return {path.relative_to(folder).as_posix() for path in found}
