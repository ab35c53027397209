"""Few-shot evaluation: simple classifiers of a model's features.

"An Image Is Worth 16x16 Words" (arXiv:2010.11929), section 4.1 and figure 4,
as big_vision's `evaluators/fewshot_lsr.py` computes it.

Of the training images only the chosen ones pass through the model, and the
features of the test images are used batch by batch. Only the labels of the
training images grow with the data set.

Axes: N images, B images of a batch, D features, K classes, R probes.
"""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.data import DataConfig
from keras_vit.evaluation.config import DISTRIBUTIONS, ModelSource
from keras_vit.evaluation.predictions import Together
from keras_vit.evaluation.probes import (
    fit_linear,
    fit_neighbours,
    fit_probe,
)
from keras_vit.io.checks import (
    check_at_least,
    check_choice,
    check_positive,
    check_types,
    check_unread,
)
from keras_vit.models.configured_model import keeping
from keras_vit.runtime.platforms import compile_predictions

__all__ = [
    "FeatureStream",
    "FewShot",
    "PROBES",
    "SHOTS",
    "choose_shots",
    "feature_model",
    "few_shot",
    "summarise_shots",
]

SHOTS = (1, 5, 10, 25)
HEAD = "predictions"
BATCHES_AT_ONCE = 64
CROPS = ("resize_central_crop", "resize_small_central_crop", "squash")
# From the options to what fits to (features, labels, number of classes).
PROBES: dict[str, Callable] = {
    "least_squares": lambda x: functools.partial(fit_probe, l2=x.l2),
    "linear": lambda x: functools.partial(fit_linear, l2=x.linear_l2),
    "knn": lambda x: functools.partial(
        fit_neighbours,
        num_neighbours=x.num_neighbours,
        temperature=x.temperature,
    ),
}
# The options that each of them reads.
OF_PROBES = {
    "least_squares": ("l2",),
    "linear": ("linear_l2",),
    "knn": ("num_neighbours", "temperature"),
}


@dataclasses.dataclass(frozen=True)
class FewShot:
    """Simple classifiers of a model's features, fitted to few images per class.

    The defaults are those of big_vision's `evaluators/fewshot_lsr.py`.

    Raises:
        ValueError: for values that are out of range, options of another probe,
            or no model.

    Example:
        >>> FewShot(model=ModelSource(weights="runs/quickstart")).l2
        1024.0
    """

    model: ModelSource = dataclasses.field(default_factory=ModelSource)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)

    run_dir: str = "runs/few_shot"
    """Folder that the results are written to, on a disk or at gs://bucket/folder
    or s3://bucket/folder."""

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

    shots: tuple[int | None, ...] = SHOTS
    """Images of each class to fit to; null for all, as in [null]."""

    num_seeds: int = 3
    """How many choices of images the accuracy is averaged over."""

    probe: str = "least_squares"
    """Classifier of the features: regularised "least_squares" (the ViT
    paper), "knn", the nearest neighbours vote (DINO), or "linear", logistic
    regression."""

    l2: float = 1024.0
    """Strength of the regularisation of least_squares."""

    linear_l2: float = 1.0
    """Strength of the regularisation of linear: half of it times the squared
    weights is added to the summed cross-entropy."""

    num_neighbours: int = 20
    """Nearest images that vote in knn; all, where there are fewer."""

    temperature: float = 0.07
    """What the cosine similarity is divided by in the votes of knn."""

    layer: str | None = None
    """Layer whose output the features are; null is what the classification
    layer sees."""

    crop: str = "resize_central_crop"
    """How images are resized to the size of the model:
    "resize_central_crop", "resize_small_central_crop" or "squash"."""

    batch_size: int = 64
    """Images per step; the last step is padded."""

    def __post_init__(self):
        check_types(self)
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        check_choice("crop", self.crop, CROPS)
        check_at_least(self, 0, "seed")
        check_at_least(self, 1, "num_seeds", "batch_size", "num_neighbours")
        check_choice("probe", self.probe, PROBES)
        check_positive(self, "l2", "linear_l2", "temperature")
        _check_shots(self.shots)
        for probe, names in OF_PROBES.items():
            if probe != self.probe:
                check_unread(self, f"probe={self.probe!r}", *names)
        check_unread(self.model, "features", "activation")
        if self.model.weights is None and not self.smoke:
            raise ValueError(
                "There is no model. Give --model.weights: a run folder, a "
                "file, or a name of `keras-vit weights list`."
            )

    @property
    def fit(self) -> Callable:
        """What fits the probe, see `few_shot`."""
        return PROBES[self.probe](self)


