"""What a shared folder says of its model beside the weights.

`keras_vit.push_to_hub` writes it: the names of the classes, how images are
resized and cropped, the loss of the training. The config.json and
preprocessor_config.json beside it say it to the code of others, which has no
words for all of it.
"""

import dataclasses
import os
import pathlib

from keras_vit.checkpoints.engine.keras_files import RECORD, class_names_of
from keras_vit.checkpoints.files.config_values import read_json
from keras_vit.data import PreprocessingConfig

__all__ = ["LOSSES", "RECORD", "evaluation_fields", "read_shared"]

# Names of weights in such a folder; another file may be of another model.
WEIGHTS = ("model.keras", "model.safetensors")
LOSSES = ("softmax", "sigmoid")
# How images of the evaluation are resized and cropped.
FIELDS = ("evaluation", "resize_size", "resize_method", "antialias", "rounding")


def evaluation_fields(config: PreprocessingConfig) -> dict:
    """The fields of a config that images of an evaluation are prepared by."""
    fields = dataclasses.asdict(config)
    return {name: fields[name] for name in FIELDS}


def read_shared(path: str | os.PathLike) -> dict:
    """Reads the record of a shared folder, or of the folder of its weights.

    Args:
        path: a folder, or a file of weights.

    Returns:
        {} where there is none; else "class_names", a tuple of str or None;
        "preprocessing", the fields of a `PreprocessingConfig`; "training",
        with "loss".

    Raises:
        ValueError: when it is damaged.
    """
    path = pathlib.Path(path)
    if not path.is_dir() and path.name not in WEIGHTS:
        return {}
    file = (path if path.is_dir() else path.parent) / RECORD
    if not file.is_file():
        return {}
    content = read_json(file)
    fields = content.get("preprocessing", {})
    loss = content.get("loss", "softmax")
    if not (
        isinstance(fields, dict)
        and fields.keys() <= set(FIELDS)
        and loss in LOSSES
    ):
        raise ValueError(
            f"{str(file)!r} is damaged, so that it is unknown how images are "
            "prepared for the model beside it. Fetch it again, or remove it."
        )
    return {
        "class_names": class_names_of(str(file.parent)),
        "preprocessing": fields,
        "training": {"loss": loss},
    }
