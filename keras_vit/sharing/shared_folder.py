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

from keras_vit.checkpoints.dialects.hugging_face_config import processor_config
from keras_vit.checkpoints.dialects.shared import image_size
from keras_vit.checkpoints.engine.loading import load_checkpoint
from keras_vit.checkpoints.engine.matching import weights_of
from keras_vit.checkpoints.engine.saving import save_checkpoint
from keras_vit.checkpoints.public.download import file_digest
from keras_vit.checkpoints.run_model import save_model
from keras_vit.data.resizing import Geometry
from keras_vit.io.atomic_files import replacing, write_json
from keras_vit.prediction.networks import RECORD, evaluation_fields
from keras_vit.sharing.contents import Shared
from keras_vit.sharing.model_card import (
    CARD,
    PICTURE,
    Place,
    model_card,
    write_picture,
)
from keras_vit.version import __version__

__all__ = ["FILES", "FORMATS", "check_folder", "write_folder"]

# Preferred first. transformers and timm read what this package does as well.
FORMATS = ("hugging_face", "timm", "keras")
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
WEIGHTS = {
    "hugging_face": "model.safetensors",
    "timm": "model.safetensors",
    "keras": "model.keras",
}
# All that a folder may hold.
FILES = (CONFIG, PROCESSOR, *dict.fromkeys(WEIGHTS.values()), PICTURE, CARD)
FILES = (*FILES, RECORD)
# Resampling in Pillow's numbers, which transformers takes.
PILLOW = {"nearest": 0, "lanczos3": 1, "bilinear": 2, "bicubic": 3, "area": 4}
TIMM_METHODS = {"lanczos3": "lanczos", "area": "box"}
# big_vision's resizing by default.
METHODS = {"resize_small_central_crop": "area"}

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
    _write_processor(folder / PROCESSOR, shared)
    EDITORS[chosen](folder / CONFIG, shared)
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
            WRITERS[name](folder, shared)
            return name
    WRITERS[last](folder, shared)
    return last


def _write_hugging_face(folder, shared) -> None:
    if getattr(shared.model.config, "resnet_units", None) is not None:
        raise ValueError(
            "transformers 5 no longer has ViTHybrid, so that nobody could "
            'load the model there. Choose format="timm" or "keras".'
        )
    _save(folder, shared, "hugging_face")


def _write_timm(folder, shared) -> None:
    _save(folder, shared, "timm")


def _save(folder, shared, format) -> None:
    names = distinct(shared.class_names) or None
    save_checkpoint(shared.model, folder, format=format, class_names=names)


def _write_keras(folder, shared) -> None:
    save_model(shared.model, shared.class_names or None, folder / "model.keras")
    fields = dataclasses.asdict(shared.model.config)
    names = distinct(shared.class_names)
    content = {
        "architectures": [type(shared.model).__name__],
        "library_name": "keras_vit",
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "config": json.loads(json.dumps(fields, default=str)),
    }
    write_json(folder / CONFIG, content)


WRITERS = {
    "hugging_face": _write_hugging_face,
    "timm": _write_timm,
    "keras": _write_keras,
}


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


def _geometry(shared) -> Geometry:
    config = shared.model.config
    return Geometry(
        image_size(dataclasses.asdict(config)),
        config.channels,
        shared.preprocessing,
    )


def _write_processor(path, shared) -> None:
    """Write preprocessor_config.json, which prepares images in transformers."""
    geometry, rule = _geometry(shared), shared.preprocessing
    content = processor_config(weights_of(shared.model))
    height, width = geometry.image_size
    sizes = {
        "squash": {"height": height, "width": width},
        "resize_small_central_crop": {"shortest_edge": geometry.smaller_side},
        "resize_central_crop": dict(
            zip(("height", "width"), geometry.both_sides, strict=True)
        ),
    }
    content["size"] = sizes[rule.evaluation]
    content["resample"] = PILLOW[_method(rule)]
    if rule.evaluation != "squash":
        # That of ViT squashes only in transformers 4.
        content |= {
            "image_processor_type": "CLIPImageProcessor",
            "do_center_crop": True,
            "crop_size": {"height": height, "width": width},
            "do_convert_rgb": geometry.channels == 3,
        }
    write_json(path, content)


def _method(rule) -> str:
    return rule.resize_method or METHODS.get(rule.evaluation, "bilinear")


def _edit_hugging_face(path, shared) -> None:
    """Says that each class has a probability of its own."""
    if shared.loss == "sigmoid" and shared.class_names:
        _edit(path, {"problem_type": "multi_label_classification"})


def _edit_timm(path, shared) -> None:
    """Says how images are resized and cropped."""
    geometry, rule = _geometry(shared), shared.preprocessing
    content = json.loads(path.read_text(encoding="utf-8"))
    size = max(geometry.image_size)
    crops = rule.evaluation != "squash"
    _edit(
        path,
        {
            "pretrained_cfg": content["pretrained_cfg"]
            | {
                "interpolation": TIMM_METHODS.get(_method(rule), _method(rule)),
                "crop_pct": size / geometry.smaller_side if crops else 1.0,
                "crop_mode": "center" if crops else "squash",
            }
        },
    )


def _edit(path, fields) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, content | fields)


EDITORS = {
    "hugging_face": _edit_hugging_face,
    "timm": _edit_timm,
    "keras": lambda path, shared: None,
}


def _record(folder, shared) -> dict:
    """Return what only this package reads, and the files it wrote."""
    files = {
        path.name: file_digest(path)
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    return {
        "keras_vit": __version__,
        "class_names": list(shared.class_names) or None,
        "preprocessing": evaluation_fields(shared.preprocessing),
        "loss": shared.loss,
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
    expected, output = (_output(x, images) for x in (model, found))
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


def _output(model, images) -> np.ndarray:
    output = model(images.astype("float32"), training=False)
    output = keras.ops.cast(output, "float32")
    return keras.ops.convert_to_numpy(output)
