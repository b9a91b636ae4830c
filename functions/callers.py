"""Typed callers of the function library: one method per function, wire shapes in, plain Python out.

No policy lives here: what to send and what an answer means is decided by the queue and the worker.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import (
    Arg,
    FunctionStore,
    Lane,
    Lanes,
    Record,
    Wait,
    counts,
    record,
    text,
    texts,
)
from glidemq_async.functions.cleaning_calls import CleaningCalls
from glidemq_async.functions.dead_letter_calls import DeadLetterCalls, Delivery, MovedLetter, Posted, Revival
from glidemq_async.functions.history_calls import HistoryCalls
from glidemq_async.functions.inspection_calls import InspectionCalls
from glidemq_async.functions.limit_calls import LimitCalls
from glidemq_async.functions.scheduler_calls import SchedulerCalls
from glidemq_async.functions.write_calls import WriteCalls, WriteReply

__all__ = [
    "AddReply",
    "AddRequest",
    "Arg",
    "ClaimedJob",
    "Delivery",
    "Finding",
    "FunctionStore",
    "Functions",
    "Lane",
    "Lanes",
    "MovedLetter",
    "Posted",
    "QueueState",
    "Record",
    "Revival",
    "SettleReply",
    "SettleRequest",
    "SweepReply",
    "Wait",
    "WriteReply",
]

ClaimedJob: TypeAlias = list[bytes | None]
"""name, data, opts, fence, id, entry; of a keyed job that never ran also route.

Unless the job is fresh: failures, stalls, added, progress, route, letter instead.
"""


class AddRequest(NamedTuple):
    """One job of an `addJob` call; id "" asks for a generated one, `extra` is as `JobOptions.pack_extra` makes it."""

    id: str
    name: str
    data: bytes
    opts: bytes
    extra: bytes


class AddReply(NamedTuple):
    """What `addJob` answered: the server's time (ms), an id for each job, and the outcome of those not added.

    The id of a job that was not added is that of the job in its way.
    """

    now: int
    ids: list[str]
    outcomes: dict[int, str]


@dataclass(slots=True)
class SettleRequest:
    """One settleAndClaim call, kept as it is so that it can be sent again with the same request number."""

    lane: Lane
    number: int
    args: list[Arg]

    @property
    def incarnation(self) -> str:
        """Of the queue that the call is meant for."""
        return cast("str", self.args[-1])


class SettleReply(NamedTuple):
    """What `settleAndClaim` answered; `due` is the instant (server ms) at which to claim again, 0 = when woken.

    `posted`: the call wrote to the outbox. `past`: microseconds beyond `now`.
    """

    now: int
    refused: dict[int, str]
    jobs: list[ClaimedJob]
    due: int
    listeners: int
    posted: bool
    past: int
    is_broken: bool = False
    """The server does not know the lane's call before this one: a failover lost it, and maybe its claims."""

    @property
    def wait(self) -> float:
        """Seconds from the answer until `due`."""
        return (self.due - self.now) / 1000 - self.past / 1e6


class SweepReply(NamedTuple):
    """What `sweep` answered; `posted`: something stands in the outbox."""

    more: bool
    recovered: list[str]
    failed: list[str]
    posted: bool
    next_slot: float | None
    """In how many seconds the next slot of a job scheduler comes, None without one."""


class QueueState(NamedTuple):
    """What `openQueue` answered."""

    layout: str
    mode: str | None
    paused: bool
    has_schedulers: bool
    """Whether the queue ever had a job scheduler."""
    incarnation: str
    """What tells this queue from one of the same name before or after it."""
    missing_rules: tuple[str, ...] = ()
    """ACL rules for channels that the server's user lacks."""


class Finding(NamedTuple):
    """One broken invariant (its number in ARCHITECTURE.md), whom it concerns, and what was seen."""

    invariant: str
    subject: str
    message: str


def _findings(flat: object) -> list[Finding]:
    items = iter(texts(flat))
    return [Finding(*three) for three in zip(items, items, items, strict=True)]


