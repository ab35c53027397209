"""Few-shot evaluation: linear classifiers of a model's features.

"An Image Is Worth 16x16 Words" (arXiv:2010.11929), section 4.1 and figure 4,
as big_vision's `evaluators/fewshot_lsr.py` computes it.

Of the training images only the chosen ones pass through the model, and the
features of the test images are used batch by batch. Only the labels of the
training images grow with the data set.

Axes: N images, B images of a batch, D features, K classes, R probes.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checks import check_at_least, check_choice
from keras_vit.data import DataConfig
from keras_vit.data.dataset import Subset
from keras_vit.evaluation.config import DISTRIBUTIONS, ModelSource

__all__ = [
    "FewShot",
    "Probe",
    "SHOTS",
    "choose_shots",
    "feature_model",
    "few_shot",
    "fit_probe",
    "summarise_shots",
]

SHOTS = (1, 5, 10, 25)
TINY = 1e-5  # Added to each standard deviation.
HEAD = "predictions"
BATCHES_AT_ONCE = 64
CROPS = ("resize_central_crop", "resize_small_central_crop", "squash")


@dataclasses.dataclass(frozen=True)
class FewShot:
    """Linear classifiers of a model's features, fitted to few images per class.

    The defaults are those of big_vision's `evaluators/fewshot_lsr.py`.

    Raises:
        ValueError: for values that are out of range, or no model.

    Example:
        >>> FewShot(model=ModelSource(weights="runs/quickstart")).l2
        1024.0
    """

    model: ModelSource = dataclasses.field(default_factory=ModelSource)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)

    run_dir: str = "runs/few_shot"
    """Folder that the results are written to."""

    smoke: bool = False
    """Whether to try the recipe out: a tiny model without weights on some of
    the digits that ship with scikit-learn."""

    seed: int = 0
    """Seed of the first choice of images; the next ones count up from it."""

    distribution: str = "auto"
    """Where it computes: "auto" takes all devices that divide a batch,
    "single" one. On jax also "data_parallel", "fsdp" and "model_parallel",
    on tensorflow "mirrored" and "tpu"."""

    overwrite: bool = False
    """Whether a finished run in run_dir may be replaced."""

    shots: tuple[int, ...] = SHOTS
    """Images of each class to fit to."""

    num_seeds: int = 3
    """How many choices of images the accuracy is averaged over."""

    l2: float = 1024.0
    """Strength of the regularisation."""

    layer: str | None = None
    """Layer whose output the features are; null is what the classification
    layer sees."""

    crop: str = "resize_central_crop"
    """How images are resized to the size of the model:
    "resize_central_crop", "resize_small_central_crop" or "squash"."""

    batch_size: int = 64
    """Images per step; the last step is padded."""

    def __post_init__(self):
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        check_choice("crop", self.crop, CROPS)
        check_at_least(self, 0, "seed")
        check_at_least(self, 1, "num_seeds", "batch_size")
        if not self.shots or min(self.shots) < 1 or not self.l2 > 0:
            raise ValueError(
                "shots must be numbers above 0, and l2 above 0. Received: "
                f"shots={self.shots}, l2={self.l2}."
            )
        if self.model.weights is None and not self.smoke:
            raise ValueError(
                "There is no model. Give --model.weights: a run folder, a "
                "file, or a name of `keras-vit weights list`."
            )


@dataclasses.dataclass(frozen=True)
class Probe:
    """A linear classifier, made by `fit_probe`.

    Args:
        kernel: float64 array of shape (D, K).
        bias: float64 array of shape (K,).
    """

    kernel: np.ndarray
    bias: np.ndarray

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Scores (N, K) of features (N, D), near 1 for yes and -1 for no."""
        return features.astype(np.float64) @ self.kernel + self.bias


def fit_probe(
    features: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    *,
    l2: float = 1024.0,
    constant: float = 100.0,
) -> Probe:
    """Fits a linear classifier by regularised least squares.

    Features are whitened one by one with their mean and standard deviation,
    a constant feature is added, large so that it is hardly regularised, and
    the targets are 1 for the class and -1 for all others. Of the two equal
    forms of the solution, (X'X + l2 I)^-1 X'Y and X'(XX' + l2 I)^-1 Y, the one
    with the smaller matrix is solved, in float64.

    Args:
        features: float array of shape (N, D).
        labels: int array of shape (N,).
        num_classes: int, K.
        l2: float, strength of the regularisation, above 0.
        constant: float, value of the constant feature.

    Returns:
        A `Probe` of the features as they were given.

    Raises:
        ValueError: when there are no images, features and labels do not
            fit, a label is no class, or l2 is not above 0.

    Example:
        >>> features = np.array([[0.0], [1.0]])
        >>> probe = fit_probe(features, np.array([0, 1]), 2, l2=1.0)
        >>> probe.scores(features).argmax(axis=1).tolist()
        [0, 1]
    """
    _check(features, labels, num_classes, l2)
    features = features.astype(np.float64)
    mean, deviation = features.mean(axis=0), features.std(axis=0) + TINY
    x = (features - mean) / deviation
    x = np.pad(x, ((0, 0), (0, 1)), constant_values=constant)  # (N, D + 1)
    targets = 2.0 * np.eye(num_classes)[labels] - 1.0  # (N, K)
    images, width = x.shape
    if images >= width:
        solved = np.linalg.solve(x.T @ x + l2 * np.eye(width), x.T @ targets)
    else:
        solved = x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(images), targets)
    kernel = solved[:-1] / deviation[:, None]  # (D, K)
    return Probe(kernel, constant * solved[-1] - mean @ kernel)


