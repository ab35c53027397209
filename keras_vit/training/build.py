"""From a recipe to what is trained: the model, the batches and the loss.

Of the weights all are trained, the head, or low-rank adaptations (LoRA); a
run's own are not those of a teacher, which it only reads.

A regression sees the numbers of the training images with a mean of 0 and a
deviation of 1. What it saves has both in its last layer, so that every format
of the model, and whatever runs it, answers in the units of the data.

Axes: B images of a batch, H and W height and width, C channels, K classes or
numbers, N training images, D features; of a dense layer that is adapted D input
and M output features, r the rank.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import applications, checkpoints, data
from keras_vit.checkpoints.engine.loading import located
from keras_vit.checkpoints.engine.matching import REGISTERED_NAMES
from keras_vit.checkpoints.public.catalog import pair_source
from keras_vit.checkpoints.public.fetch import resolve
from keras_vit.data.array_ops import ops_of
from keras_vit.data.batches import images_per_batch
from keras_vit.data.dataset import PARTS
from keras_vit.evaluation.few_shot import FeatureStream, feature_model
from keras_vit.evaluation.probes import fit_layer
from keras_vit.models import BiT, Mixer, VisionTransformer, ViTConfig
from keras_vit.models.configured_model import ConfiguredModel
from keras_vit.runtime.workarounds import backend_is, put_apart, sublayers
from keras_vit.text.templates import DEFAULT_TEMPLATE
from keras_vit.text.zero_shot import class_embeddings, zero_shot_model
from keras_vit.training.config import (
    PLAIN_VARIANT,
    config_class_of,
    config_of,
    options_of,
)
from keras_vit.training.distribution.processes import to_numpy
from keras_vit.variants import VariantConfig, VariantTransformer

__all__ = [
    "AbsoluteError",
    "Accuracy",
    "CLASSIFICATION",
    "HEAD",
    "NO_CLASS",
    "SigmoidCrossEntropy",
    "TRANSFORMERS",
    "Targets",
    "Task",
    "Teacher",
    "add_lora",
    "check_lora",
    "check_plain",
    "check_trains_all",
    "count_parameters",
    "family_of",
    "fit_head",
    "for_task",
    "freeze",
    "headless",
    "in_units",
    "make_encoder",
    "make_loss",
    "make_model",
    "make_stream",
    "make_trainable",
    "make_validation",
    "own_variables",
    "regression",
    "targets_of",
    "teachers_in",
    "to_units",
    "validation_batches",
]

TRANSFORMERS = (VisionTransformer, VariantTransformer)
FAMILIES = (*TRANSFORMERS, Mixer, BiT)
REPLACED = (None, "new", "probe")  # heads of the weights
# Of methods without labels: a model is built for one class, and made headless.
NO_CLASS = ("",)


@dataclasses.dataclass(frozen=True)
class Targets:
    """The mean and the deviation of the numbers of the training images.

    Args:
        mean: K floats.
        deviation: K floats above 0.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def normalised(self, dataset: data.Dataset) -> data.Dataset:
        """Return a data set whose numbers are those that the training sees."""
        parts = {
            part: dataclasses.replace(
                examples,
                labels=(examples.labels - self.mean) / self.deviation,
            )
            for part in PARTS
            if (examples := getattr(dataset, part)) is not None
        }
        return dataclasses.replace(dataset, **parts)

    def head_in_units(self, kernel, bias) -> tuple[np.ndarray, np.ndarray]:
        """Return kernel (D, K) and bias (K,) that answer in units."""
        kernel, bias = kernel.astype("float64"), bias.astype("float64")
        return kernel * self.deviation, bias * self.deviation + self.mean

    def head_about_0(self, kernel, bias) -> tuple[np.ndarray, np.ndarray]:
        """Return kernel (D, K) and bias (K,) that answer normalised."""
        kernel, bias = kernel.astype("float64"), bias.astype("float64")
        return kernel / self.deviation, (bias - self.mean) / self.deviation


