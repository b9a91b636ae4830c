"""Log records on their way to another process: what they hold as plain values, and how many there may be.

A child makes them and may be hostile; what the worker makes of them is a record that any handler can take.
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
"""What `logging.disable` was told, and the levels of the loggers that have one of their own; "" is the root's."""

LONGEST_TEXT: Final = 8_192
"""Characters of a message, a traceback or a stack; the rest is cut."""
MOST_A_SECOND: Final = 1_000
MOST_BYTES_A_SECOND: Final = 4 * 2**20
"""Records, and bytes of them, of one child that the worker handles; the rest is counted and dropped."""
_LONGEST_EXTRA: Final = 4_096
_MOST_EXTRAS: Final = 32
"""Bounds of what `extra=` may add to a record: characters of a value, and values."""
_CUT: Final = "… (cut)"
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""Characters that terminals take as commands. Tab and newline stay."""

_FIELDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("name", "levelname", "msg", "exc_text", "stack_info"), str),
    **dict.fromkeys(("pathname", "filename", "module", "funcName", "threadName", "processName", "taskName"), str),
    **dict.fromkeys(("levelno", "lineno", "thread", "process"), int),
    **dict.fromkeys(("created", "msecs", "relativeCreated"), float),
}
_RESERVED: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_formatter: Final = logging.Formatter()


class Allowance:
    """Lets a number of records and of their bytes pass in a second, and counts the others."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._since = 0.0
        self._passed = 0
        self._bytes = 0
        self.left_out = 0

    def passes(self, size: int = 0) -> bool:
        """Return whether there is room for one more of `size` bytes now."""
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._passed, self._bytes = now, 0, 0
        if self._passed >= self._most or self._bytes >= self._most_bytes:
            self.left_out += 1
            return False
        self._passed += 1
        self._bytes += size
        return True

    def spend(self, size: int) -> None:
        """Count the bytes of one that has passed, once they are known."""
        self._bytes += size


def carried_record(record: logging.LogRecord) -> Values:
    """Return a record as plain values: its message is made, its exception a text. Raises what making them raises."""
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


def rebuilt_record(values: object) -> logging.LogRecord | None:
    """Return the record that was carried, None for what is none. Nothing in it but plain values."""
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
    """Return a value that the other side reads as it is, else its repr."""
    with suppress(Exception):  # whatever it is that cannot be carried
        data: bytes = msgpack.packb(value)
        if len(data) <= _LONGEST_EXTRA:
            return msgpack.unpackb(data, strict_map_key=False)
    try:
        return _text(repr(value))[:_LONGEST_EXTRA]
    except Exception:  # noqa: BLE001 - a repr is anybody's code
        return f"<{type(value).__name__}>"


def own_levels() -> Levels:
    """Return the levels of this process."""
    root = logging.getLogger()
    loggers = list(root.manager.loggerDict.items())
    levels = {name: one.level for name, one in loggers if isinstance(one, logging.Logger) and one.level}
    return [root.manager.disable, {"": root.level, **levels}]
