"""The page of an audit: its findings with pictures."""

import datetime
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from keras_vit.analysis import report
from keras_vit.analysis.plots import grouped
from keras_vit.analysis.report.page import Section
from keras_vit.analysis.report.pictures import photograph
from keras_vit.io.atomic_files import printable
from keras_vit.prediction.images import read_pixels

__all__ = ["render"]

# Shown with pictures of at most 8 kB; findings.csv has all.
MAX_GROUPS, MAX_MEMBERS = 40, 6
MAX_LABELS = 96
MAX_ODD = 12  # of a kind
SIDE = 128  # pixels
NAME = "audit"  # of the content that the sections are made from
# Kind of finding -> what it is called in the summary and on a heading.
TITLES = {
    "duplicate": "Duplicates",
    "label": "Labels that are probably wrong",
    "unreadable": "Not readable as images",
    "one colour": "Of one colour",
    "tiny": "Much smaller than the others",
    "elongated": "Much longer than wide, or wider than long",
    "dark": "Much darker than the others",
    "bright": "Much brighter than the others",
    "blurred": "Much less sharp than the others",
    "small file": "Far fewer bytes a pixel than the others",
    "rare mode": "Other channels than nearly all",
    "several frames": "Several pictures in one file",
}


def render(
    source: str,
    findings: Sequence[Any],
    notes: Sequence[str],
    *,
    paths: Mapping[str, str],
    num_classes: int,
    by: str,
) -> str:
    """Return the HTML of the page.

    Args:
        source: path of the data.
        findings: of `keras_vit.auditing.audit.Finding`.
        notes: what is to be said of the data.
        paths: from the name of each image to its file.
        num_classes: 0 of images without labels.
        by: what labels were judged by, "pixels" or the name of a model.
    """
    kinds: dict[str, list] = {}
    for finding in findings:
        kinds.setdefault(finding.finding, []).append(finding)
    contents = {
        "images": len(paths),
        "classes": num_classes,
        "counts": [
            (title, len({x.image for x in kinds.get(kind, ())}))
            for kind, title in TITLES.items()
        ],
        "notes": [printable(x) for x in notes],
        "duplicates": _groups(kinds.get("duplicate", []), paths),
        "labels": _labels(kinds.get("label", []), paths),
        "odd": _odd(kinds, paths),
    }
    name = pathlib.Path(source).resolve().name
    facts = (
        f"{grouped(len(paths))} images",
        f"labels by {printable(pathlib.Path(by).name or by)}",
        report.date_of(datetime.datetime.now()),
    )
    return report.render_page(
        f"Audit of {printable(name)}",
        SECTIONS,
        report.FilesInMemory({NAME: contents}),
        kind="audit",
        facts=facts if num_classes else (facts[0], facts[2]),
    )


def _groups(findings, paths) -> dict:
    """Return the first groups of duplicates, and how many there are."""
    groups = [
        list(members)
        for _, members in itertools.groupby(findings, lambda x: x.group)
    ]
    shown = [
        {
            "title": _title(members),
            "cells": [
                _cell(x, paths, _place(x)) for x in members[:MAX_MEMBERS]
            ],
            "more": max(0, len(members) - MAX_MEMBERS),
        }
        for members in groups[:MAX_GROUPS]
    ]
    return {"groups": shown, "total": len(groups)}


def _title(members) -> str:
    """Return a heading such as "3 images, in several parts, mirrored"."""
    words = dict.fromkeys(
        word for x in members for word in reversed(x.detail.split("; "))
    )
    return ", ".join([f"{len(members)} images", *words])


def _place(finding) -> list[str]:
    return [x for x in (finding.label, finding.part) if x]


def _labels(findings, paths) -> dict:
    cells = [
        _cell(
            x,
            paths,
            [f"is labelled {x.label}", f"looks like {x.suggested}", x.part],
        )
        for x in findings[:MAX_LABELS]
    ]
    return {"cells": cells, "total": len(findings)}


def _odd(kinds, paths) -> list[dict]:
    return [
        {
            "title": title,
            "total": len(kinds[kind]),
            "cells": [
                _cell(x, paths, [x.detail, *_place(x)])
                for x in kinds[kind][:MAX_ODD]
            ],
        }
        for kind, title in TITLES.items()
        if kind in kinds and kind not in ("duplicate", "label")
    ]


def _cell(finding, paths, lines) -> dict:
    """Return what a picture of a finding shows; no picture if unreadable."""
    picture = None
    if finding.finding != "unreadable":
        try:
            pixels = read_pixels(paths[finding.image], 3)
            picture = photograph(pixels, side=SIDE)
        except ValueError:
            picture = None  # Gone since it was looked at.
    return {
        "name": printable(finding.image),
        "lines": [printable(x) for x in lines if x],
        "picture": picture,
    }


def _of(name: str) -> Any:
    """Return the function that takes a part of the contents."""
    return lambda files: files.read(NAME)[name]


SECTIONS = (
    Section("audit", "What was found", lambda files: files.read(NAME), ()),
    Section("duplicates", "Duplicates", _of("duplicates"), ()),
    Section("labels", "Labels", _of("labels"), ()),
    Section("odd", "Odd images", _of("odd"), ()),
)
