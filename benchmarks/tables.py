"""Tables of figures as text."""

from __future__ import annotations

from .figures import MedianAndRange

Table = list[list[str]]


def number(value: float) -> str:
    """Format a figure with a suitable number of digits."""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread_text(spread: MedianAndRange | None) -> str:
    """Format the median and the range."""
    if spread is None:
        return ""
    if spread.least == spread.most:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.least)}..{number(spread.most)})"


def plain(table: Table) -> str:
    """Format a table in aligned columns."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([lines[0], "-" * sum(widths), *lines[1:]])


def markdown(table: Table) -> str:
    """Format a table in Markdown."""
    head, *lines = ["| " + " | ".join(line) + " |" for line in table]
    return "\n".join([head, "|" + "---|" * len(table[0]), *lines])
