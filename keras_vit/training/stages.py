"""The plan of a training and its stages, one per image size.

With progressive resizing a training has several stages: networks for images of
different sizes that share their weights. Each continues from the last
checkpoint of the one before, as a run that was stopped there does.
"""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.data import FitStream
from keras_vit.interpolation import resize_matrix
from keras_vit.layers import AddPositionEmbedding
from keras_vit.training.build import TRANSFORMERS
from keras_vit.training.config import PLAIN_VARIANT
from keras_vit.training.optimizers import make_optimizer
from keras_vit.variants import VariantConfig

__all__ = [
    "Plan",
    "ResampledPositions",
    "Stage",
    "at_size",
    "begin_stage",
    "make_plan",
    "make_stages",
    "networks",
    "part_of",
    "remaining",
    "stage_plans",
]

RESIZABLE = (PLAIN_VARIANT, VariantConfig(mlp="local"))
METHOD = "linear_aligned"  # as the original resamples weights of another size


@dataclasses.dataclass(frozen=True)
class Plan:
    """When a run checkpoints, evaluates, logs and ends, counted in steps.

    An interval is what lies between two checkpoints, an epoch of Keras's
    `fit`.

    Args:
        total: steps of the whole run.
        steps_per_epoch: steps in one pass over the data.
        batch_size: images per step.
        checkpoint_every: steps from one checkpoint to the next.
        evaluate_every: steps from one evaluation to the next, a multiple of
            checkpoint_every. There is one more at the end.
        log_every: steps between two lines of metrics.
        batches_per_step: parts into which the batch of a step is split.
        batches_per_call: batches per call of the compiled function.

    Raises:
        ValueError: when the calls do not fill the run or its intervals.

    Example:
        >>> Plan(total=50, steps_per_epoch=20, batch_size=8,
        ...      checkpoint_every=20, evaluate_every=40).evaluations
        [2, 3]
    """

    total: int
    steps_per_epoch: int
    batch_size: int
    checkpoint_every: int
    evaluate_every: int
    log_every: int = 50
    batches_per_step: int = 1
    batches_per_call: int = 1

    def __post_init__(self):
        for name in ("total", "checkpoint_every"):
            batches = getattr(self, name) * self.batches_per_step
            if batches % self.batches_per_call:
                raise ValueError(
                    f"steps_per_execution={self.batches_per_call} must divide "
                    f"the batches of the whole run and between checkpoints. "
                    f"Received: {batches} batches ({name}). Set "
                    "training.steps and training.checkpoint_every_steps to "
                    "multiples of it."
                )

    @property
    def intervals(self) -> int:
        """Number of intervals, and so of checkpoints, of the whole run."""
        return math.ceil(self.total / self.checkpoint_every)

    @property
    def batches(self) -> int:
        """Batches per interval; the last one may be shorter."""
        return self.checkpoint_every * self.batches_per_step

    @property
    def evaluations(self) -> list[int]:
        """Numbers of the intervals, from 1, that end with an evaluation."""
        every = self.evaluate_every // self.checkpoint_every
        return [
            number
            for number in range(1, self.intervals + 1)
            if number % every == 0 or number == self.intervals
        ]

    def is_last_call(self, interval: int, batch: int) -> bool:
        """Return whether the run ends with the call that begins at a batch.

        Both numbers are counted from 0, the batch in its interval.
        """
        done = interval * self.batches + batch + self.batches_per_call
        return done >= self.total * self.batches_per_step

    def batches_of(self, interval: int) -> int:
        """Return the batches of an interval, counted from 0."""
        left = self.total * self.batches_per_step - interval * self.batches
        return min(self.batches, left)

    def step(self, interval: int, batches: int) -> int:
        """Steps done after some batches of an interval, counted from 0."""
        steps = batches // self.batches_per_step
        return interval * self.checkpoint_every + steps


