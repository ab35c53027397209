"""What is shared: a model, and what its run or its weights say of it."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.checkpoints.engine.loading import (
    check_weights,
    load_checkpoint,
    open_source,
)
from keras_vit.checkpoints.public.catalog import (
    Origin,
    origin_of,
    origin_of_run,
)
from keras_vit.data import PreprocessingConfig
from keras_vit.data.config import evaluation_of
from keras_vit.data.resizing import evaluation_fields
from keras_vit.io.run_folder import (
    MANIFEST,
    RESULT,
    RUN_MODEL,
    folder_of,
    read_config,
)
from keras_vit.models.configured_model import merged
from keras_vit.prediction import Classifier
from keras_vit.prediction.classifier import names_of
from keras_vit.prediction.networks import check_network
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.pair_files import load_image_text
from keras_vit.trained_as import PROBLEMS

__all__ = ["Shared", "check_source", "open_shared", "open_shared_pair"]


@dataclasses.dataclass(frozen=True)
class Shared:
    """A model with what others need to use it and to know of it.

    Attributes:
        model: the Keras model, without LoRA; its `trained_as` says how images
            are prepared and what the scores mean.
        class_names: K names; none of a model without classes.
        run: dict, the config of the run; {} of what is no run.
        result: dict, its result.json; {} where there is none.
        folder: the folder of the run, or None.
        origin: the weights that a run started from, or that the model is.
        is_copy: bool, whether the model is those weights, unchanged.
        pair: the image-text model whose image tower `model` is, or None.
    """

    model: keras.Model
    class_names: tuple[str, ...]
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    folder: pathlib.Path | None = None
    origin: Origin | None = None
    is_copy: bool = False
    pair: ImageTextModel | None = None


def check_source(source) -> None:
    """Raises a ValueError unless `open_shared` can find a model.

    Reads no weights and needs no network.
    """
    if isinstance(source, (Classifier, ImageTextModel)):
        return
    if not isinstance(source, (str, os.PathLike)):
        check_network(source)
        return
    path = pathlib.Path(source)
    if (path / MANIFEST).is_file():
        if not (path / RUN_MODEL).is_file():
            raise ValueError(
                f"The run in {str(path)!r} has no {RUN_MODEL} yet. Finish it "
                "with the command that began it, or give a file in its folder "
                "'checkpoints'."
            )
        return
    check_weights(source)


def open_shared(
    source: str | os.PathLike | keras.Model | Classifier,
    class_names: Sequence[str] | None = None,
    preprocessing: PreprocessingConfig | None = None,
) -> Shared:
    """Loads a model and what is known of it.

    Args:
        source: a run folder, a file, folder or name of weights, a model of
            keras_vit, or a `keras_vit.prediction.Classifier`.
        class_names: sequence of str, where they are not those of the source.
        preprocessing: how images are resized and cropped, likewise.

    Raises:
        ValueError: when there is no such model, or not one name per class.
        OSError: when weights cannot be fetched or read.
    """
    if isinstance(source, (str, os.PathLike)):
        return _of_weights(os.fspath(source), class_names, preprocessing)
    model, activation = source, None
    if isinstance(source, Classifier):
        class_names = class_names or source.class_names
        preprocessing = preprocessing or source.geometry.config
        model, activation = source.model, source.activation
    check_network(model)
    model = merged(model)
    known = model.trained_as
    if activation and not model.config.classifier_activation:
        problems = {x: problem for problem, x in PROBLEMS.items()}
        known = known.but(problem=problems[activation], activation=None)
    return _shared(model, known, class_names, preprocessing)


def open_shared_pair(source: str | os.PathLike | ImageTextModel) -> Shared:
    """Load both towers of an image-text model and what is known of it.

    Args:
        source: see `keras_vit.load_image_text`, or what it returned.

    Raises:
        ValueError: for a model without texts.
        OSError: when weights cannot be fetched or read.
    """
    if isinstance(source, ImageTextModel):
        return Shared(source.image_tower, (), pair=source)
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(
            "Two towers are those of an image-text model: what "
            "keras_vit.load_image_text returns, or its source. Received: "
            f"{type(source).__name__}."
        )
    pair = load_image_text(source)
    named = not os.path.exists(source)
    origin = origin_of(os.fspath(source)) if named else None
    return Shared(pair.image_tower, (), origin=origin, is_copy=named, pair=pair)


def _of_weights(source, class_names, preprocessing) -> Shared:
    folder = folder_of(source)
    is_here = os.path.exists(source)
    origin = None if is_here else origin_of(source)
    model = load_checkpoint(open_source(source))
    run = read_config(folder) if folder else {}
    return _shared(
        model,
        model.trained_as,
        class_names,
        preprocessing,
        run=run,
        result=_read_result(folder) if folder else {},
        folder=folder,
        origin=origin_of_run(run) if folder else origin,
        is_copy=not is_here,
    )


def _shared(model, known, class_names, preprocessing, **facts) -> Shared:
    """Put a model and its record together with what a user says of it."""
    names = names_of(model.config, class_names or known.class_names)
    size = model.input_shape[1:3]
    if preprocessing is not None:
        known = known.but(obstacle=None, assumed=())
    config = preprocessing or evaluation_of(known, size)
    model.trained_as = known.but(
        preprocessing=evaluation_fields(config, size),
        image_size=None if None in size else size,
        class_names=names or None,
    )
    return Shared(model, names, **facts)


def _read_result(folder: pathlib.Path) -> dict[str, Any]:
    """Read the result.json of a run; {} where there is none yet."""
    path = folder / RESULT
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    raise ValueError(
        f"{str(path)!r} is damaged, so that it is unknown what the run "
        "measured. Put the file back, or remove it to share no result."
    )
