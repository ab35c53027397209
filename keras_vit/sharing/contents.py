"""What is shared: a model, and what its run or its weights say of it."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.checkpoints.engine.keras_files import class_names_of
from keras_vit.checkpoints.engine.loading import (
    check_weights,
    load_checkpoint,
    open_source,
)
from keras_vit.checkpoints.public.catalog import (
    Origin,
    entry_of,
    origin_of,
    origin_of_run,
)
from keras_vit.data import PreprocessingConfig
from keras_vit.io.run_folder import (
    MANIFEST,
    RESULT,
    RUN_MODEL,
    folder_of,
    read_config,
)
from keras_vit.models.lora import merged
from keras_vit.prediction import Classifier
from keras_vit.prediction.classifier import labels_of, names_of
from keras_vit.prediction.networks import (
    LOSSES,
    check_network,
    preprocessing_of,
    read_shared,
)

__all__ = ["Shared", "check_source", "open_shared"]


@dataclasses.dataclass(frozen=True)
class Shared:
    """A model with what others need to use it and to know of it.

    Attributes:
        model: the Keras model, without LoRA.
        class_names: K names; none of a model without classes.
        preprocessing: how images are resized and cropped.
        loss: str, what makes probabilities of the logits: "softmax" or
            "sigmoid".
        run: dict, the config of the run; {} of what is no run.
        result: dict, its result.json; {} where there is none.
        folder: the folder of the run, or None.
        origin: the weights that a run started from, or that the model is.
        is_copy: bool, whether the model is those weights, unchanged.
    """

    model: keras.Model
    class_names: tuple[str, ...]
    preprocessing: PreprocessingConfig
    loss: str = "softmax"
    run: dict[str, Any] = dataclasses.field(default_factory=dict)
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    folder: pathlib.Path | None = None
    origin: Origin | None = None
    is_copy: bool = False


def check_source(source) -> None:
    """Raises a ValueError unless `open_shared` can find a model.

    Reads no weights and needs no network.
    """
    if isinstance(source, Classifier):
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
    loss, model = "softmax", source
    if isinstance(source, Classifier):
        class_names = class_names or source.class_names
        preprocessing = preprocessing or source.geometry.config
        loss = source.activation if source.activation in LOSSES else loss
        model = source.model
    check_network(model)
    model = merged(model)
    return Shared(
        model,
        names_of(model.config, class_names),
        preprocessing or PreprocessingConfig(),
        loss,
    )


def _of_weights(source, class_names, preprocessing) -> Shared:
    folder, entry = folder_of(source), entry_of(source)
    is_here = os.path.exists(source)
    origin = None if is_here else origin_of(source)
    opened = open_source(source)
    path = opened.file.path
    known = read_shared(path)
    run = read_config(folder) if folder else known
    names = class_names or class_names_of(path) or known.get("class_names")
    model = load_checkpoint(opened)
    return Shared(
        model,
        names_of(model.config, names or labels_of(path)),
        preprocessing or preprocessing_of(entry, run, None),
        run.get("training", {}).get("loss", "softmax"),
        run if folder else {},
        _read_result(folder) if folder else {},
        folder,
        origin_of_run(run) if folder else origin,
        not is_here,
    )


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
