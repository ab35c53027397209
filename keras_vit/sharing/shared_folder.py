"""The folder that is uploaded: written, and read again as others would.

Weights are there once. Of the formats that can hold the model the first is
taken that most libraries read.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections import Counter
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.checkpoints.dialects import LIBRARIES
from keras_vit.checkpoints.engine.keras_files import save_model
from keras_vit.checkpoints.engine.loading import load_checkpoint
from keras_vit.checkpoints.engine.saving import save_checkpoint
from keras_vit.checkpoints.files.folders import RECORD
from keras_vit.checkpoints.public.fetch import file_digest
from keras_vit.io.atomic_files import replacing, write_json
from keras_vit.sharing.model_card import (
    CARD,
    PICTURE,
    Place,
    Shared,
    model_card,
    write_picture,
)
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.pair_files import load_image_text
from keras_vit.version import __version__

__all__ = ["FILES", "FORMATS", "check_folder", "write_folder"]

# Preferred first: what others' libraries read, this package does as well.
FORMATS = (*(x.format for x in LIBRARIES), "keras")
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
TENSORS, MODEL = "model.safetensors", "model.keras"
# All that a folder may hold.
FILES = (CONFIG, PROCESSOR, TENSORS, MODEL, PICTURE, CARD, RECORD)
SIDE = 64  # pixels of the images that a model of any size is tried on
# Of the largest number of the output, by its dtype.
TOLERANCES = {"float32": 1e-4}


def write_folder(
    folder: pathlib.Path,
    shared: Shared,
    place: Place,
    *,
    formats: Sequence[str] = FORMATS,
    licence: str | None = None,
) -> str:
    """Writes all that is uploaded into an empty folder.

    Args:
        folder: the folder.
        shared: what `open_shared` returned.
        place: where it will be, for the model card.
        formats: of these the first that can hold the model is taken.
        licence: str, of the model, for the card.

    Returns:
        The format.

    Raises:
        ValueError: when none of the formats can hold the model.
        OSError: when a file cannot be written.
    """
    chosen = _write_weights(folder, shared, formats)
    has_picture = write_picture(folder / PICTURE, shared.folder)
    card = model_card(
        shared,
        place,
        format=chosen,
        config=json.loads((folder / CONFIG).read_text(encoding="utf-8")),
        picture=PICTURE if has_picture else None,
        licence=licence,
    )
    with replacing(folder / CARD) as path:
        path.write_text(card, encoding="utf-8")
    write_json(folder / RECORD, _record(folder, shared))
    return chosen


def _write_weights(folder, shared, formats) -> str:
    """Writes weights and config.json, and returns the format."""
    *preferred, last = formats
    for name in preferred:
        # Refused before anything is written.
        with contextlib.suppress(ValueError):
            _write(folder, shared, name)
            return name
    _write(folder, shared, last)
    return last


def _write(folder, shared, format) -> None:
    if format == "keras":
        _write_keras(folder, shared)
        return
    (library,) = (x for x in LIBRARIES if x.format == format)
    if reason := library.unloadable(shared.model.config):
        others = " or ".join(f'"{x}"' for x in FORMATS if x != format)
        raise ValueError(f"{reason} Choose format={others}.")
    names = distinct(shared.class_names) or None
    save_checkpoint(shared.model, folder, format=format, class_names=names)


def _write_keras(folder, shared) -> None:
    if shared.pair is not None:
        shared.pair.save(folder / MODEL)
        towers = {
            "vision_config": shared.model,
            "text_config": shared.pair.text_tower,
        }
        content = {
            "architectures": [type(shared.pair).__name__],
            "library_name": "keras_vit",
            **{x: _fields(y.config) for x, y in towers.items()},
        }
        write_json(folder / CONFIG, content)
        return
    save_model(shared.model, shared.class_names or None, folder / MODEL)
    names = distinct(shared.class_names)
    content = {
        "architectures": [type(shared.model).__name__],
        "library_name": "keras_vit",
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "config": _fields(shared.model.config),
    }
    write_json(folder / CONFIG, content)


def _fields(config) -> dict:
    """Return the fields of a config as JSON has them."""
    return json.loads(json.dumps(dataclasses.asdict(config), default=str))


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Append its number to a name that occurs before.

    ImageNet has two cranes, and label2id has a place for one.

    Example:
        >>> distinct(["crane", "maillot", "crane"])
        ('crane', 'maillot', 'crane (2)')
    """
    seen = Counter()
    found = []
    for i, name in enumerate(names):
        found.append(f"{name} ({i})" if seen[name] else name)
        seen[name] += 1
    return tuple(found)


def _record(folder, shared) -> dict:
    """Return what only this package reads, and the files it wrote."""
    files = {
        path.name: file_digest(path)
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    return {
        "keras_vit": __version__,
        "trained_as": shared.model.trained_as.to_fields(),
        "files": files,
    }


def check_folder(folder: pathlib.Path, model: keras.Model) -> None:
    """Loads a folder and compares the output with that of its model.

    Raises:
        ValueError: when the folder gives another one.
    """
    found = load_checkpoint(folder, dtype=model.dtype_policy)
    height, width, channels = model.input_shape[1:]
    shape = (2, height or SIDE, width or SIDE, channels)
    scales = model.config.include_preprocessing
    low, high = (0, 255) if scales else (-1, 1)
    images = np.random.default_rng(0).uniform(low, high, shape)
    images = images.astype("float32")
    _check_same(model, *(_output(x, images) for x in (model, found)))


def _check_same(model, expected, output) -> None:
    difference = float(np.abs(expected - output).max())
    tolerance = TOLERANCES.get(model.compute_dtype, 0.02)
    # NaN is in no order.
    if not difference <= tolerance * np.abs(expected).max():
        raise ValueError(
            f"What was written for {model.name!r} gives another output when "
            f"it is loaded again: it differs by {difference:.3g} of "
            f"{np.abs(expected).max():.3g}. Nothing was uploaded. Check the "
            'weights for NaN, or choose format="keras".'
        )


def check_pair_folder(folder: pathlib.Path, pair: ImageTextModel) -> None:
    """Loads a folder and compares the logits with those of its model.

    Raises:
        ValueError: when the folder gives others.
    """
    found = load_image_text(folder)
    random = np.random.default_rng(0)
    tower, config = pair.image_tower, pair.text_tower.config
    low, high = (0, 255) if tower.config.include_preprocessing else (-1, 1)
    shape = (2, *(x or SIDE for x in tower.input_shape[1:]))
    images = random.uniform(low, high, shape).astype("float32")
    shape = (3, config.context_length)
    ids = random.integers(0, config.vocabulary_size, shape, "int32")
    ids[:, -1] = config.pooled_id % config.vocabulary_size
    _check_same(tower, *(_output(x, (images, ids)) for x in (pair, found)))


def _output(model, images) -> np.ndarray:
    output = model(images, training=False)
    output = keras.ops.cast(output, "float32")
    return keras.ops.convert_to_numpy(output)
