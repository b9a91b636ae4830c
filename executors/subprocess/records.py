"""Passes log records to another process as plain values, and limits their number.

A child makes the values and may be hostile. The worker turns them into a record that is safe for any handler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

import msgpack

Values: TypeAlias = dict[str, Any]
Levels: TypeAlias = list[Any]
"""The argument of `logging.disable`, and the levels of all loggers that have one; "" is the root logger."""

LONGEST_TEXT: Final = 8_192
"""Maximum number of characters of a message, a traceback or a stack."""
MOST_A_SECOND: Final = 1_000
MOST_BYTES_A_SECOND: Final = 4 * 2**20
"""Maximum of records and bytes of one child that the worker handles. Further records are counted and dropped."""
_LONGEST_EXTRA: Final = 4_096
_MOST_EXTRAS: Final = 32
"""Limits of `extra=` in a record: characters of a value, and number of values."""
_CUT: Final = "… (cut)"
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""Characters that terminals interpret as commands, except tab and newline."""

_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("name", "levelname", "msg", "exc_text", "stack_info"), str),
    **dict.fromkeys(("pathname", "filename", "module", "funcName", "threadName", "processName", "taskName"), str),
    **dict.fromkeys(("levelno", "lineno", "thread", "process"), int),
    **dict.fromkeys(("created", "msecs", "relativeCreated"), float),
}
_RESERVED: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_formatter: Final = logging.Formatter()


class Allowance:
    """Permits a number of records and bytes per second, and counts the others."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._since = 0.0
        self._passed = 0
        self._bytes = 0
        self.dropped = 0

    def passes(self, size: int = 0) -> bool:
        """Return True if a record of `size` bytes is permitted now."""
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._passed, self._bytes = now, 0, 0
        if self._passed >= self._most or self._bytes >= self._most_bytes:
            self.dropped += 1
            return False
        self._passed += 1
        self._bytes += size
        return True

    def spend(self, size: int) -> None:
        """Count the bytes of a permitted record, once they are known."""
        self._bytes += size


def record_to_values(record: logging.LogRecord) -> Values:
    """Return a record as plain values, with formatted message and exception. Raises the errors of formatting."""
    fields = vars(record)
    values = {name: fields[name] for name in _FIELDS if fields.get(name) is not None}
    values["msg"] = record.getMessage()
    if record.exc_info and not record.exc_text:
        values["exc_text"] = _formatter.formatException(record.exc_info)
    for name, kind in _FIELDS.items():
        if kind is str and name in values:
            values[name] = _text(values[name])
    extra = [name for name in fields if name not in _RESERVED]
    values["extra"] = {_text(name): _plain(fields[name]) for name in extra[:_MOST_EXTRAS]}
    return values


def record_from_values(values: object) -> logging.LogRecord | None:
    """Return the record of plain values, None for invalid ones. It contains only plain values."""
    # The values come from a process that may be hostile, and the record goes to handlers of the worker's program. So
    # every field is converted to its type, texts are cut and lose their control characters, and extra fields can
    # replace none of the record's own attributes.
    if not isinstance(values, dict):
        return None
    found = cast("Values", values)
    try:
        fields = {name: kind(found[name]) for name, kind in _FIELDS.items() if found.get(name) is not None}
        extra = dict(found.get("extra") or {})
    except (ValueError, TypeError, OverflowError):
        return None
    if not {"name", "levelno", "msg"} <= fields.keys():
        return None
    for name, value in fields.items():
        if isinstance(value, str):
            fields[name] = _text(value)
    fields |= {name: extra[name] for name in list(extra)[:_MOST_EXTRAS] if _is_free(name)}
    return logging.makeLogRecord(fields)


def _is_free(name: object) -> bool:
    return isinstance(name, str) and name not in _RESERVED and not name.startswith("__")


def _text(value: object) -> str:
    text = str(value)
    if len(text) > LONGEST_TEXT + len(_CUT):
        text = text[:LONGEST_TEXT] + _CUT
    return text.encode(errors="replace").decode().translate(_CONTROL)


def _plain(value: object) -> object:
    """Return the value if msgpack can encode it, otherwise its repr."""
    with suppress(Exception):  # a value that msgpack cannot encode
        data: bytes = msgpack.packb(value)
        if len(data) <= _LONGEST_EXTRA:
            return msgpack.unpackb(data, strict_map_key=False)
    try:
        return _text(repr(value))[:_LONGEST_EXTRA]
    except Exception:  # noqa: BLE001 - a repr is foreign code
        return f"<{type(value).__name__}>"


def own_levels() -> Levels:
    """Return the levels of this process."""
    root = logging.getLogger()
    loggers = list(root.manager.loggerDict.items())
    levels = {name: one.level for name, one in loggers if isinstance(one, logging.Logger) and one.level}
    return [root.manager.disable, {"": root.level, **levels}]
