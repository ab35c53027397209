"""Speed of a model in every format, beside Keras's and other libraries'.

Each side runs in a process of its own, so that no runtime's threads are in the
way of another's, and the sides take turns, a call each.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras

from keras_vit.checkpoints import save_checkpoint
from keras_vit.checkpoints.dialects import LIBRARIES
from keras_vit.exporting.export import export
from keras_vit.exporting.runtimes_table import FORMATS
from keras_vit.io.atomic_files import replacing
from keras_vit.io.checks import check_choice
from keras_vit.prediction import Classifier

__all__ = ["compare", "draw", "known_formats", "timing"]

ALL = "all"
WARM_UP = 2  # calls of each batch behind the first, which compiles
BAR, FASTEST = "#56B4E9", "#D55E00"  # Okabe and Ito's palette
DOTS_PER_INCH = 120


class Side(NamedTuple):
    """What is timed: its name, its row of `timed_side.KINDS`, its model."""

    name: str
    kind: str
    path: pathlib.Path


def known_formats(names: Sequence[str]) -> list[str]:
    """Return the formats of a list of names; refuse unknown ones."""
    for name in names:
        check_choice("format", name, (ALL, *FORMATS))
    return list(FORMATS) if ALL in names else list(dict.fromkeys(names))


def compare(
    classifier: Classifier,
    formats: Sequence[str] = (ALL,),
    *,
    batches: Sequence[int] = (1, 8),
    repeats: int = 10,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Exports a model in each precision of formats, and times all in turns.

    Beside them run the model itself, by `predict_on_batch` of Keras on its
    backend, and timm's model with the same weights, eager and compiled, where
    timm is installed and has it. All of them are on this machine at once: a
    large model needs as much memory as there are sides.

    Args:
        classifier: a `Classifier`.
        formats: names of `FORMATS`, or "all" for those that are installed.
        batches: numbers of images of a call.
        repeats: int, timed calls of each side and batch.
        say: what is called with a line of text when something begins.

    Returns:
        Dict with "rows", a dict for each side and batch, the fastest first:
        "side", "batch", "first_call_seconds", "median_seconds",
        "fastest_seconds", "images_per_second", "times_keras"; with "missing",
        what pip installs -> formats; and "left_out", side -> why.

    Raises:
        ValueError: for an unknown format.

    Example:
        >>> classifier = keras_vit.prediction.load_classifier("runs/flowers")
        >>> compare(classifier, ["onnx", "openvino"])["rows"][0]["side"]
        'openvino, bfloat16'
    """
    installed, missing = _installed(known_formats(formats))
    left_out: dict[str, str] = {}
    seconds: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as end:
        workers = {}
        shape = classifier.model.input_shape[1:]
        for side in _sides(
            classifier, installed, pathlib.Path(folder), left_out, say
        ):
            say(f"{side.name}: first calls")
            worker = end.enter_context(_worker(side, shape))
            with _leaving_out(left_out, side.name):
                firsts = {
                    (side.name, x): _warmed_up(worker, x) for x in batches
                }
                seconds |= {key: [first] for key, first in firsts.items()}
                workers[side.name] = worker
        for number in range(repeats):
            say(f"round {number + 1} of {repeats}")
            for name, batch in seconds:
                seconds[name, batch].append(_ask(workers[name], batch))
    rows = [
        {"side": side, **timing(batch, first, calls)}
        for (side, batch), (first, *calls) in seconds.items()
    ]
    return {
        "rows": _beside_keras(rows),
        "missing": missing,
        "left_out": left_out,
    }


def _installed(formats):
    """Return installed formats, and what to install for the others."""
    found, missing = [], {}
    for format in formats:
        kind = FORMATS[format]
        if all(map(importlib.util.find_spec, kind.modules)):
            found.append(format)
        else:
            missing.setdefault(kind.install, []).append(format)
    return found, missing


# --- What is timed ---


def _sides(classifier, formats, folder, left_out, say) -> Iterator[Side]:
    path = folder / "model.keras"
    classifier.model.save(path)
    yield Side(_name_of_keras(), "keras", path)
    for library in LIBRARIES:
        if library.load_folder:
            with _leaving_out(left_out, library.name):
                yield from _sides_of(library, classifier.model, folder)
    precisions = [(x, y) for x in formats for y in FORMATS[x].precisions]
    for number, (format, precision) in enumerate(precisions, 1):
        name = f"{format}, {precision}"
        say(f"{name}: exporting ({number} of {len(precisions)})")
        path = folder / f"{format}_{precision}{FORMATS[format].suffix}"
        with _leaving_out(left_out, name):
            export(classifier, path, format, precision=precision)
            yield Side(name, "exported", path)


