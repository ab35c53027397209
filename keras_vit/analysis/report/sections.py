"""The parts of a report: what each shows, and from which files.

A new part is a row of `SECTIONS`, a function that makes its contents, and a
template with its name in templates/sections.

Axes: N images, M of them that are shown, H and W height and width, C
channels, K classes, T the most probable classes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_vit.analysis.report import pictures
from keras_vit.analysis.report.attention import sights
from keras_vit.analysis.report.confusion import confusion
from keras_vit.analysis.report.curves import charts
from keras_vit.analysis.report.files import Kept, RunFiles
from keras_vit.analysis.report.model_figures import model_figures
from keras_vit.analysis.report.numbers import flatten, headline, remaining

__all__ = ["EXPLANATION", "SECTIONS", "Section"]

MAX_AUGMENTED = 32
# Images of predictions.npz and which they are; files of older runs have fewer.
PICTURES = (("pictures", "picture_rows"), ("cell_pictures", "cell_rows"))
SHOWN_SHARE = 0.05  # What label smoothing gives a class is no part of a mix.


def _summary(run):
    result = run.read("result.json")
    if result is None:
        return None
    return {"headline": headline(result), "remaining": remaining(result)}


def _curves(run):
    drawn = charts(
        run.read("metrics.jsonl") or [], run.read("history.csv") or []
    )
    return {"charts": drawn} if drawn else None


def _confusion(run):
    found = run.read("predictions.npz")
    if found is None or found["labels"].ndim != 1:
        return None
    names = class_names(run, int(found["num_classes"]))
    answers = {
        int(i): _answer(found, i, image, names)
        for pictures_, rows in PICTURES
        if pictures_ in found
        for image, i in zip(found[pictures_], found[rows], strict=True)
    }
    return confusion(found["labels"], found["classes"][:, 0], names, answers)


def _per_class(run):
    rows = run.read("per_class.csv")
    if not rows:
        return None
    # Of a model with more classes than the data has, the others say nothing.
    met = [row for row in rows if row["images"] or row["predicted"]]
    hardest = sorted(met, key=lambda row: (row["f1"] is None, row["f1"]))
    return {"rows": hardest}


def _mistakes(run):
    found = run.read("predictions.npz")
    if found is None or "pictures" not in found or found["labels"].ndim != 1:
        return None
    names = class_names(run, int(found["num_classes"]))
    wrong = int(np.sum(found["labels"] != found["classes"][:, 0]))
    shown = zip(found["pictures"], found["picture_rows"], strict=True)
    return {
        "answers": [_answer(found, i, image, names) for image, i in shown],
        "num_wrong": wrong,
        "num_images": len(found["labels"]),
    }


def _answer(found, i, image, names):
    guesses = zip(found["classes"][i], found["probabilities"][i], strict=True)
    return {
        "picture": pictures.photograph(image),
        "number": int(i),
        "truth": names[found["labels"][i]],
        "right": bool(found["labels"][i] == found["classes"][i, 0]),
        "guesses": [(names[k], float(share)) for k, share in guesses],
    }


def _attention(run):
    return _of_attention(
        run,
        lambda found: sights(
            found, class_names(run, int(found["num_classes"]))
        ),
    )


def _inside(run):
    return _of_attention(run, model_figures)


def _of_attention(run, contents):
    found = run.read("attention.npz")
    if found is None or "reason" in found:
        return found
    return contents(found)


def _model(run):
    values = run.read("model.json")
    return None if values is None else {"rows": flatten(values)}


def _augmented(run):
    found = run.read("augmented.npz")
    if found is None:
        return None
    names = class_names(run, found["labels"].shape[1])
    shown = zip(found["images"], found["labels"], strict=True)
    return {
        "inputs": [
            {"picture": pictures.photograph(image), "mix": _mix(shares, names)}
            for image, shares in list(shown)[:MAX_AUGMENTED]
        ]
    }


def _mix(shares, names):
    order = np.argsort(-shares, kind="stable")
    return [
        (names[k], float(shares[k])) for k in order if shares[k] > SHOWN_SHARE
    ]


def _config(run):
    text = run.read("config.yaml")
    return None if text is None else {"text": text}


def _environment(run):
    values = run.read("environment.json")
    return None if values is None else {"rows": flatten(values)}


def class_names(run: RunFiles | Kept, num_classes: int) -> list[str]:
    """Names of the classes, numbers where the folder has no names for them.

    Args:
        run: `RunFiles` or `Kept`.
        num_classes: int, K.

    Returns:
        K names.
    """
    names = run.read("class_names.json") or []
    if len(names) == num_classes:
        return [str(name) for name in names]
    return [str(number) for number in range(num_classes)]


class Section(NamedTuple):
    """A part of the report.

    Args:
        name: its anchor, and templates/sections/<name>.html its template.
        title: its heading.
        contents: function from `RunFiles` or `Kept` to what the template
            shows, None where they do not have it.
        files: the files that it is made from.
    """

    name: str
    title: str
    contents: Callable[[RunFiles | Kept], dict | None]
    files: tuple[str, ...]


ATTENTION = Section(
    "attention", "What the model sees", _attention, ("attention.npz",)
)
INSIDE = Section(
    "inside", "Distances and positions", _inside, ("attention.npz",)
)
EXPLANATION = (
    ATTENTION,
    INSIDE,
    Section("model", "Model", _model, ("model.json",)),
)
SECTIONS = (
    Section("summary", "Result", _summary, ("result.json",)),
    Section(
        "curves", "Learning curves", _curves, ("metrics.jsonl", "history.csv")
    ),
    Section("confusion", "Confusion matrix", _confusion, ("predictions.npz",)),
    Section("per_class", "Class by class", _per_class, ("per_class.csv",)),
    Section("mistakes", "Mistakes", _mistakes, ("predictions.npz",)),
    ATTENTION,
    INSIDE,
    Section("augmented", "Training inputs", _augmented, ("augmented.npz",)),
    Section("config", "Config", _config, ("config.yaml",)),
    Section("environment", "Environment", _environment, ("environment.json",)),
)
