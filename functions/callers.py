"""Typed callers of the function library: one method per function, which takes and returns plain Python.

The callers contain no policy. The queue and the worker decide what to send and how to handle a reply.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

from glidemq_async.functions.calling import (
    Arg,
    Caller,
    FunctionStore,
    Record,
    RequestChannel,
    RequestChannels,
    Wait,
    record,
    text,
    texts,
)
from glidemq_async.functions.cleaning import CleaningCalls
from glidemq_async.functions.dead_letters import DeadLetterCalls
from glidemq_async.functions.history import HistoryCalls
from glidemq_async.functions.inbox import Delivery, InboxCalls
from glidemq_async.functions.key_limits import LimitCalls
from glidemq_async.functions.metrics import MetricsCalls
from glidemq_async.functions.obliterate import ObliterateCalls
from glidemq_async.functions.outbox import OutboxCalls, Posted
from glidemq_async.functions.reading import ReadingCalls
from glidemq_async.functions.replaying import MovedLetter, ReplayingCalls, Revival
from glidemq_async.functions.scheduler_list import SchedulerListCalls
from glidemq_async.functions.schedulers import SchedulerCalls
from glidemq_async.functions.searching import SearchingCalls
from glidemq_async.functions.settle import ClaimedJob, SettleCalls, SettleReply, SettleRequest
from glidemq_async.functions.successors import DeduplicationCalls
from glidemq_async.functions.writes import WriteCalls, WriteReply

__all__ = [
    "AddReply",
    "AddRequest",
    "Arg",
    "ClaimedJob",
    "Delivery",
    "Finding",
    "FunctionStore",
    "Functions",
    "MovedLetter",
    "Posted",
    "QueueState",
    "Record",
    "RequestChannel",
    "RequestChannels",
    "Revival",
    "SettleReply",
    "SettleRequest",
    "SweepReply",
    "Wait",
    "WriteReply",
]


class AddRequest(NamedTuple):
    """One job of an `addJob` call. id "" requests a generated id; `JobOptions.pack_extra` makes `extra`."""

    id: str
    name: str
    data: bytes
    opts: bytes
    extra: bytes


class AddReply(NamedTuple):
    """Reply of `addJob`: the server's time (ms), an id for each job, and the outcome of jobs that were not added.

    For a job that was not added, `ids` has the id of the existing job that blocked it.
    """

    now: int
    ids: list[str]
    outcomes: dict[int, str]


class SweepReply(NamedTuple):
    """Reply of `sweep`. `posted`: the outbox is not empty."""

    more: bool
    recovered: list[str]
    failed: list[str]
    posted: bool
    next_slot: float | None
    """Seconds until the next fire time of a job scheduler, None without one."""


class QueueState(NamedTuple):
    """Reply of `openQueue`."""

    layout: str
    mode: str | None
    paused: bool
    has_schedulers: bool
    """True if the queue ever had a job scheduler."""
    incarnation: str
    """Distinguishes this queue from an earlier or later one of the same name."""
    missing_rules: tuple[str, ...] = ()
    """ACL rules for channels that the server's user lacks."""


class Finding(NamedTuple):
    """A violated invariant, the job or key concerned, and a description.

    docs/internals/stored-data.md numbers the invariants.
    """

    invariant: str
    subject: str
    message: str


def _findings(flat: object) -> list[Finding]:
    items = iter(texts(flat))
    return [Finding(*three) for three in zip(items, items, items, strict=True)]