def _name_of_keras():
    return f"Keras, {keras.backend.backend()}"


def _sides_of(library, model, folder):
    name = library.name
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"it is not installed: pip install {name}")
    save_checkpoint(model, folder / name, format=library.format)
    yield Side(f"{name}, eager", name, folder / name)
    yield Side(f"{name}, compiled", f"{name} compiled", folder / name)


@contextlib.contextmanager
def _leaving_out(left_out, name):
    try:
        yield
    except ValueError as error:
        left_out[name] = str(error)


# --- Timing ---


@contextlib.contextmanager
def _worker(side, shape) -> Iterator[subprocess.Popen]:
    """Run the process of a side until the block ends."""
    command = [sys.executable, "-m", "keras_vit.exporting.timed_side"]
    search = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [*command, side.kind, side.path, json.dumps(shape)],
        env={**os.environ, "PYTHONPATH": search},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _warmed_up(worker, batch) -> float:
    """Return the seconds of the first call, after some more calls."""
    first = _ask(worker, batch)
    for _ in range(WARM_UP):
        _ask(worker, batch)
    return first


def _ask(worker, batch) -> float:
    """Return the seconds of a call."""
    with contextlib.suppress(BrokenPipeError):
        worker.stdin.write(f"{batch}\n")
        worker.stdin.flush()
    while line := worker.stdout.readline():
        found = json.loads(line)
        if "error" in found:
            raise ValueError(found["error"])
        if "seconds" in found:
            return found["seconds"]
    raise ValueError(f"its process ended with {worker.wait()}.")


def timing(
    batch: int, first: float, seconds: Sequence[float]
) -> dict[str, Any]:
    """Summarize the first call and the others for a number of images."""
    median = statistics.median(seconds)
    return {
        "batch": batch,
        "first_call_seconds": first,
        "median_seconds": median,
        "fastest_seconds": min(seconds),
        "images_per_second": batch / median,
    }


def _beside_keras(rows):
    """Sort the rows of each batch by speed, with their ratio to Keras."""
    of_keras = {
        row["batch"]: row["median_seconds"]
        for row in rows
        if row["side"] == _name_of_keras()
    }
    for row in rows:
        wanted = of_keras.get(row["batch"])
        row["times_keras"] = wanted and wanted / row["median_seconds"]
    return sorted(rows, key=lambda x: (x["batch"], x["median_seconds"]))


# --- The picture ---


def draw(found: dict[str, Any], path: pathlib.Path, title: str = "") -> None:
    """Draws what `compare` returned: a bar for each side, the fastest marked.

    Args:
        found: dict, what `compare` returned.
        path: the PNG to write.
        title: what was timed, and where.
    """
    from matplotlib.figure import Figure

    by_batch: dict[int, list[dict]] = {}
    for row in found["rows"]:
        by_batch.setdefault(row["batch"], []).append(row)
    height = 1.2 + 0.28 * max(map(len, by_batch.values()))
    figure = Figure(figsize=(6 * len(by_batch), height), layout="constrained")
    figure.suptitle(title, fontsize="medium")
    panels = figure.subplots(1, len(by_batch), squeeze=False)[0]
    for axes, (batch, rows) in zip(panels, by_batch.items(), strict=True):
        _draw_bars(axes, rows)
        axes.set_title("1 image" if batch == 1 else f"{batch} images")
    with replacing(pathlib.Path(path)) as temporary:
        figure.savefig(temporary, dpi=DOTS_PER_INCH)


def _draw_bars(axes, rows):
    rates = [row["images_per_second"] for row in rows]
    colours = [FASTEST, *[BAR] * (len(rows) - 1)]
    bars = axes.barh([row["side"] for row in rows], rates, color=colours)
    labels = [f"{x:.3g}" if x < 100 else f"{x:,.0f}" for x in rates]
    labels[0] += ", the fastest"
    axes.bar_label(bars, labels, padding=3, fontsize="small")
    axes.margins(x=0.3)
    axes.invert_yaxis()
    axes.set_xlabel("images per second")
    axes.spines[["top", "right"]].set_visible(False)
