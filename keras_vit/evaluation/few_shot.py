"""Few-shot accuracy: how much a linear classifier of features learns.

"An Image Is Worth 16x16 Words" (arXiv:2010.11929), section 4.1 and figure 4,
as big_vision's `evaluators/fewshot_lsr.py` computes it.

Features of the training images are computed for those that are chosen alone,
and those of the test images are used up batch by batch. What grows with the
data set is one integer for each training image, its label.

Axes: N images, B images of a batch, D features, K classes, R probes.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.data.chosen import Chosen
from keras_vit.evaluation.few_shot_probe import choose_shots, fit_probe

__all__ = ["SHOTS", "feature_model", "few_shot", "summarise_shots"]

HEAD = "predictions"
SHOTS = (1, 5, 10, 25)
BATCHES_AT_ONCE = 64


def feature_model(model: keras.Model, layer: str | None = None) -> keras.Model:
    """Cuts a model off at its features.

    Args:
        model: a functional Keras model.
        layer: name of the layer whose output they are; None for what the
            classification layer sees (the paper's "frozen representation"),
            or the output of a model without one.

    Returns:
        A Keras model from images to features (B, D).

    Raises:
        ValueError: when there is no such layer, or its output has other axes.

    Example:
        >>> feature_model(keras_vit.ViT_B16(weights=None)).output_shape
        (None, 768)
    """
    names = [known.name for known in model.layers]
    if layer is not None and layer not in names:
        raise ValueError(
            f"The model has no layer {layer!r}. It has {', '.join(names)}."
        )
    if layer is not None:
        output = model.get_layer(layer).output
    else:
        output = model.get_layer(HEAD).input if HEAD in names else model.output
    if len(output.shape) != 2:
        raise ValueError(
            "Features must be one row an image, (batch, D). Received: an "
            f"output of shape {output.shape}. Choose a layer after pooling."
        )
    return keras.Model(model.input, output, name="features")


def few_shot(
    features: keras.Model,
    train,
    test,
    *,
    num_classes: int,
    batches: Callable,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = (0, 1, 2),
    l2: float = 1024.0,
) -> list[dict[str, Any]]:
    """Fits linear classifiers to few images a class and tests them.

    Args:
        features: a Keras model from images to features (B, D), see
            `feature_model`. Under tf.distribute, call this in its scope.
        train: the `Examples` or `StreamedExamples` to choose from.
        test: those to test on, all of them.
        num_classes: int, K.
        batches: function from examples to batches, such as
            `keras_vit.data.evaluation_batches` with all its options.
        shots: images of each class to fit to.
        seeds: one choice of images for each.
        l2: float, strength of the regularisation.

    Returns:
        A dictionary for each number of shots and seed: "shots", "seed",
        "num_train" images that were fitted to, "num_test", "accuracy".

    Raises:
        ValueError: for images with several labels, labels that are no class,
            features that are not finite, or options out of range.

    Example:
        >>> batches = functools.partial(
        ...     keras_vit.data.evaluation_batches,
        ...     image_size=224, channels=3, batch_size=64,
        ... )
        >>> few_shot(
        ...     feature_model(model), dataset.train, dataset.test,
        ...     num_classes=10, batches=batches, shots=[5],
        ... )[0]["accuracy"]
    """
    labels = _labels_of(train, num_classes)
    trials = [
        ({"shots": count, "seed": seed}, images)
        for seed in seeds
        for count, images in zip(
            shots,
            choose_shots(labels, num_classes, shots=shots, seed=seed),
            strict=True,
        )
    ]
    used = np.unique(np.concatenate([images for _, images in trials]))
    streamed = _Streamed(features)
    known, readable = streamed.all_of(batches(Chosen(train, used)), len(used))
    probes = []
    for row, images in trials:
        rows = np.searchsorted(used, images)
        rows = rows[readable[rows]]
        probe = fit_probe(known[rows], labels[used[rows]], num_classes, l2=l2)
        probes.append(probe)
        row["num_train"] = len(rows)
    right, count = _count_right(streamed, batches(test), probes)
    return [
        {**row, "num_test": count, "accuracy": float(number / count)}
        for (row, _), number in zip(trials, right, strict=True)
    ]


def summarise_shots(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and spread over the seeds.

    Args:
        rows: what `few_shot` returns.

    Returns:
        A dictionary for each number of shots: "shots", "mean" accuracy, "std"
        (the standard deviation of the sample; 0 of one seed), "seeds".

    Example:
        >>> summarise_shots([{"shots": 5, "accuracy": 0.5}])
        [{'shots': 5, 'mean': 0.5, 'std': 0.0, 'seeds': 1}]
    """
    grouped: dict[int, list[float]] = {}
    for row in rows:
        grouped.setdefault(row["shots"], []).append(row["accuracy"])
    return [
        {
            "shots": shots,
            "mean": float(np.mean(found)),
            "std": float(np.std(found, ddof=1)) if len(found) > 1 else 0.0,
            "seeds": len(found),
        }
        for shots, found in sorted(grouped.items())
    ]


def _labels_of(examples, num_classes: int) -> np.ndarray:
    labels = examples.labels
    if labels is None:
        stream = examples.in_order().map(lambda record: record["label"])
        labels = np.concatenate(list(stream.batch(4096).as_numpy_iterator()))
    if labels.ndim != 1 or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"Each image of {examples.source} must have one label, from 0 to "
            f"{num_classes - 1}. Received: labels of shape {labels.shape} from "
            f"{labels.min()} to {labels.max()}."
        )
    return labels


class _Streamed(keras.Model):
    """Features with labels and mask led past them, some batches at a time."""

    def __init__(self, model):
        super().__init__(name="streamed")
        self.model = model
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True

    def call(self, inputs):
        images, labels, mask = inputs
        features = self.model(images, training=False)
        features = keras.ops.cast(features, "float32")
        return {"features": features, "labels": labels, "mask": mask}

    def parts_of(self, batches) -> Iterator[dict[str, np.ndarray]]:
        """Features, labels and mask of batches, BATCHES_AT_ONCE at a time."""
        left = (tuple(map(np.asarray, batch)) for batch in batches)
        for first in left:
            some = itertools.islice(left, BATCHES_AT_ONCE - 1)
            inputs = ((batch,) for batch in itertools.chain([first], some))
            with warnings.catch_warnings():
                # Keras says so of any data whose length it cannot know.
                warnings.filterwarnings("ignore", message="Your input ran out")
                yield self.predict(inputs, verbose=0)

    def all_of(self, batches, count: int):
        """Features (N, D) of the first images, and which could be read."""
        parts = list(self.parts_of(batches))
        return (
            np.concatenate([part[name] for part in parts])[:count]
            for name in ("features", "mask")
        )


def _count_right(streamed: _Streamed, batches, probes):
    """How many images each probe names, (R,), and of how many."""
    kernels = np.concatenate([probe.kernel for probe in probes], axis=1)
    biases = np.concatenate([probe.bias for probe in probes])
    right, count = np.zeros(len(probes), int), 0
    for part in streamed.parts_of(batches):
        features = part["features"][part["mask"]].astype(np.float64)
        scores = features @ kernels + biases  # (N, R * K)
        scores = scores.reshape(len(features), len(probes), -1)
        labels = part["labels"][part["mask"]]
        right += (scores.argmax(axis=-1) == labels[:, None]).sum(axis=0)
        count += len(labels)
    if not count:
        raise ValueError("There is no image to test on that can be read.")
    return right, count