def targets_of(dataset: data.Dataset) -> Targets:
    """Compute the `Targets` of the training images of a data set.

    Raises:
        ValueError: when a number is the same for all of them.
    """
    labels = dataset.train.labels  # (N, K)
    deviation = labels.std(axis=0)
    same = np.flatnonzero(deviation == 0)
    if len(same):
        raise ValueError(
            f"There is nothing to learn: {dataset.class_names[same[0]]!r} is "
            f"{labels[0, same[0]]:g} of all {len(labels)} training images of "
            f"{dataset.name!r}. Leave the column out of data.label_key."
        )
    return Targets(tuple(labels.mean(axis=0)), tuple(deviation))


def to_units(model: keras.Model) -> None:
    """Let a model that learned about 0 answer in units, for good."""
    targets = getattr(model, "targets", None)
    if targets is not None:
        weights = model.get_layer(HEAD).weights
        _assign(weights, targets.head_in_units(*map(to_numpy, weights)))
        model.targets = None


def to_0(model: keras.Model) -> None:
    """Let a model that answers in units learn about 0."""
    weights = model.get_layer(HEAD).weights
    _assign(weights, model.targets.head_about_0(*map(to_numpy, weights)))


@contextlib.contextmanager
def in_units(model: keras.Model) -> Iterator[None]:
    """Let a model answer in units, and then be as before, to the bit."""
    targets = getattr(model, "targets", None)
    if targets is None:
        yield
        return
    weights = model.get_layer(HEAD).weights
    kept = [to_numpy(x) for x in weights]
    _assign(weights, targets.head_in_units(*kept))
    try:
        yield
    finally:
        _assign(weights, kept)


def _assign(variables, values):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value.astype("float32"))


class AbsoluteError(keras.metrics.MeanMetricWrapper):
    """Mean absolute error in units, of normalised numbers.

    Those of weight 0 are padding.

    Args:
        deviation: K floats, that of the numbers.
    """

    def __init__(self, deviation, name="mae"):
        scale = np.array(deviation, "float32")

        def error(y_true, y_pred):
            difference = ops.abs(ops.cast(y_pred, "float32") - y_true)
            return ops.mean(ops.multiply(difference, scale), axis=-1)

        super().__init__(error, name=name)


def make_model(recipe, class_names) -> keras.Model:
    """Build the model of a recipe, with its first weights.

    Args:
        recipe: a `Recipe`. The positions of weights for another image size
            than `recipe.model.image_size` are resampled.
        class_names: sequence of str, one per output of the model.

    Returns:
        A Keras model from images in [0, 255] to logits, not compiled, with
        the layers frozen that `recipe.training` leaves out, and LoRA added
        where it has a rank.

    Raises:
        ValueError: for options that the model, its weights or the backend
            do not have, or a head to be kept that is of other classes.
        OSError: when weights cannot be fetched.

    Example:
        >>> model = make_model(Recipe(), ["cat", "dog"])
        >>> model.output_shape
        (None, 2)
    """
    _check_steps_per_execution(recipe.training.steps_per_execution)
    make = _fresh if recipe.model.weights is None else _loaded
    model = make(recipe, class_names)
    make_trainable(model, recipe.training)
    return model


def _check_steps_per_execution(steps):
    if steps > 1 and backend_is("torch"):
        raise ValueError(
            "Keras runs one step at a time on torch. Received: "
            f"training.steps_per_execution={steps}. Set it to 1, or "
            "KERAS_BACKEND to jax or tensorflow."
        )


def _fresh(recipe, class_names):
    family = family_of(recipe.model.name, recipe.model.variant)
    config = config_of(
        recipe.model,
        len(class_names),
        head_bias=recipe.training.head_bias,
        **_memory(recipe.training, family),
    )
    check_lora(recipe.training.lora_rank, family, vars(config))
    return family(config, dtype=recipe.training.precision)


def family_of(name: str | None, variant: VariantConfig = PLAIN_VARIANT) -> type:
    """Return the class of a named model, as `config_class_of` its config.

    Example:
        >>> family_of("Mixer_B16").__name__
        'Mixer'
    """
    config_class = config_class_of(name, variant)
    return next(x for x in FAMILIES if x.config_class is config_class)


