"""Decides what of a file goes where in a model, before anything is read."""

import dataclasses
import re
import warnings
from collections.abc import Callable

from keras_vit.checkpoints.formats.configured import Configured
from keras_vit.checkpoints.formats.recognition import listed
from keras_vit.checkpoints.formats.source import Source
from keras_vit.checkpoints.report import LoadReport
from keras_vit.checkpoints.surgery.adapt import adapter
from keras_vit.checkpoints.target import Target

__all__ = ["Plan", "plan_of"]

HEAD = ("predictions/kernel", "predictions/bias")
REPRESENTATION = ("pre_logits/kernel", "pre_logits/bias")
TOKEN = "class_token/token"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be read for which weight.

    Args:
        steps: dict from our path to a function that returns the array for
            it, in the order in which they are best read.
        report: the `LoadReport` of when it is done.
    """

    steps: dict[str, Callable]
    report: LoadReport


def plan_of(
    source: Source,
    configured: Configured,
    target: Target,
    resampling: str | None = None,
) -> Plan:
    """Matches the weights of a file with those of a model.

    Args:
        source: the `Source`.
        configured: what `configure` says of it.
        target: the model as a `Target`.
        resampling: how position embeddings are resampled; by default as the
            file's family does it.

    Returns:
        A `Plan`. Nothing was read from the file but names and shapes.

    Raises:
        ValueError: one that lists all weights that are missing in the file,
            that the model has no use for, and that are of another shape.
    """
    refuse_another_variant(source, configured, target)
    have, want = set(source.rows), set(target.variables)
    fresh = fresh_paths(source, configured, target)
    dropped = droppable(have, want, fresh) | (fresh & have)
    missing, unused = want - have - fresh, have - want - dropped
    resampling = resampling or source.format.resampling
    steps, adapted, wrong = {}, {}, []
    for path in sorted((have & want) - fresh, key=reading_order):
        shape = source.shape_of(path, configured.facts)
        how = adapter(path, shape, configured, target, resampling)
        if how is None:
            wrong.append(f"{path} {shape} -> {target.shape(path)}")
            continue
        steps[path] = step(source, path, configured.facts, how.function)
        if how.description:
            adapted[path] = how.description
    refuse_unless_fitting(source, target, missing, unused, wrong)
    names = [x for path in sorted(dropped) for x in source.rows[path].names]
    report = LoadReport(
        source.file.path,
        source.format.name,
        tuple(steps),
        adapted,
        tuple(names + source.dropped),
        tuple(sorted(fresh)),
        (*configured.notes, *differences(configured, target)),
    )
    return Plan(steps, report)


def reading_order(path):
    """All blocks' share of a weight together, as stacked files hold them."""
    return re.sub(r"\d+", "", path), len(path), path


def step(source, path, facts, function):
    def read():
        array = function(source.read(path, facts))
        if path == HEAD[0] and not array.any():
            warn_of_zero_head(source.file.path)
        return array

    return read


def warn_of_zero_head(path):
    """The original ImageNet-21k files were published without their head."""
    warnings.warn(
        f"The classification layer in {path!r} is all zeros, so that every "
        "class gets the same score: these weights were published for "
        "fine-tuning only. Give classes=... for a layer of your own, "
        "include_top=False for features, or take "
        'weights="augreg_imagenet21k" to classify.',
        UserWarning,
        stacklevel=2,
    )


def fresh_paths(source, configured, target) -> set:
    """Weights of the model that keep their initial values."""
    have, want = set(source.rows), set(target.variables)
    fresh = set()
    if TOKEN in want and TOKEN not in have:
        fresh.add(TOKEN)
    if HEAD[0] in want:
        classes = target.shape(HEAD[0])[-1]
        if HEAD[0] not in have or (
            classes != configured.fields.get("num_classes")
        ):
            fresh |= set(HEAD)
            # A pre-logits layer learns together with the head.
            if REPRESENTATION[0] not in have:
                fresh |= set(REPRESENTATION) & want
    return fresh


def droppable(have, want, fresh) -> set:
    """Weights of the file that a model may do without."""
    dropped = set()
    if HEAD[0] not in want:
        dropped |= set(HEAD)
    if REPRESENTATION[0] not in want and HEAD[0] not in want - fresh:
        # A head that stays is one on the pre-logits.
        dropped |= set(REPRESENTATION)
    if TOKEN not in want:
        dropped.add(TOKEN)
    if "pool/probe" not in want:
        dropped |= {path for path in have if path.startswith("pool/")}
    return dropped & have


def differences(configured, target) -> list:
    """Fields in which the model differs from the file's family."""
    names = ("activation", "norm_after_pooling", "pooling")
    names += tuple(x for x in configured.fields if x.endswith("epsilon"))
    return [
        f"{name}={target.config[name]!r} in the model, "
        f"{configured.fields[name]!r} in the file's family: the outputs "
        "differ from its own"
        for name in names
        if name in target.config
        and name in configured.fields
        and target.config[name] != configured.fields[name]
    ]


def refuse_another_variant(source, configured, target) -> None:
    """Some compute different things with weights of the same names."""
    held = configured.fields.get("variant")
    wanted = target.config.get("variant")
    if held != wanted:
        raise ValueError(
            f"The weights in {source.file.path!r} are of {told(held)}, "
            f"{target.name!r} is {told(wanted)}. Build the model for the file "
            "with keras_vit.checkpoints.load_checkpoint."
        )


def told(variant) -> str:
    if variant is None:
        return "a model of keras_vit.models"
    return f"the variant {variant}"


def refuse_unless_fitting(source, target, missing, unused, wrong) -> None:
    if not (missing or unused or wrong):
        return
    raise ValueError(
        f"The weights in {source.file.path!r} ({source.format.name}) do not "
        f"fit {target.name!r}. Missing in the file: {listed(missing)}. "
        f"Unused of the file: {listed(unused)}. Of another shape (file -> "
        f"model): {listed(wrong)}. Build the model for the file with "
        "keras_vit.checkpoints.load_checkpoint, or with the arguments that "
        "the file was made with (the size of the model, classes, pooling, "
        "class_token, representation_dim)."
    )