def _check(features, labels, num_classes: int, l2: float) -> None:
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            "There must be a row of features and a label for each image. "
            f"Received: features of shape {features.shape}, labels of shape "
            f"{labels.shape}."
        )
    if not len(labels) or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"There must be labels, from 0 to {num_classes - 1}. Received: "
            f"{np.unique(labels).tolist()}."
        )
    if not l2 > 0:
        raise ValueError(f"l2 must be above 0. Received: l2={l2}.")
    if not np.isfinite(features).all():
        raise ValueError(
            "The model gives features that are not finite. See the weights "
            "and the images."
        )


def choose_shots(
    labels: np.ndarray, num_classes: int, *, shots: Sequence[int], seed: int
) -> list[np.ndarray]:
    """Chooses images of each class at random, as big_vision does.

    More shots contain fewer shots: all are the first ones of the same order.

    Args:
        labels: int array of shape (N,).
        num_classes: int, K.
        shots: images of each class to choose; a class that has fewer gives
            all it has.
        seed: int; another one chooses other images.

    Returns:
        For each number of shots the numbers of the images, an int array,
        class after class.

    Raises:
        ValueError: when a number of shots is not above 0.

    Example:
        >>> labels = np.array([0, 1, 0, 1])
        >>> [len(images) for images in choose_shots(
        ...     labels, 2, shots=[1, 2], seed=0)]
        [2, 4]
    """
    if min(shots, default=0) < 1:
        raise ValueError(
            f"shots must be numbers above 0. Received: shots={list(shots)}."
        )
    random = np.random.default_rng(seed)
    counts = np.bincount(labels, minlength=num_classes)
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts))
    orders = [random.permutation(images) for images in by_class[:num_classes]]
    return [
        np.concatenate([order[:count] for order in orders]) for count in shots
    ]


def feature_model(model: keras.Model, layer: str | None = None) -> keras.Model:
    """Makes the model from images to features, without the head.

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
            "Features must be one row per image, (batch, D). Received: an "
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
    """Fits linear classifiers to few images per class and tests them.

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
    stream = _FeatureStream(features)
    known, readable = stream.all_of(batches(Subset(train, used)), len(used))
    probes = []
    for row, images in trials:
        rows = np.searchsorted(used, images)
        rows = rows[readable[rows]]
        probe = fit_probe(known[rows], labels[used[rows]], num_classes, l2=l2)
        probes.append(probe)
        row["num_train"] = len(rows)
    right, count = _count_right(stream, batches(test), probes)
    return [
        {**row, "num_test": count, "accuracy": float(number / count)}
        for (row, _), number in zip(trials, right, strict=True)
    ]


def summarise_shots(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Averages the accuracies over the seeds.

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


class _FeatureStream(keras.Model):
    """Features of some batches at a time; labels and masks pass through."""

    def __init__(self, model):
        super().__init__(name="feature_stream")
        self.model = model
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True

    def call(self, inputs):
        images, labels, mask = inputs
        features = self.model(images, training=False)
        features = keras.ops.cast(features, "float32")
        return {"features": features, "labels": labels, "mask": mask}

    def parts_of(self, batches) -> Iterator[dict[str, np.ndarray]]:
        """Yields features, labels and masks of BATCHES_AT_ONCE batches."""
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


def _count_right(stream: _FeatureStream, batches, probes):
    """How many images each probe classifies rightly, (R,), of how many."""
    kernels = np.concatenate([probe.kernel for probe in probes], axis=1)
    biases = np.concatenate([probe.bias for probe in probes])
    right, count = np.zeros(len(probes), int), 0
    for part in stream.parts_of(batches):
        features = part["features"][part["mask"]].astype(np.float64)
        scores = features @ kernels + biases  # (N, R * K)
        scores = scores.reshape(len(features), len(probes), -1)
        labels = part["labels"][part["mask"]]
        right += (scores.argmax(axis=-1) == labels[:, None]).sum(axis=0)
        count += len(labels)
    if not count:
        raise ValueError("There is no image to test on that can be read.")
    return right, count
