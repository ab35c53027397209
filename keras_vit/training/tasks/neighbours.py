"""What the features of a run are worth, by nearest neighbours, as it learns.

Losses without labels say little of it. Axes: N images, D features, K classes.
"""

import dataclasses

import keras
import numpy as np

from keras_vit import data
from keras_vit.evaluation.few_shot import feature_model
from keras_vit.evaluation.probes import fit_neighbours
from keras_vit.training.build import Task
from keras_vit.training.distribution.processes import place
from keras_vit.training.tasks.collapse import computing, of_all

__all__ = ["NearestNeighbours", "left_out_accuracy", "with_neighbours"]

MAX_IMAGES = 5_000  # of which all pairs are compared
METRIC = "val_knn"


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


class NearestNeighbours(keras.callbacks.Callback):
    """Adds `val_knn`, the accuracy of nearest neighbours, to each interval.

    With the moving average of the weights where there is one; each of several
    processes computes a share.

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
            of_all(np.concatenate(x)) for x in (features, labels, masks)
        )
        logs[METRIC] = left_out_accuracy(features[masks], labels[masks])


def with_neighbours(task: Task, folder: str) -> Task:
    """Return a task without labels whose best model has the best `val_knn`.

    Args:
        task: a `Task`.
        folder: see `NearestNeighbours`.

    Example:
        >>> train(recipe, task=with_neighbours(MAE, "photos_of_known_classes"))
    """

    def make_scores(recipe, model):
        found = NearestNeighbours(model, folder, recipe)
        made = task.make_scores(recipe, model)
        return [*made, lambda validation: found]

    return dataclasses.replace(
        task, best_metric=METRIC, make_scores=make_scores
    )