class Functions(Caller):
    """The callers of one queue. The base classes contain the callers of the larger features."""

    def __init__(self, storage: FunctionStore, base: str, channels: RequestChannels | None = None) -> None:
        super().__init__(storage, base, channels)
        self.settle = SettleCalls(self)
        self.limits = LimitCalls(self)
        self.history = HistoryCalls(self)
        self.writes = WriteCalls(self)
        self.schedulers = SchedulerCalls(self)
        self.scheduler_list = SchedulerListCalls(self)
        self.cleaning = CleaningCalls(self)
        self.obliterate = ObliterateCalls(self)
        self.dead_letters = DeadLetterCalls(self)
        self.replaying = ReplayingCalls(self)
        self.outbox = OutboxCalls(self)
        self.inbox = InboxCalls(self)
        self.reading = ReadingCalls(self)
        self.searching = SearchingCalls(self)
        self.metrics = MetricsCalls(self)
        self.deduplication = DeduplicationCalls(self)

    async def open_queue(self, mode: str | None, dead_letter_queue: str | None = None) -> QueueState:
        """Check that the stored queue belongs to this library, create it if needed, and store the given settings.

        Later adds and claims are meant for this incarnation: they are refused as UNDECLARED when it is gone.
        """
        args: list[Arg] = [mode or "", uuid.uuid4().hex[:16], dead_letter_queue or "", 1]
        *reply, rules = cast("list[object]", await self.call("openQueue", args))
        layout, stored_mode, paused, schedulers, incarnation = cast("list[bytes | None]", reply)
        self.incarnation = text(incarnation)
        return QueueState(
            text(layout),
            stored_mode.decode() if stored_mode else None,
            paused == b"1",
            schedulers is not None,
            self.incarnation,
            tuple(texts(rules)),
        )

    async def add_jobs(self, jobs: Sequence[AddRequest], wait: Wait = "default") -> AddReply:
        """Add jobs in one call. Return one id and outcome per input, in order."""
        args: list[Arg] = [len(jobs)]
        for job in jobs:
            args += job
        args.append(self.incarnation)
        now, first, listed, outcomes = cast("list[object]", await self.once("addJob", args, wait=wait))
        generated = _generated_ids(text(first), texts(listed))
        ids = [job.id or next(generated) for job in jobs]
        flat = cast("list[object]", outcomes)
        statuses: dict[int, str] = {}
        for i in range(0, len(flat), 3):
            position = cast("int", flat[i]) - 1
            statuses[position], ids[position] = text(flat[i + 1]), text(flat[i + 2])
        return AddReply(cast("int", now), ids, statuses)

    async def renew_leases(
        self,
        consumer: str,
        info: bytes,
        held: Sequence[tuple[str, str]],
        timeout: float,
        *,
        answered: int = 0,
        in_transit: int = 0,
    ) -> tuple[list[str], list[str]]:
        """Renew the leases of (id, entry). Return the lost entries, and the entries of revoked jobs.

        `answered` is the number of the consumer's last settle call that has a reply: a server that knows this call need
        not verify who owns each entry. 0 requests the verification. `in_transit` is the number of the call whose reply
        is on its way, 0 for none. The server renews the jobs that this call has claimed, too.
        """
        args: list[Arg] = [consumer, info, answered, in_transit]
        for pair in held:
            args += pair
        lost, revoked = cast("list[object]", await self.call("renewLeases", args, timeout=timeout))
        return texts(lost), texts(revoked)

    async def end_runs(self, consumer: str, entries: Sequence[str]) -> int:
        """Report that runs of removed jobs have ended. Return how many of them still held their key or slot."""
        return cast("int", await self.call("endRuns", [consumer, *entries]))

    async def sweep(self, max_stalled: int, interval_ms: int, gap_ms: int, *, resume: bool) -> SweepReply | None:
        """Reclaim stalled jobs and clean up, in one bounded step. Return None if another process has just swept."""
        reply = await self.once("sweep", [max_stalled, interval_ms, gap_ms, int(resume)])
        if not reply:
            return None
        more, recovered, failed, posted, due = cast("list[object]", reply)
        next_slot = int(text(due)) / 1000 if due else None
        return SweepReply(more == 1, texts(recovered), texts(failed), posted == 1, next_slot)

    async def close_worker(self, consumer: str) -> int:
        """Return all jobs that are pending for a consumer that stops, and remove the consumer."""
        returned = 0
        while True:
            more, count = cast("list[int]", await self.once("closeWorker", [consumer]))
            returned += count
            if not more:
                return returned

    async def change_job(
        self, function: Literal["removeJob", "retryJob", "revokeJob", "promoteJob"], job_id: str
    ) -> str:
        """Apply one operation to one job. Return the status."""
        return text(await self.once(function, [job_id]))

    async def revoke_job(self, job_id: str, reason: str) -> str:
        """Revoke a job, with a reason or "". Return the status."""
        return text(await self.once("revokeJob", [job_id, reason]))

    async def set_result_ttl(self, job_id: str, ttl_ms: int | None) -> str:
        """Keep an ended job's record for `ttl_ms` from now on; None: the retention applies again. Return the status."""
        return text(await self.once("setResultTtl", [job_id, "" if ttl_ms is None else ttl_ms]))

    async def change_priority(self, job_id: str, priority: int) -> str:
        """Change the priority of a job that has not started. Return the status."""
        return text(await self.once("changePriority", [job_id, priority]))

    async def change_delay(self, job_id: str, delay_ms: int) -> str:
        """Delay a job that has not started by `delay_ms` from now on. Return the status."""
        return text(await self.once("changeDelay", [job_id, delay_ms]))

    async def update_job(
        self, job_id: str, entry: str, kind: Literal["progress", "data", "log"], value: bytes | str
    ) -> str:
        """Write progress, data or a log line. Return the status. entry "": a user outside of a run."""
        args: list[Arg] = [job_id, entry, kind, value]
        if entry and self.consumer:
            args.append(self.consumer)
        return text(await self.once("updateJob", args))

    async def await_job(self, job_id: str, channel: str) -> tuple[str, Record]:
        """Request a message on a reply channel when a job ends. Return the state, and the record if it has ended."""
        reply = cast("list[object]", await self.call("awaitJob", [job_id, channel]))
        return text(reply[0]), record(reply[1]) if len(reply) > 1 else {}

    async def forget_reply(self, job_id: str, channel: str) -> None:
        """Cancel `await_job`."""
        await self.call("forgetReply", [job_id, channel])

    async def confirm_replies(self, channel: str, job_ids: Sequence[str]) -> None:
        """Confirm that a reply channel has received the ends of these jobs, so that their records need not stay."""
        await self.call("confirmReplies", [channel, *job_ids])

    async def set_paused(self, paused: bool) -> None:
        """Pause or resume claiming."""
        await self.once("setPaused", [int(paused)])

    async def check_locations(self, structure: str, cursor: str, count: int) -> tuple[str, list[Finding]]:
        """Check one step of a structure's members. Return the next cursor and the findings."""
        reply = cast("list[object]", await self.read("checkPlaces", [structure, cursor, count]))
        return text(reply[0]), _findings(reply[1])

    async def check_key(self, key: str) -> list[Finding]:
        """Check that the lines of one key agree with the records and with the readiness of the key."""
        return await self._walk("checkKey", [key])

    async def check_records(self, ids: Sequence[str]) -> list[Finding]:
        """Check that records are in the locations that they name."""
        found: list[Finding] = []
        at = 0
        while at < len(ids):
            looked, findings = cast("list[object]", await self.read("checkRecords", list(ids[at:])))
            found += _findings(findings)
            at += cast("int", looked)
        return found

    async def check_queue(self) -> list[Finding]:
        """Check the marks outside of the records, and that no job is both completed and failed."""
        return await self._walk("checkQueue", [])

    async def _walk(self, function: str, args: Sequence[str]) -> list[Finding]:
        found: list[Finding] = []
        cursor = ""
        while True:
            reply = cast("list[object]", await self.read(function, [*args, cursor]))
            found += _findings(reply[1])
            cursor = text(reply[0])
            if not cursor:
                return found


def _generated_ids(first: str, listed: list[str]) -> Iterator[str]:
    if listed:
        yield from listed
    elif first:
        number = int(first)
        while True:
            yield str(number)
            number += 1
