"""Numbers as a table of text."""

from collections.abc import Iterable, Sequence

__all__ = ["markdown_table"]


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]]
) -> list[str]:
    """Lines of a Markdown table, its columns aligned.

    Args:
        header: names of the columns.
        rows: the cells of each row.

    Returns:
        List of str, one a line.

    Example:
        >>> markdown_table(["part"], [["head"]])
        ['| part |', '| ---- |', '| head |']
    """
    rows = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    return [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]