def _loaded(recipe, class_names):
    head = recipe.model.head
    source = located(recipe.model.weights)
    if head == "words":
        return _with_words(source, recipe, class_names)
    checkpoints.check_weights(source, recipe.model.name)
    source = resolve(source, recipe.model.name)
    with warnings.catch_warnings():
        if head in REPLACED:
            # That it is all zeros does not matter: it is replaced.
            warnings.filterwarnings("ignore", "The classification layer in")
        load = getattr(applications, recipe.model.name or "", _load_any)
        model = load(
            weights=source,
            classes=None if head == "keep" else len(class_names),
            classifier_activation=None,
            include_preprocessing=True,
            dtype=recipe.training.precision,
            **_application_options(recipe, checkpoints.read_info(source)),
        )
    if head == "keep":
        _check_classes(model, class_names, source)
    else:
        model = _with_new_head(model, recipe)
    return model


def _with_words(source, recipe, class_names):
    """Load an image tower whose head has the embeddings of the classes."""
    source = pair_source(source)
    classes = class_embeddings(
        source, class_names, recipe.model.template or DEFAULT_TEMPLATE
    )
    tower = checkpoints.load_checkpoint(
        source,
        classifier_activation=None,
        include_preprocessing=True,
        dtype=recipe.training.precision,
        **_application_options(recipe, checkpoints.read_info(source)),
    )
    return zero_shot_model(tower, classes)


def _application_options(recipe, info) -> dict:
    """Make arguments of an application from the options of a recipe."""
    family = _family_of_weights(recipe.model, info)
    check_lora(recipe.training.lora_rank, family, info.fields)
    options = options_of(recipe.model, family.config_class)
    # As in predictions: DINOv2 has positions for 518 pixels, and takes 224.
    usual = info.trained_as.told_size or info.fields["image_size"]
    size = options.pop("image_size", usual)
    height, width = (size, size) if isinstance(size, int) else size
    channels = options.pop("channels", info.fields["channels"])
    if recipe.model.head in REPLACED:
        options.pop("representation_dim", None)  # a part of the new head
    options |= _memory(recipe.training, family)
    return {**options, "input_shape": (height, width, channels)}


def _family_of_weights(model, info):
    """Return the class of the model that a file of weights holds."""
    held = VariantConfig(**info.fields.get("variant", {}))
    if held != PLAIN_VARIANT and model.name is not None:
        raise ValueError(
            f"{info.source!r} holds a variant, which no application builds. "
            f"Received: model.name={model.name!r}. Leave it out."
        )
    if model.variant not in (PLAIN_VARIANT, held):
        raise ValueError(
            f"Weights bring their own variant, which is {held} in "
            f"{info.source!r}. Received: model.variant={model.variant}. Leave "
            "it out, or leave out model.weights to train a variant from "
            "scratch."
        )
    if model.name is None:
        return keras.saving.get_registered_object(REGISTERED_NAMES[info.family])
    return family_of(model.name, held)


def _with_new_head(model, recipe):
    """As the original fine-tunes, whatever classes the weights have."""
    wanted = recipe.model.representation_dim or 0
    if getattr(model.config, "representation_dim", 0) != wanted:
        model = _with_representation(model, wanted)
    kernel, *biases = model.get_layer(HEAD).weights
    kernel.assign(keras.ops.zeros(kernel.shape))
    for bias in biases:
        bias.assign(keras.ops.full(bias.shape, recipe.training.head_bias))
    return model


def _with_representation(old, representation_dim):
    """Return the same model with another layer, or none, before the head's."""
    config = dataclasses.replace(
        old.config, representation_dim=representation_dim
    )
    model = type(old)(config, name=old.name, dtype=old.dtype_policy)
    known = {x.path: x for x in old.weights}
    for weight in model.weights:
        layer = weight.path.split("/")[0]
        if layer not in (HEAD, "pre_logits"):
            weight.assign(known[weight.path])
    model.load_report = old.load_report
    return model


def _load_any(weights, **options):
    return checkpoints.load_checkpoint(weights, **options)


def _memory(training, family):
    """Return the model's share of the options that save memory."""
    if not training.rematerialize:
        return {}
    if family not in TRANSFORMERS:
        raise ValueError(
            f"A {family.__name__} has no blocks that compute their "
            "activations again. Received: training.rematerialize=True. Set it "
            "to False; training.accumulation_steps saves memory as well."
        )
    return {"rematerialize": True}


