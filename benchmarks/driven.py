"""A queue that is driven by function calls, without a worker, because the server's share is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgpack

from glidemq_async import Queue
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.outcomes import Completed
from glidemq_async.functions.settle import SettleReply, SettleRequest
from glidemq_async.options.job_options import JobOptions, JobOptionsDict
from glidemq_async.options.stored_options import pack_extra
from glidemq_async.stored.record import route_of
from glidemq_async.worker.direct_claims import DirectClaims

from .bench import PAYLOAD, RESULT

BATCH: Final = 100
FILL_BATCH: Final = 500
LEASE_MS: Final = 600_000
DATA: Final[bytes] = msgpack.packb(PAYLOAD)
COMPLETED: Final = Completed(msgpack.packb(RESULT))

OptionsOf = Callable[[int], JobOptionsDict]


class Driven:
    """A queue of the benchmark, and the calls that it gets."""

    def __init__(self, queue: Queue[Any, Any], name: str) -> None:
        self.name = name
        self.base = f"glide:{{{name}}}"
        self.functions = Functions(queue.storage, self.base)
        self._channel = RequestChannel("bench")
        self._direct_claims = DirectClaims(are_possible=True)
        self.late: list[Sequence[str]] = []
        """The ids of jobs that still wait when the measurement has ended, in the order in which they were added."""

    async def add(self, jobs: int, options_of: OptionsOf, batch: int = BATCH) -> list[str]:
        """Add jobs, `batch` of them in each call. Return their ids."""
        ids: list[str] = []
        for start in range(0, jobs, batch):
            numbers = range(start, min(start + batch, jobs))
            ids += (await self.functions.add.jobs([_request(options_of(number)) for number in numbers])).ids
        return ids

    async def work(self, jobs: int) -> list[str | None]:
        """Claim jobs and complete them as a worker does, a batch in each call. Return their keys.

        A call that took long leaves a part to the next one.
        """
        running: list[tuple[ClaimedJob, int]] = []
        keys: list[str | None] = []
        unsettled = 0
        done = claimed = 0
        while done < jobs:
            slots = min(BATCH - unsettled, jobs - claimed)
            reply = await self._call(slots, running)
            if not reply.settled and not reply.jobs:
                raise RuntimeError(f"claims of {self.name}: a call neither settled nor claimed; the run is void")
            done += reply.settled
            claimed += len(reply.jobs)
            unsettled = len(running) - reply.settled
            running = [*running[reply.settled :], *((job, reply.claimed_at) for job in reply.jobs)]
            keys += [_key_of(job) for job in reply.jobs]
        return keys

    async def _call(self, slots: int, running: Sequence[tuple[ClaimedJob, int]]) -> SettleReply:
        """Complete jobs, each with the time of its claim, and claim others."""
        request = self.functions.settle.request(
            self._channel,
            "bench",
            slots,
            LEASE_MS,
            subscribed=True,
            accepts_pushes=True,
            is_direct=slots > 0 and self._direct_claims.begin(),
            ran_ms=(len(running), 0),
        )
        for job, since in running:
            _complete(request, job, since)
        reply = await self.functions.settle.send(request)
        # A busy worker has free slots in each call, so a call without slots changes nothing for the next claim.
        if slots > 0:
            self._direct_claims.note_reply(reply.jobs, was_refused=reply.is_refused)
        return reply

    async def replace(self, keys: Sequence[str | None]) -> None:
        """Add a job for each of these keys, None for a job without a key."""
        await self.add(len(keys), lambda number: with_key(keys[number]))

    async def change(self, change: str, job_id: str) -> str:
        """Make one change to a waiting job; return its reply code."""
        if change == "change_priority":
            return await self.functions.changes.set_priority(job_id, 7)
        jobs = self.functions.jobs
        return (await (jobs.revoke(job_id) if change == "revoke" else jobs.remove(job_id))).code


def with_key(key: str | None) -> JobOptionsDict:
    """Return the options of a job with this key, or without one."""
    return {} if key is None else {"key": key}


def _request(options: JobOptionsDict) -> AddRequest:
    return AddRequest("", "job", DATA, b"", pack_extra(JobOptions(**options)))


def _complete(request: SettleRequest, job: ClaimedJob, since: int) -> None:
    """Add the outcome of a run that began at `since` (server ms)."""
    # A worker sends the start of each run. Without it, the server would have to look up every run.
    plain_since, claimed_at = (since, None) if job.is_plain else (None, since)
    request.settle(job.id, job.entry, _key_of(job), COMPLETED, plain_since=plain_since, claimed_at=claimed_at)


def _key_of(job: ClaimedJob) -> str | None:
    """Return the key of a claimed job, which workers send with its fencing token."""
    return route_of(job.history.route).key if job.history else None
