"""What the commands share on the terminal: tables, paths, progress."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from keras_vit.io.atomic_files import printable

__all__ = [
    "STANDARD_INPUT",
    "counted",
    "paths_of",
    "print_table",
    "escape_unprintable",
    "skipping",
    "waiting",
    "with_progress",
]

STANDARD_INPUT = "-"
LINES = "\u2502\u2501"


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table as wide as the terminal, or as a pipe needs it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=box.HEAVY_HEAD if _has_lines() else box.ASCII2)
    for row in rows:
        # As text: a name in square brackets is no markup.
        table.add_row(*(Text(printable(cell)) for cell in row))
    on_terminal = sys.stdout.isatty()
    output = io.StringIO()
    width = None if on_terminal else 1000
    Console(file=output, width=width, force_terminal=on_terminal).print(table)
    print(output.getvalue(), end="")


def _has_lines() -> bool:
    """Return whether standard output can encode the lines of a table."""
    try:
        LINES.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeError):
        return False
    return True


def escape_unprintable() -> None:
    r"""Let output of another encoding, as ASCII, have \xe9 for its letters.

    Raises:
        ValueError: when standard output is closed.
    """
    if sys.stdout is None:
        raise ValueError("standard output is closed.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def paths_of(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths of a command line, for "-" those of standard input."""
    for path in paths:
        if path != STANDARD_INPUT:
            yield path
            continue
        if sys.stdin is None:
            raise ValueError("standard input is closed, and - reads it.")
        for line in sys.stdin:
            if name := line.rstrip("\r\n"):
                yield name


def counted(
    paths: Sequence[str], wanted: Callable[[Any], bool] = lambda image: True
) -> int | None:
    """Count the images that paths lead to; None where it is unknown yet."""
    from keras_vit.prediction import images_of

    if STANDARD_INPUT in paths:
        return None
    return sum(map(wanted, images_of(paths)))


def with_progress(
    found: Iterable, total: int | None, what: str = "Images"
) -> Iterator:
    """Yield the same items, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield from found
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # which has the predictions.
    )
    with bar:
        yield from bar.track(found, total=total, description=what)


def waiting(text: str) -> contextlib.AbstractContextManager:
    """Shows on a terminal that work goes on, as long as the block takes."""
    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


@contextlib.contextmanager
def skipping(
    found: Iterable, error_of: Callable[[Any], str | None]
) -> Iterator[Iterator]:
    """Yield what was found of readable images, then report the others.

    Args:
        found: something for each image.
        error_of: from it to None, or why the image cannot be read.

    Raises:
        ValueError: at the end, where an image cannot be read. Of several the
            reasons are printed first.
    """
    broken: list[str] = []
    yield _readable(found, error_of, broken)
    if len(broken) > 1:
        print(*broken, sep="\n", file=sys.stderr)
        raise ValueError(f"{len(broken)} images could not be read, see above.")
    if broken:
        raise ValueError(broken[0])


def _readable(found, error_of, broken):
    for one in found:
        if (error := error_of(one)) is None:
            yield one
        else:
            broken.append(error)
