"""Typed calls of the functions that verify that jobs and their structures agree: `checking.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, text, texts


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
        return text(reply[0]), findings_of(reply[1])

    async def records(self, ids: Sequence[str]) -> list[Finding]:
        """Check that records are in the locations that they name."""
        found: list[Finding] = []
        # The server ends a call when its time budget is spent, and returns the number of records that it has checked.
        # It always checks at least one, so the loop ends.
        at = 0
        while at < len(ids):
            looked, findings = cast("list[object]", await self._caller.read("checkRecords", list(ids[at:])))
            found += findings_of(findings)
            at += cast("int", looked)
        return found


def findings_of(flat: object) -> list[Finding]:
    """Return the findings of a reply."""
    items = iter(texts(flat))
    return [Finding(*three) for three in zip(items, items, items, strict=True)]
