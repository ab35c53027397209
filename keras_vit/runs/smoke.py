"""Any recipe, shrunk to a laptop."""

import dataclasses

import keras

from keras_vit.data import DataConfig
from keras_vit.training.config import ModelConfig
from keras_vit.training.model_config import config_of, family_of

__all__ = ["smoke"]

DATA = DataConfig(
    name="digits",
    train_split="train[:16]",
    validation_split="train[16:24]",
    test_split="train[24:32]",
)
IMAGE_SIZE = 32
IMAGE_SIZES = (16, 32)  # of images that grow
REPRESENTATION_DIM = 8
STEPS = 2
BATCH_SIZE = 4
ACCUMULATION_STEPS = 2
SUFFIX = "-smoke"


def smoke(recipe):
    """Makes a trial of a recipe: does it run, from the data to the report?

    Two steps of a tiny model of the same kind, weights drawn, on some of the
    handwritten digits, which need no download, in a run folder of its own. How
    images are prepared and varied, the loss, the optimizer, the schedule,
    precision and what saves memory are those of the recipe.

    Args:
        recipe: a `Recipe`.

    Returns:
        A `Recipe`; that of a trial is itself.

    Example:
        >>> smoke(Recipe(model=ModelConfig(name="ViT_L16"))).model.size
        'tiny'
    """
    return dataclasses.replace(
        recipe,
        data=DATA,
        model=_model(recipe.model),
        preprocessing=dataclasses.replace(
            recipe.preprocessing, resize_size=None
        ),
        optimizer=dataclasses.replace(
            recipe.optimizer, warmup_steps=1, cooldown_steps=0
        ),
        training=_training(recipe.training),
        sweep=dataclasses.replace(
            recipe.sweep,
            learning_rates=recipe.sweep.learning_rates[:2],
            train_split=None,
        ),
        noisy_student=_noisy_student(recipe.noisy_student),
        run_dir=recipe.run_dir.removesuffix(SUFFIX) + SUFFIX,
        smoke=True,
    )


def _model(model):
    wide = model.representation_dim
    return dataclasses.replace(
        model,
        weights=None,
        head="new",
        image_size=IMAGE_SIZE,
        patch_size=None,
        hidden_dim=None,
        num_layers=None,
        mlp_dim=None,
        num_heads=None,
        representation_dim=REPRESENTATION_DIM if wide else wide,
        size="tiny",
    )


def _noisy_student(config):
    return dataclasses.replace(
        config,
        networks=tuple(map(_network, config.networks[:2])),
        unlabelled=None,
        min_confidence=0.0,
        images_per_class=None,
    )


def _network(network):
    name = network.get("name")
    if str(name).startswith("EfficientNet"):
        return {"name": "EfficientNetB0", "image_size": IMAGE_SIZE}
    return {} if name is None else {"name": name}


def _training(training):
    return dataclasses.replace(
        training,
        steps=STEPS,
        image_sizes=IMAGE_SIZES if training.image_sizes else (),
        batch_size=BATCH_SIZE,
        accumulation_steps=min(training.accumulation_steps, ACCUMULATION_STEPS),
        steps_per_execution=1,
        checkpoint_every_steps=1,
        evaluate_every_steps=1,
        log_every_steps=1,
    )


def tiny_model(name: str | None, seed: int) -> keras.Model:
    """The smallest model of a kind, to try a recipe on the digits.

    Args:
        name: str, an application; None for a Vision Transformer.
        seed: int, of its weights.

    Returns:
        A Keras model from images of 32x32 pixels to 10 logits.
    """
    keras.utils.set_random_seed(seed)
    tiny = ModelConfig(name, size="tiny", image_size=32)
    return family_of(name)(config_of(tiny, num_classes=10))
