"""Exporting: from a model to a file that was checked in its own runtime.

Of an image-text model both towers, the tokenizer beside them.

Axes: B images of a batch, H and W height and width, C channels, K scores; T
texts, L context length.
"""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import pathlib
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_vit.checkpoints.files.folders import PAIR
from keras_vit.checkpoints.public.catalog import origin_of, origin_of_run
from keras_vit.data import (
    Examples,
    evaluation_batches,
    open_dataset,
)
from keras_vit.data.config import data_of_run
from keras_vit.data.resizing import evaluation_crop, resize
from keras_vit.data.seeds import order
from keras_vit.exporting.runtimes_table import (
    FORMATS,
    PRECISIONS,
    TOLERANCES,
    refusal,
)
from keras_vit.exporting.writers import (
    LAYOUTS,
    embed,
    quantization_of,
    write_record_beside,
)
from keras_vit.io.atomic_files import PARTIAL, only_writer
from keras_vit.io.checks import check_choice, check_kind, is_of
from keras_vit.io.run_folder import folder_of, read_config
from keras_vit.models.configured_model import remade
from keras_vit.prediction import Classifier, as_classifier, images_of
from keras_vit.prediction.exported_model import (
    INPUT,
    OUTPUT,
    ExportedModel,
    has_vnni,
    read_record,
)
from keras_vit.prediction.exported_pair import (
    TOKENIZER,
    ExportedPair,
    ExportedTexts,
    digest_of,
)
from keras_vit.prediction.networks import check_network
from keras_vit.text.image_text import ImageTextModel
from keras_vit.text.pair_files import load_image_text
from keras_vit.version import __version__

__all__ = [
    "CALIBRATION",
    "Compared",
    "check",
    "compared_run",
    "export",
    "export_pair",
    "images_in",
    "images_of_run",
    "seeded_images",
    "size_of",
]

ANY = "any"
LARGEST_CHANGE = 0.02


def export(
    model: str | os.PathLike | keras.Model | Classifier,
    path: str | os.PathLike,
    format: str | None = None,
    *,
    precision: str = "float32",
    batch: int | str = ANY,
    image_size: int | tuple[int, int] | None = None,
    include_preprocessing: bool | None = None,
    include_resizing: bool = False,
    images: Any = None,
    validation_images: int = 0,
    calibrate: bool = False,
    largest_change: float = LARGEST_CHANGE,
    layout: str | None = None,
) -> dict[str, Any]:
    """Exports a model to a file for another runtime, and checks the file.

    The file is written by the backend whose exporter is right, in a process
    of its own, then run in its own runtime beside the model. It has what
    `keras_vit.predict` needs: class names, preprocessing, where the weights
    are from. A record of the same is beside it, named `<file>.model.json`.

    Args:
        model: a name of `keras-vit weights list`, a run folder, a file of
            weights, a model of keras_vit, or a `Classifier`.
        path: the file to write, or the folder of a SavedModel.
        format: "onnx", "openvino", "litert", "saved_model", "stablehlo" or
            "pt2"; by default what the name of the file says.
        precision: "float32", "float16", "bfloat16", "int8" or
            "int8_weights"; see
            `keras_vit.exporting.FORMATS` for what each format has.
        batch: images of a call, or "any".
        image_size: pixels, one side or (height, width), where it is not that
            of the weights; a model in memory has its own.
        include_preprocessing: whether the file takes pixels in [0, 255]; by
            default it does where the model does, and loaded ones do.
        include_resizing: bool, whether the file takes images of any height
            and width, and resizes and crops them as for evaluation; then it
            takes pixels in [0, 255].
        images: what `keras_vit.predict` takes as source: images to compare
            the classes on, at most 128; a change of too many is refused.
        validation_images: how many of its validation images the classes and
            the accuracy of a run are compared on, in place of `images`.
        calibrate: bool, whether int8 fixes the ranges of activations by
            `images`, or by 128 training images of the run.
        largest_change: float, share of the images that may change class.
        layout: None; "triton" or "tensorflow_serving": `path` is a folder of
            models as these servers read it.

    Returns:
        The record, a dict; `record["check"]` has what was measured.

    Raises:
        ValueError: when the model cannot be had so (with what can), a package
            is missing, or the file is not close enough to the model.
        OSError: when weights cannot be fetched or files not be written.

    Example:
        >>> record = keras_vit.export("ViT_B16/imagenet", "vit.onnx")
        >>> keras_vit.predict("vit.onnx", "photos")
    """
    check_kind(str | os.PathLike, path=path)
    path = pathlib.Path(path)
    format = _checked_format(format, path, layout)
    check_choice("precision", precision, PRECISIONS)
    run = compared_run(model, images, validation_images)
    has_images = images is not None or run is not None
    _check_options(batch, has_images, calibrate, largest_change, precision)
    if include_resizing:
        _check_resizing(calibrate, include_preprocessing)
        include_preprocessing = True
    _check_possible(format, precision, None)
    _check_installed(format)
    _check_free(path, format, layout)
    source = source_of(model)
    classifier = as_classifier(
        model, image_size=image_size, needs_classes=False
    )
    check_network(classifier.model)
    classifier = _with_preprocessing(classifier, include_preprocessing)
    _check_possible(format, precision, quantization_of(classifier.model))
    compared, calibration = None, None
    if run is not None:
        found = images_of_run(classifier, run, validation_images)
        compared, calibration = found
    elif images is not None:
        compared = images_in(classifier, images)
        calibration = compared.images
    record = {
        **record_of(classifier, format, precision, batch, include_resizing),
        "source": source,
        "needs_vnni": format == "openvino" and calibrate and bool(has_vnni()),
    }
    with partial_folder(path) as folder:
        file = folder / (LAYOUTS[layout].file if layout else path.name)
        _write(classifier, file, record, calibration if calibrate else None)
        exported = ExportedModel(file, record)
        record["check"] = check(classifier, exported, compared, largest_change)
        record["check"]["bytes"] = size_of(file)
        record = embed(file, record)
        ExportedModel(file)  # It still opens.
        _move(folder, file, path, record, layout)
    return record


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
    check_kind(str | os.PathLike, path=path)
    path = pathlib.Path(path)
    check_choice("format", format, SUFFIXES)
    check_choice("precision", precision, PRECISIONS)
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
        with tempfile.TemporaryDirectory() as jobs:
            job = _job(model.text_tower, text, format, precision, jobs)
            _run(job, jobs, "The tower of texts")
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


