"""What is probably wrong with a folder of images, as a page and as a table.

Labels that are probably wrong are found by confident learning. Northcutt, Jiang
and Chuang, "Confident Learning: Estimating Uncertainty in Dataset Labels"
(arXiv:1911.00068): an image is counted for the class that it is confidently
predicted to be of by a classifier that has not seen it.

Small pictures of all images are compared to find those that are others once
more: encoded anew, cropped, mirrored, brighter. Each image gets the few others
whose picture of 8x8 points is most similar, as it is and mirrored. Each such
pair is aligned: the window of one picture, and the brightness and contrast,
with which it comes nearest to the other. What is left of the difference
decides, compared with what is left of other neighbours in the same folder: two
photographs that differ by a tenth are one, two digits are not.

Axes: N images, P pairs, S the side of a small picture, C channels, D features,
K classes.
"""

import collections
import dataclasses
import datetime
import io
import itertools
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from keras_vit.analysis import report
from keras_vit.analysis.plots import grouped
from keras_vit.analysis.report.page import Section
from keras_vit.analysis.report.pictures import photograph
from keras_vit.data import DataConfig, open_dataset
from keras_vit.data.dataset import PARTS, Dataset, Examples, folds_by_content
from keras_vit.data.image_folders import image_files
from keras_vit.data.image_reader import BROKEN, as_seen, in_channels
from keras_vit.data.manifest import Image, list_images
from keras_vit.evaluation.probes import fit_neighbours
from keras_vit.explanation import check_folder
from keras_vit.io.atomic_files import printable, replacing, write_csv
from keras_vit.io.checks import (
    EXTRAS,
    check_installed,
    check_kind,
    check_regular,
    check_whole,
)
from keras_vit.io.stores import on_disk
from keras_vit.prediction.encoder import as_encoder
from keras_vit.prediction.images import read_batches, read_pixels

__all__ = [
    "Audit",
    "Facts",
    "Finding",
    "LabelError",
    "Pair",
    "audit",
    "confident_classes",
    "groups_of",
    "label_errors",
    "near_duplicates",
    "odd_images",
    "out_of_sample",
    "read_facts",
]

BATCH_SIZE = 32
FOLDS = 5
NEIGHBOURS = 10
# The votes of neighbours to this power are the probabilities: of an image of
# which nine of ten neighbours are cats more than nine of ten are cats.
# Measured: docs/decisions/audit.md.
SHARPENING = 3

Track = Callable[[Iterable, int, str], Iterable]


class LabelError(NamedTuple):
    """An image whose label is probably wrong.

    Args:
        image: int, its number.
        label: int, the class that it is given.
        suggested: int, the class that it is confidently predicted to be of.
        probability: float, of the suggested class.
        margin: float, by how much this is above that of the given class.
    """

    image: int
    label: int
    suggested: int
    probability: float
    margin: float


def out_of_sample(
    features: np.ndarray, labels: np.ndarray, contents: list[str]
) -> np.ndarray:
    """Predict the classes of all images, each by those of other folds.

    Args:
        features: float array of shape (N, D).
        labels: int array of shape (N,), of K classes from 0, each with two
            different contents at least.
        contents: N texts, the same for images that stay in one fold.

    Returns:
        Probabilities, float array of shape (N, K).

    Raises:
        ValueError: see `folds_by_content`.
    """
    num_classes = int(labels.max()) + 1
    folds = min(FOLDS, len(set(contents)))
    fold = folds_by_content(contents, labels, folds=folds, seed=0)
    votes = np.zeros((len(labels), num_classes))
    for number in range(folds):
        held_out = fold == number
        neighbours = fit_neighbours(
            features[~held_out],
            labels[~held_out],
            num_classes,
            num_neighbours=NEIGHBOURS,
        )
        votes[held_out] = neighbours.scores(features[held_out])
    # Relative to the largest: exp(similarity / temperature) to the third.
    votes = (votes / votes.max(axis=1, keepdims=True)) ** SHARPENING
    return votes / votes.sum(axis=1, keepdims=True)


