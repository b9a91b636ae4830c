"""Typed calls of the functions that verify the integrity of the stored data: `checking.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from glidemq_async.functions.calling import Calls, text, texts

_MOST_MAILBOXES: Final = 500
_MOST_JOURNALS: Final = 200


class Finding(NamedTuple):
    """A violated invariant, the job or key concerned, and a description.

    docs/internals/stored-data.md numbers the invariants.
    """

    invariant: str
    subject: str
    message: str


class CheckCalls(Calls):
    """Calls of the functions in `checking.lua`."""

    __slots__ = ()

    async def locations(self, structure: str, cursor: str, count: int) -> tuple[str, list[Finding]]:
        """Check one step of a structure's members. Return the next cursor and the findings."""
        reply = cast("list[object]", await self._caller.read("checkPlaces", [structure, cursor, count]))
        return text(reply[0]), _findings(reply[1])

    async def key(self, key: str) -> list[Finding]:
        """Check that the lines of one key agree with the records and with the readiness of the key."""
        return await self._walk("checkKey", [key])

    async def records(self, ids: Sequence[str]) -> list[Finding]:
        """Check that records are in the locations that they name."""
        found: list[Finding] = []
        # The server ends a call when its time budget is spent, and returns the number of records that it has checked.
        # It always checks at least one, so the loop ends.
        at = 0
        while at < len(ids):
            looked, findings = cast("list[object]", await self._caller.read("checkRecords", list(ids[at:])))
            found += _findings(findings)
            at += cast("int", looked)
        return found

    async def chunks(self, ids: Sequence[str]) -> list[Finding]:
        """Check that the streams of these jobs are open or will be forgotten."""
        return _findings(await self._caller.read("checkChunks", list(ids)))

    async def mailboxes(self, ids: Sequence[str]) -> list[Finding]:
        """Check that `signalled` names the mailboxes of these jobs."""
        found: list[Finding] = []
        for start in range(0, len(ids), _MOST_MAILBOXES):
            found += _findings(await self._caller.read("checkMailboxes", list(ids[start : start + _MOST_MAILBOXES])))
        return found

    async def journals(self, ids: Sequence[str]) -> list[Finding]:
        """Check that the journals of these jobs belong to jobs and will be forgotten."""
        found: list[Finding] = []
        for start in range(0, len(ids), _MOST_JOURNALS):
            found += _findings(await self._caller.read("checkJournals", list(ids[start : start + _MOST_JOURNALS])))
        return found

    async def queue(self) -> list[Finding]:
        """Check the marks outside of the records, and that no job is both completed and failed."""
        return await self._walk("checkQueue", [])

    async def _walk(self, function: str, args: Sequence[str]) -> list[Finding]:
        found: list[Finding] = []
        cursor = ""
        while True:
            reply = cast("list[object]", await self._caller.read(function, [*args, cursor]))
            found += _findings(reply[1])
            cursor = text(reply[0])
            if not cursor:
                return found


def _findings(flat: object) -> list[Finding]:
    items = iter(texts(flat))
    return [Finding(*three) for three in zip(items, items, items, strict=True)]