# --- The request ---


def _checked_format(format, path, layout):
    by_suffix = {x.suffix: name for name, x in FORMATS.items() if x.suffix}
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
        fitting = LAYOUTS[layout].format
        if format not in (None, fitting):
            raise ValueError(
                f"layout={layout!r} is a folder of {fitting}. Received: "
                f"format={format!r}."
            )
        return fitting
    if format is None and path.suffix not in by_suffix:
        raise ValueError(
            f"The name {path.name!r} does not tell a format. End it with "
            f"{', '.join(by_suffix)}, or give format=: one of "
            f"{', '.join(FORMATS)}."
        )
    format = by_suffix[path.suffix] if format is None else format
    check_choice("format", format, FORMATS)
    suffix = FORMATS[format].suffix
    if path.suffix != suffix and (suffix or path.suffix in by_suffix):
        expected = f"a file *{suffix}" if suffix else "a folder"
        raise ValueError(
            f"format={format!r} is {expected}. Received: path={str(path)!r}."
        )
    return format


def _check_options(batch, has_images, calibrate, largest_change, precision):
    if batch != ANY and not (is_of(int, batch) and batch > 0):
        raise ValueError(
            f"batch must be an int above 0 or {ANY!r}. Received: {batch!r}."
        )
    check_kind(float, largest_change=largest_change)
    if not 0 <= largest_change <= 1:
        raise ValueError(
            "largest_change is a share in [0, 1]. Received: "
            f"largest_change={largest_change!r}."
        )
    if largest_change != LARGEST_CHANGE and not has_images:
        raise ValueError(
            "largest_change is the share of images that may change class, and "
            f"needs images. Received: largest_change={largest_change!r}. Give "
            "images=, or validation_images= of a run."
        )
    if calibrate and (not has_images or precision != "int8"):
        raise ValueError(
            "Calibration is for precision='int8' and needs images, a hundred "
            "of those that the model is for: give images=, or "
            f"validation_images= of a run. Received: precision={precision!r}."
        )


