"""Typed calls of the functions for recorded steps: `steps.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, text, texts


class StepGroup(NamedTuple):
    """The steps of one run in a call, each as its identity and its encoded form, and the limits of the journal."""

    job_id: str
    entry: str
    most_steps: int
    most_bytes: int
    steps: Sequence[tuple[str, bytes]]


class StoredJournal(NamedTuple):
    """The recorded steps of a job by their identities.

    Steps that failed in runs up to the fencing token `requeued` are to be repeated: the job was requeued after them.
    """

    steps: dict[str, bytes]
    requeued: int


class StepCalls(Calls):
    """Calls of the functions in `steps.lua`."""

    __slots__ = ()

    async def record(self, groups: Sequence[StepGroup]) -> list[str]:
        """Record steps. Return the status of each group. The groups beyond the last status were not recorded."""
        args: list[Arg] = [self._caller.consumer, len(groups)]
        for job_id, entry, most_steps, most_bytes, steps in groups:
            args += [job_id, entry, most_steps, most_bytes, len(steps)]
            for identity, value in steps:
                args += [identity, value]
        return texts(await self._caller.call("recordSteps", args))

    async def receive(self, group: StepGroup, signal: bytes) -> str:
        """Take a signal, as it is stored, out of the mailbox, and record the step that receives it."""
        [(identity, value)] = group.steps
        args: list[Arg] = [self._caller.consumer, *group[:4], 1, identity, value, signal]
        return text(await self._caller.call("receiveSignal", args))

    async def read(self, job_id: str) -> StoredJournal:
        """Return the journal of a job, in as many calls as it has pages."""
        found: dict[str, bytes] = {}
        cursor = ""
        while True:
            page = cast("list[object]", await self._caller.read("readSteps", [job_id, cursor]))
            flat = cast("list[bytes]", page[2])
            found.update(zip((key.decode() for key in flat[::2]), flat[1::2], strict=True))
            cursor = text(page[0])
            if not cursor:
                return StoredJournal(found, int(text(page[1])))
