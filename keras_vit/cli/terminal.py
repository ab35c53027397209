"""Tables on the terminal."""

import io
import sys
from collections.abc import Iterable, Sequence

__all__ = ["print_table"]


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table as wide as the terminal, or 200 into a file or a pipe."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header)
    for row in rows:
        # As text: a name in square brackets is no markup.
        table.add_row(*map(Text, row))
    on_terminal = sys.stdout.isatty()
    output = io.StringIO()
    width = None if on_terminal else 200
    Console(file=output, width=width, force_terminal=on_terminal).print(table)
    print(output.getvalue(), end="")