def _check_resizing(calibrate, include_preprocessing):
    if include_preprocessing is False or calibrate:
        raise ValueError(
            "A file that resizes takes pixels in [0, 255], and its resizing "
            "is not for 8 bits. Received: include_resizing=True, "
            f"include_preprocessing={include_preprocessing} and "
            f"calibrate={calibrate}."
        )


def _check_possible(format, precision, quantization):
    if reason := refusal(format, precision, quantization):
        raise ValueError(reason)


def _check_installed(format):
    kind = FORMATS[format]
    missing = [x for x in kind.modules if not importlib.util.find_spec(x)]
    if missing:
        raise ValueError(
            f"Exporting to {format} needs {', '.join(missing)}: "
            f"pip install {kind.install}"
        )


def _check_free(path, format, layout):
    """Refuse to replace a folder that is no earlier export."""
    _check_parent(path)
    is_folder = layout is not None or not FORMATS[format].suffix
    if path.exists() and path.is_dir() != is_folder:
        there, wanted = ("file", "folder") if is_folder else ("folder", "file")
        raise ValueError(
            f"{str(path)!r} is a {there}, and {layout or format} is a "
            f"{wanted}. Choose another name."
        )
    if path.is_dir() and layout is None and any(path.iterdir()):
        try:
            read_record(path)
        except ValueError as error:
            raise ValueError(
                f"{str(path)!r} is a folder that keras_vit did not export. "
                "Choose another name."
            ) from error
    weights = path.with_suffix(".bin")  # of OpenVINO
    if format == "openvino" and weights.exists() and not path.exists():
        raise ValueError(
            f"{str(weights)!r} would be replaced by the weights, and is not "
            "of an earlier export. Choose another name."
        )


def check_free_folder(path: pathlib.Path, mark: str) -> None:
    """Refuse to replace what is no folder with a file that marks it."""
    _check_parent(path)
    is_other = path.is_dir() and any(path.iterdir())
    if path.is_file() or is_other and not (path / mark).is_file():
        raise ValueError(
            f"{str(path)!r} is not a folder that keras_vit exported. Choose "
            "another name."
        )


def _check_parent(path):
    if not path.parent.is_dir():
        raise ValueError(
            f"There is no folder {str(path.parent)!r}. Make it first."
        )


def source_of(model: Any) -> dict[str, str]:
    """Return where the weights of a model come from, if it is known."""
    if not isinstance(model, (str, os.PathLike)):
        return {"weights": "a model in memory"}
    name = os.fspath(model)
    found = {"weights": os.path.basename(os.path.abspath(name))}
    origin = None if os.path.exists(name) else origin_of(name)
    if origin is not None:
        found["weights"] = origin.name
    elif folder := folder_of(name):
        origin = origin_of_run(read_config(folder))
        if origin is not None:
            found["started_from"] = origin.name
    known = {
        "url": origin and origin.address,
        "licence": origin and origin.licence,
    }
    return found | {key: value for key, value in known.items() if value}


def _with_preprocessing(classifier, include):
    model, changes = classifier.model, {}
    if None in model.input_shape[1:3]:
        changes["image_size"] = classifier.geometry.image_size
    if include not in (None, model.config.include_preprocessing):
        changes["include_preprocessing"] = include
    if not changes:
        return classifier
    if quantization_of(model):
        given = ", ".join(f"{x}={y}" for x, y in changes.items())
        raise ValueError(
            "The preprocessing of a quantised model and its size cannot be "
            f"changed. Received: {given}. Leave it out, or export the model "
            "that it was before."
        )
    values = {x.path: keras.ops.convert_to_numpy(x) for x in model.weights}
    made = remade(model, values, **changes)
    return dataclasses.replace(classifier, model=made)


def record_of(
    classifier: Classifier,
    format: str,
    precision: str,
    batch: int | str,
    resizes: bool = False,
) -> dict[str, Any]:
    """Return the record of a file, without its source and its check."""
    model = classifier.model
    config = dataclasses.asdict(model.config)
    included = config["include_preprocessing"]
    rows = None if batch == ANY else batch
    sides = (None, None) if resizes else model.input_shape[1:3]
    return {
        "format": format,
        "precision": precision,
        "batch": batch,
        "model": type(model).__name__,
        "config": config,
        "input": {
            "name": INPUT,
            "shape": [rows, *sides, model.input_shape[3]],
            "values": "[0, 255]" if included else _scale_of(config),
        },
        "output": {
            "name": OUTPUT,
            "shape": [rows, *model.output_shape[1:]],
        },
        "preprocessing": dataclasses.asdict(classifier.geometry.config),
        "class_names": list(classifier.class_names),
        "activation": classifier.activation,
        "problem": classifier.problem,
        "keras_vit": __version__,
        "keras": keras.__version__,
    }


