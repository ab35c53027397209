"""Export both towers of an image-text model, the tokenizer beside them.

Axes: T texts, L context length.
"""

import dataclasses
import json
import os
import pathlib
import secrets
import tempfile
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.exporting.export import (
    check_free_folder,
    export,
    move_folder,
    partial_folder,
    source_of,
    write_in_process,
)
from keras_vit.exporting.runtimes_table import FORMATS, TOLERANCES, refusal
from keras_vit.io.checks import check_choice
from keras_vit.prediction.exported_pair import (
    PAIR,
    TOKENIZER,
    ExportedPair,
    ExportedTexts,
    digest_of,
)
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.pair_files import load_image_text
from keras_vit.version import __version__

__all__ = ["export_pair"]

SUFFIXES = tuple(x for x, y in FORMATS.items() if y.suffix)


def export_pair(
    model: str | os.PathLike | ImageTextModel,
    path: str | os.PathLike,
    format: str = "onnx",
    *,
    precision: str = "float32",
    **image_options: Any,
) -> dict[str, Any]:
    """Exports both towers of an image-text model, and checks the files.

    The folder has a file of each tower, the files of the tokenizer and
    `pair.json`, what scores are made of. `keras_vit.predict` with labels,
    `keras_vit.embed` and `keras-vit search` take it as a model.

    Args:
        model: what `keras_vit.load_image_text` returns, or its source.
        path: the folder to write.
        format: of both files: "onnx", "openvino", "litert", "stablehlo" or
            "pt2".
        precision: see `keras_vit.export`.
        **image_options: those of `keras_vit.export` for the image tower.

    Returns:
        The record, a dict; `record["check"]` has what was measured of each.

    Raises:
        ValueError: when the model has no texts, cannot be had so, or a file
            is not close enough to its tower.
        OSError: when weights cannot be fetched or files not be written.

    Example:
        >>> pair = "openai/clip-vit-base-patch32"
        >>> record = keras_vit.exporting.export_pair(pair, "clip_onnx")
        >>> keras_vit.predict("clip_onnx", "photos", labels=["cat", "dog"])
    """
    path = pathlib.Path(path)
    check_choice("format", format, SUFFIXES)
    if reason := refusal(format, precision, None):
        raise ValueError(reason)
    check_free_folder(path, PAIR)
    source = source_of(model)
    if isinstance(model, (str, os.PathLike)):
        model = load_image_text(model)
    if not isinstance(model, ImageTextModel):
        raise ValueError(
            "Two towers are those of an image-text model: what "
            "keras_vit.load_image_text returns, or its source. Received: "
            f"{type(model).__name__}. Export others with keras_vit.export."
        )
    image_options.setdefault("include_preprocessing", True)
    suffix = FORMATS[format].suffix
    with partial_folder(path) as scratch:
        folder = scratch / "pair"
        folder.mkdir()
        image, text = folder / f"image{suffix}", folder / f"text{suffix}"
        about = export(
            model.image_tower,
            image,
            format,
            precision=precision,
            **image_options,
        )
        _write_texts(model.text_tower, text, format, precision)
        bias = model.logit_bias
        record = {
            "format": format,
            "precision": precision,
            "image": image.name,
            "text": text.name,
            "text_config": dataclasses.asdict(model.text_tower.config),
            "logit_scale": float(ops.convert_to_numpy(model.logit_scale)),
            "logit_bias": None
            if bias is None
            else float(ops.convert_to_numpy(bias)),
            "tokenizer": model.tokenizer and model.tokenizer.rule,
            "source": source,
            "keras_vit": __version__,
            "parts": {x.name: digest_of(x) for x in (image, text)},
        }
        record["check"] = {
            "image": about["check"],
            "text": _checked(model.text_tower, text, record),
        }
        if model.tokenizer is not None:
            model.tokenizer.save(folder / TOKENIZER)
        content = json.dumps(record, indent=2, ensure_ascii=False)
        (folder / PAIR).write_text(f"{content}\n", "utf-8")
        ExportedPair(folder)  # It can be read.
        move_folder(folder, path, scratch / "replaced")
    return record


def _write_texts(tower, file, format, precision):
    """Have the backend of the format write a tower of texts."""
    with tempfile.TemporaryDirectory() as scratch:
        name = os.path.join(scratch, secrets.token_hex(4))
        tower.save(f"{name}.keras")
        job = {
            **{"format": format, "precision": precision, "batch": None},
            **{"geometry": None, "calibration": None},
            "path": str(file.absolute()),
            "model": f"{name}.keras",
            "answer": f"{name}.answer",
        }
        (error,) = write_in_process(FORMATS[format].backend, [job], scratch)
    if error:
        raise ValueError(
            f"The tower of texts could not be written as {format}: {error}"
        )


def _checked(tower, file, record) -> dict[str, Any]:
    """Run a file beside its tower, on ids that end at different places."""
    config = tower.config
    random = np.random.default_rng(0)
    ids = random.integers(
        0, config.vocabulary_size, (3, config.context_length), "int32"
    )
    for row, end in zip(ids, (2, config.context_length // 2, -1), strict=True):
        row[end] = config.pooled_id % config.vocabulary_size
    exported = ExportedTexts(str(file), record, config)
    wanted = np.asarray(
        ops.convert_to_numpy(ops.cast(tower.predict_on_batch(ids), "float32"))
    )
    off = exported.predict_on_batch(ids) - wanted
    error = float(np.sqrt(np.mean(off**2) / np.mean(wanted**2)))
    tolerance = max(
        TOLERANCES[record["precision"]],
        TOLERANCES.get(tower.dtype_policy.compute_dtype, 0.0),
    )
    if not error <= tolerance:
        raise ValueError(
            f"The {record['format']} file gives other vectors of texts than "
            f"the tower: they differ by {error:.2g} of their size, and "
            f"{tolerance:g} is allowed in {record['precision']}. No file was "
            "written."
        )
    return {
        "largest_difference": float(np.abs(off).max()),
        "relative_error": error,
        "tolerance": tolerance,
        "bytes": file.stat().st_size,
        "keras": keras.__version__,
    }
