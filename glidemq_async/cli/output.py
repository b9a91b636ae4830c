"""Output: a document as JSON for programs, or as lines for people; tables.py prints tables."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import typer

from glidemq_async._internal.control_characters import escape_json

Document: TypeAlias = dict[str, Any]


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


def counted(count: int, thing: str) -> str:
    """Return a number of things in words. `thing` is the singular, and its plural ends with s."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


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