def _check_classes(model, class_names, source):
    known = model.trained_as.class_names
    if known is not None and known != tuple(class_names):
        raise ValueError(
            f"The classification layer of {source!r} is of other classes than "
            f"the data, or in another order: {list(known)} instead of "
            f'{list(class_names)}. Use model.head="new".'
        )
    if model.output_shape[-1] != len(class_names):
        raise ValueError(
            f"The classification layer of {source!r} has "
            f"{model.output_shape[-1]} classes, the data {len(class_names)}. "
            'Use model.head="new".'
        )


def make_stream(recipe, dataset, model, share=None):
    """Make the training batches of a recipe, in the size of its model.

    Args:
        recipe: the `Recipe` whose batches and augmentation are used.
        dataset: the `Dataset`, of which the training images are read.
        model: a Keras model; its input gives the size of the images.
        share: the `Share` of each batch that this process reads, the whole
            if None.

    Returns:
        A `TrainingStream`, or the `FitStream` of the dataset.

    Raises:
        ValueError: when classes are to be balanced that are not known.
    """
    _check_balance(recipe, dataset)
    if isinstance(dataset.train, data.FitStream):
        return dataset.train if share is None else dataset.train.shared(share)
    height, width, channels = model.input_shape[1:]
    examples, weights = dataset.train, None
    if recipe.data.sampling == "balanced":
        examples = dataclasses.replace(examples, sampling="balanced")
    if recipe.training.class_weight == "balanced":
        weights = balanced_weights(dataset.train.labels, dataset.class_names)
    return data.training_stream(
        examples,
        len(dataset.class_names),
        image_size=(height, width),
        channels=channels,
        batch_size=recipe.training.batch_size,
        preprocessing=recipe.preprocessing,
        augmentation=recipe.augmentation,
        seed=recipe.seed,
        share=share,
        class_weights=weights,
    )


def _check_balance(recipe, dataset):
    """Raise a ValueError where classes cannot be balanced."""
    asked = {
        "training.class_weight": recipe.training.class_weight,
        "data.sampling": recipe.data.sampling,
    }
    field = next((x for x, y in asked.items() if y == "balanced"), None)
    labels = getattr(dataset.train, "labels", None)
    if field is not None and (labels is None or labels.ndim == 2):
        what = "batches of your own" if labels is None else "several classes"
        what = "numbers" if dataset.task == "regression" else what
        raise ValueError(
            "Classes are balanced by the one class of each image, and "
            f"{dataset.name or 'the data'} has {what}. Received: "
            f'{field}="balanced". Leave it out.'
        )


def balanced_weights(labels, class_names) -> np.ndarray:
    """Compute the weight of each class, N / (K n).

    Args:
        labels: integer array of shape (N,), of the training images.
        class_names: of all classes; K of them have images.

    Returns:
        float64 array, 0 for a class without images.
    """
    counts = np.bincount(labels, minlength=len(class_names))
    share = len(labels) / np.count_nonzero(counts)
    return np.where(counts, share / np.maximum(counts, 1), 0.0)


def make_validation(recipe, dataset, model, share=None):
    """Make the validation data of `fit`, each image once; None without any.

    Takes the arguments of `make_stream`.

    Raises:
        ValueError: when the training may end early and there are no images.
    """
    if dataset.validation is None:
        patience = recipe.training.early_stopping_patience
        if patience is not None:
            raise ValueError(
                "Ending the training early needs images to validate on, of "
                "which the data has none. Received: "
                f"early_stopping_patience={patience}. Set it to null, or "
                "data.validation_fraction."
            )
        return None
    if isinstance(dataset.train, data.FitStream):
        return dataset.validation  # in the form that `fit` takes, as it is
    share = dataclasses.replace(share or data.Share(), parts=1)
    height, width, channels = model.input_shape[1:]
    batches = data.evaluation_batches(
        dataset.validation,
        image_size=(height, width),
        channels=channels,
        batch_size=recipe.training.micro_batch_size,
        preprocessing=recipe.preprocessing,
        share=share,
    )
    return validation_batches(
        batches,
        len(dataset.validation),
        len(dataset.class_names),
        shares=share.count,
    )


