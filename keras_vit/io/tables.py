"""Tables and code as Markdown."""

from collections.abc import Collection, Iterable, Sequence

__all__ = ["markdown_table", "python_block"]


def markdown_table(
    header: Sequence[str],
    rows: Iterable[Sequence],
    numbers: Collection[str] = (),
    *,
    padded: bool = False,
) -> list[str]:
    """Lines of a Markdown table.

    Args:
        header: names of the columns.
        rows: the cells of each row; None is an empty cell.
        numbers: names of the columns to align to the right.
        padded: whether the cells of a column have the same width, for a
            terminal.

    Example:
        >>> markdown_table(["part", "size"], [["head", 3]], numbers=["size"])
        ['| part | size |', '|---|--:|', '| head | 3 |']
    """
    lines = [list(map(_cell, row)) for row in (header, *rows)]
    widths = [0] * len(header)
    if padded:
        widths = [max(map(len, x)) for x in zip(*lines, strict=True)]
    right = [name in numbers for name in header]
    rule = [
        "-" * ((width or 3) - number) + ":" * number
        for width, number in zip(widths, right, strict=True)
    ]
    text = [
        " | ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        )
        for line in lines
    ]
    first, *rest = (f"| {line} |" for line in text)
    under = f"| {' | '.join(rule)} |" if padded else f"|{'|'.join(rule)}|"
    return [first, under, *rest]


def python_block(*lines: str) -> str:
    """Return lines of Python as a block of Markdown."""
    return "\n".join(["```python", *lines, "```"])


def _cell(value) -> str:
    return "" if value is None else str(value).replace("|", "\\|")
