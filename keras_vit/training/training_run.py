"""Training: from a recipe to a trained model in its run folder.

The loop is Keras's `fit` with the callbacks of a run, which do what Keras's own
leave out: an end between epochs, the speed.
"""

import contextlib
import dataclasses
import errno
import functools
import math
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np

from keras_vit import data, evaluation
from keras_vit.data.batches import images_per_batch
from keras_vit.data.dataset import NO_SOURCES
from keras_vit.data.image_reader import (
    is_coloured,
    naming_broken_images,
    say_colour_changes,
)
from keras_vit.data.manifest import (
    MANIFEST,
    OVERVIEW,
    list_images,
    overview,
    write_manifest,
)
from keras_vit.data.resizing import evaluation_fields
from keras_vit.data.sources import read_by
from keras_vit.evaluation.predictions import Ranking
from keras_vit.evaluation.scores_of_classes import CLASS_METRICS
from keras_vit.io.atomic_files import replacing, write_json
from keras_vit.io.checks import check_kind, check_unread
from keras_vit.models.configured_model import ConfiguredModel, merged
from keras_vit.runtime import machine
from keras_vit.runtime.interrupts import postponed
from keras_vit.runtime.machine import random_states, set_random_states
from keras_vit.runtime.workarounds import (
    draw_own_masks,
    keeping_variables,
    sum_gradients_first,
)
from keras_vit.trained_as import PROBLEMS, TrainedAs
from keras_vit.training import checkpointing, distribution
from keras_vit.training.build import (
    ANSWERS,
    CLASSIFICATION,
    Task,
    count_parameters,
    fit_head,
    for_task,
    regression,
    to_units,
)
from keras_vit.training.checkpointing import (
    AverageInEvaluation,
    BackgroundWriter,
    Checkpoints,
    KeepBest,
    Preemption,
    averaged,
    deadline_of,
    has_average,
    rank,
    take_average,
)
from keras_vit.training.config import Recipe, TrainingConfig
from keras_vit.training.defaults import choose_head, settled
from keras_vit.training.distribution import processes
from keras_vit.training.distribution.layouts import placed
from keras_vit.training.distribution.processes import (
    explain_lost_process,
    is_first,
    place,
    to_numpy,
)
from keras_vit.training.metrics_log import (
    AccuracyWatch,
    FirstNonFinite,
    GradientWatch,
    MetricsLog,
    check_trackers,
    event_writer,
    tracking,
)
from keras_vit.training.run import files as run_folder
from keras_vit.training.run import resume
from keras_vit.training.stages import (
    Plan,
    begin_stage,
    make_stages,
    part_of,
    remaining,
)

__all__ = [
    "Loop",
    "Progress",
    "Run",
    "StopAtTotal",
    "ValidationMetrics",
    "compare_evaluations",
    "train",
    "validation_metrics",
]

