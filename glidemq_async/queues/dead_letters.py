"""Dead letters: list the jobs that failed permanently, with the cause, and run them again.

functions/dead_letters.lua and functions/outbox.lua describe how they are stored and moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import groupby
from typing import Final, Literal

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import instant_to_ms
from glidemq_async.functions.replaying import MovedDeadLetter, Revival
from glidemq_async.jobs.job import Job
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.inspection import PAGE, Inspection
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.stored.dead_letter import CAUSES, DeadLetter, FailureCause, read_dead_letter
from glidemq_async.stored.names import check_name

_REVOKED: Final = "revoked"
_ALL: Final = 2**31 - 1
"""Passed to the server for "no limit"."""


class DeadLetters(Inspection[Data, Result]):
    """The methods of Queue for dead letters.

    The dead letters of a queue are the jobs that failed in it permanently and the jobs that other queues moved to it.
    The first kind has the state `failed`, is kept by the retention, and does not include revoked jobs.
    """

    async def get_dead_letter_jobs(
        self, start: int = 0, end: int = 99, *, cause: FailureCause | None = None
    ) -> list[Job[Data, Result]]:
        """Return the dead letters from position `start` to `end`, both included. Changes nothing.

        Jobs moved from other queues come first, then the ones that failed in this queue; the newest of each come first.
        `job.failure_cause` and `job.failed_reason` contain the cause. `job.dead_letter` contains the origin of a moved
        job. `cause` selects the jobs with this cause. A high `start` is slow, because the server reads all jobs before
        it. Raises ValueError for bad positions or an unknown cause.
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

    async def count_dead_letter_jobs(self, *, cause: FailureCause | None = None) -> int:
        """Return the number of dead letters. With `cause`, only jobs with this cause count.

        The server reads all of them, in bounded steps. Jobs that fail or are replayed during the call may be missed.
        """
        wanted = _cause_text(cause)
        await self.connect()
        return sum([len(ids) async for ids in self._dead_ids(wanted, PAGE)])

    async def _dead_ids(self, cause: str, count: int) -> AsyncIterator[list[str]]:
        which: Literal["moved", "failed"]
        for which in ("moved", "failed"):
            cursor = ""
            while True:
                cursor, ids = await self._client.functions.replaying.list_ids(which, cursor, count, cause)
                yield ids
                if not cursor:
                    break

    async def replay_dead_letter_jobs(self, count: int | None = None, *, cause: FailureCause | None = None) -> int:
        """Run at most `count` of the current dead letters again, the oldest first. Return their number.

        Each job starts under its own id with fresh attempts and without result, reason and stalls. A job that failed in
        this queue starts in this queue. A moved job goes back to its queue: its failed record there starts again, or
        the job is added anew if the retention has removed the record. The copy in this queue is then deleted. If the
        job was already retried, or added again under the same id, only the copy is deleted. Copies that a worker of
        this queue is running are not changed. `cause` selects the jobs with this cause.

        Works in bounded steps. After an interruption, call it again: no job runs twice. Raises IncompatibleQueueError
        if the queue of a moved job has since got a `mode` that the job does not fit; that job stays here.
        """
        if count is not None:
            whole_number("count", count, least=0)
        wanted = _cause_text(cause)
        await self.connect()
        most = _ALL if count is None else count
        replayed = await self._replay_moved(most, wanted)
        return replayed + await self._replay_failed(most - replayed, wanted)

    async def _replay_failed(self, count: int, cause: str) -> int:
        # A replayed job leaves the set of failed jobs, and a job with another cause stays in it. So the next step skips
        # only the jobs that stayed. `left` counts down from the number of jobs at the beginning: a job that fails again
        # goes to the end of the set, behind that number.
        replayed, skip = 0, 0
        left: int | None = None
        while left != 0 and replayed < count:
            skip, left, started = await self._client.functions.replaying.replay_failed(
                skip, left, count - replayed, cause
            )
            replayed += started
        return replayed

    async def _replay_moved(self, count: int, cause: str) -> int:
        replayed, skip = 0, 0
        left: int | None = None
        while left != 0 and replayed < count:
            skip, left, found = await self._client.functions.replaying.read_moved(skip, left, count - replayed, cause)
            replayed += await self._send_back(found)
        return replayed

    async def _send_back(self, copies: list[MovedDeadLetter]) -> int:
        revived = 0
        known = [(one, *read_dead_letter(one.origin)) for one in copies]
        for queue, group in groupby(sorted(known, key=lambda each: each[1].queue), key=lambda each: each[1].queue):
            back = [_revival(f"{self.name}/{one.id}", origin, route, one) for one, origin, route in group]
            # The two queues may be in different cluster slots, so no call can change both. The job is started in its
            # own queue first, and its copy here is deleted afterwards. An interruption between the two leaves a copy. A
            # later replay sends it again, and the token makes the second revival a "seen".
            client = self._client.sibling(queue)
            await client.open()
            try:
                revived += (await client.functions.replaying.revive(back)).count("ok")
            except FunctionError as error:
                raise client.refused(error) from None
        if copies:
            # All copies are deleted, whatever the status of their revival was: "superseded" means that the job in its
            # own queue was already retried or added again, and then this copy is out of date. If the call to one origin
            # raises, no copy of the step is deleted.
            await self._client.functions.replaying.drop_moved([one.id for one in copies])
        return revived

    async def set_dead_letter_queue(self, name: str | None) -> None:
        """Set the queue that receives a copy of each dead letter of this queue. None removes the setting.

        `Worker(dead_letter_queue=…)` sets it when the worker starts. The last setting applies to every worker. Raises
        ValueError for a bad name, and for this queue itself.
        """
        if name is not None:
            check_dead_letter_queue(name, self.name)
        await self.connect()
        await self._client.functions.dead_letters.set_queue(name or "")

    async def get_dead_letter_queue(self) -> str | None:
        """Return the queue that receives dead letters, None if they only stay in `failed`."""
        await self.connect()
        return await self._client.functions.dead_letters.get_queue() or None


def _revival(token: str, origin: DeadLetter, route: str, moved: MovedDeadLetter) -> Revival:
    failed_ms = instant_to_ms("failed_at", origin.failed_at)
    return Revival(token, origin.job_id, failed_ms, moved.name, moved.data, moved.opts, route)


def check_dead_letter_queue(name: str, queue: str) -> str:
    """Check a name as dead-letter queue of `queue`, and return it. Raises TypeError or ValueError."""
    check_name("dead_letter_queue", name)
    if name == queue:
        raise ValueError(
            f"dead_letter_queue {name!r} is the queue itself; use another name, or leave it out: failed jobs stay in "
            "`failed`, and get_dead_letter_jobs returns them"
        )
    return name


def _cause_text(cause: FailureCause | None) -> str:
    if cause is None:
        return ""
    if cause == _REVOKED or cause not in CAUSES:
        known = ", ".join(sorted(CAUSES - {_REVOKED}))
        raise ValueError(f"cause must be one of {known} (revoked jobs are not dead letters), got {cause!r}")
    return cause
