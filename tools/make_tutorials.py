"""Runs the notebooks of docs/ and writes docs/tutorials, with what they show.

    python tools/make_tutorials.py

A page has the cells of a notebook, what they print and their pictures. The
notebooks themselves, which hold no outputs, are made by `make notebooks`.
"""

import base64
import os
import pathlib
import re
import sys
import tempfile

import jupytext
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = ROOT / "docs" / "notebooks"
PAGES = ROOT / "docs" / "tutorials"
SECONDS = 3600
# Of a terminal, where lines are drawn again.
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[^\n]*\r(?!\n)")
OBJECT = re.compile(r"<.* at 0x\w+>$")
LEFT_OUT = "%matplotlib inline"
LINES = 12  # of an output; the first and the last of a longer one


def main() -> int:
    PAGES.mkdir(exist_ok=True)
    for script in sorted(SCRIPTS.glob("*.py")):
        write(script.stem, executed(script))
        print(PAGES / f"{script.stem}.md")
    return 0


def executed(script: pathlib.Path):
    """The notebook of a script, run from top to bottom in an empty folder."""
    notebook = jupytext.read(script, fmt="py:percent")
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
    return notebook


def write(name: str, notebook) -> None:
    """Writes the page of a notebook, and its pictures beside it."""
    for old in PAGES.glob(f"{name}_*.png"):
        old.unlink()
    parts = [as_markdown(cell, name) for cell in notebook.cells]
    link = f"[Run it as a notebook](../notebooks/{name}.ipynb)"
    title, _, rest = "\n\n".join(filter(None, parts)).partition("\n\n")
    text = f"{title}\n\n{link}\n\n{rest}\n"
    (PAGES / f"{name}.md").write_text(text, encoding="utf-8")


def as_markdown(cell, name: str) -> str:
    """A cell with its outputs."""
    if cell.cell_type == "markdown":
        return cell.source
    source = code_of(cell.source)
    parts = [f"```python\n{source}\n```"] if source else []
    return "\n\n".join(parts + outputs_of(cell, name))


def code_of(source: str) -> str:
    """What a reader sees of a cell's code."""
    lines = [x for x in source.splitlines() if LEFT_OUT not in x]
    return "\n".join(lines).strip()


def outputs_of(cell, name: str) -> list[str]:
    """What a cell printed, then its pictures."""
    printed, pictures = "", []
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            printed += output.text
        data = output.get("data", {})
        if "image/png" in data:
            pictures.append(picture(data["image/png"], name, shown_in(cell)))
        elif "text/plain" in data and not OBJECT.match(data["text/plain"]):
            printed += data["text/plain"] + "\n"
    lines = ESCAPES.sub("", printed).strip().splitlines()
    if len(lines) > LINES:
        half = LINES // 2
        lines = [*lines[:half], "...", *lines[-half:]]
    shown = "\n".join(line.rstrip() for line in lines)
    return ([f"```text\n{shown}\n```"] if lines else []) + pictures


def shown_in(cell) -> str:
    """What the picture of a cell shows, by the file that the cell saves."""
    saved = re.search(r'savefig\("(\w+)\.png"\)', cell.source)
    return saved[1].replace("_", " ") if saved else "picture"


def picture(png: str, name: str, shown: str) -> str:
    """Writes a picture, and returns the Markdown that shows it."""
    number = len(list(PAGES.glob(f"{name}_*.png")))
    path = PAGES / f"{name}_{number}.png"
    path.write_bytes(base64.b64decode(png))
    return f"![{shown}]({path.name})"


if __name__ == "__main__":
    sys.exit(main())