# No space on the disk, the quota used up, a file larger than allowed.
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of a training.

    Args:
        model: the trained Keras model, from images in [0, 255] to logits.
        dataset: the `Dataset` that it was trained on.
        history: metric to list of values, one per epoch, after that of an
            evaluation before the first step where the head is a probe.
        seconds: wall time of the training, compilation and validation
            included.
        folder: the run folder.
        network: what was fitted: the model itself, what a `Task` made of its
            layers, or with LoRA the model before it was merged.
        skipped: names of training images that could not be read, though the
            check before the first step had passed them.
        evaluations: of `compare_evaluations`: the best and the last one on
            the validation images, and which of both the model is of.
    """

    model: keras.Model
    dataset: data.Dataset
    history: dict[str, list[float]]
    seconds: float
    folder: pathlib.Path
    network: keras.Model
    skipped: tuple[str, ...] = ()
    evaluations: dict = dataclasses.field(default_factory=dict)

    @property
    def kept(self) -> dict[str, float]:
        """The values of `history` after the epoch that the model is of."""
        place = -1
        if self.evaluations:
            step = self.evaluations[self.evaluations["kept"]]["step"]
            place = self.history["step"].index(step)
        return {name: values[place] for name, values in self.history.items()}

    @property
    def images_per_second(self) -> float:
        """Training images per second, the median over the epochs."""
        known = self.history["images_per_second"]
        return statistics.median(x for x in known if not math.isnan(x))


def train(
    recipe: Recipe,
    *,
    dataset=None,
    callbacks=(),
    task: Task = CLASSIFICATION,
    needs: tuple[str, ...] = (),
    sources: data.Sources = NO_SOURCES,
) -> Run:
    """Train a model from a recipe, or resumes a run that was stopped.

    Writes the config, the environment, the metrics and checkpoints to the run
    folder. A run that was stopped at any moment resumes from its last
    checkpoint, and ends with the same weights as if it had not been stopped.
    At the end the folder has the model of the best evaluation on the
    validation images, or by training.keep and without such images that of the
    last step, with the moving average of the weights where there is one. The
    test images are not used. Batch sizes are those
    of all devices together; the model that is returned is on one. With
    several processes, all call this in the same way: each gets the model, and
    the first one writes.

    Args:
        recipe: the `Recipe`: data, model, training and run folder.
        dataset: a `Dataset` of `Examples`, None for that of the recipe. Or one
            whose `train` is a `FitStream` of your own batches, and whose
            `validation` is the validation_data of Keras's `fit`, or None. The
            data of the recipe are left at their defaults, or are its config.
        callbacks: further Keras callbacks. The states of `EarlyStopping` and
            `ReduceLROnPlateau` are resumed; others start anew.
        task: what is learned, by default to classify images.
        needs: parts of the data, "validation" or "test", of which the data
            must have one: what the result is computed on.
        sources: of `open_dataset`: functions that open names of your own.

    Returns:
        A `Run`.

    Raises:
        ValueError: when the run folder is taken, for instance by another
            config, the data does not fit the recipe, or an image cannot be
            read.
        KeyboardInterrupt: after Ctrl-C, SIGTERM (`Terminated`) or
            training.max_hours (`TimeIsUp`), with a checkpoint of the last
            step. A second signal ends at once.
        FloatingPointError: when the loss or its gradient is not finite.
        OSError: when the disk is full, and a `LostProcessError` when another
            process has ended. The last checkpoint is whole.

    Example:
        >>> train(Recipe(run_dir="runs/digits")).history["val_accuracy"]
    """
    _check_trial(recipe)
    _check_tpu(recipe.distribution, recipe.training.precision)
    check_trackers(recipe.training.trackers)
    deadline = deadline_of(recipe.training.max_hours)
    recipe = resume.as_begun(resume.with_given(recipe, dataset))
    processes.check_reader(recipe.distribution, recipe.data.reader)
    if dataset is not None and not isinstance(dataset.train, data.FitStream):
        dataset = read_by(recipe.data.reader, dataset)
    chosen = distribution.setup(
        recipe.distribution,
        batch_size=recipe.training.micro_batch_size,
        steps_per_execution=recipe.training.steps_per_execution,
    )
    if processes.is_first():
        line = f"Distribution {chosen}"
        if recipe.training.batch_size is None:  # The images decide it.
            line, _, _ = line.partition(", batch")
        print(line, flush=True)
    share = processes.share(chosen.replicas, recipe.training.accumulation_steps)
    parent = run_folder.local(recipe.run_dir).parent
    with explain_lost_process(recipe.run_dir):
        with (
            naming_broken_images(),
            machine.compilation_cache_in(parent),
            chosen.scope(),
        ):
            run = _train(
                recipe,
                dataset,
                callbacks,
                share,
                task,
                needs,
                deadline,
                sources,
            )
        if chosen.native is not None:
            processes.collect(run.network, run.model)
    return run


def _check_trial(recipe):
    """Raise for a trial that is none: the scripts shrink a recipe for it."""
    check_kind(Recipe, recipe=recipe)
    if recipe.smoke and recipe.model.size != "tiny":
        raise ValueError(
            "Only the scripts make a trial of a recipe. Received: smoke=True, "
            f"model.size={recipe.model.size!r}. Leave smoke out, or give "
            "train(keras_vit.runs.smoke.smoke(recipe))."
        )


def _check_tpu(chosen, precision):
    """Raise for float16 on a TPU, which has bfloat16 in its place."""
    if chosen == "tpu" and precision == "mixed_float16":
        raise ValueError(
            "A TPU computes in float32 or bfloat16. Received: "
            f"training.precision={precision}. Set it to mixed_bfloat16."
        )


def _trained_as(recipe, names, image_size) -> TrainedAs:
    """Return the record of a run's model."""
    problems = {activation: x for x, activation in PROBLEMS.items()}
    learned = {}
    if names is not None:
        learned["problem"] = problems[ANSWERS[recipe.training.loss]]
        learned["class_names"] = tuple(names)
    return TrainedAs(
        preprocessing=evaluation_fields(recipe.preprocessing, image_size),
        image_size=None if None in image_size else image_size,
        source="a run of keras_vit",
        **learned,
    )