def validation_batches(
    batches, num_images: int, num_classes: int, *, shares: int = 1
):
    """Weights padded batches so that Keras's metrics count each image once.

    Keras's loss is the mean over the images of a batch, padding included:
    with weights of 1 the padding would lower it.

    Args:
        batches: those of `evaluation_batches`: images (B, H, W, C), integer
            labels (B,) or 0 and 1 for each class (B, K), and a mask (B,),
            False for padding; all of one size B.
        num_images: images without the padding.
        num_classes: K.
        shares: processes whose batches make up the whole ones.

    Returns:
        The same with one-hot labels (B, K) and weights (B,).
    """
    size = images_per_batch(batches) * shares
    weight = -(-num_images // size) * size / num_images

    def weight_images(images, labels, mask):
        tf = ops_of(labels)
        if len(labels.shape) == 1:
            labels = tf.one_hot(labels, num_classes)  # (B, K)
        weights = weight * tf.cast(mask, "float32")  # (B,)
        return images, tf.cast(labels, "float32"), weights

    return batches.map(weight_images)


@keras.saving.register_keras_serializable("keras_vit")
class SigmoidCrossEntropy(keras.losses.Loss):
    """Sigmoid cross-entropy of each class, summed over the classes.

    `sigmoid_xent` of big_vision, which AugReg and the public ImageNet-21k
    weights were trained with. Keras's `BinaryCrossentropy` takes the mean
    over the classes, whose gradient is that many times smaller and passes
    under a clip norm of 1.

    Args:
        label_smoothing: float in [0, 1), share of the target that is spread
            evenly over the classes.
        name: str, of the loss in logs.
        **kwargs: `reduction` and `dtype` of a Keras loss.

    Call arguments:
        y_true: (B, classes), one-hot or mixed labels.
        y_pred: (B, classes), logits.

    Example:
        >>> loss = SigmoidCrossEntropy()
        >>> float(loss([[0.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]))  # 3 log 2
        2.0794415
    """

    def __init__(
        self, label_smoothing=0.0, name="sigmoid_cross_entropy", **kwargs
    ):
        super().__init__(name=name, **kwargs)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        spread = self.label_smoothing / y_pred.shape[-1]
        y_true = y_true * (1 - self.label_smoothing) + spread
        # -y log sigmoid(x) - (1 - y) log sigmoid(-x), without overflow.
        losses = ops.softplus(y_pred) - y_true * y_pred
        return ops.sum(losses, axis=-1)

    def get_config(self):
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
        }


def _softmax(smoothing):
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing
    )


LOSSES = {
    "auto": _softmax,  # of data that says nothing else, see `for_task`
    "softmax": _softmax,
    "sigmoid": SigmoidCrossEntropy,
    "squared": lambda smoothing: keras.losses.MeanSquaredError(),
}


def make_loss(training) -> keras.losses.Loss:
    """Make the loss of a `TrainingConfig`, for one-hot labels and logits."""
    return LOSSES[training.loss](training.label_smoothing)


# Task of a data set -> what "auto" is.
OF_TASK = {
    "classification": {"loss": "softmax", "best_metric": "val_accuracy"},
    "multilabel": {"loss": "sigmoid", "best_metric": "val_accuracy"},
    "regression": {"loss": "squared", "best_metric": "val_mae"},
}

OF_NUMBERS = ("val_mae", "val_r2")

# What makes answers of the scores that a loss was minimised on.
ANSWERS = {"softmax": "softmax", "sigmoid": "sigmoid", "squared": "linear"}


