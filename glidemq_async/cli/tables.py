"""Tables for people: one line for each row, as wide as the terminal, without columns that say nothing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import typer

from glidemq_async.cli import output

_LONGEST_CELL: Final = 60
"""Maximum number of columns of the terminal for a cell. A longer one would push the next cells out of sight."""
_SHORTEST: Final = 8
"""Number of columns of the terminal that each shortened cell keeps."""
_GAP: Final = "  "
_AGES: Final = ((86_400 * 2, 86_400, "d"), (3_600 * 2, 3_600, "h"), (120, 60, "m"), (0, 1, "s"))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    - `fixed`: its cells are never shortened, for example because users copy them.
    - `kept`: it is shown even if every cell of it is empty or zero.
    - `optional`: it is left out if the terminal is too narrow. The last one goes first.
    """

    heading: str
    fixed: bool = False
    kept: bool = False
    optional: bool = False


def print_table(columns: Sequence[str | Column], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print rows below their headings, with numbers aligned to the right. Without rows, `empty` is printed.

    The first column is always shown and never shortened. Other columns are left out if all of their cells are empty or
    zero. In a terminal the headings are bold, and long texts are shortened until the row fits; a pipe has no width.
    """
    if not rows:
        typer.echo(empty)
        return
    for number, line in enumerate(format_table(columns, rows, width=terminal_width())):
        output.say(line, bold=number == 0)


def format_table(
    columns: Sequence[str | Column], rows: Sequence[Sequence[object]], *, width: int | None = None
) -> list[str]:
    """Return the lines of a table, the headings first. They are at most `width` columns wide, if their numbers fit."""
    declared = [each if isinstance(each, Column) else Column(each) for each in columns]
    shown = [
        index
        for index, column in enumerate(declared)
        if index == 0 or column.kept or any(not _says_nothing(row[index]) for row in rows)
    ]
    lines = _lines(declared, rows, shown, width)
    while width is not None and max(map(_width, lines)) > width:
        optional = [index for index in shown if declared[index].optional]
        if not optional:
            break
        shown.remove(optional[-1])
        lines = _lines(declared, rows, shown, width)
    return lines


def _lines(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], shown: Sequence[int], width: int | None
) -> list[str]:
    numeric = [all(isinstance(row[index], int | float | None) for row in rows) for index in shown]
    lines = [[columns[index].heading for index in shown]]
    lines += [[_cell(row[index], index) for index in shown] for row in rows]
    widths = [max(_width(line[index]) for line in lines) for index in range(len(shown))]
    if width is not None:
        may_shrink = [
            index > 0 and not columns[index].fixed and not right for index, right in zip(shown, numeric, strict=True)
        ]
        _shrink(widths, may_shrink, width - len(_GAP) * (len(shown) - 1))
    return [_join(line, widths, numeric) for line in lines]


def age(instant: datetime | None, now: datetime) -> str | None:
    """Return the age of an instant, for example `5m`, or `in 5m` if it is in the future. None stays None."""
    if instant is None:
        return None
    seconds = (now - instant).total_seconds()
    shown = duration(abs(seconds))
    return f"in {shown}" if seconds < 0 and shown != "0s" else shown


def age_of(text: str | None) -> str | None:
    """Return the age of an instant of a document."""
    return None if text is None else age(datetime.fromisoformat(text), datetime.now(UTC))


def duration(seconds: float) -> str:
    """Return a duration as one number with its unit: `90s`, `5m`, `30h`, `12d`."""
    for least, unit, name in _AGES:
        if seconds >= least:
            return f"{int(seconds // unit)}{name}"
    return "0s"


def terminal_width() -> int | None:
    """Return the number of columns of the terminal, None if standard output is none."""
    # In a pipe nothing is shortened: a program that reads the table has no width.
    return shutil.get_terminal_size().columns if output.in_terminal() else None


def _says_nothing(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, int | float) and value == 0)


def _cell(value: object, index: int) -> str:
    line = output.line(value)
    return line if index == 0 or _width(line) <= _LONGEST_CELL else _cut(line, _LONGEST_CELL)


def _shrink(widths: list[int], may_shrink: Sequence[bool], room: int) -> None:
    """Take columns of the terminal from the widest cells until the row fits."""
    while sum(widths) > room:
        candidates = [index for index, width in enumerate(widths) if may_shrink[index] and width > _SHORTEST]
        if not candidates:
            return
        widths[max(candidates, key=widths.__getitem__)] -= 1


def _join(line: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    cells: list[str] = []
    for text, width, right in zip(line, widths, numeric, strict=True):
        shown = _cut(text, width) if _width(text) > width else text
        space = " " * (width - _width(shown))
        cells.append(space + shown if right else shown + space)
    return _GAP.join(cells).rstrip()


def _width(text: str) -> int:
    """Return the number of columns that a text takes in a terminal. Characters of East Asia take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    if text.isascii():
        return f"{text[: width - 1]}…"
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, width - 1).rstrip()}…"
