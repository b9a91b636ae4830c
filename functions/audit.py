"""Typed calls of the functions for audit lines: `audit.lua`."""

from __future__ import annotations

from typing import Final, cast

from glidemq_async.functions.calling import Calls, text

MOST_BYTES: Final = 8_192
"""Maximum size of a packed line."""


class AuditCalls(Calls):
    """Calls of the functions in `audit.lua`, with the base key of the queue `system/ops`."""

    __slots__ = ()

    async def write(self, line: bytes) -> str:
        """Append a line. Return its entry."""
        return text(await self._caller.once("writeAudit", [line]))

    async def end(self, entry: str, line: bytes) -> str:
        """Replace the line that a change wrote when it began. Return the new entry."""
        return text(await self._caller.once("endAudit", [entry, line]))

    async def read(self, before: str, count: int) -> tuple[str, list[tuple[str, bytes]]]:
        """Return the next cursor, "" at the end, and up to `count` lines before an entry, the newest first."""
        cursor, flat = cast("tuple[bytes, list[bytes]]", await self._caller.read("readAudit", [before, count]))
        return text(cursor), [(text(entry), line) for entry, line in zip(flat[::2], flat[1::2], strict=True)]
