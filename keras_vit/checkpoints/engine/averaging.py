"""Averages of the weights of models that were trained from the same start."""

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.engine.loading import load_checkpoint
from keras_vit.models.configured_model import ConfiguredModel, remade
from keras_vit.models.options import PLACES, TRAINING

__all__ = ["average_weights"]

# Fields in which they may differ: the average takes those of the first.
AROUND = {"include_preprocessing", "classifier_activation"}


def average_weights(
    models: Sequence[Any], shares: Sequence[float] | None = None
) -> Any:
    """Make a model whose weights are the average of those of others.

    Two of them, one classifying by words and one fine-tuned from it, are the
    ensemble in the space of weights of "Robust fine-tuning of zero-shot
    models" (arXiv:2109.01903, equation 1); fine-tuned runs of one start are
    the uniform soup of "Model soups" (arXiv:2203.05482, table 2). Models that
    were trained from other first weights have no average that is of use.

    Args:
        models: two or more models of this package, or their sources, see
            `load_checkpoint`. Two of them at a time are in memory.
        shares: a float for each of them; they sum to 1. None for equal ones.

    Returns:
        A new model like the first one, all of it trainable.

    Raises:
        ValueError: for models that differ in more than their weights, or
            shares that do not fit.
        OSError: when a source cannot be fetched.

    Example:
        >>> model = average_weights(["zero_shot.keras", "runs/flowers"])
        >>> model.save("robust.keras")
    """
    one = isinstance(models, (str, os.PathLike, keras.Model))
    models = [models] if one else list(models)
    count = len(models)
    shares = [1 / count] * count if shares is None else [*shares]
    fits = len(shares) == count and all(map(math.isfinite, shares))
    if count < 2 or not fits or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise ValueError(
            "An average is of two models or more, with a share for each that "
            f"sum to 1. Received: {count} models, shares={shares}."
        )
    first = _model_of(models[0])
    totals = _weights(first, shares[0])
    for other, share in zip(models[1:], shares[1:], strict=True):
        model = _model_of(other)
        _check_alike(first, model, other)
        for path, values in _weights(model, share).items():
            totals[path] += values
    return remade(first, totals)


def _model_of(model):
    found = model
    if not isinstance(model, keras.Model):
        found = load_checkpoint(model)
    if not isinstance(found, ConfiguredModel):
        raise ValueError(
            "Averages are of the models of this package. Received: "
            f"{type(found).__name__}."
        )
    return found


def _weights(model, share) -> dict[str, np.ndarray]:
    return {
        x.path: share * np.asarray(keras.ops.convert_to_numpy(x), "float64")
        for x in model.weights
    }


def _check_alike(first, model, source) -> None:
    """Refuse models that differ in more than their weights."""
    both = [_facts(x) for x in (first, model)]
    names = sorted({*both[0], *both[1]})
    differences = [
        f"{name}: {str(both[0].get(name))[:200]} in the first, "
        f"{str(both[1].get(name))[:200]} in {str(source)[:200]!r}"
        for name in names
        if both[0].get(name) != both[1].get(name)
    ]
    if differences:
        raise ValueError(
            "Models whose weights are averaged differ in nothing else. "
            f"Received: {'; '.join(differences)}. Give models that were "
            "trained from the same start on the same classes."
        )


def _facts(model) -> dict[str, Any]:
    """Return what two models that are averaged must share."""
    family = type(model).__name__
    idle = {x for y in PLACES.values() for x, z in y.items() if z == TRAINING}
    config = {
        name: value
        for name, value in dataclasses.asdict(model.config).items()
        if name not in idle | AROUND
    }
    known = model.trained_as
    return {
        **config,
        "family": family,
        "class_names": known.class_names,
        "preprocessing": known.preprocessing,
    }