def for_task(recipe, dataset):
    """Return a recipe with the loss and the metric that fit a data set.

    Args:
        recipe: a `Recipe`, whose "auto" is replaced.
        dataset: its `Dataset`.

    Raises:
        ValueError: for options of classes where numbers are learned, and of
            numbers where classes are.
    """
    training = recipe.training
    chosen = {
        name: value
        for name, value in OF_TASK[dataset.task].items()
        if getattr(training, name) == "auto"
    }
    training = dataclasses.replace(training, **chosen)
    of_numbers = dataset.task == "regression"
    wrong = {
        "loss": (training.loss == "squared") != of_numbers,
        "best_metric": of_numbers
        and training.best_metric not in (*OF_NUMBERS, "val_loss")
        or not of_numbers
        and training.best_metric in OF_NUMBERS,
        "label_smoothing": of_numbers
        and training.label_smoothing != type(training)().label_smoothing,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            what = "numbers" if of_numbers else "classes"
            raise ValueError(
                f"{dataset.name or 'The data'} has {what} to learn "
                f"({dataset.task}). Received: training.{name}="
                f"{getattr(training, name)!r}. Leave it out."
            )
    return dataclasses.replace(recipe, training=training)


class Accuracy(keras.metrics.CategoricalAccuracy):
    """Share of images classified right; those of weight 0 are padding."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_true, y_pred, counted(sample_weight))


def counted(weights):
    """Weigh all but padding by 1: 5 of 10 are 0.5 and not 0.49999997."""
    return None if weights is None else keras.ops.cast(weights > 0, "float32")


def headless(model: ConfiguredModel) -> Any:
    """Copy a model without its classification layer.

    Example:
        >>> headless(keras_vit.ViT_B16(weights=None)).output_shape
        (None, 768)
    """
    known = {weight.path: weight for weight in model.weights}
    names = {"num_classes", "representation_dim"} & vars(model.config).keys()
    config = dataclasses.replace(model.config, **dict.fromkeys(names, 0))
    result = type(model)(config, name=model.name, dtype=model.dtype_policy)
    for weight in result.weights:
        weight.assign(known[weight.path])
    return result


def make_encoder(recipe, check: Callable[[Any], None]) -> Any:
    """Build the model of a method without labels, without a head.

    Args:
        recipe: a `Recipe`, see `make_model`.
        check: raises a ValueError for the config of a model that does not fit;
            from scratch before the memory for a large model is taken.
    """
    if recipe.model.weights is None:
        check(config_of(recipe.model, len(NO_CLASS)))
    model = make_model(recipe, NO_CLASS)
    check(model.config)
    return headless(model)


def check_plain(method: str, config) -> None:
    """Raise a ValueError unless a config is of a plain Vision Transformer."""
    if type(config) is not ViTConfig:
        raise ValueError(
            f"method={method!r} needs a plain Vision Transformer. Received: a "
            f"{type(config).__name__.removesuffix('Config')}. Choose another "
            "--model.name, --model.weights or no variant."
        )


@dataclasses.dataclass(frozen=True)
class Task:
    """How a training makes its parts from a recipe.

    The model is what a run saves; the network is what `fit` trains, and has
    the layers of the model.

    Args:
        make_model: from recipe and class names to the model.
        make_network: from recipe and model to the network.
        make_stream: from recipe, dataset, model and share to what has
            `from_step`, see `Loop.run`.
        make_validation: from the same to the validation data of `fit`, or
            None.
        make_loss: from recipe to a Keras loss.
        make_metrics: from recipe to Keras metrics, weighted as the loss is.
        names_classes: whether the outputs of the model are the classes of the
            data.
        best_metric: what selects the best model where it names no classes;
            if None, val_accuracy, or val_loss without metrics.
        make_callbacks: from recipe to further Keras callbacks.
        make_scores: from recipe and model to the `scores` of `Loop`, a list.
        begins_from_probe: whether a linear probe of the labels may be the
            first head of the model.

    Example:
        >>> train(recipe, task=dataclasses.replace(
        ...     CLASSIFICATION, make_model=my_model))
    """

    make_model: Callable
    make_network: Callable
    make_stream: Callable
    make_validation: Callable
    make_loss: Callable
    make_metrics: Callable
    names_classes: bool = True
    best_metric: str | None = None
    make_callbacks: Callable = lambda recipe: []
    make_scores: Callable = lambda recipe, model: []
    begins_from_probe: bool = False


def check_trains_all(method: str, training, *, with_classes: bool) -> None:
    """Raise a ValueError for options that a method has no use of.

    Args:
        method: its name.
        training: the `TrainingConfig`.
        with_classes: whether it learns the classes of the data.
    """
    names = ("trainable", "lora_rank")
    if not with_classes:
        names += ("class_weight", "loss", "label_smoothing", "head_bias")
    for name in names:
        found = getattr(training, name)
        if found not in (getattr(type(training), name), 0):  # 0 is nothing.
            what = "" if with_classes else ", and without classes"
            raise ValueError(
                f"method={method!r} trains the whole model{what}. Received: "
                f"training.{name}={found!r}. Leave it out."
            )


CLASSIFICATION = Task(
    make_model=make_model,
    make_network=lambda recipe, model: model,
    make_stream=make_stream,
    make_validation=make_validation,
    make_loss=lambda recipe: make_loss(recipe.training),
    make_metrics=lambda recipe: [Accuracy("accuracy")],
    begins_from_probe=True,
)


def regression(dataset: data.Dataset) -> Task:
    """Return the task of learning the numbers of a data set.

    Args:
        dataset: a `Dataset` whose task is "regression".

    Raises:
        ValueError: as `targets_of`.

    Example:
        >>> train(recipe, dataset=dataset, task=regression(dataset))
    """
    targets = targets_of(dataset)
    return Task(
        make_model=lambda recipe, names: _regressor(recipe, names, targets),
        make_network=lambda recipe, model: model,
        make_stream=lambda recipe, dataset, *more: make_stream(
            recipe, targets.normalised(dataset), *more
        ),
        make_validation=lambda recipe, dataset, *more: make_validation(
            recipe, targets.normalised(dataset), *more
        ),
        make_loss=lambda recipe: make_loss(recipe.training),
        make_metrics=lambda recipe: [
            AbsoluteError(targets.deviation),
            keras.metrics.R2Score(name="r2"),
        ],
        begins_from_probe=True,
    )


def _regressor(recipe, names, targets: Targets) -> keras.Model:
    if recipe.model.head == "words":
        raise ValueError(
            "Words name classes, and the data has numbers. Received: "
            'model.head="words". Leave it out.'
        )
    model = make_model(recipe, names)
    model.targets = targets
    if recipe.model.head == "keep":
        to_0(model)
    return model


# Penalties of `fit_layer`. Chosen of 1, 10, 100 and 1000 on the features that a
# DINOv2 S/14 has of digits, for 40 to 800 images: 1 gave the best accuracy, and
# errors of numbers were about the same for 10 and 100, and larger for 1, most
# of all where there are as many images as features.
PENALTY = {"softmax": 1.0, "sigmoid": 1.0, "squared": 30.0}


def fit_head(recipe, dataset, model: keras.Model) -> None:
    """Give a model the head that fits the features of the training images.

    "Fine-Tuning can Distort Pretrained Features and Underperform
    Out-of-Distribution" (arXiv:2202.10054): with a head of zeros the first
    updates turn the features towards a head that is still random; a linear
    probe first, then fine-tuning from it (LP-FT), leaves them where they are
    good.

    They are read as in an evaluation, without augmentation, once. Those that
    cannot be read are left out.

    Args:
        recipe: the `Recipe`, settled.
        dataset: its `Dataset`.
        model: its Keras model; of numbers, with its `Targets`.

    Raises:
        ValueError: when no image can be read, or a feature is not finite.
    """
    examples = dataset.train
    if targets := getattr(model, "targets", None):
        examples = targets.normalised(dataset).train
    stream = FeatureStream(feature_model(model))
    height, width, channels = model.input_shape[1:]
    batches = data.evaluation_batches(
        examples,
        image_size=(height, width),
        channels=channels,
        batch_size=recipe.training.micro_batch_size,
        preprocessing=recipe.preprocessing,
    )
    features, readable = stream.all_of(batches, len(examples))
    labels = np.asarray(examples.labels)
    if labels.ndim == 1:
        labels = np.eye(len(dataset.class_names))[labels]  # (N, K)
    weights = None
    if "balanced" in (recipe.data.sampling, recipe.training.class_weight):
        of_class = balanced_weights(examples.labels, dataset.class_names)
        weights = of_class[examples.labels[readable]]
    probe = fit_layer(
        features[readable],
        labels[readable].astype("float64"),
        loss=recipe.training.loss,
        l2=PENALTY[recipe.training.loss],
        weights=weights,
    )
    head = model.get_layer(HEAD)
    head.kernel.assign(probe.kernel.astype("float32"))
    head.bias.assign(probe.bias.astype("float32"))


# --- Which weights are trained ---

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
    others = {id(y) for x in teachers_in(model) for y in x.variables}
    return [x for x in model.variables if id(x) not in others]


def teachers_in(model: keras.Model) -> list[Teacher]:
    """Return each `Teacher` in a network."""
    return [x for x in model.layers if isinstance(x, Teacher)]


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