def _train(recipe, dataset, callbacks, share, task, needs, deadline, sources):
    # A mistake in the recipe shows before an earlier run is replaced.
    dataset = dataset or data.open_dataset(
        recipe.data, sources, unlabelled=not task.names_classes
    )
    _check_parts(dataset, needs)
    _check_streamed(recipe, dataset)
    if task.names_classes:
        recipe = for_task(recipe, dataset)
        _check_loss(recipe, dataset)
        if dataset.task == "regression" and task is CLASSIFICATION:
            task = regression(dataset)
    elif recipe.training.best_metric == "auto":
        metric = "val_accuracy" if task.make_metrics(recipe) else "val_loss"
        metric = task.best_metric or metric
        training = dataclasses.replace(recipe.training, best_metric=metric)
        recipe = dataclasses.replace(recipe, training=training)
    scores = validation_metrics(recipe, dataset, task)
    dataset, images = _same_images(recipe, dataset)
    table = overview(dataset, images, unlabelled=not task.names_classes)
    if processes.is_first():
        _say(table)
    keras.utils.set_random_seed(recipe.seed)
    model = task.make_model(recipe, dataset.class_names)
    _check_colours(recipe, dataset, model)
    if processes.is_first():
        say_colour_changes(dataset.train, model.input_shape[-1])
    streams = isinstance(dataset.train, data.FitStream)
    recipe, line = settled(
        recipe, model, None if streams else len(dataset.train)
    )
    recipe, head_line = choose_head(
        recipe, dataset, model, learns=task.begins_from_probe
    )
    for text in filter(None, (line, head_line)):
        if processes.is_first():
            print(text, flush=True)
    stages = make_stages(recipe, task, dataset, model, share)
    scores += task.make_scores(recipe, model)
    metric = recipe.training.best_metric
    if metric == "val_knn" and task.best_metric != metric:
        raise ValueError(
            "val_knn is a metric of `keras-vit pretrain` with a knn_folder. "
            'Received: training.best_metric="val_knn" without one.'
        )
    trained, total = count_parameters(stages[-1].network)
    if trained < total and processes.is_first():
        print(f"Training {trained:,} of {total:,} parameters", flush=True)
    names = dataset.class_names if task.names_classes else None
    told = names is None and getattr(model, "trained_as", TrainedAs()).source
    if isinstance(model, ConfiguredModel) and not told:
        size = model.input_shape[1:3]
        model.trained_as = _trained_as(recipe, names, size)
    with (
        resume.open_run(recipe, stages[-1].plan) as (folder, checkpoint),
        explain_full_disk(folder),
        contextlib.ExitStack() as reports,
    ):
        if processes.is_first():
            write_json(folder / "class_names.json", list(dataset.class_names))
            _write_text(folder / OVERVIEW, table)
            if images is not None:
                write_manifest(folder / MANIFEST, images)
        listeners = reports.enter_context(
            tracking(folder, recipe.training.trackers)
        )
        from_probe = checkpoint is None and recipe.model.head == "probe"
        if from_probe:
            fit_head(recipe, dataset, model)
        for stage in remaining(stages, checkpoint):
            rows, seconds = Loop(
                folder,
                stage.plan,
                names,
                best_metric=recipe.training.best_metric,
                kept=recipe.training.keep,
                patience=recipe.training.early_stopping_patience,
                keep=recipe.training.keep_checkpoints,
                saved=model,
                deadline=deadline,
                listeners=listeners,
                scores=scores,
                evaluates_start=from_probe and len(stages) == 1,
            ).run(
                stage.network,
                stage.optimizer,
                task.make_loss(recipe),
                stage.stream,
                stage.validation,
                metrics=task.make_metrics(recipe),
                checkpoint=begin_stage(stages, checkpoint),
                callbacks=[*callbacks, *task.make_callbacks(recipe)],
            )
            if stage is not stages[-1]:
                checkpoint = resume.reopen(folder)
        to_units(model)
        model = merged(model, to_numpy)
        run_folder.save_model(model, names, folder / "model.keras")
    columns = dict.fromkeys(name for row in rows for name in row)
    history = {
        name: [row.get(name, math.nan) for row in rows] for name in columns
    }
    begin = stages[-2].plan.total if len(stages) > 1 else -1
    evaluations = compare_evaluations(rows, recipe.training, begin)
    if processes.is_first() and evaluations:
        print(_kept_line(evaluations, rows[-1], stages[-1].plan), flush=True)
    unread = {
        name
        for stage in stages
        for name in getattr(stage.stream, "skipped", ())
    }
    return Run(
        model,
        dataset,
        history,
        seconds,
        folder,
        stages[-1].network,
        tuple(sorted(unread)),
        evaluations,
    )


