"""Audit lines: one for each change that a person or a tool makes to the queues of a prefix."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.errors import StorageUnavailable
from glidemq_async.functions.audit import MOST_BYTES, AuditCalls
from glidemq_async.ops.actor import Actor
from glidemq_async.ops.documents import as_document
from glidemq_async.options.validation import whole_number
from glidemq_async.storage.protocol import FunctionError

_log = logging.getLogger("glidemq.audit")
OK: Final = "ok"
STARTED: Final = "started"
"""The result of a change that has begun. The line keeps it if the process ends before the change does."""
LONGEST_TEXT: Final = 500
"""Maximum length of a reason and of a result in characters. Longer ones are cut."""
_STEP: Final = 200


@dataclass(slots=True)
class Change:
    """A change that is being made. Set `count` and `target` before the block ends if they are known only then."""

    action: str
    queue: str = ""
    target: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    reason: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A change.

    `target` is the id of the job or scheduler, the ordering key, or the filter. `result` is "ok" or the error. It is
    "started" while the change is made, and stays so if the process ends before it can store the result. `count` is the
    number of changed jobs, or 1. `at` is measured by the server's clock.
    """

    id: str
    at: datetime
    source: str
    actor: str
    address: str
    action: str
    queue: str
    target: str
    arguments: Mapping[str, Any]
    reason: str
    result: str
    count: int


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Audit lines, the newest first. `cursor` continues the list; None at its end."""

    lines: list[AuditLine]
    cursor: str | None


class AuditLog:
    """The audit lines of a prefix: the newest 10,000 of the last 90 days. The logger `glidemq.audit` gets them too."""

    def __init__(self, calls: AuditCalls) -> None:
        self._calls = calls

    async def begin(self, actor: Actor, change: Change) -> str:
        """Write the line of a change before the change is made. Return its entry. Raises StorageUnavailable."""
        return await self._calls.write(packed_line(actor, change, STARTED))

    async def end(self, entry: str, actor: Actor, change: Change, result: str = OK) -> None:
        """Replace the line of a change by one with its result.

        If the store cannot be reached, the line remains as it began, and the logger gets a warning.
        """
        # The change is made, or has raised an error. An error here would hide that.
        try:
            await self._calls.end(entry, packed_line(actor, change, result))
        except (StorageUnavailable, FunctionError) as error:
            _log.warning("the audit line of the next change stays %r in the store: %s", STARTED, error)
        log_change(actor, change, result)

    async def read(self, limit: int = 50, cursor: str | None = None) -> AuditPage:
        """Return up to `limit` lines (at most 200), the newest first, from a cursor on."""
        whole_number("limit", limit, least=1, most=_STEP)
        following, rows = await self._calls.read(cursor or "", limit)
        return AuditPage([_line(entry, packed) for entry, packed in rows], following or None)

    async def lines(self) -> AsyncIterator[AuditLine]:
        """Iterate over all lines, the newest first."""
        cursor: str | None = None
        while True:
            page = await self.read(_STEP, cursor)
            for line in page.lines:
                yield line
            cursor = page.cursor
            if cursor is None:
                return

    async def export(self) -> AsyncIterator[str]:
        """Iterate over all lines as JSON, one text without a line feed for each, the newest first."""
        async for line in self.lines():
            yield json.dumps(as_document(line), ensure_ascii=False)


def packed_line(actor: Actor, change: Change, result: str = OK) -> bytes:
    """Return the stored form of a line. Arguments that are too large are left out."""
    row = {
        "source": actor.source,
        "actor": _cut(actor.name),
        "address": _cut(actor.address),
        "action": change.action,
        "queue": change.queue,
        "target": _cut(change.target, 2_000),
        "arguments": json.dumps(as_document(change.arguments)),
        "reason": _cut(change.reason),
        "result": _cut(result),
        "count": change.count,
    }
    packed = _pack(row)
    return packed if len(packed) <= MOST_BYTES else _pack({**row, "arguments": '{"left_out": "too large"}'})


def log_change(actor: Actor, change: Change, result: str = OK) -> None:
    """Report a change to the logger."""
    where = f" in {change.queue}" if change.queue else ""
    _log.info("%s by %s (%s): %s%s: %s", change.action, actor.name, actor.source, change.target, where, result)


def _pack(row: Mapping[str, object]) -> bytes:
    return msgpack.packb(row)


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    # A lone surrogate, for example of an argument of a shell, has no UTF-8.
    whole = text.encode("utf-8", "backslashreplace").decode()
    return whole if len(whole) <= longest else f"{whole[: longest - 1]}…"


def _line(entry: str, packed: bytes) -> AuditLine:
    row = cast("dict[str, Any]", msgpack.unpackb(packed))
    row["arguments"] = json.loads(row["arguments"])
    return AuditLine(id=entry, at=from_ms(int(entry.partition("-")[0])), **row)
