"""Typed call of the function that explains why a job does not run: `explain.lua`."""

from __future__ import annotations

from typing import NamedTuple, cast

from glidemq_async.functions.calling import Calls, text, texts

RECENT_SECONDS = 300
"""The time over which the server counts the jobs that ended."""


class StoredGate(NamedTuple):
    """A gate of a job. Instants are in ms; None and "" have no meaning for this kind."""

    kind: str
    until: int | None
    since: int | None
    total: int | None
    by: str
    detail: str


class StoredExplanation(NamedTuple):
    """Reply of `explainJob`. The state is "" if the job does not exist."""

    state: str
    now: int
    name: str
    ended: int
    """Number of jobs of the queue that ended in the last RECENT_SECONDS."""
    gates: list[StoredGate]


class ExplainCalls(Calls):
    """Calls of the function in `explain.lua`."""

    __slots__ = ()

    async def job(self, job_id: str) -> StoredExplanation:
        """Return the gates of a job, in the order in which a claim meets them."""
        state, now, name, ended, gates = cast("list[object]", await self._caller.read("explainJob", [job_id]))
        rows = [_gate(texts(row)) for row in cast("list[list[bytes]]", gates)]
        return StoredExplanation(text(state), cast("int", now), text(name), cast("int", ended), rows)


def _gate(row: list[str]) -> StoredGate:
    kind, until, since, count, by, detail = row
    return StoredGate(kind, _number(until), _number(since), _number(count), by, detail)


def _number(part: str) -> int | None:
    return int(float(part)) if part else None
