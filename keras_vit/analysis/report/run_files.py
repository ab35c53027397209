"""The files of a run folder that its report is made from, and its curves.

All files are optional.

Axes: N images, M of them that are drawn, H and W height and width, C
channels, K classes, T the most probable classes, S times of a training.
"""

import csv
import json
import math
import os
import pathlib
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_vit.analysis import plots
from keras_vit.analysis.report import pictures
from keras_vit.io.atomic_files import of_cell

__all__ = [
    "FILES",
    "FilesInMemory",
    "MISSING",
    "OVER_TIME",
    "RunFiles",
    "charts",
    "class_names_in",
    "image_titles",
    "learning_curves",
    "write_augmented",
]

OVER_TIME = "over_time.npz"
MISSING = "is not in this folder"
MAX_POINTS = 400  # More cannot be told apart in a figure of this size.


class RunFiles:
    """Reads the files of a run folder by name, each once.

    Args:
        folder: the run folder.
        known: dict from the name of a file to its content, for files that are
            not read.

    Attributes:
        problems: dict from the name of a file that is missing or cannot be
            read to the reason.

    Raises:
        ValueError: there is no such folder.

    Example:
        >>> RunFiles("runs/quickstart").read("result.json")["test_accuracy"]
    """

    def __init__(self, folder: str | os.PathLike, known: dict | None = None):
        self.folder = pathlib.Path(folder)
        self.problems: dict[str, str] = {}
        self._contents: dict[str, Any] = dict(known or {})
        if not self.folder.is_dir():
            raise ValueError(
                f"There is no folder {str(folder)!r}. Give the folder of a "
                "run, --run_dir of the recipe."
            )

    def read(self, name: str) -> Any:
        """Read a file in `FILES`; None where there is a problem."""
        if name not in self._contents:
            self._contents[name] = self._attempt(name)
        return self._contents[name]

    def _attempt(self, name):
        try:
            return FILES[name](self.folder / name)
        except FileNotFoundError:
            self.problems[name] = MISSING
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            self.problems[name] = f"cannot be read: {error}"
        return None


class FilesInMemory:
    """Stands in for `RunFiles` where a page is made without a run folder.

    Args:
        contents: dict from the name of a file to its content.
    """

    def __init__(self, contents: dict[str, Any]):
        self.contents = contents
        self.problems: dict[str, str] = {}

    def read(self, name: str) -> Any:
        return self.contents.get(name)


def class_names_in(
    run: RunFiles | FilesInMemory, num_classes: int
) -> list[str]:
    """Return the names of the classes, numbers where there are none."""
    names = run.read("class_names.json") or []
    if len(names) == num_classes:
        return [str(name) for name in names]
    return [str(number) for number in range(num_classes)]


def image_titles(predictions: Mapping[str, np.ndarray]) -> list[str]:
    """Return what each image of predictions.npz is called on a page.

    Args:
        predictions: its arrays, with or without `names`.

    Returns:
        N texts: the file, from the folder on that all of them are in, or
        the number of the image.

    Example:
        >>> image_titles({"names": np.array(["a/cat/1.jpg", "a/dog/1.jpg"])})
        ['cat/1.jpg', 'dog/1.jpg']
    """
    if "names" not in predictions:
        return [f"Image {i}" for i in range(len(predictions["classes"]))]
    files = predictions["names"].tolist()
    try:
        folder = os.path.commonpath([os.path.dirname(x) for x in files])
    except ValueError:  # On several drives.
        return files
    return [os.path.relpath(x, folder or os.curdir) for x in files]


