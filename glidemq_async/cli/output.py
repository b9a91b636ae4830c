"""Output: a document as JSON for programs, or as a table for people."""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

import typer

from glidemq_async._internal.control_characters import escape_json

Document: TypeAlias = dict[str, Any]

_LONGEST_CELL: Final = 60
"""Maximum number of characters in a cell. A longer one would push the columns behind it out of the terminal."""
_LEAST_OF_LAST: Final = 20
"""Number of characters that the last column keeps in a narrow terminal, where the line then wraps."""


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON: instants in ISO 8601, bytes as {"base64": …}, and other types as their text."""
    # Payloads come from any producer, so a document may contain values that JSON lacks. They are rare, so the document
    # is rebuilt without them only after the encoder has refused it.
    try:
        found = json.dumps(value, indent=indent, default=_plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        found = json.dumps(_strict(value), indent=indent, default=_plain, ensure_ascii=False)
    return escape_json(found)


def _strict(value: object) -> object:
    """Return a value without the numbers and keys that JSON lacks."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {_key(key): _strict(item) for key, item in entries.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_strict(item) for item in cast("Sequence[object]", value)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _key(key: object) -> object:
    if key is None or isinstance(key, str | int):
        return key
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(_strict(key))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, set | frozenset | tuple):
        return list(cast("Sequence[object]", value))
    return str(value)


def instant(value: datetime | None) -> str | None:
    """Return the form of an instant in documents: UTC with milliseconds."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def print_json(value: object) -> None:
    """Print a complete document."""
    typer.echo(to_json(value, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print rows below their headings, with numbers aligned to the right. Without rows, `empty` is printed.

    Each row is one line. The first column is never shortened, because users copy it. In a terminal the headings are
    bold, and the last column is cut at the width of the line.
    """
    if not rows:
        typer.echo(empty)
        return
    numeric = [all(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))]
    lines = [list(columns), *([line(row[0]), *map(cell, row[1:])] for row in rows)]
    widths = [max(len(each[index]) for each in lines) for index in range(len(columns))]
    for number, each in enumerate(lines):
        padded = (
            part.rjust(width) if right else part.ljust(width)
            for part, width, right in zip(each, widths, numeric, strict=True)
        )
        shown = "  ".join(padded).rstrip()
        say(_cut_to_terminal(shown, widths), bold=number == 0)


def _cut_to_terminal(shown: str, widths: Sequence[int]) -> str:
    """Cut a row at the width of the terminal, but only in its last column."""
    # In a pipe nothing is cut: a program that reads the table has no width.
    if not in_terminal():
        return shown
    least = sum(widths[:-1]) + 2 * (len(widths) - 1) + min(widths[-1], _LEAST_OF_LAST)
    room = max(shutil.get_terminal_size().columns, least)
    return shown if len(shown) <= room else f"{shown[: room - 1]}…"


def in_terminal() -> bool:
    """Return True if a terminal shows standard output."""
    return sys.stdout.isatty()


def say(shown: str, *, bold: bool = False, color: str | None = None) -> None:
    """Print a line. It has a style only on a terminal and without $NO_COLOR."""
    plain = not (bold or color) or not in_terminal() or bool(os.environ.get("NO_COLOR"))
    typer.echo(shown if plain else typer.style(shown, bold=bold, fg=color))


def print_fields(fields: Mapping[str, object]) -> None:
    """Print one line per name and value. None values are left out."""
    shown = {name: value for name, value in fields.items() if value is not None and value not in ({}, [])}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}  {text(value)}")


def cell(value: object) -> str:
    """Return a value for a table, shortened."""
    shown = line(value)
    return shown if len(shown) <= _LONGEST_CELL else f"{shown[: _LONGEST_CELL - 1]}…"


def line(value: object) -> str:
    """Return a value as one line."""
    return text(value).replace("\n", " ")


def text(value: object) -> str:
    """Return a value as text: nothing for None, and strings without control characters."""
    if value is None:
        return ""
    shown = value if isinstance(value, str) else to_json(value)
    # Payloads, names and reasons come from anywhere. A terminal would execute escape sequences in them.
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in shown)
