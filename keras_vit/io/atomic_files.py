"""Files that are there whole or not at all."""

import contextlib
import csv
import json
import os
import pathlib
import re
import secrets
import sys
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

try:
    import fcntl
except ImportError:
    fcntl = None

__all__ = [
    "PARTIAL",
    "as_cell",
    "of_cell",
    "only_writer",
    "open_page",
    "printable",
    "replacing",
    "write_csv",
    "write_json",
    "write_yaml",
]

PARTIAL = ".partial-"  # Begins the name of a file that is being written.
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # or a chosen browser
FORMULAS = re.compile("['=+@\\t\\r-]")  # What spreadsheets compute begins so.


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Writes a file to a temporary path, then fsyncs and renames it.

    Several processes may write the same file at once; the last one wins.

    Args:
        path: the file to write.

    Yields:
        A new path with the same suffixes in the same folder. When the block
        raises, it is removed and the old file stays as it was.

    Example:
        >>> with replacing(folder / "model.keras") as path:
        ...     model.save(path)
    """
    stem, dot, suffixes = path.name.partition(".")
    name = f"{PARTIAL}{stem}-{secrets.token_hex(4)}{dot}{suffixes}"
    temporary = path.with_name(name)
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def only_writer(path: pathlib.Path) -> Iterator[None]:
    """Refuse to write what another process of this machine is writing.

    The lock goes with the process, however it ends. Windows has none.

    Raises:
        ValueError: when another process writes it.

    Example:
        >>> with only_writer(folder / "model.onnx"):
        ...     write(folder / "model.onnx")
    """
    lock = path.with_name(f"{PARTIAL}{path.name}.lock")
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            while True:
                file = stack.enter_context(lock.open("ab"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise ValueError(
                        f"Another process is writing {str(path)!r}. Wait for "
                        "its end, or choose another name."
                    ) from error
                # It may have been removed since it was opened.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(lock.stat(), os.fstat(file.fileno())):
                        break
            stack.callback(lock.unlink, missing_ok=True)
        yield


def printable(text: str) -> str:
    r"""A text with what moves the cursor of a terminal as \x1b.

    Names of files and classes may have any character.
    """
    return "".join(x if x.isprintable() else ascii(x)[1:-1] for x in text)


def open_page(path: str | os.PathLike) -> bool:
    """Opens a page in the browser of the user, where there is a display.

    Args:
        path: an HTML file; where there is none, nothing is opened.

    Returns:
        Whether a browser was asked to.

    Example:
        >>> open_page("runs/quickstart/report.html")
    """
    # Without a display a browser of text would take over the terminal.
    linux = sys.platform.startswith("linux")
    hidden = linux and not any(map(os.environ.get, DISPLAYS))
    if hidden or not os.path.isfile(path):
        return False
    with contextlib.suppress(webbrowser.Error):
        return webbrowser.open(pathlib.Path(path).resolve().as_uri())
    return False


def as_cell(value: Any) -> Any:
    """A value of a CSV file that no spreadsheet takes for a formula.

    Texts that begin as one does get an apostrophe in front, which spreadsheets
    do not show; numbers stay numbers.

    Example:
        >>> as_cell("=1+1"), as_cell(-1), as_cell("cat")
        ("'=1+1", -1, 'cat')
    """
    is_text = isinstance(value, str) and FORMULAS.match(value)
    return f"'{value}" if is_text else value


def of_cell(text: str) -> str:
    """The text that `as_cell` made a cell of."""
    marked = text.startswith("'") and FORMULAS.match(text[1:])
    return text[1:] if marked else text


def write_csv(
    path: pathlib.Path, rows: Sequence[Mapping], columns: Sequence[str] = ()
) -> None:
    """Writes rows under the names of their values, whole or not at all.

    Args:
        path: the file.
        rows: dictionaries; a value that one of them lacks, or that is None,
            is an empty field.
        columns: names that stand first, and where there are no rows.
    """
    names = dict.fromkeys((*columns, *(name for row in rows for name in row)))
    with (
        replacing(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: as_cell(value) for name, value in row.items()}
            for row in rows
        )


def _flush(path: pathlib.Path) -> None:
    """Fsyncs a file or folder."""
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no folders.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: pathlib.Path, content) -> None:
    """Write JSON with indentation."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def write_yaml(path: pathlib.Path, content: dict) -> None:
    """Write YAML with the keys in their order; tuples become lists."""
    import yaml

    plain = json.loads(json.dumps(content))
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(plain, sort_keys=False))