def compare_evaluations(
    rows: list[dict], training: TrainingConfig, begin: int = -1
) -> dict:
    """Compare the best evaluation of a training with the last one.

    Args:
        rows: the lines of history.csv.
        training: has the metric, and which of both is kept.
        begin: the step after which evaluations count: those at the smaller
            sizes of progressive resizing do not. That of step 0 is before
            the first step.

    Returns:
        "metric"; "best" and "last", of each its "epoch", "step" and metrics;
        "kept", which of both the model is of. Empty without evaluations.

    Example:
        >>> compare_evaluations(run_rows, TrainingConfig())["best"]["epoch"]
        7.0
    """
    metric = training.best_metric
    known = [
        row
        for row in rows
        if row["step"] > begin and rank(row, metric)[0] > -math.inf
    ]
    if not known:
        return {}
    best = max(known, key=lambda row: rank(row, metric))
    return {
        "metric": metric,
        "kept": training.keep,
        "best": _evaluation(best),
        "last": _evaluation(known[-1]),
    }


def _evaluation(row):
    names = [x for x in row if x in ("epoch", "step") or x.startswith("val_")]
    return {name: row[name] for name in names}


def _kept_line(evaluations, last, plan) -> str:
    """Say which epoch was the best and which is kept."""
    metric = evaluations["metric"]
    best, end = (evaluations[x] for x in ("best", "last"))
    when = f"after epoch {best['epoch']:.4g}"
    when = when if best["step"] else "before the first step"
    ended = "Ended early" if last["step"] < plan.total else "Trained"
    return (
        f"{ended}, to epoch {last['epoch']:.4g}. The best {metric} was "
        f"{best[metric]:.4f} {when}, the last one "
        f"{end[metric]:.4f}; model.keras is the {evaluations['kept']} model"
    )


def _same_images(recipe, dataset):
    """Return the data set as its run has it, and in one process its images."""
    first = processes.is_first()
    images = list_images(dataset, recipe.data) if first else None
    return resume.same_images(recipe, dataset, images), images


