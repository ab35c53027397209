"""Measures what an audit finds of planted mistakes.

    python benchmarks/audit.py
    python benchmarks/audit.py --seeds 10 20 --out benchmarks/results/audit.json

Labels: the digits of scikit-learn as folders of classes, 5 % of them in the
folder of another class. Duplicates: 240 changed copies of twelve kinds beside
the digits, and beside parts of photographs of scikit-image and scikit-learn.
"""

import argparse
import collections
import json
import pathlib
import sys
import tempfile
import time

import keras_vit
from keras_vit.io.atomic_files import write_json

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support"))

import planted  # noqa: E402

COPIES = 240


def labels(folder: pathlib.Path, seed: int) -> dict:
    """Measure how many flipped labels are found, and how many others."""
    wrong = planted.write_flipped_digits(folder / "digits", seed)
    begin = time.perf_counter()
    found = keras_vit.audit(folder / "digits", out=folder / "page").findings
    suggested = {x.image: x.suggested for x in found if x.finding == "label"}
    hits = suggested.keys() & wrong.keys()
    return {
        "seed": seed,
        "planted": len(wrong),
        "found": len(hits),
        "reported": len(suggested),
        "recall": len(hits) / len(wrong),
        "precision": len(hits) / len(suggested),
        "right class": sum(suggested[x] == wrong[x] for x in hits) / len(hits),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def duplicates(folder: pathlib.Path, images: list, seed: int) -> dict:
    """Measure how many copies are found, and how many other images."""
    pairs = planted.write_duplicates(folder / "images", images, COPIES, seed)
    begin = time.perf_counter()
    found = keras_vit.audit(folder / "images", out=folder / "page").findings
    seconds = time.perf_counter() - begin
    group = {x.image: x.group for x in found if x.finding == "duplicate"}
    missed = [
        kind
        for (one, other), kind in pairs.items()
        if one not in group or group[one] != group.get(other)
    ]
    # An image is false in a group that has no copy of it, nor it as a copy.
    sources = {one for pair in pairs for one in pair}
    false = sorted(group.keys() - sources)
    return {
        "seed": seed,
        "images": len(images),
        "planted": len(pairs),
        "missed": dict(collections.Counter(missed)),
        "found": len(pairs) - len(missed),
        "false": len(false),
        "false share": len(false) / len(images),
        "joined groups": _joined(group, pairs),
        "seconds": round(seconds, 1),
    }


def _joined(group: dict, pairs: dict) -> int:
    """Count the groups that hold copies of several images."""
    held = collections.Counter(
        group[next(iter(pair))] for pair in pairs if next(iter(pair)) in group
    )
    return sum(count > 1 for count in held.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 8))
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    kinds = {
        "labels of digits": labels,
        "duplicates of digits": lambda folder, seed: duplicates(
            folder, planted.digits()[0], seed
        ),
        "duplicates of photographs": lambda folder, seed: duplicates(
            folder, planted.photographs(), seed
        ),
    }
    results: dict[str, list] = {kind: [] for kind in kinds}
    for kind, measure in kinds.items():
        for seed in range(*given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                results[kind].append(measure(pathlib.Path(folder), seed))
            print(kind, json.dumps(results[kind][-1]), flush=True)
    if given.out is not None:
        write_json(given.out, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
