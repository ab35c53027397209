"""Which weights are trained: all, the head, or low-rank adaptations (LoRA).

And which are a run's own: not those of a teacher, which it only reads.

Axes: D input features of a dense layer, M its output features, r the rank.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.runtime.workarounds import put_apart, sublayers

__all__ = [
    "HEAD",
    "Teacher",
    "add_lora",
    "check_lora",
    "count_parameters",
    "freeze",
    "make_trainable",
    "own_variables",
]

HEAD = "predictions"  # The classification layer of every model.
BLOCKS = ("block_", "class_block_")
SEED = "seed_generator_state"


def make_trainable(model: keras.Model, training) -> None:
    """Leave those weights of a model trainable that a recipe trains.

    Args:
        model: a built Keras model.
        training: a `TrainingConfig`.

    Raises:
        ValueError: when there is no such layer, or LoRA does not fit.
    """
    if training.lora_rank:
        add_lora(
            model,
            training.lora_rank,
            alpha=training.lora_alpha,
            also=training.also_train,
        )
    else:
        freeze(model, training.trainable, also=training.also_train)


def freeze(
    model: keras.Model, trainable: str, *, also: Sequence[str] = ()
) -> None:
    """Leave "all" layers of a model trainable, or the "head" alone.

    Args:
        model: a Keras model.
        trainable: "all" or "head".
        also: names of layers that are trained besides the head.

    Raises:
        ValueError: when there is no such layer.
    """
    _check_layers(model, also)
    for layer in model.layers:
        chosen = layer.name == HEAD or layer.name in also
        layer.trainable = trainable == "all" or chosen


def add_lora(
    model: keras.Model,
    rank: int,
    *,
    alpha: float | None = None,
    also: Sequence[str] = (),
) -> None:
    """Add low-rank adaptations to the dense layers of all blocks.

    "LoRA: Low-Rank Adaptation of Large Language Models" (arXiv:2106.09685),
    section 4.1, by Keras's own `enable_lora`: the kernel W (D, M) of a layer
    stays as it is, and W + alpha / rank * A B takes its place, with A (D, r)
    and B (r, M). B starts at zero, so the model starts as it was. It holds for
    query, key and value (one layer), the output of the attention, and both
    layers of the MLP. Only A, B and the head are trained.

    Args:
        model: a built model of keras_vit with blocks.
        rank: int, r.
        alpha: float; None for the rank.
        also: names of further layers to train as they are; a block among them
            gets no adaptation.

    Raises:
        ValueError: when the model has no blocks, or no such layer.

    Example:
        >>> model = keras_vit.ViT_B16(classes=10)
        >>> add_lora(model, rank=8)
        >>> count_parameters(model)
        (1187338, 86985994)
    """
    freeze(model, "head", also=also)
    blocks = [x for x in model.layers if _is_block(x) and x.name not in also]
    if not blocks:
        check_lora(rank, type(model), {})
    for block in blocks:
        block.trainable = True
        for variable in block.variables:
            variable.trainable = False
        for layer in sublayers(block):
            if isinstance(layer, keras.layers.Dense):
                layer.enable_lora(rank, lora_alpha=alpha)


def check_lora(rank: int, family: type, fields: Mapping[str, Any]) -> None:
    """Refuse a rank that a model of these fields cannot have.

    Args:
        rank: int, 0 for no LoRA.
        family: the class of the model.
        fields: of its config.

    Raises:
        ValueError: for a model without blocks, or a rank that is not below
            the hidden dimension, where nothing is saved.
    """
    if not rank:
        return
    dim = fields.get("hidden_dim")
    if dim is None:
        raise ValueError(
            f"LoRA adapts the blocks of a model, and a {family.__name__} has "
            f"none. Received: training.lora_rank={rank}. Set it to 0."
        )
    if rank >= dim:
        raise ValueError(
            f"The rank of LoRA must be below the hidden dimension, {dim}. "
            f"Received: training.lora_rank={rank}. 4 to 16 are usual."
        )


def count_parameters(model: keras.Model) -> tuple[int, int]:
    """Return how many parameters are trained, and how many there are.

    Example:
        >>> count_parameters(keras_vit.ViT_Ti16(weights=None))
        (5717416, 5717416)
    """
    weights = [x for x in model.weights if x.name != SEED]
    sizes = [(int(np.prod(x.shape)), x.trainable) for x in weights]
    trained = sum(size for size, trainable in sizes if trainable)
    return trained, sum(size for size, _ in sizes)


class Teacher(keras.Layer):
    """Runs a model that stays as it was loaded, as in an evaluation.

    Nothing of it is trained or differentiated, and checkpoints leave it out:
    a run that is resumed loads it again.

    Args:
        model: a Keras model, which is made not trainable.
        prepare: function of the images of the network to those of the model.
        name: str, of the layer.

    Input shape:
        Images (B, H, W, channels).

    Output shape:
        That of the model.
    """

    def __init__(self, model: keras.Model, prepare: Callable, *, name: str):
        super().__init__(name=name, dtype="float32", trainable=False)
        self.model = model
        self.prepare = prepare
        model.trainable = False
        put_apart(model, name)

    def call(self, images):
        found = self.model(self.prepare(images), training=False)
        return keras.tree.map_structure(ops.stop_gradient, found)


def own_variables(model: keras.Model) -> list[keras.Variable]:
    """Return the variables of a network without those of a `Teacher` in it."""
    others = {
        id(variable)
        for layer in model.layers
        if isinstance(layer, Teacher)
        for variable in layer.variables
    }
    return [x for x in model.variables if id(x) not in others]


def _is_block(layer):
    return layer.name.startswith(BLOCKS)


def _check_layers(model, names):
    known = [x.name for x in model.layers if x.weights]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"The model has no layers {', '.join(map(repr, unknown))} with "
            f"weights. Received: training.also_train={list(names)}. It has "
            f"{', '.join(known)}."
        )