def _scale_of(config):
    mean, deviation = config.get("pixel_mean"), config.get("pixel_std")
    if mean is None:
        return "[-1, 1]"
    return f"[0, 1], minus {list(mean)}, divided by {list(deviation)}"


# --- Writing ---


@contextlib.contextmanager
def partial_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make a new folder beside the path, and remove it at the end.

    Those that killed processes left go as well: no other one is writing.
    """
    name = f"{PARTIAL}{path.name}-"
    with only_writer(path):
        for left in path.parent.iterdir():
            if re.fullmatch(re.escape(name) + "[0-9a-f]{8}", left.name):
                shutil.rmtree(left, ignore_errors=True)
        folder = path.parent / f"{name}{secrets.token_hex(4)}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _write(classifier, file, record, calibration):
    """Has the backend of the format write the file."""
    with tempfile.TemporaryDirectory() as scratch:
        job = prepared(classifier, file, record, scratch, calibration)
        _run(job, scratch, "The model")


def prepared(
    classifier: Classifier,
    file: pathlib.Path,
    record: dict[str, Any],
    folder: str,
    calibration: np.ndarray | None = None,
) -> dict[str, Any]:
    """Saves a model for the process that writes it, and returns its job."""
    precision = record["precision"]
    job = _job(classifier.model, file, record["format"], precision, folder)
    job["batch"] = record["input"]["shape"][0]
    if not record["input"]["shape"][1]:
        job["geometry"] = dataclasses.asdict(classifier.geometry)
    if calibration is not None:
        job["calibration"] = f"{job['model']}.npy"
        np.save(job["calibration"], classifier.inputs(calibration))
    return job


def _job(model, file, format, precision, folder) -> dict[str, Any]:
    """Save a model in a folder; return the job to write it as it is."""
    name = os.path.join(folder, secrets.token_hex(4))
    model.save(f"{name}.keras")
    return {
        **{"format": format, "precision": precision, "batch": None},
        **{"geometry": None, "calibration": None},
        "path": str(file.absolute()),
        "model": f"{name}.keras",
        "answer": f"{name}.answer",
    }


def _run(job, folder, what):
    backend = FORMATS[job["format"]].backend
    (error,) = write_in_process(backend, [job], folder)
    if error:
        raise ValueError(
            f"{what} could not be written as {job['format']}: {error}"
        )


def write_in_process(backend: str, jobs: list[dict], folder: str) -> list[str]:
    """Has a process with a backend write files; what went wrong with each."""
    list_of_jobs = pathlib.Path(folder, "jobs.json")
    list_of_jobs.write_text(json.dumps(jobs), encoding="utf-8")
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "CUDA_VISIBLE_DEVICES": "-1",  # They stay the caller's.
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "keras_vit.exporting.writers", list_of_jobs],
        env=environment,
        capture_output=True,
        text=True,
    )
    answers = []
    for job in jobs:
        answer = pathlib.Path(job["answer"])
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        answers.append(answer.read_text() if answer.exists() else lines[-1])
    return answers


def _move(folder, file, path, record, layout):
    """Puts what was written in its place, the record beside it."""
    if layout is not None:
        LAYOUTS[layout].arrange(file, path, record)
        return
    if file.is_dir():
        move_folder(file, path, folder / "replaced")
    # What a file refers to comes first.
    for part in sorted(folder.iterdir(), key=lambda x: x.name == file.name):
        if part.is_file():
            part.replace(path.parent / part.name)
    write_record_beside(path, record)


def move_folder(
    new: pathlib.Path, path: pathlib.Path, aside: pathlib.Path
) -> None:
    """Renames a folder to a path; what was there comes back on an error."""
    if path.exists():
        path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        if aside.exists():
            aside.rename(path)
        raise


# --- The check ---

CALIBRATION = 128  # images at most, as the runtimes' manuals advise
BATCH = 32


class Compared(NamedTuple):
    """Images, and the classes that they are of.

    Attributes:
        images: array (N, H, W, C) in [0, 255], as the model takes them but
            for scaling.
        labels: int array (N,), or None where they are unknown.
    """

    images: np.ndarray
    labels: np.ndarray | None = None


def compared_run(
    model: Any, images: Any, validation_images: int
) -> pathlib.Path | None:
    """Return the folder of the run whose images are compared, or None.

    Raises:
        ValueError: when the model is no run, or images are given as well.
    """
    is_count = type(validation_images) is int and validation_images >= 0
    if not is_count:
        raise ValueError(
            "validation_images is a number of images. Received: "
            f"validation_images={validation_images!r}."
        )
    if not validation_images:
        return None
    if images is not None:
        raise ValueError(
            "Images are either given or a run's own. Received: "
            f"images={images!r} and validation_images={validation_images}."
        )
    is_path = isinstance(model, (str, os.PathLike))
    folder = folder_of(model) if is_path else None
    if folder is None:
        raise ValueError(
            "Validation images are those of a run, and the model is none. "
            f"Received: model={model!r} and validation_images="
            f"{validation_images}. Give images= instead."
        )
    return folder


def images_in(classifier: Classifier, source: Any) -> Compared:
    """At most 128 images of what `keras_vit.predict` takes."""
    found = itertools.islice(images_of(source), CALIBRATION)
    read = [classifier.read(x) for x in found]
    if not read:
        raise ValueError(f"There is no image. Received: images={source!r}.")
    return Compared(np.stack(read))


def images_of_run(
    classifier: Classifier, folder: pathlib.Path, count: int
) -> tuple[Compared, np.ndarray]:
    """Read some of a run's validation images, and training images.

    Args:
        classifier: the model of the run.
        folder: of the run.
        count: int, of validation images at most, chosen at random.

    Returns:
        The validation images, and at most 128 training images (N, H, W, C)
        in [0, 255], cropped as for evaluation.

    Raises:
        ValueError: when the data of the run is gone or has no such images.
    """
    # What read the images there may not be here.
    config = data_of_run(read_config(folder), reader="auto")
    try:
        dataset = open_dataset(config)
    except ValueError as error:
        raise ValueError(
            f"The data of the run cannot be opened. {error} Or give images=."
        ) from error
    if not dataset.validation:
        raise ValueError(
            f"The data of the run has no validation images: {dataset.name!r}. "
            "Give images= instead."
        )
    validation = _read(classifier, dataset.validation, count)
    return validation, _read(classifier, dataset.train, CALIBRATION).images


def _read(classifier, examples, count) -> Compared:
    if isinstance(examples, Examples) and len(examples) > count:
        kept = order(0, 0, len(examples))[:count]
        examples = examples.subset(np.sort(kept))
    height, width, channels = classifier.model.input_shape[1:]
    batches = evaluation_batches(
        examples,
        image_size=(height, width),
        channels=channels,
        batch_size=min(BATCH, count),
        preprocessing=classifier.geometry.config,
    )
    first = itertools.islice(iter(batches), -(-count // BATCH))
    read = [[np.asarray(x) for x in batch] for batch in first]
    images, labels, mask = map(np.concatenate, zip(*read, strict=True))
    kept = np.flatnonzero(mask)[:count]
    # Of several classes an image, none is the one.
    known = labels[kept] if labels.ndim == 1 else None
    return Compared(images[kept].astype("float32"), known)


def check(
    classifier: Classifier,
    exported: ExportedModel,
    compared: Compared | None = None,
    largest_change: float = 1.0,
) -> dict[str, Any]:
    """Runs a file beside its model: differences, classes and time."""
    record = exported.record
    shape = classifier.model.input_shape
    if exported.resizes:
        shape = (None, shape[1] * 4 // 3, shape[2] * 3 // 2, shape[3])
    seeded = seeded_images(shape)
    error, largest, wanted = 0.0, 0.0, np.zeros(())
    for rows in (1, 3):
        scores, wanted = _both(classifier, exported, seeded[:rows])
        scale = np.sqrt(np.mean(np.square(wanted))) or 1.0
        off = np.sqrt(np.mean(np.square(scores - wanted))) / scale
        error = max(error, float(np.nan_to_num(off, nan=np.inf)))
        largest = max(largest, float(np.abs(scores - wanted).max()))
    if np.ptp(wanted) == 0:
        warnings.warn(
            "The model gives all images and classes one score, as with a new "
            "head: the file is compared in this alone. Load weights first.",
            stacklevel=3,
        )
    computed = classifier.model.dtype_policy.compute_dtype
    tolerance = max(
        TOLERANCES[record["precision"]],
        TOLERANCES.get(computed, 0.0),  # A mixed one is rounded itself.
    )
    if not error <= tolerance:
        raise ValueError(
            f"The {record['format']} file gives other scores than the model: "
            f"they differ by {error:.2g} of their size, and {tolerance:g} is "
            f"allowed in {record['precision']}. No file was written."
        )
    found = {
        "largest_difference": largest,
        "relative_error": error,
        "tolerance": tolerance,
        "runtime": _version_of(exported),
        **_seconds(classifier, exported, seeded),
    }
    if compared is not None and classifier.class_names:
        found |= _agreement(classifier, exported, compared, largest_change)
    return found


def seeded_images(shape) -> np.ndarray:
    """Three images (3, H, W, C) in [0, 255] with coarse and fine structure."""
    random = np.random.default_rng(0)
    height, width, channels = shape[1:]
    coarse = random.integers(0, 256, (3, 5, 5, channels)).astype("uint8")
    fine = random.normal(0, 16, (3, height, width, channels))
    smooth = [resize(x, (height, width), rounding="float32") for x in coarse]
    return np.clip(np.stack(smooth) + fine, 0, 255).astype("float32")


def _both(classifier, exported, images):
    given, inputs = _inputs(classifier, exported, images)
    wanted = classifier.model.predict_on_batch(inputs)
    wanted = keras.ops.convert_to_numpy(keras.ops.cast(wanted, "float32"))
    return exported.predict_on_batch(given), wanted


def _inputs(classifier, exported, images):
    """Return the inputs of the file and of the model for some images."""
    inputs = classifier.inputs(images)
    if not exported.resizes:
        return inputs, inputs
    crops = [evaluation_crop(x, classifier.geometry) for x in images]
    return inputs, classifier.inputs(np.stack(crops))


def _agreement(classifier, exported, compared, largest_change):
    images, labels = compared
    inputs = np.array_split(images, -(-len(images) // 8))
    pairs = [_both(classifier, exported, x) for x in inputs]
    found, wanted = (
        np.concatenate(x).argmax(-1) for x in zip(*pairs, strict=True)
    )
    same = float(np.mean(found == wanted))
    if 1 - same > largest_change:
        raise ValueError(
            f"{1 - same:.1%} of {len(images)} images change their class, and "
            f"{largest_change:.1%} may: no file was written. Allow more with "
            "largest_change, or take another precision."
        )
    measured = {"images": len(images), "same_class": same}
    # A file that resizes crops these images again: they are crops already.
    if labels is not None and not exported.resizes:
        measured["accuracy"] = float(np.mean(found == labels))
        measured["model_accuracy"] = float(np.mean(wanted == labels))
    return measured


def _seconds(classifier, exported, images, rounds=5):
    """Median seconds of one image, file and model in turns."""
    given, inputs = _inputs(classifier, exported, images[:1])
    sides: dict[str, Callable] = {
        "seconds": lambda: exported.predict_on_batch(given),
        "model_seconds": lambda: classifier.model.predict_on_batch(inputs),
    }
    found = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            begin = time.perf_counter()
            run()
            found[name].append(time.perf_counter() - begin)
    return {name: statistics.median(x) for name, x in found.items()}


def size_of(path: pathlib.Path) -> int:
    """Return the bytes of a folder, or of a file and its companions."""
    if path.is_dir():
        return sum(x.stat().st_size for x in path.rglob("*") if x.is_file())
    return sum(x.stat().st_size for x in path.parent.glob(f"{path.stem}.*"))


def _version_of(exported):
    runtime = exported.runtime
    module = importlib.import_module(runtime.module)
    version = getattr(module, "__version__", None)
    version = version or importlib.metadata.version(runtime.install)
    return f"{runtime.name} {version}"
