"""One Vision Transformer for images that grow in the training.

Each stage goes on from the last checkpoint of the one before, as a run that
was stopped there does.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.resampling import resize_matrix
from keras_vit.data import FitStream
from keras_vit.layers import AddPositionEmbedding
from keras_vit.training.inputs import Plan, make_plan
from keras_vit.training.model_config import TRANSFORMERS
from keras_vit.training.optimizers import make_optimizer
from keras_vit.variants import VariantConfig

__all__ = [
    "ResampledPositions",
    "Stage",
    "at_size",
    "begun",
    "make_stages",
    "networks",
    "remaining",
    "stage_plans",
]

GROWING = (VariantConfig(), VariantConfig(mlp="local"))
METHOD = "linear_aligned"  # as the original resamples weights of another size


def networks(model, image_sizes: tuple[int, ...]) -> list[keras.Model]:
    """The networks of the stages of a training, which share their weights.

    Args:
        model: see `at_size`.
        image_sizes: sides in pixels, the last one of the model.

    Returns:
        A Keras model a size.

    Raises:
        ValueError: when the last size is not that of the model; see `at_size`.

    Example:
        >>> networks(model, (112, 224))[1] is model
        True
    """
    found = [at_size(model, size) for size in image_sizes]
    if found[-1] is not model:
        raise ValueError(
            "Images grow to the size of the model. Received: training."
            f"image_sizes={image_sizes}, model.image_size="
            f"{model.config.image_size}. End with that size."
        )
    return found


def at_size(model, image_size: int) -> keras.Model:
    """The same network for smaller images.

    Args:
        model: a `VisionTransformer` without a ResNet before it, or a
            `VariantTransformer` whose only difference is its MLP.
        image_size: side of the images in pixels, a multiple of the patch.

    Returns:
        A Keras model with the layers of the model; itself for its own size.

    Raises:
        ValueError: for another model, or a size that the patch does not
            divide.

    Example:
        >>> at_size(keras_vit.ViT_B16(weights=None), 160).input_shape
        (None, 160, 160, 3)
    """
    _check(model)
    size = (image_size, image_size)
    if size == model.config.image_size:
        return model
    grid = dataclasses.replace(model.config, image_size=size).grid
    x = image = keras.Input((*size, model.config.channels), name="image")
    for layer in model.layers[1:]:
        if isinstance(layer, AddPositionEmbedding):
            layer = ResampledPositions(
                layer, grid, dtype=layer.dtype_policy, name="resampled"
            )
        x = layer(x)
    return keras.Model(image, x, name=model.name)


def _check(model):
    variant = getattr(model.config, "variant", VariantConfig())
    grows = isinstance(model, TRANSFORMERS) and variant in GROWING
    if not grows or model.config.resnet_units is not None:
        raise ValueError(
            "Images grow in the training of a Vision Transformer, plain or "
            'with variant.mlp="local". Received: training.image_sizes for the '
            f"{type(model).__name__} {model.name!r} with {variant}. Leave them "
            "out, or choose another --model.name."
        )


class ResampledPositions(keras.layers.Layer):
    """Adds the position embeddings of a larger image to those of a smaller.

    Args:
        positions: the `AddPositionEmbedding` of the larger one, built.
        grid: (rows, columns) of the patches of the smaller one.

    Input shape:
        (B, S, D).

    Output shape:
        (B, S, D).

    Example:
        >>> positions = model.get_layer("position_embedding")
        >>> ResampledPositions(positions, (7, 7))(tokens)
    """

    def __init__(self, positions, grid, **kwargs):
        super().__init__(**kwargs)
        self.positions = positions
        prefix = positions.num_prefix_tokens
        rows, columns = (
            resize_matrix(old, new, METHOD)
            for old, new in zip(positions.grid, grid, strict=True)
        )
        patches = np.kron(rows, columns)  # (S - P, T - P)
        matrix = np.zeros(np.add(patches.shape, prefix), "float32")
        matrix[:prefix, :prefix] = np.eye(prefix)
        matrix[prefix:, prefix:] = patches
        self.matrix = matrix  # (S, T)

    def call(self, x):
        table = ops.cast(self.positions.embedding, "float32")[0]  # (T, D)
        return x + ops.cast(ops.matmul(self.matrix, table)[None], x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a training, of one network and one size of images.

    Args:
        network: the Keras model that `fit` trains.
        optimizer: a Keras optimizer that is not built.
        stream: see `Loop.run`.
        validation: see `Loop.run`.
        plan: a `Plan`, whose total is the step that the stage ends with.
    """

    network: keras.Model
    optimizer: keras.optimizers.Optimizer
    stream: Any
    validation: Any
    plan: Plan


