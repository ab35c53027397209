"""Fine-tuning: from a recipe to a trained model in its run folder."""

import dataclasses
import time

import keras

from keras_vit import data
from keras_vit.models import VisionTransformer
from keras_vit.training import model_file, run_folder
from keras_vit.training.callbacks import JSONLines, Throughput
from keras_vit.training.config import Recipe
from keras_vit.training.environment import environment
from keras_vit.training.loop import verbosity
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.run import Run

__all__ = ["finetune"]

VALIDATION_BATCH = 256


def finetune(recipe: Recipe, callbacks=()) -> Run:
    """Trains a model as a recipe says and saves it in the run folder.

    The weights are those at the end of the training; the test images are not
    looked at.

    Args:
        recipe: a `Recipe`.
        callbacks: Keras callbacks to call as well.

    Returns:
        A `Run`.

    Raises:
        ValueError: when the run folder is taken or the data does not fit the
            recipe.

    Example:
        >>> finetune(Recipe(run_dir="runs/digits")).history["val_accuracy"]
    """
    # What may be wrong with a recipe shows before an earlier run is replaced.
    dataset = load_data(recipe)
    batches = make_batches(dataset, recipe)
    folder = run_folder.prepare(recipe.run_dir, overwrite=recipe.overwrite)
    run_folder.write_json(folder / "environment.json", environment())
    run_folder.write_yaml(folder / "config.yaml", dataclasses.asdict(recipe))
    keras.utils.set_random_seed(recipe.seed)
    class_names = dataset.class_names
    model = VisionTransformer(recipe.model.vit(len(class_names)))
    compile_model(model, recipe, batches.steps_per_epoch)
    begin = time.perf_counter()
    history = fit(model, batches, dataset, folder, callbacks)
    seconds = time.perf_counter() - begin
    run_folder.write_json(folder / "class_names.json", class_names)
    model_file.save(model, class_names, folder / "model.keras")
    return Run(model, dataset, history, seconds, folder)


def load_data(recipe: Recipe) -> data.Dataset:
    """Loads the data of a recipe in the size that its model takes.

    Args:
        recipe: a `Recipe`.

    Returns:
        A `Dataset`.

    Raises:
        ValueError: for an unknown name or a split that cannot be made.
    """
    return data.load(
        recipe.data.name or "digits",
        validation_fraction=recipe.data.validation_fraction,
        test_fraction=recipe.data.test_fraction,
        split_seed=recipe.data.split_seed,
        image_size=recipe.model.vit(num_classes=1).image_size,
        channels=recipe.model.vit(num_classes=1).channels,
    )


def make_batches(dataset: data.Dataset, recipe: Recipe) -> data.TrainingBatches:
    """Makes the training batches of a recipe.

    Args:
        dataset: a `Dataset`.
        recipe: a `Recipe`.

    Returns:
        `TrainingBatches`.

    Raises:
        ValueError: when the images do not fill one batch.
    """
    return data.TrainingBatches(
        dataset.train,
        len(dataset.class_names),
        batch_size=recipe.training.batch_size,
        epochs=recipe.training.epochs,
        seed=recipe.seed,
        augment=data.RandomAffine(
            shift=recipe.augmentation.shift,
            rotation=recipe.augmentation.rotation,
            zoom=recipe.augmentation.zoom,
        ),
    )


def compile_model(model, recipe: Recipe, steps_per_epoch: int) -> None:
    """Gives a model the optimizer, the loss and the metric of a recipe.

    Args:
        model: a Keras model that gives logits.
        recipe: a `Recipe`.
        steps_per_epoch: int.
    """
    model.compile(
        optimizer=make_optimizer(
            recipe.optimizer,
            model.trainable_variables,
            epochs=recipe.training.epochs,
            steps_per_epoch=steps_per_epoch,
        ),
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True,
            label_smoothing=recipe.training.label_smoothing,
        ),
        metrics=["accuracy"],
    )


def fit(model, batches, dataset, folder, callbacks=()) -> dict:
    """Trains a compiled model, a line an epoch in the files of the folder.

    Args:
        model: a compiled Keras model.
        batches: `TrainingBatches`.
        dataset: the `Dataset` to validate on.
        folder: pathlib.Path of the run.
        callbacks: Keras callbacks to call as well.

    Returns:
        Metric to list of values, one an epoch.
    """
    validation = dataset.validation
    labels = keras.utils.to_categorical(validation.labels, batches.num_classes)
    history = model.fit(
        batches,
        epochs=batches.epochs,
        steps_per_epoch=batches.steps_per_epoch,
        shuffle=False,
        validation_data=(validation.images, labels),
        validation_batch_size=VALIDATION_BATCH,
        verbose=verbosity(),
        callbacks=[
            Throughput(batches.steps_per_epoch * batches.batch_size),
            keras.callbacks.CSVLogger(folder / "history.csv"),
            JSONLines(folder / "metrics.jsonl"),
            *callbacks,
        ],
    )
    return history.history