def confident_classes(
    probabilities: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Return the class that each image is confidently of, or -1.

    Equations 2 and 1 of the paper: t_j, the expected self-confidence of class
    j, is the mean probability of j of the images labelled j; an image is
    counted for the most probable of the classes j whose probability is at
    least t_j. Where that is not its label, it lies off the diagonal of the
    confident joint.

    Args:
        probabilities: out of sample, float array of shape (N, K).
        labels: int array of shape (N,), each class at least once.

    Returns:
        int array of shape (N,).

    Example:
        >>> confident_classes(np.array([[0.9, 0.1], [0.8, 0.2]]), np.arange(2))
        array([0, 1])
    """
    classes = np.arange(probabilities.shape[1])
    thresholds = [probabilities[labels == j, j].mean() for j in classes]
    confident = probabilities >= np.array(thresholds)
    found = np.where(confident, probabilities, -1.0).argmax(axis=1)
    return np.where(confident.any(axis=1), found, -1)


def label_errors(
    probabilities: np.ndarray, labels: np.ndarray
) -> list[LabelError]:
    """Find the labels that are probably wrong, the surest first.

    Args:
        probabilities: see `confident_classes`.
        labels: see `confident_classes`.
    """
    suggested = confident_classes(probabilities, labels)
    rows = np.flatnonzero((suggested >= 0) & (suggested != labels))
    chosen = probabilities[rows, suggested[rows]]
    margins = chosen - probabilities[rows, labels[rows]]
    return [
        LabelError(
            int(rows[i]),
            int(labels[rows[i]]),
            int(suggested[rows[i]]),
            float(chosen[i]),
            float(margins[i]),
        )
        for i in np.argsort(-margins, kind="stable")
    ]


# --- The audit ---

TABLE, PAGE = "findings.csv", "index.html"
POINTS = 16  # a side, of the pixels that stand in for features
LEAST_AGREEMENT = 0.6  # of labels and predictions; below, most are right


class Finding(NamedTuple):
    """A line of findings.csv.

    Args:
        finding: "duplicate", "label", or a kind of odd image as "unreadable".
        image: path below the folder.
        part: "train", "validation" or "test", "" of data without parts.
        label: name of its class.
        group: number of a group of duplicates, from 1; else None.
        suggested: the class that it is probably of; else "".
        score: of duplicates the difference to the nearest one, 0 for equal
            files; of labels by how much the suggested class is more probable.
        detail: the finding in words.
    """

    finding: str
    image: str
    part: str
    label: str
    group: int | None = None
    suggested: str = ""
    score: float | None = None
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Audit:
    """What `audit` found and wrote.

    Attributes:
        page: path of index.html.
        table: path of findings.csv.
        findings: its lines.
        notes: what was not looked at, and why.
    """

    page: pathlib.Path
    table: pathlib.Path
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Data:
    """The images of all parts of a data set.

    Args:
        images: of each its line in the list of a run.
        paths: of each its file.
        labels: int array of shape (N,); None without one class per image.
        class_names: names of the classes.
        notes: what is to be said of the data.
    """

    images: list[Image]
    paths: list[str]
    labels: np.ndarray | None
    class_names: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def named_paths(self) -> dict[str, str]:
        names = [image.name for image in self.images]
        return dict(zip(names, self.paths, strict=True))


def no_track(items: Iterable, total: int, what: str) -> Iterable:
    """Show no progress."""
    return items


def audit(
    data: str | os.PathLike,
    model: Any = None,
    out: str | os.PathLike | None = None,
    *,
    image_size: int | None = None,
    batch_size: int = BATCH_SIZE,
    track: Track = no_track,
) -> Audit:
    """Find duplicates, wrong labels and odd images in a data set.

    Writes index.html, a page that works offline, and findings.csv, a line for
    each finding.

    Args:
        data: folder of classes, with or without parts, folder of images
            without classes, or CSV file, as training takes them.
        model: whose embeddings wrong labels are found by, see
            `keras_vit.embed`; it should not have seen these labels. None for
            pixels, which suffice for digits and icons.
        out: folder to write into, outside of the data; by default that of the
            data's name and "_audit" in the current one.
        image_size: pixels, where it is not that of the model's weights.
        batch_size: int, images per step of the model.
        track: function of items, their number and what is done with them that
            returns the items, to show progress.

    Returns:
        An `Audit`.

    Raises:
        ValueError: when there are no images, no such model, or the folder
            cannot be written into. Nothing is written then.
        OSError: when weights cannot be fetched, or the disk is full.

    Example:
        >>> keras_vit.audit("flowers").page
        PosixPath('flowers_audit/index.html')
    """
    check_installed("An audit", *EXTRAS["plots"])
    check_kind(str | os.PathLike, data=data)
    check_whole(1, batch_size=batch_size)
    for name, value, usual in (
        ("image_size", image_size, None),
        ("batch_size", batch_size, BATCH_SIZE),
    ):
        if model is None and value != usual:
            raise ValueError(
                f"{name} is of the model whose embeddings are compared. "
                f"Received: {name}={value!r}, model=None. Give a model, or "
                f"leave {name} out."
            )
    source = _source(data)
    folder = _out_folder(source, out)
    opened = _opened(source)
    encoder = None
    if model is not None:
        encoder = as_encoder(model, image_size=image_size)
    count = len(opened.paths)
    read = list(track(read_facts(opened.paths), count, "Reading"))
    facts = [x for x, _ in read]
    pictures = np.stack([x for _, x in read])  # (N, S, S, 3)
    readable = np.array([not x.error for x in facts])
    notes = list(opened.notes)
    group, duplicates = _duplicates(opened, pictures, readable, track)
    features = None
    if _labels_are_checked(opened, readable, group, notes):
        features = _features(
            opened, pictures, readable, encoder, batch_size, track
        )
    findings = [
        *duplicates,
        *_labels(opened, features, readable, group, notes),
        *(
            _finding(opened, kind, i, detail=words)
            for kind, i, words in odd_images(facts)
        ),
    ]
    page = _render(
        source,
        findings,
        notes,
        paths=opened.named_paths,
        num_classes=0 if opened.labels is None else len(opened.class_names),
        by="pixels" if encoder is None else str(encoder.metadata["model"]),
    )
    folder.mkdir(parents=True, exist_ok=True)
    rows = [x._asdict() for x in findings]
    write_csv(folder / TABLE, rows, [*Finding.__annotations__])
    with replacing(folder / PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Audit(folder / PAGE, folder / TABLE, tuple(findings), tuple(notes))


def _source(data) -> str:
    """Return the path of a folder or CSV file that exists."""
    path = on_disk(os.path.expanduser(os.fspath(data)))
    if not os.path.isdir(path) and not os.path.isfile(path):
        raise ValueError(
            f"There is no folder or CSV file {path!r}. Give one of images, as "
            "training takes it."
        )
    if os.path.isfile(path) and not path.lower().endswith(".csv"):
        raise ValueError(
            f"An audit is of a folder of images or of a CSV file. Received: "
            f"{path!r}, another file."
        )
    return path


def _out_folder(source, out) -> pathlib.Path:
    name = pathlib.Path(source).resolve().stem
    folder = check_folder(f"{name}_audit" if out is None else out)
    inside = pathlib.Path(source).resolve()
    if inside.is_dir() and folder.resolve().is_relative_to(inside):
        raise ValueError(
            f"The page would be in the data, where training takes its folder "
            f"for a class. Received: out={str(folder)!r}. Give a folder "
            f"outside of {source!r}."
        )
    return folder


def _opened(source: str) -> _Data:
    """Open all parts of the data; broken images are findings."""
    options: dict[str, Any] = {"reader": "pillow", "check_images": "none"}
    if os.path.isfile(source):
        more = {"skip_missing": True, "on_missing_label": "skip"}
        config = DataConfig(csv=source, **more, **options)
    else:
        config = DataConfig(folder=source, **options)
    unlabelled = _without_classes(source)
    dataset = unlabelled or open_dataset(config, to_evaluate=True)
    images = list_images(dataset, config) or []
    parts = [getattr(dataset, part) for part in PARTS]
    parts = [part for part in parts if part is not None and len(part)]
    if not images:
        raise ValueError(f"There are no images in {source!r}.")
    if len(parts) == 1:
        images = [Image(**{**x._asdict(), "part": ""}) for x in images]
    notes = list(dataset.notes)
    # As a page and a table can hold them, whatever bytes a name has.
    images = [
        Image(x.name.encode(errors="backslashreplace").decode(), *x[1:])
        for x in images
    ]
    labels = np.concatenate([part.labels for part in parts])
    reason = OTHER_TASKS.get(dataset.task or "")
    if unlabelled is not None:
        reason = "the images are in no folders of classes"
    if reason is not None:
        notes.append(f"Labels are not checked: {reason}.")
    return _Data(
        images,
        [str(x) for part in parts for x in part.contents],
        labels if reason is None else None,
        dataset.class_names,
        tuple(notes),
    )


# Task of data whose labels confident learning is not for -> why.
OTHER_TASKS = {
    "multilabel": "an image may have several",
    "regression": "they are numbers",
}


def _without_classes(source: str) -> Dataset | None:
    """Return images that lie in the folder itself, if all of them do."""
    if os.path.isfile(source):
        return None
    files = image_files(pathlib.Path(source))
    if not files:
        raise ValueError(
            f"There are no images in the folder {source!r}. Expected one "
            "folder per class, with or without train, val and test above, or "
            "images."
        )
    if any(pathlib.Path(x).parent != pathlib.Path(source) for x in files):
        return None
    labels = np.zeros(len(files), np.int32)
    examples = Examples(
        np.array(files, object),
        labels,
        kind="path",
        source=source,
        reader="pillow",
    )
    return Dataset(None, None, examples, ("",), task="classification")


def _finding(data: _Data, kind: str, i: int, **more) -> Finding:
    image = data.images[i]
    return Finding(kind, image.name, image.part, image.label, **more)


def _duplicates(
    data: _Data, pictures: np.ndarray, readable: np.ndarray, track
) -> tuple[list[str], list[Finding]]:
    """Find images of equal contents and near duplicates.

    Returns:
        For each image a text that it shares with its duplicates; and the
        findings, groups of several parts first, then of several classes.
    """
    first, copies = {}, []
    for i in np.flatnonzero(readable).tolist():
        same = first.setdefault(data.images[i].sha256 or i, i)
        if same != i:
            copies.append((same, i))
    rows = np.array(sorted(first.values()), int)  # one of each content
    nearest: dict[int, tuple[float, str]] = {}
    pairs = list(copies)
    for first_one, second, difference, mirrored in near_duplicates(
        pictures[rows], track
    ):
        ends = int(rows[first_one]), int(rows[second])
        pairs.append(ends)
        words = "mirrored" if mirrored else "nearly equal"
        for i in ends:
            nearest.setdefault(i, (difference, words))
    for pair in copies:
        for i in pair:
            nearest[i] = 0.0, "equal file"
    groups = groups_of(pairs, len(pictures))
    groups.sort(key=lambda x: _order(data, x))
    shared = [x.sha256 or str(i) for i, x in enumerate(data.images)]
    findings = []
    for number, members in enumerate(groups, start=1):
        apart = _apart(data, members)
        for i in members:
            shared[i] = f"group {number}"
            score, words = nearest[i]
            findings.append(
                _finding(
                    data,
                    "duplicate",
                    i,
                    group=number,
                    score=round(score, 4),
                    detail="; ".join([words, *apart]),
                )
            )
    return shared, findings


def _apart(data: _Data, members: Sequence[int]) -> list[str]:
    """Say which fields duplicates should share and do not."""
    fields = {"part": "in several parts", "label": "of several classes"}
    return [
        words
        for field, words in fields.items()
        if len({getattr(data.images[i], field) for i in members}) > 1
    ]


def _order(data: _Data, members):
    apart = _apart(data, members)
    return "in several parts" not in apart, not apart, members


def _labels_are_checked(data: _Data, readable, shared, notes) -> bool:
    """Return whether there are two classes of two different images."""
    if data.labels is None:
        return False
    kept = _checkable(data, readable, shared)
    lone = sorted(
        {data.class_names[x] for x in set(data.labels) - set(data.labels[kept])}
    )
    if lone:
        notes.append(
            "Labels are not checked of classes with less than two different "
            f"images: {', '.join(map(repr, lone))}."
        )
    if len(set(data.labels[kept])) < 2:
        notes.append(
            "Labels are not checked: that needs two classes with two different "
            "images each."
        )
        return False
    return True


def _checkable(data: _Data, readable, shared) -> np.ndarray:
    """Return the numbers of readable images of classes with two of them."""
    contents = collections.defaultdict(set)
    labels = np.asarray(data.labels)
    for i in np.flatnonzero(readable):
        contents[labels[i]].add(shared[i])
    several = [label for label, x in contents.items() if len(x) > 1]
    return np.flatnonzero(readable & np.isin(labels, several))


def _features(
    data: _Data, pictures, readable, encoder, batch_size: int, track
) -> np.ndarray:
    """Return features of all images, (N, D); what cannot be read has zeros."""
    if encoder is None:
        step = pictures.shape[1] // POINTS
        blocks = pictures.reshape(-1, POINTS, step, POINTS, step, 3)
        means = blocks.mean(axis=(2, 4), dtype="float32")
        return means.reshape(len(pictures), -1)
    rows = np.flatnonzero(readable)
    batches = read_batches(encoder, [data.paths[i] for i in rows], batch_size)
    total = -(-len(rows) // batch_size)
    found, place = {}, 0
    for read, batch in track(batches, total, "Embedding"):
        vectors = iter(encoder.vectors(batch) if len(batch) else ())
        for _, error in read:
            if error is None:
                found[rows[place]] = next(vectors)
            else:
                readable[rows[place]] = False
            place += 1
    if not found:
        return np.zeros((len(pictures), 1), "float32")
    features = np.zeros((len(pictures), next(iter(found.values())).size))
    for i, vector in found.items():
        features[i] = vector.ravel()
    return features


def _labels(data: _Data, features, readable, shared, notes) -> list[Finding]:
    """Find labels that are probably wrong."""
    if features is None or data.labels is None:
        return []
    rows = _checkable(data, readable, shared)
    classes, labels = np.unique(data.labels[rows], return_inverse=True)
    probabilities = out_of_sample(
        features[rows], labels, [shared[i] for i in rows]
    )
    agreement = float((probabilities.argmax(axis=1) == labels).mean())
    if agreement < LEAST_AGREEMENT:
        notes.append(
            f"Labels are not checked: predictions agree with {agreement:.0%} "
            f"of them, and below {LEAST_AGREEMENT:.0%} most that differ are "
            "right. Give a model with better features of such images."
        )
        return []
    notes.append(
        f"Predictions by the labels of similar images agree with "
        f"{agreement:.1%} of the labels."
    )
    return [
        _finding(
            data,
            "label",
            int(rows[error.image]),
            suggested=data.class_names[classes[error.suggested]],
            score=round(error.margin, 4),
            detail=f"probability {error.probability:.3f}",
        )
        for error in label_errors(probabilities, labels)
    ]


# Shown with pictures of at most 8 kB; findings.csv has all.
MAX_GROUPS, MAX_MEMBERS = 40, 6
MAX_LABELS = 96
MAX_ODD = 12  # of a kind
PICTURE_SIDE = 128  # pixels
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


def _render(
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
        "labels": _suspected_labels(kinds.get("label", []), paths),
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


def _suspected_labels(findings, paths) -> dict:
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
            picture = photograph(pixels, side=PICTURE_SIDE)
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


# --- Odd images ---

THREADS = 8
LARGE = 256  # pixels of the longer side, above which an image is scaled down
ROUNDING = 20 / 12  # variance that levels of whole numbers give a Laplacian
# Photographs have 0.2 to 1; blurred with a radius of 3 pixels 0.13 at most.
BLURRED = 0.13
FLAT = 1.0  # levels of 255; less deviation is one colour
FEW = 0.05  # share of the images that are odd in one way, at most


class Facts(NamedTuple):
    """What is known of an image.

    Args:
        error: why it cannot be read, else "".
        size: bytes of the file.
        kind: of the file, as "JPEG".
        mode: of the pixels, as "RGB", "L" or "RGBA".
        width: pixels.
        height: pixels.
        frames: how many pictures the file has.
        brightness: mean level, 0 to 255.
        contrast: deviation of the levels.
        sharpness: of fine detail relative to that of four times the size.
    """

    error: str = ""
    size: int = 0
    kind: str = ""
    mode: str = ""
    width: int = 0
    height: int = 0
    frames: int = 1
    brightness: float = 0.0
    contrast: float = 0.0
    sharpness: float = 0.0


def read_facts(paths: Sequence[str]) -> Iterator[tuple[Facts, np.ndarray]]:
    """Read image files in threads.

    Yields:
        For each, in order, its facts and its small picture, uint8 array of
        shape (S, S, 3); black where the file cannot be read.
    """
    pool = ThreadPoolExecutor(THREADS)
    try:
        yield from pool.map(_read, paths)
    finally:
        # Whoever ends the program does not wait for the rest.
        pool.shutdown(cancel_futures=True)


def _read(path: str) -> tuple[Facts, np.ndarray]:
    from PIL import Image

    size = 0
    try:
        check_regular(path)
        with open(path, "rb") as file:
            content = file.read()
        size = len(content)
        with warnings.catch_warnings():
            # Pillow's, of large images and of odd EXIF data.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                return _facts_of(image, size)
    except Image.UnidentifiedImageError:
        error = "it is no image" if size else "it is empty"
    except (*BROKEN, Image.DecompressionBombError) as found:
        error = str(found)
    return Facts(error, size), np.zeros((SIDE, SIDE, 3), "uint8")


def _facts_of(image, size: int) -> tuple[Facts, np.ndarray]:
    from PIL import Image

    kind, mode = image.format or "", image.mode
    width, height = image.size
    frames = getattr(image, "n_frames", 1)
    # A JPEG is decoded at a fraction of its size, in a fraction of the time.
    image.draft(None, (LARGE, LARGE))
    colours = in_channels(as_seen(image), 3)
    small = colours.resize(
        (SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=3.0
    )
    colours.thumbnail((LARGE, LARGE), Image.Resampling.BICUBIC)
    levels = np.asarray(colours.convert("L"), "float32")
    facts = Facts(
        size=size,
        kind=kind,
        mode=mode,
        width=width,
        height=height,
        frames=frames,
        brightness=float(levels.mean()),
        contrast=float(levels.std()),
        sharpness=_sharpness(levels),
    )
    return facts, np.asarray(small)


def _sharpness(levels) -> float:
    """Return how much finer detail there is than detail of four times the size.

    Images without detail, as of a sky, have noise, which is finest: they are
    not taken for blurred ones.
    """
    rows, columns = (x // 4 for x in levels.shape)
    if min(rows, columns) < 4:
        return 1.0  # Too small to tell.
    blocks = levels[: 4 * rows, : 4 * columns].reshape(rows, 4, columns, 4)
    fine, coarse = _curvature(levels), _curvature(blocks.mean(axis=(1, 3)))
    return float(np.sqrt(max(fine - ROUNDING, 0.0) / max(coarse, ROUNDING)))


def _curvature(levels) -> float:
    """Return the variance of the Laplacian."""
    around = levels[:-2, 1:-1] + levels[2:, 1:-1]
    around = around + levels[1:-1, :-2] + levels[1:-1, 2:]
    return float((around - 4 * levels[1:-1, 1:-1]).var())


def odd_images(facts: Sequence[Facts]) -> list[tuple[str, int, str]]:
    """Find the images that are unlike the others.

    Returns:
        Tuples of the kind, a key of `ODD`, the number of the image, and what
        is odd in words; by kinds in their order.

    Example:
        >>> odd_images([Facts(error="it is empty")])
        [('unreadable', 0, 'it is empty')]
    """
    found = [("unreadable", i, x.error) for i, x in enumerate(facts) if x.error]
    rows = [i for i, x in enumerate(facts) if not x.error]
    if not rows:
        return found
    readable = [facts[i] for i in rows]
    columns = {
        name: np.array([getattr(x, name) for x in readable])
        for name in Facts.__annotations__
    }
    for kind, (is_odd, text) in ODD.items():
        for place in np.flatnonzero(is_odd(columns)):
            words = text.format(**readable[place]._asdict())
            found.append((kind, rows[place], words))
    return found


def _tiny(x) -> np.ndarray:
    shorter = np.minimum(x["width"], x["height"])
    return shorter < np.median(shorter) / 4


def _elongated(x) -> np.ndarray:
    ratio = np.maximum(x["width"], x["height"])
    ratio = ratio / np.minimum(x["width"], x["height"])
    return ratio >= np.maximum(3, 2 * np.median(ratio))


def _flat(x) -> np.ndarray:
    return x["contrast"] < FLAT


def _dark(x) -> np.ndarray:
    less = x["brightness"] < np.median(x["brightness"]) / 2
    return _few(~_flat(x) & less & (x["brightness"] < 40))


def _bright(x) -> np.ndarray:
    darkness = 255 - x["brightness"]
    less = darkness < np.median(darkness) / 2
    return _few(~_flat(x) & less & (darkness < 40))


def _blurred(x) -> np.ndarray:
    return _few(~_flat(x) & (x["sharpness"] < BLURRED))


def _small_file(x) -> np.ndarray:
    """Return which files are far smaller than others of their kind."""
    found = np.zeros(len(x["size"]), bool)
    share = x["size"] / (x["width"] * x["height"])
    for kind in np.unique(x["kind"]):
        same = x["kind"] == kind
        found[same] = share[same] < np.median(share[same]) / 8
    return _few(found & ~_flat(x))


def _rare_mode(x) -> np.ndarray:
    modes, place, counts = np.unique(
        x["mode"], return_inverse=True, return_counts=True
    )
    return counts[place] <= FEW * len(place)


def _animated(x) -> np.ndarray:
    return x["frames"] > 1


def _few(found) -> np.ndarray:
    """Return what was found, or nothing where that is usual in the folder."""
    return found & (found.sum() <= max(1, FEW * len(found)))


# Kind of an image that is unlike the others -> which they are, of the columns
# of `Facts`, and in words of one of them.
ODD: dict[str, tuple[Callable[[dict], np.ndarray], str]] = {
    "one colour": (_flat, "every pixel has the level {brightness:.0f}"),
    "tiny": (_tiny, "{width}x{height} pixels"),
    "elongated": (_elongated, "{width}x{height} pixels"),
    "dark": (_dark, "mean level {brightness:.0f} of 255"),
    "bright": (_bright, "mean level {brightness:.0f} of 255"),
    "blurred": (_blurred, "sharpness {sharpness:.2f}"),
    "small file": (_small_file, "{size} bytes for {width}x{height} pixels"),
    "rare mode": (_rare_mode, "{mode} pixels in a file of {kind}"),
    "several frames": (_animated, "{frames} pictures; the first one is used"),
}


# --- Near duplicates ---

SIDE = 32  # S
COARSE = 8  # points a side that candidates are found by
CANDIDATES = 5  # candidates of an image, as many mirrored
SIMILAR = 0.8  # cosine of the coarse pictures of a candidate, at least
LEAST_DEVIATION = 2.0  # levels; flatter images are all alike
BLOCK = 1024  # images that are compared with all others at a time
PAIRS = 512  # that are aligned at a time
# Points that are averaged in each step of Gauss and Newton: large shifts first.
BLURS = (5, 3, 1, 1, 1)
LARGEST_CROP = 0.045  # of each side, relative to the picture's
SLACK = 0.005  # how far a window may be outside, in halves of a side
GAINS = (0.5, 2.0)  # of contrast
DARKEST, BRIGHTEST = 5, 250  # levels beyond which a picture may be cut off
# Structure that is compared, each by itself: what means over 3x3 points have
# and those over 9x9 have not; and what the latter have beside a plane, since
# what goes from bright to dark is alike in all skies and all walls.
BANDS = ((3, 9), (9, None))
NOISE = (0.6, 0.1)  # squared levels that JPEG adds to each
# How much may be left of a pair that is one image: the last number where the
# images of a folder have nothing in common, the first where they are much
# alike, as digits are; see `_bound`. Measured: docs/decisions/audit.md.
BOUNDS = (0.058, 0.165)
LUMA = np.array([0.299, 0.587, 0.114], "float32")  # of ITU-R BT.601


class Pair(NamedTuple):
    """Two images that are one.

    Args:
        first: int, the number of an image.
        second: int, that of the other, above the first.
        difference: float from 0, what is left of the difference, relative to
            the contrast.
        mirrored: whether one is the mirror image of the other.
    """

    first: int
    second: int
    difference: float
    mirrored: bool


def near_duplicates(pictures: np.ndarray, track: Track) -> list[Pair]:
    """Find the pairs of pictures that show one image.

    Args:
        pictures: uint8 array of shape (N, S, S, 3), each with both sides
            squeezed to S.
        track: see `keras_vit.auditing.audit`.

    Returns:
        The pairs, those with the smallest difference first.

    Example:
        >>> near_duplicates(np.stack([cat, cat[:, ::-1], dog]), track)
        [Pair(first=0, second=1, difference=0.0, mirrored=True)]
    """
    # One by one: of all at a time the differences would take gigabytes.
    deviations = np.array([picture.std() for picture in pictures])
    rows = np.flatnonzero(deviations >= LEAST_DEVIATION)
    if len(rows) < 2:
        return []
    pairs = _candidates(pictures[rows], track)  # (P, 3)
    found = np.concatenate(
        [np.zeros(0), *_measured(pictures[rows], pairs, track)]
    )
    kept = np.flatnonzero(found <= _bound(pairs, found, len(rows)))
    best: dict[tuple[int, int], Pair] = {}
    for i in kept[np.argsort(found[kept], kind="stable")]:
        first, second = rows[pairs[i, :2]].tolist()
        pair = Pair(first, second, float(found[i]), bool(pairs[i, 2]))
        best.setdefault((first, second), pair)
    return list(best.values())


def groups_of(pairs: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """Join pairs of so many images to groups.

    Example:
        >>> groups_of([(0, 1), (1, 4)], 5)
        [[0, 1, 4]]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.array(pairs, int).reshape(-1, 2)
    links = coo_array((np.ones(len(ends)), tuple(ends.T)), (count, count))
    _, group = connected_components(links, directed=False)
    members: dict[int, list[int]] = {}
    for image in np.unique(ends).tolist():
        members.setdefault(int(group[image]), []).append(image)
    return list(members.values())


def _candidates(pictures, track) -> np.ndarray:
    """Return pairs of numbers and whether the first is mirrored, int (P, 3)."""
    straight = _coarse(pictures)  # (N, D)
    queries = (straight, _coarse(pictures[:, :, ::-1]))
    found = []
    starts = range(0, len(pictures), BLOCK)
    for start in track(starts, len(starts), "Neighbours"):
        rows = np.arange(start, min(start + BLOCK, len(pictures)))
        for mirrored, query in enumerate(queries):
            cosines = query[rows] @ straight.T  # (rows, N)
            cosines[np.arange(len(rows)), rows] = -1.0
            count = min(CANDIDATES, len(pictures) - 1)
            others = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
            near = np.take_along_axis(cosines, others, axis=1) > SIMILAR
            row, place = np.nonzero(near)
            ends = np.stack([rows[row], others[row, place]], axis=1)
            turned = np.full((len(ends), 1), mirrored)
            found.append(np.hstack([np.sort(ends, axis=1), turned]))
    return np.unique(np.concatenate(found), axis=0)


def _coarse(pictures) -> np.ndarray:
    """Return rows of length 1 and mean 0, whose products are cosines."""
    step = SIDE // COARSE
    blocks = pictures.reshape(-1, COARSE, step, COARSE, step, 3)
    points = blocks.mean((2, 4), dtype="float32").reshape(len(pictures), -1)
    points -= points.mean(axis=1, keepdims=True)
    return points / np.linalg.norm(points, axis=1, keepdims=True).clip(1e-6)


def _measured(pictures, pairs, track) -> Iterator[np.ndarray]:
    """Yield what is left of the differences of pairs, (P,) in parts."""
    starts = range(0, len(pairs), PAIRS)
    for start in track(starts, len(starts), "Comparing"):
        firsts, seconds, mirrored = pairs[start : start + PAIRS].T
        first = pictures[firsts].astype("float32")
        second = pictures[seconds].astype("float32")
        turned = mirrored[:, None, None, None] == 1
        first = np.where(turned, first[:, :, ::-1], first)
        # Either may be a crop of the other.
        yield np.minimum(_left(first, second), _left(second, first))


def _bound(pairs, found, count: int) -> float:
    """Return how much may be left of a pair that is one image.

    The more alike other images are, the less: the cube of what is left of the
    fifth candidate of an image, in the median, decides between the bounds.
    Nearer candidates may be the same image; where half of the images have
    fewer, they have nothing in common.
    """
    ends = np.concatenate([pairs[:, 0], pairs[:, 1]])
    left = np.concatenate([found, found])
    order = np.lexsort((left, ends))
    ends, left = ends[order], left[order]
    starts = np.searchsorted(ends, np.arange(count))
    fifths = starts + CANDIDATES - 1
    stops = np.searchsorted(ends, np.arange(count), side="right")
    typical = np.full(count, np.inf)
    typical[fifths < stops] = left[fifths[fifths < stops]]
    return float(np.clip(BOUNDS[1] * np.median(typical) ** 3, *BOUNDS))


def _left(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return what is left between second and the best window of first.

    Args:
        first: float32 array of shape (P, S, S, C).
        second: likewise.

    Returns:
        float array of shape (P,), squares relative to those of the contrast:
        0 for the same image, about 2 for images that have nothing in common.
    """
    seen = _aligned(first, second)
    left = np.zeros(len(first))
    for band, noise in zip(BANDS, NOISE, strict=True):
        seen_there, second_there = _band(seen, band), _band(second, band)
        contrast = np.minimum(_energy(seen_there), _energy(second_there))
        rest = _energy(seen_there - second_there) - noise
        left = np.maximum(left, rest / contrast.clip(1e-3))
    return left


def _band(pictures, band) -> np.ndarray:
    """Return the structure of pictures in one of `BANDS`."""
    fine, coarse = band
    smooth = _box(pictures, fine)
    return smooth - (_box(pictures, coarse) if coarse else _plane(smooth))


def _plane(pictures) -> np.ndarray:
    """Return the nearest plane of each channel, (P, S, S, C)."""
    place = _places()
    unit = place / np.square(place).sum() / SIDE
    across = np.einsum("pijc,j->pc", pictures, unit)[:, None, None]
    down = np.einsum("pijc,i->pc", pictures, unit)[:, None, None]
    mean = pictures.mean(axis=(1, 2), keepdims=True)
    place = place[:, None]
    return mean + across * place + down * place[:, None]


def _aligned(first, second) -> np.ndarray:
    """Return what first shows in its best window, brightness and contrast.

    Least squares by Gauss and Newton over gain and offset of the levels, and
    scale and shift of a window along both axes: the derivative of a picture
    by its shift is its gradient, by its scale the gradient times the place.
    Levels at which second is cut off count only where they are not reached.
    """
    count = len(first)
    grey, goal = first @ LUMA, second @ LUMA
    window = np.zeros((count, 4), "float32")  # scale and shift of x, of y
    gain = np.ones((count, 1), "float32")
    place, half = _places(), SIDE / 2  # half: points of a place
    for points in BLURS:
        blurred, target = (_box(x[..., None], points) for x in (grey, goal))
        target = target.reshape(count, -1)
        seen = _windowed(blurred, window)[..., 0]
        down, right = np.gradient(seen, axis=(1, 2))
        moves = [right * place, right, down * place[:, None], down]
        columns = [seen, np.ones_like(seen), *(half * x for x in moves)]
        design = np.stack(columns, axis=-1).reshape(count, -1, 6)
        counts = _counts(gain * design[..., 0], target)
        found = _least_squares(design, target, counts)
        gain = found[:, :1].clip(*GAINS)
        window = _inside(window + found[:, 2:] / gain)
    return _relit(_windowed(first, window), second, gain)


def _relit(seen, second, gain) -> np.ndarray:
    """Return pictures with the brightness and contrast of others."""
    offset = np.float32(0)
    levels, target = (x.reshape(len(x), -1) for x in (seen, second))
    for _ in range(2):
        counts = _counts(gain * levels + offset, target)
        design = np.stack([levels, np.ones_like(levels)], axis=-1)
        gain = _least_squares(design, target, counts)[:, :1].clip(*GAINS)
        total = counts.sum(axis=1, keepdims=True).clip(1)
        rest = (target - gain * levels) * counts
        offset = rest.sum(axis=1, keepdims=True) / total
    return (gain * levels + offset).clip(0, 255).reshape(seen.shape)


def _places() -> np.ndarray:
    """Return the places of points along a side, from -1 to 1, (S,)."""
    return ((np.arange(SIDE) + 0.5) / SIDE * 2 - 1).astype("float32")


def _counts(expected, target) -> np.ndarray:
    """Return which points tell something, float32 (P, S * S)."""
    above = (target >= BRIGHTEST) & (expected >= target)
    below = (target <= DARKEST) & (expected <= target)
    return (~(above | below)).astype("float32")


def _least_squares(design, target, counts) -> np.ndarray:
    """Solve design x = target over the points that count, (P, unknowns)."""
    weighted = (design * counts[..., None]).swapaxes(1, 2)
    normal = (weighted @ design).astype("float64")
    right = (weighted @ target[..., None]).astype("float64")
    diagonal = np.diagonal(normal, axis1=1, axis2=2)
    # Flat pictures tell nothing of a window, which then stays as it is.
    ridge = 1e-3 * diagonal + 1e-6 * diagonal.sum(1, keepdims=True)
    ridge[:, :2] = 1e-4
    normal = normal + ridge[..., None] * np.eye(design.shape[-1])
    return np.linalg.solve(normal, right)[..., 0].astype("float32")


def _inside(window) -> np.ndarray:
    """Return the nearest windows that are crops of the picture."""
    scale = window[:, ::2].clip(-LARGEST_CROP, 0)
    shift = window[:, 1::2].clip(scale - SLACK, SLACK - scale)
    return np.stack([scale, shift], axis=2).reshape(-1, 4)


def _windowed(pictures, window) -> np.ndarray:
    """Return windows of pictures (P, S, S, C), by linear interpolation."""
    for axis, columns in ((2, window[:, :2]), (1, window[:, 2:])):
        place = _places() * (1 + columns[:, :1]) + columns[:, 1:]  # (P, S)
        point = (place + 1) / 2 * SIDE - 0.5
        low = np.floor(point).clip(0, SIDE - 2).astype(int)
        share = (point - low).clip(0, 1).astype("float32")
        other = tuple({0, 1, 2, 3} - {0, axis})
        low, share = (np.expand_dims(x, other) for x in (low, share))
        lower = np.take_along_axis(pictures, low, axis=axis)
        upper = np.take_along_axis(pictures, low + 1, axis=axis)
        pictures = lower + (upper - lower) * share
    return pictures


def _box(pictures, points: int) -> np.ndarray:
    """Return pictures as means over squares of so many points."""
    from scipy.ndimage import uniform_filter

    return uniform_filter(pictures, (1, points, points, 1), mode="nearest")


def _energy(pictures) -> Any:
    """Return the mean square of each picture, (P,)."""
    return np.square(pictures).mean(axis=(1, 2, 3))
