"""The curves of a run, from its logs."""

import math
from typing import NamedTuple

import numpy as np

from keras_vit.analysis import plots
from keras_vit.analysis.report import pictures

__all__ = ["charts", "learning_curves"]

MAX_POINTS = 400  # More cannot be told apart in a figure of this size.


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
    Chart("Nearest neighbours", {"right": "val_knn"}, percent=True),
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
