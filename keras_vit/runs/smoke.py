"""Trials of recipes: a few steps of a tiny model on data at hand."""

import dataclasses
from typing import TypeVar

from keras_vit.data import DataConfig
from keras_vit.training import Recipe
from keras_vit.training.config import ModelConfig, config_of

__all__ = ["DATA", "SUFFIX", "smoke", "tiny_model"]

DATA = DataConfig(
    name="digits",
    train_split="train[:16]",
    validation_split="train[16:24]",
    test_split="train[24:32]",
)
IMAGE_SIZE = 32
IMAGE_SIZES = (16, 32)  # of progressive resizing
REPRESENTATION_DIM = 8
OF_NUMBERS = {"loss": "squared", "best_metric": "val_mae"}
STEPS = 2
BATCH_SIZE = 4
ACCUMULATION_STEPS = 2
SUFFIX = "-smoke"

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def smoke(recipe: AnyRecipe) -> AnyRecipe:
    """Shrinks a recipe to a trial: does it run, from the data to the report?

    The trial takes two steps with a tiny model of the same kind and new
    weights, on some of the handwritten digits, which need no download, in a
    run folder of its own. Preprocessing, augmentation, loss, optimizer,
    schedule, precision and what saves memory are those of the recipe. Options
    of a subclass of `Recipe` are kept: a recipe shrinks its own.

    Example:
        >>> smoke(Recipe(model=ModelConfig(name="ViT_L16"))).model.size
        'tiny'
    """
    training = recipe.training
    accumulation_steps = min(training.accumulation_steps, ACCUMULATION_STEPS)
    return dataclasses.replace(
        recipe,
        data=dataclasses.replace(DATA, reader=recipe.data.reader),
        model=dataclasses.replace(
            recipe.model,
            weights=None,
            head="new",
            template=None,
            image_size=IMAGE_SIZE,
            patch_size=None,
            hidden_dim=None,
            num_layers=None,
            mlp_dim=None,
            num_heads=None,
            representation_dim=recipe.model.representation_dim
            and REPRESENTATION_DIM,
            size="tiny",
        ),
        preprocessing=dataclasses.replace(
            recipe.preprocessing, resize_size=None
        ),
        optimizer=dataclasses.replace(
            recipe.optimizer, warmup_steps=1, cooldown_steps=0
        ),
        training=dataclasses.replace(
            training,
            # The digits are classes.
            **{
                name: "auto"
                for name, of_numbers in OF_NUMBERS.items()
                if getattr(training, name) == of_numbers
            },
            steps=STEPS,
            # The best may be the first, whose head is zeros.
            keep="last",
            image_sizes=IMAGE_SIZES if training.image_sizes else (),
            batch_size=BATCH_SIZE,
            accumulation_steps=accumulation_steps,
            steps_per_execution=1,
            checkpoint_every_steps=1,
            evaluate_every_steps=1,
            log_every_steps=1,
        ),
        run_dir=smoke_dir(recipe.run_dir),
        smoke=True,
    )


def smoke_dir(run_dir: str) -> str:
    """Return the folder of a trial, which is its own."""
    return run_dir.removesuffix(SUFFIX) + SUFFIX


def tiny_model(name: str | None, seed: int):
    """Builds the smallest model of a kind, for images of 32x32 and 10 classes.

    Args:
        name: an application; None for a Vision Transformer.
        seed: of the weights.
    """
    import keras

    from keras_vit.training.build import family_of

    keras.utils.set_random_seed(seed)
    tiny = ModelConfig(name, size="tiny", image_size=IMAGE_SIZE)
    return family_of(name)(config_of(tiny, num_classes=10))