def write_augmented(path: str | os.PathLike, images, labels) -> None:
    """Store a sample of the training images for the report.

    Args:
        path: the file, augmented.npz in the run folder.
        images: array of shape (M, H, W, C), values in [0, 255].
        labels: float array of shape (M, K), shares of the classes; several
            above 0 where images were mixed.

    Raises:
        ValueError: the shapes do not fit together.

    Example:
        >>> images, labels = next(iter(stream.from_step(0)))
        >>> write_augmented("augmented.npz", images[:24], labels[:24])
    """
    images, labels = np.asarray(images), np.asarray(labels, "float32")
    if images.ndim != 4 or labels.ndim != 2 or len(images) != len(labels):
        raise ValueError(
            "Expected images of shape (M, H, W, C) and labels of shape (M, "
            f"K). Received: shapes {images.shape} and {labels.shape}."
        )
    pixels = np.clip(np.rint(images), 0, 255).astype("uint8")
    with open(path, "wb") as file:
        np.savez_compressed(file, images=pixels, labels=labels)


def _text(path):
    return path.read_text(encoding="utf-8")


def _json(kind):
    def read(path):
        content = json.loads(_text(path))
        if not isinstance(content, kind):
            raise ValueError(f"it holds no {kind.__name__}")
        return content

    return read


def _json_lines(path):
    # A run that was killed may have left half a line at the end.
    lines = _text(path).rpartition("\n")[0]
    return [json.loads(line) for line in lines.splitlines()]