def make_plan(recipe, steps_per_epoch: int) -> Plan:
    """Return the `Plan` of a `Recipe`; an epoch is one pass over the data."""
    training = recipe.training
    call = training.steps_per_execution
    every = training.checkpoint_every_steps or training.evaluate_every_steps
    # One pass over the data, in whole calls of the compiled step.
    every = every or max(steps_per_epoch // call, 1) * call
    total = training.steps
    if total is None:
        total = training.epochs * steps_per_epoch
    return Plan(
        total=total,
        steps_per_epoch=steps_per_epoch,
        batch_size=training.batch_size,
        checkpoint_every=every,
        evaluate_every=training.evaluate_every_steps or every,
        log_every=training.log_every_steps,
        batches_per_step=training.accumulation_steps,
        batches_per_call=call,
    )


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a training, of one network and one image size.

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
    """Make the stages of a training: one without progressive resizing.

    Args:
        recipe: the `Recipe`, which has the sizes to train at.
        task: the `Task`, which makes batches and losses.
        dataset: the `Dataset` whose images are resized.
        model: the Keras model that the run saves.
        share: the `Share` of each batch that this process reads.

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
            "Progressive resizing trains a classifier, from data that is read "
            f"in any size. Received: training.image_sizes={sizes}. Leave it "
            "out."
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
    """Split a plan into one per image size, at the checkpoints.

    The total of each is the step that its stage ends with.

    Raises:
        ValueError: when there are fewer checkpoints than sizes.

    Example:
        >>> [x.total for x in stage_plans(plan, (16, 32))]
        [500, 1000]
    """
    count = max(len(image_sizes), 1)
    if plan.intervals < count:
        raise ValueError(
            "Each image size begins at a checkpoint. Received: training."
            f"image_sizes={image_sizes} for a training of {plan.total} steps "
            f"with a checkpoint after each {plan.checkpoint_every}. Lower "
            "training.checkpoint_every_steps, or leave sizes out."
        )
    ends = [round(i * plan.intervals / count) for i in range(1, count)]
    totals = [end * plan.checkpoint_every for end in ends]
    return [
        dataclasses.replace(plan, total=total)
        for total in (*totals, plan.total)
    ]


def part_of(checkpoint: tuple[dict, dict] | None) -> dict | None:
    """Return the record of the interval that a checkpoint interrupts."""
    return None if checkpoint is None else checkpoint[1].get("part")


def remaining(
    stages: list[Stage], checkpoint: tuple[dict, dict] | None
) -> list[Stage]:
    """List the stages that a checkpoint has not finished, and the last."""
    step = 0 if checkpoint is None else checkpoint[1]["step"]
    if part_of(checkpoint) is not None:
        step -= 1  # It may be the last step, without the evaluation.
    return [x for x in stages[:-1] if step < x.plan.total] + stages[-1:]


def begin_stage(
    stages: list[Stage], checkpoint: tuple[dict, dict] | None
) -> tuple[dict, dict] | None:
    """Return the checkpoint that ends a stage, as the next one begins from it.

    The run has not ended, and the best result at one image size is none at
    the next. Nor has a run ended that is longer now.
    """
    ends = [stage.plan.total for stage in stages[:-1]]
    if checkpoint is None or part_of(checkpoint) is not None:
        return checkpoint
    arrays, record = checkpoint
    if record["step"] not in ends:
        total = stages[-1].plan.total
        # Early stopping ends it before its total, and for good.
        reached = record.get("total", total) <= record["step"]
        ended = record["ended"] and not (reached and record["step"] < total)
        return arrays, {**record, "ended": ended}
    states = [
        {**state, "best": None, "loss": None, "step": None, "waited": 0}
        if state["class"] == "KeepBest"
        else state
        for state in record["callbacks"]
    ]
    return arrays, {**record, "ended": False, "callbacks": states}


def networks(model, image_sizes: tuple[int, ...]) -> list[keras.Model]:
    """Networks for several image sizes, which share the weights of a model.

    Raises:
        ValueError: when the last size is not that of the model; see `at_size`.

    Example:
        >>> networks(model, (112, 224))[1] is model
        True
    """
    found = [at_size(model, size) for size in image_sizes]
    if found[-1] is not model:
        raise ValueError(
            "Progressive resizing ends with the size of the model. Received: "
            f"training.image_sizes={image_sizes}, model.image_size="
            f"{model.config.image_size}. Add that size at the end."
        )
    return found


def at_size(model, image_size: int) -> keras.Model:
    """Return a network for smaller images with the layers of a model.

    Args:
        model: a `VisionTransformer` without a ResNet before it, or a
            `VariantTransformer` whose only difference is its MLP.
        image_size: in pixels, a multiple of the patch size.

    Returns:
        A Keras model; the model itself for its own size.

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
    variant = getattr(model.config, "variant", PLAIN_VARIANT)
    resizable = isinstance(model, TRANSFORMERS) and variant in RESIZABLE
    if not resizable or model.config.resnet_units is not None:
        raise ValueError(
            "Progressive resizing trains a Vision Transformer, plain or with "
            'variant.mlp="local". Received: training.image_sizes for the '
            f"{type(model).__name__} {model.name!r} with {variant}. Leave them "
            "out, or choose another --model.name."
        )


class ResampledPositions(keras.layers.Layer):
    """Adds the position embedding of a larger image, resampled to a smaller.

    Args:
        positions: the `AddPositionEmbedding` of the larger one, built.
        grid: (rows, columns) of the patches of the smaller one.

    Input and output shape:
        (B, S, D).
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