def _check_shots(shots):
    wrong = any(count is not None and count < 1 for count in shots)
    if wrong or not shots or len({*shots}) < len(shots):
        raise ValueError(
            "shots must be numbers above 0, or None for all images, each "
            f"there once. Received: shots={list(shots)}."
        )


def choose_shots(
    labels: np.ndarray,
    num_classes: int,
    *,
    shots: Sequence[int | None],
    seed: int,
) -> list[np.ndarray]:
    """Choose images of each class at random, as big_vision does.

    More shots contain fewer shots: all are the first ones of the same order.

    Args:
        labels: int array of shape (N,).
        num_classes: int, K.
        shots: images of each class to choose, None for all; a class that has
            fewer gives all it has.
        seed: int; another one chooses other images.

    Returns:
        For each number of shots the numbers of the images, an int array,
        class after class.

    Raises:
        ValueError: when a number of shots is not above 0, or there twice.

    Example:
        >>> labels = np.array([0, 1, 0, 1])
        >>> [len(images) for images in choose_shots(
        ...     labels, 2, shots=[1, 2], seed=0)]
        [2, 4]
    """
    _check_shots(shots)
    random = np.random.default_rng(seed)
    counts = np.bincount(labels, minlength=num_classes)
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts))
    orders = [random.permutation(images) for images in by_class[:num_classes]]
    return [
        np.concatenate([order[:count] for order in orders]) for count in shots
    ]


def feature_model(model: keras.Model, layer: str | None = None) -> keras.Model:
    """Make the model from images to features, without the head.

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
            f"output of shape {output.shape}. Choose a layer after pooling or "
            'kind="tokens", or load the model with pooling="mean": '
            "--model.pooling of a recipe."
        )
    return keras.Model(model.input, output, name="features")


def few_shot(
    features: keras.Model,
    train,
    test,
    *,
    num_classes: int,
    batches: Callable,
    shots: Sequence[int | None] = SHOTS,
    seeds: Sequence[int] = (0, 1, 2),
    fit: Callable = fit_probe,
    together: Together | None = None,
) -> list[dict[str, Any]]:
    """Fit simple classifiers to few images per class and test them.

    Args:
        features: a Keras model from images to features (B, D), see
            `feature_model`. Under tf.distribute, call this in its scope.
        train: the `Examples` to choose from.
        test: those to test on, all of them.
        num_classes: int, K.
        batches: function from examples to batches, such as
            `keras_vit.data.evaluation_batches` with all its options.
        shots: images of each class to fit to, None for all.
        seeds: one choice of images for each.
        fit: function of features (N, D), labels (N,) and the number of
            classes K to an object whose `scores` of features are (N, K):
            `fit_probe`, `fit_neighbours` or `fit_linear` of
            `keras_vit.evaluation.probes` with its options.
        together: in several processes, of which `batches` gives each its
            share, what puts the shares together.

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
    stream = FeatureStream(features, together)
    some = train.subset(used)
    known, readable = stream.all_of(batches(some), len(used))
    probes = []
    for row, images in trials:
        rows = np.searchsorted(used, images)
        rows = rows[readable[rows]]
        probes.append(fit(known[rows], labels[used[rows]], num_classes))
        row["num_train"] = len(rows)
    right, count = _count_right(stream, batches(test), probes)
    return [
        {**row, "num_test": count, "accuracy": float(number / count)}
        for (row, _), number in zip(trials, right, strict=True)
    ]


