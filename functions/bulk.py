"""Typed call of the function that makes one change to many jobs: `bulk.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import Arg, Calls, text, texts

Action: TypeAlias = Literal["retry", "cancel", "promote", "delay", "move", "delete", "edit"]

MOST_JOBS = 500
"""Maximum number of jobs in one step."""


class BulkChange(NamedTuple):
    """A job to change. `refused`: why the client refuses it. `data`, `opts`: new values. `target`: id after a move."""

    id: str
    refused: str = ""
    data: bytes = b""
    opts: bytes = b""
    target: str = ""


class ChangeStep(NamedTuple):
    """A change of many jobs.

    The change leaves out jobs that were added after `cutoff_ms`, and jobs in other states than `states`; () permits all
    states. `actor` and `note` become entries in the histories of the changed jobs. Without an actor they get none.
    """

    operation: str
    action: Action
    argument: str = ""
    cutoff_ms: int | None = None
    states: Sequence[str] = ()
    actor: str = ""
    note: str = ""


class ChangeReply(NamedTuple):
    """Reply of a step: the status of each handled job, and the base key of a queue whose outbox must be relayed."""

    statuses: list[str]
    rest: str


class BulkCalls(Calls):
    """Calls of the function in `bulk.lua`."""

    __slots__ = ()

    async def change(self, step: ChangeStep, position: int, jobs: Sequence[BulkChange]) -> ChangeReply:
        """Change at most 500 jobs, the first of which has this position in the operation, from 1.

        The server may handle only the first of them. A repeated step gets the reply of the first time.
        """
        cutoff = "" if step.cutoff_ms is None else step.cutoff_ms
        args: list[Arg] = [step.operation, position, step.action, step.argument, cutoff, ",".join(step.states)]
        args += [step.actor, step.note, len(jobs)]
        for job in jobs:
            args += job
        _, statuses, rest = cast("list[object]", await self._caller.call("changeJobs", args))
        return ChangeReply(texts(statuses), text(rest))
