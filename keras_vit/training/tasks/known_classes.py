"""What features are worth on images of known classes, as a run learns.

Losses without labels say little of it. Axes: N images, D features, K classes,
P processes, S batches, B images of a batch.
"""

import dataclasses
import importlib.util

import keras
import numpy as np

from keras_vit import data
from keras_vit.evaluation.few_shot import feature_model
from keras_vit.evaluation.probes import fit_linear, fit_neighbours
from keras_vit.training.build import Task
from keras_vit.training.distribution.processes import place, stacked
from keras_vit.training.tasks.collapse import computing

__all__ = [
    "KnownClasses",
    "half_probed_accuracy",
    "left_out_accuracy",
    "with_known_classes",
]

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
            print("val_probe is left out: it needs SciPy, pip install scipy.")

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
