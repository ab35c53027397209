"""Exports every kind of model to every format, for docs/export.md.

    python tools/make_export_matrix.py

Each kind is a tiny model with random weights (tests/support/export_cells.py). A
cell is how far the scores of the exported file are from the model's, as a share
of their size, or why there is no such file. The cells of each backend are
measured in a process of its own, and kept in docs/results/export_BACKEND.json;
`--backends` without names writes the page from what is there.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "export.md"
BEGIN, END = "<!-- cells -->\n", "<!-- end of cells -->\n"
BACKENDS = ("tensorflow", "jax", "torch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="one backend")
    parser.add_argument("--backends", nargs="*", default=BACKENDS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure()
        return
    for backend in arguments.backends:
        environment = {**os.environ, "KERAS_BACKEND": backend}
        command = [sys.executable, __file__, "--measure"]
        subprocess.run(command, env=environment, check=True)
    begin, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, end = rest.partition(END)
    page = begin + BEGIN + "\n" + "\n".join(lines()) + "\n\n" + END + end
    PAGE.write_text(page, encoding="utf-8")


def measure() -> None:
    """Measures all cells with the backend of this process."""
    sys.path.append(str(ROOT / "tests" / "support"))
    import keras
    from export_cells import KINDS, cells

    from keras_vit.exporting import FORMATS

    warnings.simplefilter("ignore")
    rows = []
    for format, kind in FORMATS.items():
        wanted = [(x, format, "float32") for x in KINDS]
        wanted += [("token", format, x) for x in kind.precisions]
        with tempfile.TemporaryDirectory() as folder:
            found = cells(dict.fromkeys(wanted), pathlib.Path(folder))
        for cell in dict.fromkeys(wanted):
            rows.append([*cell, found[cell]])
            print(*cell, found[cell], flush=True)
    path = RESULTS / f"export_{keras.backend.backend()}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def lines() -> list[str]:
    """The tables, from what was measured on all backends."""
    found: dict = {}
    paths = {x: RESULTS / f"export_{x}.json" for x in BACKENDS}
    measured = [x for x, path in paths.items() if path.is_file()]
    for backend in measured:
        path = paths[backend]
        for kind, format, precision, result in json.loads(path.read_text()):
            row = found.setdefault((kind, precision), {})
            row.setdefault(format, []).append(result)
    formats = list(dict.fromkeys(x for row in found.values() for x in row))
    notes: list[str] = []
    table = [
        f"| kind | {' | '.join(formats)} |",
        f"|---|{'---|' * len(formats)}",
    ]
    for (kind, precision), row in found.items():
        name = kind if precision == "float32" else f"{kind}, {precision}"
        texts = (_cell(row.get(x, []), notes) for x in formats)
        table.append(f"| {name} | {' | '.join(texts)} |")
    numbered = [f"{i}. {note}" for i, note in enumerate(notes, 1)]
    return [f"Models on {', '.join(measured)}.", "", *table, "", *numbered]


def _cell(results, notes):
    """The largest difference of the backends, or the number of a reason."""
    reasons = list(dict.fromkeys(x for x in results if isinstance(x, str)))
    notes += [x for x in reasons if x not in notes]
    if reasons:
        return ", ".join(f"({notes.index(x) + 1})" for x in reasons)
    errors = [x["relative_error"] for x in results]
    return f"{max(errors):.0e}" if errors else ""


if __name__ == "__main__":
    main()
