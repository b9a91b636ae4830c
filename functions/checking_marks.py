"""Typed calls of the functions that verify keys, and data of jobs outside of their records: `checking_marks.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from glidemq_async.functions.calling import Calls, text
from glidemq_async.functions.checking import Finding, findings_of

_MOST_MAILBOXES: Final = 500
_MOST_JOURNALS: Final = 200


class MarkCheckCalls(Calls):
    """Calls of the functions in `checking_marks.lua`."""

    __slots__ = ()

    async def key(self, key: str) -> list[Finding]:
        """Check that the lines of one key agree with the records and with the readiness of the key."""
        return await self._walk("checkKey", [key])

    async def chunks(self, ids: Sequence[str]) -> list[Finding]:
        """Check that the streams of these jobs are open or will be forgotten."""
        return findings_of(await self._caller.read("checkChunks", list(ids)))

    async def mailboxes(self, ids: Sequence[str]) -> list[Finding]:
        """Check that `signalled` names the mailboxes of these jobs."""
        found: list[Finding] = []
        for start in range(0, len(ids), _MOST_MAILBOXES):
            found += findings_of(await self._caller.read("checkMailboxes", list(ids[start : start + _MOST_MAILBOXES])))
        return found

    async def journals(self, ids: Sequence[str]) -> list[Finding]:
        """Check that the journals of these jobs belong to jobs and will be forgotten."""
        found: list[Finding] = []
        for start in range(0, len(ids), _MOST_JOURNALS):
            found += findings_of(await self._caller.read("checkJournals", list(ids[start : start + _MOST_JOURNALS])))
        return found

    async def queue(self) -> list[Finding]:
        """Check the marks outside of the records, and that no job is both completed and failed."""
        return await self._walk("checkQueue", [])

    async def _walk(self, function: str, args: Sequence[str]) -> list[Finding]:
        found: list[Finding] = []
        cursor = ""
        while True:
            reply = cast("list[object]", await self._caller.read(function, [*args, cursor]))
            found += findings_of(reply[1])
            cursor = text(reply[0])
            if not cursor:
                return found