class Functions(LimitCalls, SchedulerCalls, CleaningCalls, DeadLetterCalls, HistoryCalls, InspectionCalls, WriteCalls):
    """Every function of one queue; those of a feature with a file of its own are in its base class."""

    async def open_queue(self, mode: str | None, dead_letter_queue: str | None = None) -> QueueState:
        """Check that the stored queue is ours, make it ready, and declare what is given.

        From then on adds and claims are meant for this queue: they are refused as UNDECLARED when it is gone.
        """
        args: list[Arg] = [mode or "", uuid.uuid4().hex[:16], dead_letter_queue or "", 1]
        *reply, rules = cast("list[object]", await self._storage.call("openQueue", self._base, args))
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
        """Add jobs in one call; returns one id and outcome per input, in order."""
        args: list[Arg] = [len(jobs)]
        for job in jobs:
            args += job
        args.append(self.incarnation)
        now, first, listed, outcomes = cast("list[object]", await self.once("addJob", args, wait=wait))
        generated = _generated_ids(text(first), texts(listed))
        ids = [job.id or next(generated) for job in jobs]
        flat = cast("list[object]", outcomes)
        words: dict[int, str] = {}
        for i in range(0, len(flat), 3):
            position = cast("int", flat[i]) - 1
            words[position], ids[position] = text(flat[i + 1]), text(flat[i + 2])
        return AddReply(cast("int", now), ids, words)

    def settle_request(
        self,
        lane: Lane,
        consumer: str,
        slots: int,
        lock_ms: int,
        flags: str,
        runs: int,
        settled: list[Arg],
        ran_ms: tuple[int, int] = (0, 0),
    ) -> SettleRequest:
        """Prepare a settleAndClaim call.

        settled: flat verb, id, entry, payload, option of `runs` ended runs; ran_ms: how long those took together that
        are completed by it, and those that are failed.
        """
        number = lane.next()
        ran = f"{ran_ms[0]} {ran_ms[1]}"
        head: list[Arg] = [lane.name, number, consumer, slots, lock_ms, flags, ran, runs]
        return SettleRequest(lane, number, [*head, *settled, self.incarnation])

    def readdress(self, request: SettleRequest) -> None:
        """Let a call that was refused as UNDECLARED be meant for the queue that is open now."""
        request.args[-1] = self.incarnation

    async def settle_and_claim(self, request: SettleRequest) -> SettleReply:
        """Make or repeat a settleAndClaim call."""
        reply = await self._storage.call("settleAndClaim", self._base, request.args)
        now, refused, jobs, due, listeners, posted, past = cast(
            "tuple[int, list[object], list[ClaimedJob], int, int, int, int]", reply
        )
        words = {cast("int", refused[i]) - 1: text(refused[i + 1]) for i in range(0, len(refused), 2)}
        return SettleReply(now, words, jobs, due, listeners, posted & 1 == 1, past, posted & 2 == 2)

    async def renew_leases(
        self, consumer: str, info: bytes, held: Sequence[tuple[str, str]], timeout: float
    ) -> tuple[list[str], list[str]]:
        """Renew the leases of (id, entry); returns the entries that are lost and those whose jobs were revoked."""
        args: list[Arg] = [consumer, info]
        for pair in held:
            args += pair
        lost, revoked = cast("list[object]", await self._storage.call("renewLeases", self._base, args, timeout=timeout))
        return texts(lost), texts(revoked)

    async def sweep(self, max_stalled: int, interval_ms: int, gap_ms: int, *, resume: bool) -> SweepReply | None:
        """Recover stalled jobs and tidy up, one bounded step; None when somebody has just swept."""
        reply = await self.once("sweep", [max_stalled, interval_ms, gap_ms, int(resume)])
        if not reply:
            return None
        more, recovered, failed, posted, due = cast("list[object]", reply)
        next_slot = int(text(due)) / 1000 if due else None
        return SweepReply(more == 1, texts(recovered), texts(failed), posted == 1, next_slot)

    async def close_worker(self, consumer: str) -> int:
        """Hand back all that is pending for a consumer that holds nothing any more, and forget it."""
        returned = 0
        while True:
            more, count = cast("list[int]", await self.once("closeWorker", [consumer]))
            returned += count
            if not more:
                return returned

    async def change_job(
        self, function: Literal["removeJob", "retryJob", "revokeJob", "promoteJob"], job_id: str
    ) -> str:
        """Do one thing to one job; returns the function's word."""
        return text(await self.once(function, [job_id]))

    async def revoke_job(self, job_id: str, reason: str) -> str:
        """Revoke a job, with a reason or ""; returns the function's word."""
        return text(await self.once("revokeJob", [job_id, reason]))

    async def set_result_ttl(self, job_id: str, ttl_ms: int | None) -> str:
        """Let an ended job's record stay so long from now on, None: as its set's retention says; the word."""
        return text(await self.once("setResultTtl", [job_id, "" if ttl_ms is None else ttl_ms]))

    async def change_priority(self, job_id: str, priority: int) -> str:
        """Give a job that has not started another priority; returns the function's word."""
        return text(await self.once("changePriority", [job_id, priority]))

    async def change_delay(self, job_id: str, delay_ms: int) -> str:
        """Let a job that has not started wait so long from now on; returns the function's word."""
        return text(await self.once("changeDelay", [job_id, delay_ms]))

    async def update_job(
        self, job_id: str, entry: str, kind: Literal["progress", "data", "log"], value: bytes | str
    ) -> str:
        """Write progress, data or a log line; entry "" is a user outside of a run."""
        args: list[Arg] = [job_id, entry, kind, value]
        if entry and self.consumer:
            args.append(self.consumer)
        return text(await self.once("updateJob", args))

    async def await_job(self, job_id: str, channel: str) -> tuple[str, Record]:
        """Ask to be told on a reply channel when a job ends; returns its record if it has ended."""
        reply = cast("list[object]", await self._storage.call("awaitJob", self._base, [job_id, channel]))
        return text(reply[0]), record(reply[1]) if len(reply) > 1 else {}

    async def forget_reply(self, job_id: str, channel: str) -> None:
        """Take back `await_job`."""
        await self._storage.call("forgetReply", self._base, [job_id, channel])

    async def confirm_replies(self, channel: str, job_ids: Sequence[str]) -> None:
        """Report that a reply channel has received how these jobs ended: their records need not stay for it."""
        await self._storage.call("confirmReplies", self._base, [channel, *job_ids])

    async def set_paused(self, paused: bool) -> None:
        """Pause or resume claiming."""
        await self.once("setPaused", [int(paused)])

    async def is_paused(self) -> bool:
        """Return whether claiming is paused."""
        return await self.read("isPaused") == 1

    async def count_jobs(self) -> dict[str, int]:
        """Return the number of jobs in each state, computed from the structures."""
        return counts(await self.read("countJobs"))

    async def get_records(self, ids: Sequence[str]) -> list[Record]:
        """Return the record of each id, {} where there is none. At most 1,000 ids."""
        return await self.read_all("getRecords", ids)

    async def iter_records(self, ids: Sequence[str]) -> AsyncIterator[list[tuple[str, Record]]]:
        """Iterate over the records in the pieces in which the server answers them."""
        async for piece in self.pieces("getRecords", ids):
            yield [(job_id, record(flat)) for job_id, flat in piece]

    async def get_outlines(self, ids: Sequence[str]) -> list[Record]:
        """Return each record without its data, and their `size`; {} where there is none."""
        return await self.read_all("getOutlines", ids)

    async def get_heads(self, ids: Sequence[str]) -> list[Record]:
        """Return what is small of each record, and the `size` of its data; {} where there is none. At most 1,000."""
        return await self.read_all("getHeads", ids)

    async def list_jobs(self, state: str, cursor: str, count: int, *, backwards: bool = False) -> tuple[str, list[str]]:
        """Return a step of the ids in a state, and the cursor of the next step in this direction ("" after the last).

        Forwards is the order in which jobs start; ended ones come newest first.
        """
        cursor_bytes, ids = cast("list[object]", await self.read("listJobs", [state, cursor, count, int(backwards)]))
        return text(cursor_bytes), texts(ids)

    async def get_logs(self, job_id: str, start: int, stop: int) -> tuple[int, list[str]]:
        """Return the number of log lines of a job, and those from start to stop (inclusive, as LRANGE)."""
        found: list[str] = []
        while True:
            count, lines, following = cast("list[object]", await self.read("getLogs", [job_id, start, stop]))
            found += texts(lines)
            if not following:
                return cast("int", count), found
            if stop < 0:
                stop += cast("int", count)
            start = int(text(following))

    async def last_event(self) -> tuple[str, int]:
        """Return the last entry of the event stream and how many events were ever written."""
        entry, count = cast("list[object]", await self.read("lastEvent"))
        return text(entry), cast("int", count)

    async def check_places(self, structure: str, cursor: str, count: int) -> tuple[str, list[Finding]]:
        """Check one step of a structure's members; returns the next cursor and what is broken."""
        reply = cast("list[object]", await self.read("checkPlaces", [structure, cursor, count]))
        return text(reply[0]), _findings(reply[1])

    async def check_key(self, key: str) -> list[Finding]:
        """Check that the lines of one key agree with the records, and with its readiness."""
        return await self._walk("checkKey", [key])

    async def check_records(self, ids: Sequence[str]) -> list[Finding]:
        """Check that records stand where they say."""
        found: list[Finding] = []
        at = 0
        while at < len(ids):
            looked, findings = cast("list[object]", await self.read("checkRecords", list(ids[at:])))
            found += _findings(findings)
            at += cast("int", looked)
        return found

    async def check_queue(self) -> list[Finding]:
        """Check the marks beside the records, and that no job is both completed and failed."""
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