@functools.lru_cache(maxsize=1)
def _say(text: str) -> None:
    """Print a text, once for several runs of one data set."""
    print(text, flush=True)


def _write_text(path: pathlib.Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")


def _check_colours(recipe, dataset, model):
    """Raise a ValueError where a model would drop colours without a word."""
    channels = model.input_shape[-1]
    if recipe.model.channels is not None or channels != 1:
        return
    if is_coloured(dataset.train):
        raise ValueError(
            f"The images of {dataset.name} have colours, and the model is for "
            "grey images. Give --model.channels 3 to train in colour, or "
            "--model.channels 1 to drop the colours."
        )


def _check_loss(recipe, dataset):
    """Raise a ValueError for the loss of one class where there are several."""
    labels = np.asarray(getattr(dataset.train, "labels", ()))
    if recipe.training.loss != "softmax" or labels.ndim != 2:
        return
    # Those of a teacher are probabilities.
    if labels.dtype.kind in "ub" and (labels.sum(axis=1) != 1).any():
        count = int((labels.sum(axis=1) != 1).sum())
        notes = "".join(f" {note}." for note in dataset.notes)
        raise ValueError(
            f"{count:,} of {len(labels):,} training images of {dataset.name!r} "
            "have several labels or none, and the softmax loss is for one. "
            f"Give --training.loss sigmoid.{notes}"
        )


def _check_parts(dataset, needs):
    if needs and not any(getattr(dataset, part) for part in needs):
        raise ValueError(
            f"{dataset.name} has no {' and no '.join(needs)} images, and the "
            f"result is computed on them. Give --data.{needs[0]}_split or "
            f"--data.{needs[0]}_fraction above 0."
        )


def _check_streamed(recipe, dataset):
    """Raise for what would be done to images of batches that are done."""
    if isinstance(dataset.train, data.FitStream):
        names = [x.name for x in dataclasses.fields(recipe.augmentation)]
        check_unread(recipe.augmentation, "batches of your own", *names)
        names = ("train", "least_area", "flip")
        check_unread(recipe.preprocessing, "batches of your own", *names)


@contextlib.contextmanager
def explain_full_disk(folder: pathlib.Path) -> Iterator[None]:
    """Raise an OSError with what to do where the disk is full."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # HDF5 has the number only in its text.
        known = getattr(error, "errno", None) in DISK_FULL
        if not known and not any(
            f"errno = {n}," in str(error) for n in DISK_FULL
        ):
            raise
        found = checkpointing.checkpoint_steps(folder / checkpointing.FOLDER)
        last = f"the one of step {found[-1]}" if found else "none yet"
        raise OSError(
            errno.ENOSPC,
            f"There is no room left to write to. The last checkpoint is whole: "
            f"{last}. Make room and give the same command again to continue",
            str(folder),
        ) from error


class ValidationMetrics(keras.callbacks.Callback):
    """Adds the metrics of `evaluation.scores_of_classes` to each evaluation.

    With the moving average of the weights where there is one.

    Args:
        validation: batches of `validation_batches`.
        activation: what makes probabilities of the scores.
        several: whether an image may have several classes.
    """

    def __init__(self, validation, *, activation: str, several: bool):
        super().__init__()
        self.batches = validation.map(
            lambda images, labels, weights: (images, labels, weights > 0)
        )
        self.activation = activation
        self.several = several
        self.ranking: Ranking | None = None

    def on_epoch_end(self, epoch, logs=None):
        if logs is None or "val_loss" not in logs:
            return
        if self.ranking is None:  # Compiled once.
            num_classes = self.model.output_shape[-1]
            self.ranking = Ranking(self.model, num_classes, self.activation)
        states = random_states()
        with averaged(self.model):
            found = evaluation.predict_classes(self.ranking, self.batches)
        set_random_states(states)
        if not self.several:
            found = found.of_one_class()
        summary = evaluation.summarise(found)
        logs |= {f"val_{x}": summary[x] for x in CLASS_METRICS if x in summary}


def validation_metrics(
    recipe, dataset, task
) -> list[Callable[..., ValidationMetrics]]:
    """Return what makes the callbacks that the best metric of a recipe needs.

    Args:
        recipe: a `Recipe`.
        dataset: its `Dataset`.
        task: its `Task`.

    Returns:
        Functions of the validation batches; none for a metric of batches.

    Raises:
        ValueError: when there are no such metrics of this data or task.
    """
    metric = recipe.training.best_metric
    if metric.removeprefix("val_") not in CLASS_METRICS:
        return []
    obstacle = _obstacle(dataset, task)
    if obstacle is not None:
        raise ValueError(
            f"{metric} is computed from the scores of all validation images: "
            f"{obstacle}. Received: training.best_metric={metric!r}. Set it to "
            "val_loss."
        )
    made = functools.partial(
        ValidationMetrics,
        activation=recipe.training.loss,
        several=dataset.validation.labels.ndim == 2,
    )
    return [made]


def _obstacle(dataset, task) -> str | None:
    if dataset.validation is None:
        return "the data has none"
    if isinstance(dataset.train, data.FitStream):
        return "they are not known of batches of your own"
    if not task.names_classes:
        return "this recipe learns no classes"
    if place()[1] > 1:
        return "each of several processes has a share of them"
    size, num_classes = len(dataset.validation), len(dataset.class_names)
    if evaluation.classes_to_keep(size, num_classes) < num_classes:
        return f"{size:,} images of {num_classes:,} classes do not fit memory"
    return None


@dataclasses.dataclass(frozen=True)
class Loop:
    """Trains a model in a run folder, from the beginning or a checkpoint.

    Args:
        folder: the run folder.
        plan: the `Plan`: at which steps to write, evaluate and end.
        class_names: saved with the models; None for models without classes.
        best_metric: the metric that selects the best model.
        kept: "best" ends with the weights of the best evaluation, where there
            was one, and "last" with those of the last step.
        patience: evaluations without a better one after which the training
            ends; None never ends it.
        keep: how many checkpoints are kept.
        saved: the Keras model that is saved, with layers of the one that is
            trained; that one itself if None.
        deadline: when it ends to go on later, see `checkpointing.deadline_of`.
        listeners: functions of a line of metrics.jsonl, besides TensorBoard's.
        scores: function of the validation batches to a callback that adds
            metrics to an evaluation, see `validation_metrics`; or None.
        evaluates_start: whether the model is evaluated before the first step
            as well, and may be the best.
    """

    folder: pathlib.Path
    plan: Plan
    class_names: tuple[str, ...] | None
    best_metric: str = "val_accuracy"
    kept: str = "best"
    patience: int | None = None
    keep: int = 2
    saved: keras.Model | None = None
    deadline: float | None = None
    listeners: Sequence[Callable[[dict], None]] = ()
    scores: Sequence[Callable[..., keras.callbacks.Callback]] = ()
    evaluates_start: bool = False

    def run(
        self,
        model,
        optimizer,
        loss,
        stream,
        validation=None,
        *,
        metrics=(),
        checkpoint: tuple[dict, dict] | None = None,
        callbacks=(),
    ) -> tuple[list[dict], float]:
        """Train until the plan ends or the patience does.

        Args:
            model: a Keras model from images to logits; at the end it has the
                weights that are `kept`, or their moving average where the
                optimizer keeps one.
            optimizer: a Keras optimizer that is not built.
            loss: a Keras loss.
            stream: has `from_step(step)`, which returns endless batches, as
                `fit` takes them, of images (batch, height, width, channels)
                and labels (batch, classes), and `names_of(step)`, the names of
                the images in a batch.
            validation: the validation_data of Keras's `fit`, or None.
            metrics: Keras metrics, weighted as the loss is.
            checkpoint: what `checkpointing.read_newest` returned.
            callbacks: further Keras callbacks.

        Returns:
            The lines of history.csv, and the seconds of the training,
            compilation and validation included.

        Raises:
            FloatingPointError: for a loss or gradient that is not finite.
            ValueError: when the checkpoint is not of this model.
            KeyboardInterrupt: after SIGINT, SIGTERM or the deadline; the
                checkpoint of the last step is there.
        """
        losses, gradients = self._compile(model, optimizer, loss, metrics)
        watched = losses, gradients, [losses, *metrics]
        scores = [make(validation) for make in self.scores]
        with (
            postponed() as signals,
            keeping_variables(model),
            BackgroundWriter() as writer,
        ):
            preemption = Preemption(signals, self.deadline)
            while True:
                part = part_of(checkpoint)
                found = scores + self._callbacks(
                    self._log(watched, stream, checkpoint),
                    watched[-1],
                    (preemption, writer),
                    checkpoint,
                    callbacks,
                    scores,
                )
                if checkpoint is not None:
                    checkpointing.restore(model, checkpoint[0])
                elif self.evaluates_start and validation is not None:
                    self._evaluate_start(model, validation, found)
                self._fit(model, stream, validation, checkpoint, found)
                if part is None or found[-1].record["ended"]:
                    break
                # The rest of its interval is done: from here as ever.
                writer.wait()
                checkpoint = resume.reopen(self.folder)
        (best,) = (x for x in found if isinstance(x, KeepBest))
        if not best.restore() and has_average(model.optimizer):
            take_average(model)
        return found[-1].log.history, found[-1].record["seconds"]

    def _fit(self, model, stream, validation, checkpoint, callbacks):
        """Train to the end, or to that of an interval that was begun."""
        begin = {"step": 0, "interval": 0, "ended": False}
        begin = begin if checkpoint is None else checkpoint[1]
        interval, part = begin["interval"], part_of(checkpoint)
        batches, end = self.plan.batches, self.plan.intervals
        if part is not None:
            batches = self.plan.batches_of(interval) - part["batches"]
            end = interval + 1
        if batches <= 0:  # Below, where images were removed since.
            self._evaluate(model, validation, interval, callbacks)
            return
        model.fit(
            self._batches(stream, begin["step"]),
            steps_per_epoch=batches,
            initial_epoch=interval,
            epochs=interval if begin["ended"] else end,
            validation_data=placed(validation),
            validation_freq=self.plan.evaluations,
            shuffle=False,
            verbose=_verbose(),
            callbacks=callbacks,
        )

    def _evaluate_start(self, model, validation, callbacks):
        """Count an evaluation before the first step, as those after it."""
        states = random_states()
        options = {**_arguments(validation), "verbose": 0}
        found: dict = model.evaluate(**options, return_dict=True)
        logs = {f"val_{name}": value for name, value in found.items()}
        for score in callbacks[: len(self.scores)]:
            score.set_model(model)
            score.on_epoch_end(-1, logs)
        set_random_states(states)
        (log,) = (x for x in callbacks if isinstance(x, MetricsLog))
        log.write_start(logs)
        (best,) = (x for x in callbacks if isinstance(x, KeepBest))
        best.set_model(model)
        best.on_epoch_end(-1, logs)

    def _evaluate(self, model, validation, interval, callbacks):
        """Return what `fit` does after the last step of an interval."""
        data: dict = {**_arguments(validation), "verbose": 0}
        # Keras makes variables of metrics where it first sees a batch.
        model.evaluate(**data, steps=1)
        model.reset_metrics()
        calls = keras.callbacks.CallbackList(callbacks, model=model)
        model.stop_training = False
        calls.on_train_begin()
        calls.on_epoch_begin(interval)
        logs = dict(model.get_metrics_result())
        found: dict = model.evaluate(**data, callbacks=calls, return_dict=True)
        logs |= {f"val_{name}": value for name, value in found.items()}
        calls.on_epoch_end(interval, logs)
        calls.on_train_end(logs)

    def _log(self, watched, stream, checkpoint):
        step = None if checkpoint is None else checkpoint[1]["step"]
        listeners = list(self.listeners)
        if is_first():
            listeners.append(event_writer(self.folder, step or 0))
        return MetricsLog(
            self.folder,
            self.plan,
            watched[0],
            watched[1],
            stream.names_of,
            step=step,
            part=part_of(checkpoint),
            listeners=listeners,
        )

    def _compile(self, model, optimizer, loss, metrics):
        losses = FirstNonFinite(loss)
        model.compile(
            optimizer=optimizer,
            loss=loss,
            metrics=[losses],
            weighted_metrics=list(metrics),
            steps_per_execution=self.plan.batches_per_call,
        )
        sum_gradients_first(model.optimizer)
        draw_own_masks(model)
        gradients = GradientWatch(model.optimizer)
        model.optimizer.build(model.trainable_variables)
        return losses, gradients

    def _batches(self, stream, step):
        batches, parts = stream.from_step(step), self.plan.batches_per_step
        if parts > 1:
            size = images_per_batch(batches) or self.plan.batch_size
            batches = batches.rebatch(size // parts)
        return placed(batches)

    def _callbacks(self, log, metrics, shared, checkpoint, callbacks, scores):
        """All callbacks in order: each sees what those before it did."""
        best = KeepBest(
            self.folder,
            self.class_names,
            self.best_metric,
            self.patience,
            log=log,
            writes=self.kept == "best",
            saved=self.saved,
        )
        others, average = [best, *callbacks], AverageInEvaluation()
        return [
            StopAtTotal(self.plan, log),
            log,
            AccuracyWatch(log),
            average,
            *([Progress(self.plan, log)] if _verbose() == 1 else []),
            *others,
            Checkpoints(
                self.folder,
                self.plan,
                self.class_names,
                log,
                shared[0],
                shared[1],
                average,
                metrics=metrics,
                others=[*scores, *others],
                keep=self.keep,
                saved=self.saved,
                checkpoint=checkpoint,
            ),
        ]


def _arguments(validation) -> dict:
    """Return the arguments of Keras's `evaluate` for validation data."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(placed(validation))
    return {"x": x, "y": y, "sample_weight": weights}


def _verbose() -> int:
    """Return Keras's progress bar in a terminal or notebook, else plain lines.

    Of several processes, only the first one prints.
    """
    if not is_first():
        return 0
    watched = sys.stdout.isatty() or "ipykernel" in sys.modules
    return 1 if watched else 2


class StopAtTotal(keras.callbacks.Callback):
    """Ends the last interval where it is shorter than the others.

    Args:
        plan: the `Plan`.
        log: the `MetricsLog`, which has where an interval was begun.
    """

    def __init__(self, plan: Plan, log: MetricsLog | None = None):
        super().__init__()
        self.plan, self.log = plan, log

    def on_epoch_begin(self, epoch, logs=None):
        self._interval = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.plan.is_last_call(self._interval, _left_out(self.log) + batch):
            self.model.stop_training = True  # after this call


def _left_out(log: MetricsLog | None) -> int:
    return 0 if log is None else log.skipped


class Progress(keras.callbacks.Callback):
    """Shows images per second and the time left in Keras's progress bar.

    Args:
        plan: the `Plan`.
        log: the `MetricsLog`, which has where an interval was begun.
    """

    # It only reads the clock: Keras may call it beside the training.
    async_safe = True

    def __init__(self, plan: Plan, log: MetricsLog | None = None):
        super().__init__()
        self.plan, self.log = plan, log

    def on_epoch_begin(self, epoch, logs=None):
        self._interval = epoch
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if logs is None:
            return
        done = batch + 1
        seconds = time.perf_counter() - self._begin
        left = self.plan.total * self.plan.batches_per_step
        left -= self._interval * self.plan.batches + _left_out(self.log) + done
        images = self.plan.batch_size / self.plan.batches_per_step
        logs["images_per_second"] = done * images / seconds
        # Below 0.001 Keras shows 5.4929e-04.
        logs["minutes_left"] = max(round(left * seconds / done / 60, 2), 0.01)
