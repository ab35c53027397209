"""What a run learns: which model, from which batches, by which loss."""

import dataclasses
from collections.abc import Callable

import keras

from keras_vit.training import build, inputs
from keras_vit.training.loop import Accuracy

__all__ = ["CLASSIFICATION", "Task"]


@dataclasses.dataclass(frozen=True)
class Task:
    """How the parts of a training are made of a recipe.

    The model is what a run leaves; the network is what `fit` trains, and has
    the layers of the model.

    Args:
        make_model: from recipe and class names to the model.
        make_network: from recipe and model to the network.
        make_stream: from recipe, dataset, model and share to what has
            `from_step`, see `Loop.run`.
        make_validation: from the same to what `fit` validates on, or None.
        make_loss: from recipe to a Keras loss.
        make_metrics: from recipe to Keras metrics, weighted as the loss is.
        names_classes: bool, whether the outputs of the model are the classes
            of the data.

    Example:
        >>> train(recipe, task=dataclasses.replace(
        ...     CLASSIFICATION, make_model=my_model))
    """

    make_model: Callable
    make_network: Callable
    make_stream: Callable
    make_validation: Callable
    make_loss: Callable
    make_metrics: Callable
    names_classes: bool = True


def _itself(recipe, model) -> keras.Model:
    del recipe
    return model


CLASSIFICATION = Task(
    make_model=build.make_model,
    make_network=_itself,
    make_stream=inputs.make_stream,
    make_validation=inputs.make_validation,
    make_loss=lambda recipe: build.make_loss(recipe.training),
    make_metrics=lambda recipe: [Accuracy("accuracy")],
)