def summarise_shots(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average the accuracies over the seeds.

    Args:
        rows: what `few_shot` returns.

    Returns:
        A dictionary for each number of shots: "shots", "mean" accuracy, "std"
        (the standard deviation of the sample; 0 of one seed), "seeds".

    Example:
        >>> summarise_shots([{"shots": 5, "accuracy": 0.5}])
        [{'shots': 5, 'mean': 0.5, 'std': 0.0, 'seeds': 1}]
    """
    grouped: dict[int | None, list[float]] = {}
    for row in rows:
        grouped.setdefault(row["shots"], []).append(row["accuracy"])
    return [
        {
            "shots": shots,
            "mean": float(np.mean(found)),
            "std": float(np.std(found, ddof=1)) if len(found) > 1 else 0.0,
            "seeds": len(found),
        }
        # All images are the most.
        for shots, found in sorted(
            grouped.items(), key=lambda item: item[0] or np.inf
        )
    ]


def _labels_of(examples, num_classes: int) -> np.ndarray:
    labels = examples.labels
    if labels.ndim != 1 or labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"Each image of {examples.source} must have one label, from 0 to "
            f"{num_classes - 1}. Received: labels of shape {labels.shape} from "
            f"{labels.min()} to {labels.max()}."
        )
    return labels


class FeatureStream(keras.Model):
    """Features of some batches at a time; labels and masks pass through.

    Args:
        model: a Keras model from images to features, see `feature_model`.
        together: in several processes, what puts the shares together.

    Example:
        >>> stream = FeatureStream(feature_model(model))
        >>> features, readable = stream.all_of(batches, len(examples))
    """

    predict = keeping("predict")

    def __init__(self, model, together=None):
        super().__init__(name="feature_stream")
        self.model = model
        self.together = together
        # It has no weights of its own: Keras need not try a batch first.
        self.built = True
        compile_predictions(self)

    def call(self, inputs):
        images, labels, mask = inputs
        features = self.model(images, training=False)
        features = keras.ops.cast(features, "float32")
        return {"features": features, "labels": labels, "mask": mask}

    def parts_of(self, batches) -> Iterator[dict[str, np.ndarray]]:
        """Yield features, labels and masks of BATCHES_AT_ONCE batches."""
        left = (tuple(map(np.asarray, batch)) for batch in batches)
        for first in left:
            some = itertools.islice(left, BATCHES_AT_ONCE - 1)
            inputs = ((batch,) for batch in itertools.chain([first], some))
            with warnings.catch_warnings():
                # Keras says so of any data whose length it cannot know.
                warnings.filterwarnings("ignore", message="Your input ran out")
                yield self.predict(inputs, verbose=0)

    def all_of(self, batches, count: int):
        """Return features (N, D) of the images, and which are readable."""
        parts = list(self.parts_of(batches))
        found = [
            np.concatenate([part[name] for part in parts])
            for name in ("features", "mask")
        ]
        if self.together is not None:
            found = [self.together.rows(array) for array in found]
        return [array[:count] for array in found]


def _count_right(stream: FeatureStream, batches, probes):
    """Count the images that each probe classifies rightly, (R,), and all."""
    right, count = np.zeros(len(probes), int), 0
    for part in stream.parts_of(batches):
        features = part["features"][part["mask"]].astype(np.float64)
        labels = part["labels"][part["mask"]]
        for i, probe in enumerate(probes):
            right[i] += np.sum(probe.scores(features).argmax(axis=1) == labels)
        count += len(labels)
    if stream.together is not None:
        *right, count = stream.together.total(np.array([*right, count]))
    if not count:
        raise ValueError("There is no image to test on that can be read.")
    return right, int(count)