def make_stages(recipe, task, dataset, model, share) -> list[Stage]:
    """Makes the stages of a training.

    Args:
        recipe: a `Recipe`.
        task: a `Task`.
        dataset: a `Dataset`.
        model: the Keras model that the run leaves.
        share: the `Share` of each batch that this process reads.

    Returns:
        list of `Stage`, one where the images do not grow.

    Raises:
        ValueError: when recipe, model and data do not fit together.
    """
    sizes = recipe.training.image_sizes
    network = task.make_network(recipe, model)
    if not sizes:
        # The model has the shape of the images; a network may have more
        # inputs.
        return [_stage(recipe, task, dataset, network, model, share)]
    if network is not model or isinstance(dataset.train, FitStream):
        raise ValueError(
            "Images grow in the training of a classifier, from data that is "
            f"read in any size. Received: training.image_sizes={sizes}. Leave "
            "it out."
        )
    found = [
        _stage(recipe, task, dataset, sized, sized, share)
        for sized in networks(model, sizes)
    ]
    plans = stage_plans(found[-1].plan, sizes)
    return [
        dataclasses.replace(stage, plan=plan)
        for stage, plan in zip(found, plans, strict=True)
    ]


def _stage(recipe, task, dataset, network, shaped, share) -> Stage:
    stream = task.make_stream(recipe, dataset, shaped, share)
    plan = make_plan(recipe, stream.steps_per_epoch)
    optimizer = make_optimizer(
        recipe.optimizer,
        network,
        total_steps=plan.total,
        steps_per_epoch=stream.steps_per_epoch,
        training=recipe.training,
    )
    validation = task.make_validation(recipe, dataset, shaped, share)
    return Stage(network, optimizer, stream, validation, plan)


def stage_plans(plan: Plan, image_sizes: tuple[int, ...]) -> list[Plan]:
    """Cuts a training into one stage a size, at the checkpoints.

    Args:
        plan: a `Plan` of the whole training.
        image_sizes: sides in pixels; none for a training of one stage.

    Returns:
        A `Plan` a stage; its total is the step that the stage ends with.

    Raises:
        ValueError: when there are fewer checkpoints than sizes.

    Example:
        >>> [x.total for x in stage_plans(plan, (16, 32))]
        [500, 1000]
    """
    count = max(len(image_sizes), 1)
    if plan.stretches < count:
        raise ValueError(
            "Each image size begins at a checkpoint. Received: training."
            f"image_sizes={image_sizes} for a training of {plan.total} steps "
            f"with a checkpoint after each {plan.checkpoint_every}. Lower "
            "training.checkpoint_every_steps, or leave sizes out."
        )
    ends = [round(i * plan.stretches / count) for i in range(1, count)]
    totals = [end * plan.checkpoint_every for end in ends]
    return [
        dataclasses.replace(plan, total=total)
        for total in (*totals, plan.total)
    ]


def remaining(
    stages: list[Stage], checkpoint: tuple[dict, dict] | None
) -> list[Stage]:
    """The stages that a checkpoint is not the end of; the last one always is.

    Args:
        stages: list of `Stage`.
        checkpoint: as `checkpoints.read_newest` returned it.

    Returns:
        list of `Stage`.
    """
    step = 0 if checkpoint is None else checkpoint[1]["step"]
    return [x for x in stages[:-1] if step < x.plan.total] + stages[-1:]


def begun(
    stages: list[Stage], checkpoint: tuple[dict, dict] | None
) -> tuple[dict, dict] | None:
    """A checkpoint as the stage that goes on from it takes it.

    What was the end of a stage is not the end of the run, and what was best
    at one size is not at the next.

    Args:
        stages: list of `Stage`.
        checkpoint: as `checkpoints.read_newest` returned it.

    Returns:
        The same, of a stage that has begun.
    """
    ends = [stage.plan.total for stage in stages[:-1]]
    if checkpoint is None or checkpoint[1]["step"] not in ends:
        return checkpoint
    arrays, record = checkpoint
    states = [
        {**state, "best": None, "waited": 0}
        if state["class"] == "KeepBest"
        else state
        for state in record["callbacks"]
    ]
    return arrays, {**record, "ended": False, "callbacks": states}
