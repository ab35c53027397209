"""From a recipe to the model that is trained, its loss and its optimizer."""

import dataclasses
import warnings

import keras
from keras import ops

from keras_vit import applications, checkpoints
from keras_vit.checkpoints.matching import FAMILIES
from keras_vit.checkpoints.public.fetch import resolve
from keras_vit.training.model_config import (
    TRANSFORMERS,
    config_of,
    family_of,
    options_of,
)
from keras_vit.training.optimizers import make_optimizer
from keras_vit.training.run_folder import class_names_of, located
from keras_vit.variants import VariantConfig
from keras_vit.workarounds import backend_is

__all__ = [
    "check_backend",
    "freeze",
    "make_loss",
    "make_model",
    "make_optimizer",
    "total_steps",
]


HEAD = "predictions"  # The classification layer of every model.


def make_model(recipe, class_names) -> keras.Model:
    """Builds the model of a recipe, with its first weights.

    Args:
        recipe: a `Recipe`. Weights for another image size than
            `recipe.model.image_size` have their positions resampled.
        class_names: sequence of str, one an output of the model.

    Returns:
        A Keras model from images in [0, 255] to logits, not compiled, with
        the layers frozen that `recipe.training.trainable` leaves out.

    Raises:
        ValueError: for options that the model, its weights or the backend
            do not have, or a head to be kept that is of other classes.
        OSError: when weights cannot be fetched.

    Example:
        >>> model = make_model(Recipe(), ["cat", "dog"])
        >>> model.output_shape
        (None, 2)
    """
    check_backend(recipe.training)
    make = _fresh if recipe.model.weights is None else _loaded
    model = make(recipe, class_names)
    freeze(model, recipe.training.trainable)
    return model


def check_backend(training) -> None:
    """Raises a ValueError for an option that the backend does not have.

    Args:
        training: a `TrainingConfig`.

    Raises:
        ValueError: with the option and what to do.

    Example:
        >>> check_backend(TrainingConfig(steps_per_execution=8))
    """
    if training.steps_per_execution > 1 and backend_is("torch"):
        raise ValueError(
            "Keras runs one step at a time on torch. Received: "
            f"training.steps_per_execution={training.steps_per_execution}. Set "
            "it to 1, or KERAS_BACKEND to jax or tensorflow."
        )


def freeze(model, trainable: str) -> None:
    """Freezes the layers that are not to be trained.

    Args:
        model: a model of keras_vit.
        trainable: "all", or "head" for the classification layer alone.

    Example:
        >>> freeze(model, "head")
        >>> [x.path for x in model.trainable_variables]
        ['predictions/kernel', 'predictions/bias']
    """
    for layer in model.layers:
        layer.trainable = trainable == "all" or layer.name == HEAD


def total_steps(recipe, steps_per_epoch: int) -> int:
    """How often a recipe updates the weights.

    Args:
        recipe: a `Recipe`.
        steps_per_epoch: int, updates in a pass over the data.

    Returns:
        Number of steps.

    Example:
        >>> total_steps(Recipe(training=TrainingConfig(epochs=3)), 100)
        300
    """
    training = recipe.training
    if training.steps is not None:
        return training.steps
    return training.epochs * steps_per_epoch


def _fresh(recipe, class_names):
    family = family_of(recipe.model.name, recipe.model.variant)
    config = config_of(
        recipe.model,
        len(class_names),
        head_bias=recipe.training.head_bias,
        **_memory(recipe.training, family),
    )
    return family(config, dtype=recipe.training.precision)


def _loaded(recipe, class_names):
    keep = recipe.model.head == "keep"
    source = located(recipe.model.weights)
    checkpoints.check_weights(source, recipe.model.name)
    source = resolve(source, recipe.model.name)
    with warnings.catch_warnings():
        if not keep:
            # That it is all zeros does not matter: it goes.
            warnings.filterwarnings("ignore", "The classification layer in")
        load = getattr(applications, recipe.model.name or "", _load_any)
        model = load(
            weights=source,
            classes=None if keep else len(class_names),
            classifier_activation=None,
            include_preprocessing=True,
            dtype=recipe.training.precision,
            **_asked(recipe, checkpoints.read_info(source)),
        )
    if keep:
        _check_classes(model, class_names, source)
    else:
        model = _with_new_head(model, recipe)
    return model


def _asked(recipe, info) -> dict:
    """What a recipe asks of weights, as arguments of an application."""
    family = _family_of_weights(recipe.model, info)
    options = options_of(recipe.model, family)
    size = options.pop("image_size", info.fields["image_size"])
    height, width = (size, size) if isinstance(size, int) else size
    channels = options.pop("channels", info.fields["channels"])
    if recipe.model.head == "new":
        options.pop("representation_dim", None)  # a part of the new head
    options |= _memory(recipe.training, family)
    return {**options, "input_shape": (height, width, channels)}


def _family_of_weights(model, info):
    """The class of the model that weights are of."""
    plain = VariantConfig()
    held = VariantConfig(**info.fields.get("variant", {}))
    if held != plain and model.name is not None:
        raise ValueError(
            f"{info.source!r} holds a variant, which no application builds. "
            f"Received: model.name={model.name!r}. Leave it out."
        )
    if model.variant not in (plain, held):
        raise ValueError(
            f"Weights bring their own variant, which is {held} in "
            f"{info.source!r}. Received: model.variant={model.variant}. Leave "
            "it out, or leave out model.weights to train a variant from "
            "scratch."
        )
    if model.name is None:
        return keras.saving.get_registered_object(FAMILIES[info.family])
    return family_of(model.name, held)


def _with_new_head(model, recipe):
    """As the original fine-tunes, whatever classes the weights have."""
    wanted = recipe.model.representation_dim or 0
    if getattr(model.config, "representation_dim", 0) != wanted:
        model = _with_representation(model, wanted)
    kernel, bias = model.get_layer(HEAD).weights
    kernel.assign(keras.ops.zeros(kernel.shape))
    bias.assign(keras.ops.full(bias.shape, recipe.training.head_bias))
    return model


def _with_representation(old, representation_dim):
    """The same model with another layer, or none, before the head's."""
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
    """The model's share of the options that save memory."""
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
    known = class_names_of(source)
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


@keras.saving.register_keras_serializable("keras_vit")
class SigmoidCrossEntropy(keras.losses.Loss):
    """Cross-entropy of each class on its own, summed over the classes.

    `sigmoid_xent` of big_vision, which AugReg and the public ImageNet-21k
    weights were trained with. Keras's `BinaryCrossentropy` takes the mean
    over the classes, whose gradient is that many times smaller and passes
    under a clip norm of 1.

    Args:
        label_smoothing: float in [0, 1), share of the target that is spread
            evenly over the classes.
        name: str.
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


LOSSES = {
    "softmax": lambda smoothing: keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing
    ),
    "sigmoid": SigmoidCrossEntropy,
}


def make_loss(training) -> keras.losses.Loss:
    """Makes the loss of a `TrainingConfig`, of one-hot labels and logits.

    Args:
        training: a `TrainingConfig`.

    Returns:
        A Keras loss.

    Example:
        >>> loss = make_loss(TrainingConfig(loss="sigmoid"))
    """
    return LOSSES[training.loss](training.label_smoothing)
