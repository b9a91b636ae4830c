"""Dead letters: jobs that failed for good, why, and running them again.

How they are stored and moved is told in functions/dead_letters.lua and functions/outbox.lua.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import groupby
from typing import Final, Literal

from glidemq_async._internal.generics import Data, Result
from glidemq_async.functions.callers import MovedLetter, Revival
from glidemq_async.jobs.job import Job
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.inspection import PAGE, Inspection
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.stored.dead_letter import CAUSES, DeadLetter, FailureCause
from glidemq_async.stored.names import check_name

_REVOKED: Final = "revoked"
_ALL: Final = 2**31 - 1
"""Stands for no bound where the server wants a number."""


class DeadLetters(Inspection[Data, Result]):
    """The methods of Queue for dead letters.

    The dead letters of a queue are the jobs that failed in it for good (state `failed`, but for revoked ones, which
    are somebody's wish), for as long as their retention keeps them, and those that other queues moved to it.
    """

    async def get_dead_letter_jobs(
        self, start: int = 0, end: int = 99, *, cause: FailureCause | None = None
    ) -> list[Job[Data, Result]]:
        """Return dead letters from position `start` to `end`, both included: a look that changes nothing.

        First those that were moved here, then those that failed here, the newest of each first. `job.failure_cause`
        and `job.failed_reason` say why, `job.dead_letter` where a moved one comes from. `cause` leaves all others
        out. Reading far into many of them walks there.
        """
        if start < 0 or end < start:
            raise ValueError(f"start and end must be 0 <= start <= end, got {start} and {end}")
        wanted = _cause_text(cause)
        await self.connect()
        found: list[Job[Data, Result]] = []
        position = 0
        async for ids in self._dead_ids(wanted, min(PAGE, end + 1)):
            found += await self._read(ids[max(0, start - position) : end + 1 - position], True)
            position += len(ids)
            if position > end:
                break
        return found

    async def _dead_ids(self, cause: str, count: int) -> AsyncIterator[list[str]]:
        which: Literal["moved", "failed"]
        for which in ("moved", "failed"):
            cursor = ""
            while True:
                cursor, ids = await self._client.functions.list_dead_letters(which, cursor, count, cause)
                yield ids
                if not cursor:
                    break

    async def replay_dead_letter_jobs(self, count: int | None = None, *, cause: FailureCause | None = None) -> int:
        """Run dead letters again, the oldest first, at most `count` of those there now; returns how many.

        Each starts under its own id with fresh attempts and no result, reason or stalls left. One that failed here
        starts here. One that was moved here goes back to its queue: its failed record there starts again, or, if the
        retention has removed that, it is added anew; then it is deleted here. One whose job was retried, or added
        again under that id, is only deleted. What a worker of this queue is running is left to it.

        Done in bounded steps. Interrupted, it can be called again: nothing runs twice for it. Raises
        IncompatibleQueueError when the queue of a moved one has got a `mode` since that it does not fit; it stays here.
        """
        if count is not None:
            whole_number("count", count, least=0)
        wanted = _cause_text(cause)
        await self.connect()
        most = _ALL if count is None else count
        replayed = await self._replay_moved(most, wanted)
        return replayed + await self._replay_failed(most - replayed, wanted)

    async def _replay_failed(self, count: int, cause: str) -> int:
        replayed, skip = 0, 0
        left: int | None = None
        while left != 0 and replayed < count:
            skip, left, started = await self._client.functions.replay_failed(skip, left, count - replayed, cause)
            replayed += started
        return replayed

    async def _replay_moved(self, count: int, cause: str) -> int:
        replayed, skip = 0, 0
        left: int | None = None
        while left != 0 and replayed < count:
            skip, left, letters = await self._client.functions.read_moved(skip, left, count - replayed, cause)
            replayed += await self._send_back(letters)
        return replayed

    async def _send_back(self, letters: list[MovedLetter]) -> int:
        revived = 0
        known = [(one, DeadLetter.from_wire(one.letter)) for one in letters]
        for queue, group in groupby(sorted(known, key=lambda each: each[1].queue), key=lambda each: each[1].queue):
            back = [
                Revival(f"{self.name}/{one.id}", letter.job_id, letter.failed_ms, *one[2:], letter.route)
                for one, letter in group
            ]
            origin = self._client.sibling(queue)
            await origin.open()
            try:
                revived += (await origin.functions.revive_jobs(back)).count("ok")
            except FunctionError as error:
                raise origin.refused(error) from None
        if letters:
            await self._client.functions.drop_moved([one.id for one in letters])
        return revived

    async def set_dead_letter_queue(self, name: str | None) -> None:
        """Say to which queue the dead letters of this one are moved as well, None for none.

        `Worker(dead_letter_queue=…)` says it when it starts; the last word holds, for every worker. Raises ValueError
        for a bad name, and for this queue itself.
        """
        if name is not None:
            check_dead_letter_queue(name, self.name)
        await self.connect()
        await self._client.functions.set_dead_letter_queue(name or "")

    async def get_dead_letter_queue(self) -> str | None:
        """Return to which queue dead letters are moved, None when they only stay in `failed`."""
        await self.connect()
        return await self._client.functions.get_dead_letter_queue() or None


def check_dead_letter_queue(name: str, queue: str) -> str:
    """Return the name of a dead-letter queue if it may be that of `queue`; raises TypeError or ValueError."""
    check_name("dead_letter_queue", name)
    if name == queue:
        raise ValueError(
            f"dead_letter_queue is {name!r}, the queue itself: name another one, or leave it out; what fails stays in "
            "`failed`, and get_dead_letter_jobs shows it"
        )
    return name


def _cause_text(cause: FailureCause | None) -> str:
    if cause is None:
        return ""
    if cause == _REVOKED or cause not in CAUSES:
        known = ", ".join(sorted(CAUSES - {_REVOKED}))
        raise ValueError(f"cause must be one of {known} (a revoked job is no dead letter), got {cause!r}")
    return cause