def _csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [
            {name: _number(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def _class_table(path):
    """As `_csv`, but the name of a class stays a name if it is a number."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            {"class": of_cell(row.pop("class", ""))}
            | {name: _number(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _arrays(*required, unless=None):
    """Read arrays, of which none is required where there is `unless`."""

    def read(path):
        # NumPy leaves a file open that is no archive.
        with (
            open(path, "rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            missing = set(required) - set(arrays)
            if missing and unless not in arrays:
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
            return dict(arrays)

    return read


# Name of a file -> function that reads it. The arrays of attention.npz are
# those of `attention_arrays`, or "reason" alone, why there are none. Those of
# predictions.npz are of keras_vit.evaluation.Predictions: labels (N,), classes
# (N, T), probabilities (N, T), num_classes; of M images pictures (M, H, W, C),
# uint8, and picture_rows (M,), which of the N they are; of images behind the
# cells of the confusion matrix cell_pictures and cell_rows; and of images in
# files names (N,). Those of over_time.npz are of a training without labels,
# at S times of it: intervals (S,), steps (S,), neighbours (S, M, 4, H, W, C)
# and, of models with attention, attention (S, M, H, W, 3) and the colours of
# patches (S, M, rows, columns, 3), all uint8, beside images (M, H, W, C).
FILES = {
    "attention.npz": _arrays(
        *("pictures", "maps", "rollout", "distances", "similarity"),
        *("similarity_step", "window", "titles", "classes", "probabilities"),
        "num_classes",
        unless="reason",
    ),
    "augmented.npz": _arrays("images", "labels"),
    "class_names.json": _json(list),
    "config.yaml": _text,
    "environment.json": _json(dict),
    "history.csv": _csv,
    "metrics.jsonl": _json_lines,
    OVER_TIME: _arrays("images", "steps", "neighbours"),
    "per_class.csv": _class_table,
    "predictions.npz": _arrays("labels", "classes", "probabilities"),
    "result.json": _json(dict),
}


class Chart(NamedTuple):
    """A figure; `columns` has the column of the logs of each curve."""

    title: str
    columns: dict[str, str]
    unit: str = ""
    percent: bool = False
    factor: float = 1.0


CHARTS = (
    Chart("Loss", {"training": "loss", "validation": "val_loss"}),
    Chart(
        "Accuracy",
        {"training": "accuracy", "validation": "val_accuracy"},
        percent=True,
    ),
    Chart(
        "Images of known classes",
        {"nearest neighbours": "val_knn", "linear probe": "val_probe"},
        percent=True,
    ),
    Chart(
        "Spread of features",
        {"training": "feature_spread", "validation": "val_feature_spread"},
    ),
    Chart("Effective rank of features", {"training": "feature_rank"}),
    Chart(
        "Entropy",
        {"of the teacher": "teacher_entropy", "of its mean": "mean_entropy"},
        "nats",
    ),
    Chart("Learning rate", {"learning rate": "learning_rate"}),
    Chart("Gradient norm", {"gradient norm": "gradient_norm"}),
    Chart("Speed", {"speed": "images_per_second"}, "images per second"),
    Chart(
        "Peak memory",
        {"peak memory": "peak_memory"},
        "GiB",
        factor=1 / 2**30,
    ),
)


def charts(metrics: list[dict], history: list[dict]) -> list[dict]:
    """Draw the charts that there are numbers for.

    Args:
        metrics: lines of metrics.jsonl.
        history: lines of history.csv, used where the first have no values.

    Returns:
        Dicts of "title" and "drawing", an SVG element with the curves in
        words.
    """
    axis = _axis(metrics, history)
    drawn = []
    for chart in CHARTS:
        if series := _series(chart, axis, metrics, history):
            drawn.append(_draw(chart, series, axis))
    return drawn


def learning_curves(metrics: list[dict], history: list[dict]):
    """Draw loss and accuracy beside each other, as far as there are numbers.

    Args:
        metrics: lines of metrics.jsonl.
        history: lines of history.csv, used where the first have no values.

    Returns:
        matplotlib Figure; None where there are no numbers.
    """
    axis = _axis(metrics, history)
    found = [
        (chart, series)
        for chart in CHARTS[:2]
        if (series := _series(chart, axis, metrics, history))
    ]
    if not found:
        return None
    figure = plots.new_figure(4.6 * len(found), 3)
    places = figure.subplots(1, len(found), squeeze=False)[0]
    for place, (chart, series) in zip(places, found, strict=True):
        plots.draw_curves(place, **_drawing(chart, series, axis))
    return figure


def _axis(metrics, history) -> str:
    by_step = any("step" in row for row in metrics + history)
    return "step" if by_step else "epoch"


def _series(chart, axis, metrics, history) -> dict:
    return {
        name: points
        for name, column in chart.columns.items()
        if (points := _points(metrics, axis, column, chart.factor))
        or (points := _points(history, axis, column, chart.factor))
    }


def _drawing(chart, series, axis) -> dict:
    """Return the arguments of `plots.curves`."""
    return {
        "series": {name: _thin(*points) for name, points in series.items()},
        "xlabel": axis,
        "ylabel": chart.unit or chart.title.lower(),
        "percent": chart.percent,
    }


def _draw(chart, series, axis):
    figure = plots.curves(**_drawing(chart, series, axis))
    form = "{:.2%}" if chart.percent else "{:.4g}"
    sentences = [
        _in_words(name, points, axis, form) for name, points in series.items()
    ]
    unit = f", in {chart.unit}" if chart.unit else ""
    text = f"{chart.title} over the {axis}s{unit}. {' '.join(sentences)}"
    name = chart.title.lower().replace(" ", "-")
    return {
        "title": chart.title,
        "drawing": pictures.vector_graphic(figure, name, text),
    }


def _points(rows, axis, column, factor):
    """Return (x, y) of the rows with finite numbers in both columns."""
    pairs = [
        (row[axis], row[column] * factor)
        for row in rows
        if _finite(row.get(axis)) and _finite(row.get(column))
    ]
    return tuple(zip(*pairs, strict=True)) if pairs else None


def _finite(value):
    return isinstance(value, int | float) and math.isfinite(value)


def _thin(x, y):
    """Average neighbours, so that no more than MAX_POINTS are left."""
    parts = min(len(x), MAX_POINTS)
    return tuple(
        [float(part.mean()) for part in np.array_split(values, parts)]
        for values in (x, y)
    )


def _in_words(name, points, axis, form):
    x, y = points
    low, high = np.argmin(y), np.argmax(y)

    def at(i):
        return f"{form.format(y[i])} at {axis} {plots.grouped(x[i])}"

    return (
        f"{name.capitalize()}: from {at(0)} to {at(-1)}; lowest {at(low)}, "
        f"highest {at(high)}."
    )
