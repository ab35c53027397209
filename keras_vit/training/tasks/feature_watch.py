"""Watches what features are worth as a run without labels learns.

Losses without labels say little of it. Features collapse, where they are the
same, or along one line, for all images; and they are tried on images of known
classes.

Axes: N and B images, H and W height and width, C channels, D features, K
classes, P processes, S batches.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import math
import zlib
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np

from keras_vit import data
from keras_vit.data.dataset import content_hashes
from keras_vit.data.image_reader import are_equal
from keras_vit.evaluation.few_shot import feature_model
from keras_vit.evaluation.probes import fit_linear, fit_neighbours
from keras_vit.runtime.machine import random_states, set_random_states
from keras_vit.training.build import Task
from keras_vit.training.checkpointing import averaged
from keras_vit.training.distribution.processes import (
    alone,
    is_first,
    place,
    predicted_alone,
    stacked,
)

__all__ = [
    "CollapseWatch",
    "FeatureStatistics",
    "KnownClasses",
    "collapsed_features",
    "computing",
    "feature_statistics",
    "half_probed_accuracy",
    "left_out_accuracy",
    "of_all",
    "warn",
    "watched",
    "with_known_classes",
]

NUM_IMAGES = 256  # at least, if there are, of which features are compared
FEW_IMAGES = 8  # below which their features have no rank to speak of
TINY = 1e-12
# Features of unit length that deviate less than this from their mean, or whose
# deviations have an effective rank below that, tell no images apart.
NO_SPREAD, NO_RANK = 0.01, 1.5


def feature_statistics(features: np.ndarray) -> dict[str, float]:
    """Compute how far features are from their mean, and in how many directions.

    Args:
        features: float array (N, D), scaled to unit length first.

    Returns:
        "feature_spread", sqrt(sum_d var_d) in [0, 1], and "feature_rank", the
        exp of the entropy of the singular values of their deviations: 1 where
        they lie on a line, D where all directions count the same ("The
        effective rank: a measure of effective dimensionality", Roy and
        Vetterli, EUSIPCO 2007). Of fewer than 8 images no rank, as N have at
        most N - 1 directions; of a single one nothing.

    Example:
        >>> feature_statistics(np.repeat(np.eye(2), 4, axis=0))["feature_rank"]
        1.0
    """
    x = np.asarray(features, "float64")
    if len(x) < 2:
        return {}
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), TINY)
    x = x - x.mean(axis=0)
    values = np.linalg.svd(x, compute_uv=False)
    shares = values / max(values.sum(), TINY)
    shares = shares[shares > TINY]
    found = {"feature_spread": float(np.sqrt((x**2).sum(axis=1).mean()))}
    if len(x) >= FEW_IMAGES:
        rank = np.exp(-np.sum(shares * np.log(shares)))
        found["feature_rank"] = float(rank)
    return found


class FeatureStatistics(keras.callbacks.Callback):
    """Adds `feature_statistics` of validation images to each interval.

    With the moving average of the weights where there is one. Each of several
    processes has a share of the images, and all get the statistics of all.

    Args:
        model: the model that a run saves.
        validation: the validation data of `fit`, or None for nothing.
        observe: function that is called before the first step and after each
            interval, with the number of intervals and steps so far, the
            images (N, H, W, C) and their features (N, D), in one process
            alone; or None.
    """

    def __init__(self, model, validation, observe: Callable | None = None):
        super().__init__()
        self.network = feature_model(model)
        self.observe = observe
        self.batches = []
        if validation is not None:
            self.batches = first_batches(validation, model.input_shape[1:3])

    def on_train_begin(self, logs=None):
        if self.observe is not None and not int(
            self.model.optimizer.iterations
        ):
            self.look(0)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None and (found := self.look(epoch + 1)) is not None:
            # DINO's spread is a metric, of the crops of the interval.
            logs |= {**feature_statistics(found), **logs}

    def look(self, interval: int) -> np.ndarray | None:
        """Return the features (N, D) of the images, None without images."""
        if not self.batches:
            return None
        with computing(self.network, self.model) as predict:
            images, real = map(np.concatenate, zip(*self.batches, strict=True))
            found = np.concatenate([predict(x) for x, _ in self.batches])
            found = of_all(found)[of_all(real)]
            if self.observe is not None and place()[1] == 1:
                step = int(self.model.optimizer.iterations)
                self.observe(interval, step, images[real], found)
        return found


@contextlib.contextmanager
def computing(network, trained) -> Iterator[Callable]:
    """Yield what predicts a batch of this process in the midst of a training.

    The training goes on as without it.

    Args:
        network: a Keras model with layers of the one that is trained.
        trained: that one; its moving average is used, where it has one.
    """
    states = random_states()
    with averaged(trained), alone(network):
        yield functools.partial(predicted_alone, network)
    set_random_states(states)


def of_all(array: np.ndarray) -> np.ndarray:
    """Return the rows of all processes, which have as many each."""
    return np.concatenate(stacked(array))


def first_batches(validation, size: tuple) -> list[tuple]:
    """Return the first whole batches of validation data, and what is real.

    Args:
        validation: the validation data of `fit`.
        size: (height, width) of the model; the middle is taken of images that
            crops are cut from.

    Returns:
        List of images (B, H, W, C) and bool (B,), False for padding.
    """
    pairs = (validation,) if isinstance(validation, tuple) else validation
    found, count = [], np.zeros((), "int32")
    for inputs, *others in pairs:
        images = inputs["image"] if isinstance(inputs, Mapping) else inputs
        images = np.asarray(images)
        real = np.ones(len(images), bool)
        if len(others) == 2:  # Weights of 0 are of padding.
            weights = np.asarray(others[1]).reshape(len(images), -1)
            real = weights.any(axis=1)
        top, left = ((images.shape[1 + i] - size[i]) // 2 for i in range(2))
        images = images[:, top : top + size[0], left : left + size[1]]
        found.append((images, real))
        count = count + real.sum(dtype="int32")
        if of_all(count[None]).sum() >= NUM_IMAGES:
            break
    return found


def collapsed_features(logs: Mapping) -> str | None:
    """Say how features collapsed and what to try, None if they did not."""
    if logs.get("feature_spread", 1.0) < NO_SPREAD:
        return (
            "the features of all images are the same (a spread of "
            f"{logs['feature_spread']:.2g}). Look whether the images are, and "
            "lower optimizer.learning_rate"
        )
    if logs.get("feature_rank", math.inf) < NO_RANK:
        return (
            "the features of all images lie on a line (an effective rank of "
            f"{logs['feature_rank']:.2f}). Look whether the images differ, "
            "lower optimizer.learning_rate or give a longer warm-up"
        )
    return None


class CollapseWatch(keras.callbacks.Callback):
    """Ends a training that tells no images apart.

    Looks at the means of an interval; the best model before is kept.

    Args:
        method: name of the method, whose option `collapse_steps` it is.
        limit: steps, of two intervals at least, after which it ends; 0 never
            ends it.
        signs: functions of the logs that say how it collapsed and what to
            try, or None.

    Attributes:
        intervals: intervals in a row in which it did.
        steps: their steps.

    Raises:
        ValueError: at the end of an interval, with what to try.
    """

    def __init__(
        self,
        method: str,
        limit: int,
        signs: tuple[Callable, ...] = (collapsed_features,),
    ):
        super().__init__()
        self.method, self.limit, self.signs = method, limit, signs
        self.intervals, self.steps = 0, 0

    def on_epoch_end(self, epoch, logs=None):
        found = [sign(logs or {}) for sign in self.signs]
        what = next(filter(None, found), None)
        if what is None:
            self.intervals, self.steps = 0, 0
            return
        self.intervals += 1
        self.steps += int((self.params or {}).get("steps") or 1)
        if self.limit and self.intervals >= 2 and self.steps >= self.limit:
            raise ValueError(
                f"The training collapsed, for {self.steps} steps: {what}. "
                "model.keras is the best model before, if there was an "
                "evaluation. Start again in a new --run_dir; "
                f"{self.method}.collapse_steps=0 goes on all the same."
            )


def watched(
    method: str,
    task: Task,
    signs: Callable = lambda recipe: (collapsed_features,),
) -> Task:
    """Return a task that ends when it tells no images apart.

    A single training image is refused, and images that are all the same are
    warned of.

    Args:
        method: name of the group of its options in a recipe.
        task: a `Task`.
        signs: from a recipe to those of its `CollapseWatch`.

    Example:
        >>> MAE = watched("mae", Task(...))
    """

    def make_stream(recipe, dataset, model, share=None):
        _check_several_images(method, dataset)
        return task.make_stream(recipe, dataset, model, share)

    def make_callbacks(recipe):
        steps = getattr(recipe, method).collapse_steps
        return [CollapseWatch(method, steps, signs(recipe))]

    return dataclasses.replace(
        task,
        make_stream=make_stream,
        make_callbacks=make_callbacks,
        make_scores=lambda recipe, model: [
            lambda validation: FeatureStatistics(model, validation)
        ],
    )


def _check_several_images(method, dataset):
    if hasattr(dataset.train, "__len__") and len(dataset.train) == 1:
        raise ValueError(
            f"method={method!r} learns what tells images apart. Received: "
            f"1 training image of {dataset.name or 'the data'}. Give more."
        )
    if are_equal(dataset.train):
        warn(
            [
                f"method={method!r} learns what tells images apart, and all "
                f"training images of {dataset.name or 'the data'} that were "
                "looked at are the same: see `keras-vit audit`"
            ]
        )


def warn(warnings) -> None:
    """Print warnings, in the first process."""
    for warning in warnings if is_first() else ():
        print(f"Warning: {warning}", flush=True)


MAX_IMAGES = 5_000  # of which all pairs are compared


def left_out_accuracy(features: np.ndarray, labels: np.ndarray) -> float:
    """Compute how many images the others classify right.

    Each is left out in its turn, and the 20 most similar of the others vote,
    see `keras_vit.evaluation.probes.fit_neighbours`.

    Args:
        features: float array (N, D).
        labels: int array (N,).

    Returns:
        The share of images, in [0, 1].

    Example:
        >>> left_out_accuracy(np.eye(2).repeat(2, axis=0), [0, 0, 1, 1])
        1.0
    """
    labels = np.asarray(labels)
    known = fit_neighbours(features, labels, int(labels.max()) + 1)
    votes = known.scores(features, own=True)
    return float((votes.argmax(axis=1) == labels).mean())


def half_probed_accuracy(features: np.ndarray, labels: np.ndarray) -> float:
    """Compute how many images of one half a probe of the other gets right.

    Of each class every second image is held out, and a logistic regression is
    fitted to the others, see `keras_vit.evaluation.probes.fit_linear`.

    Args:
        features: float array (N, D).
        labels: int array (N,).

    Returns:
        The share of the images that are held out, in [0, 1].

    Example:
        >>> half_probed_accuracy(np.eye(2).repeat(2, axis=0), [0, 0, 1, 1])
        1.0
    """
    labels = np.asarray(labels)
    classes = [np.flatnonzero(labels == x) for x in np.unique(labels)]
    fitted, held_out = (
        np.concatenate([x[half::2] for x in classes]) for half in (0, 1)
    )
    if not len(held_out):
        return 0.0
    probe = fit_linear(features[fitted], labels[fitted], int(labels.max()) + 1)
    found = probe.scores(features[held_out]).argmax(axis=1)
    return float((found == labels[held_out]).mean())


METRICS = {"val_knn": left_out_accuracy, "val_probe": half_probed_accuracy}
BEST_METRIC = "val_knn"


class KnownClasses(keras.callbacks.Callback):
    """Adds `val_knn` and `val_probe`, two accuracies, to each interval.

    Of nearest neighbours and, where SciPy is installed, of a linear probe. With
    the moving average of the weights where there is one; each of several
    processes computes a share of the features.

    Args:
        model: the model that a run saves.
        folder: a folder of classes; of one with parts its test images.
        recipe: the `Recipe`, whose reader, preprocessing and batch size count.

    Raises:
        ValueError: for a folder of fewer than two classes or more than 5,000
            images.
    """

    def __init__(self, model, folder: str, recipe):
        super().__init__()
        dataset = data.open_dataset(
            data.DataConfig(folder=folder, reader=recipe.data.reader),
            to_evaluate=True,
        )
        images, classes = dataset.test, len(dataset.class_names)
        if classes < 2 or len(images) > MAX_IMAGES:
            raise ValueError(
                "knn_folder has two classes or more, and at most "
                f"{MAX_IMAGES:,} images. Received: {folder!r} with "
                f"{len(images):,} images of {classes} classes."
            )
        self.folder, self._checksum = folder, None
        if images.kind == "path":  # Not in a store, which has records.
            facts = [content_hashes(images), np.asarray(images.labels).tolist()]
            self._checksum = zlib.crc32(repr(facts).encode())
        height, width, channels = model.input_shape[1:]
        index, count = place()
        size = min(recipe.training.micro_batch_size, len(images))
        self.batches = data.evaluation_batches(
            images,
            image_size=(height, width),
            channels=channels,
            batch_size=-(-size // count) * count,
            preprocessing=recipe.preprocessing,
            share=data.Share(index, count),
        )
        self.network = feature_model(model)
        self.metrics = dict(METRICS)
        if importlib.util.find_spec("scipy") is None:
            del self.metrics["val_probe"]
            if is_first():
                print(
                    "val_probe is left out: it needs scipy: pip install scipy"
                )

    @property
    def images(self) -> int | None:
        """Return the CRC-32 of the images and classes; None of a store."""
        return self._checksum

    @images.setter
    def images(self, begun: int | None) -> None:
        """Raise a ValueError for others than those that the run began with."""
        if begun != self.images:
            raise ValueError(
                "The images of knn_folder are not those that the run began "
                f"with, by which its best model is selected. Received: "
                f"{self.folder!r} with the checksum {self.images}, {begun} in "
                "the checkpoint. Put them back, or choose another --run_dir."
            )

    def on_epoch_end(self, epoch, logs=None):
        if logs is None:
            return
        features, labels, masks = [], [], []
        with computing(self.network, self.model) as predict:
            for images, truth, mask in self.batches:
                features.append(predict(np.asarray(images)))
                labels.append(np.asarray(truth))
                masks.append(np.asarray(mask))
        features, labels, masks = (
            _in_order(np.stack(x)) for x in (features, labels, masks)
        )
        for name, accuracy in self.metrics.items():
            logs[name] = accuracy(features[masks], labels[masks])


def _in_order(batches: np.ndarray) -> np.ndarray:
    """From the share of a process, (S, B, ...), to the rows of all, as read."""
    found = stacked(batches).swapaxes(0, 1)  # (S, P, B, ...)
    return found.reshape(-1, *batches.shape[2:])


def with_known_classes(task: Task, folder: str) -> Task:
    """Return a task without labels whose best model has the best `val_knn`.

    Args:
        task: a `Task`.
        folder: see `KnownClasses`.

    Example:
        >>> train(recipe, task=with_known_classes(MAE, "some_of_known_classes"))
    """

    def make_scores(recipe, model):
        found = KnownClasses(model, folder, recipe)
        made = task.make_scores(recipe, model)
        return [*made, lambda validation: found]

    return dataclasses.replace(
        task, best_metric=BEST_METRIC, make_scores=make_scores
    )
