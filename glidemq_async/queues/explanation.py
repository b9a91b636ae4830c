"""Explain why a job does not run: the conditions of a claim that hold it back. Server side: explain.lua."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, cast

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms
from glidemq_async.errors import JobNotFound
from glidemq_async.functions.explain import RECENT_SECONDS, StoredExplanation, StoredGate
from glidemq_async.queues.inspection import Inspection, WorkerInfo
from glidemq_async.stored.flow import JobRef
from glidemq_async.stored.names import check_id
from glidemq_async.stored.record import State

GateKind: TypeAlias = Literal[
    "paused",
    "key-paused",
    "key-busy",
    "window",
    "bucket",
    "queue-limit",
    "gate",
    "delayed",
    "expired",
    "children",
    "signal",
    "no-worker",
    "unknown-task",
    "no-version",
    "behind",
    "running",
    "ended",
]
OF_WORKERS: Final = frozenset({"no-worker", "unknown-task", "no-version"})
"""The gates that depend on the present workers. All others are conditions of the claim itself."""
_NEEDS_WORKER: Final = frozenset({"waiting", "prioritized", "key-waiting", "rate-limited", "delayed"})
_SHOWN: Final = 3
_SEP: Final = "\x1f"
_CHILD: Final = "\x1d"


@dataclass(frozen=True, slots=True)
class ClosedGate:
    """One reason why a job does not run.

    `kind` is one of GateKind, and `text` says it in words. `until` is the instant at which the gate opens by itself,
    `since` when it closed. `by` is the job, worker or person that holds the job back. `count` is the number that
    belongs to the kind: the jobs that start before this one ("behind"), the running jobs ("queue-limit", "key-busy"),
    the starts that the window allows ("window"), or the children that have not ended ("children").
    """

    kind: GateKind
    text: str
    until: datetime | None = None
    by: str | None = None
    since: datetime | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job does not run.

    `queue` and `job_id` name the job, and `state` is its state. `gates` are all gates that hold it back, in the order
    in which a claim meets them. The first one decides, and `summary` is one sentence about it.
    """

    queue: str
    job_id: str
    state: State
    gates: tuple[ClosedGate, ...]
    summary: str

    @property
    def is_next(self) -> bool:
        """True if the next claim of a worker with a free slot starts the job, provided that it knows the task."""
        return not [gate for gate in self.gates if gate.kind not in OF_WORKERS]


class Explaining(Inspection[Data, Result]):
    """The method of Queue that explains why a job does not run."""

    async def explain(self, job_id: str) -> Explanation:
        """Return why a job does not run: the conditions of a claim that it does not meet, and the workers it lacks.

        The server evaluates the conditions with the functions that claims use, at one instant. The number of jobs
        before this one is an estimate, except for zero: then the gate "behind" is missing. A delayed job whose time has
        come stays "delayed" until a worker calls, which takes some milliseconds.

        Raises JobNotFound.
        """
        check_id("job_id", job_id)
        await self.connect()
        found = await self._client.functions.explain.job(job_id)
        if not found.state:
            raise JobNotFound(f"queue {self.name!r} has no job {job_id!r}: it was removed, or never added")
        gates = [_GATES[gate.kind](gate, found) for gate in found.gates]
        if found.state == "waiting-children":
            gates = [await self._children(job_id)]
        if found.state in _NEEDS_WORKER:
            lacking = _lacking(found.name, await self.get_workers())
            at = len([gate for gate in gates[:2] if gate.kind in {"delayed", "paused"}])
            gates[at:at] = lacking
        return Explanation(self.name, job_id, cast("State", found.state), tuple(gates), _summary(job_id, gates))

    async def _children(self, job_id: str) -> ClosedGate:
        job = await self.get_job(job_id)
        pending: tuple[JobRef, ...] = ()
        with suppress(JobNotFound):  # the plan of the flow was removed by hand
            pending = () if job is None else (await job.get_dependencies()).pending
        names = [f"{ref.job_id} of queue {ref.queue!r}" for ref in pending[:_SHOWN]]
        more = f" and {len(pending) - _SHOWN} more" if len(pending) > _SHOWN else ""
        text = f"waits for {_counted(len(pending), 'child job', 'child jobs')}: {', '.join(names)}{more}"
        return ClosedGate("children", text, by=pending[0].job_id if pending else None, count=len(pending))


def _lacking(name: str, workers: Sequence[WorkerInfo]) -> list[ClosedGate]:
    """Return the gate of a job for which no present worker has a free slot and its task."""
    if not workers:
        return [ClosedGate("no-worker", "waits for a worker: none of the queue is running", count=0)]
    knowing = [worker for worker in workers if worker.tasks is None or name in worker.tasks]
    if not knowing:
        return [_unknown(name, workers)]
    taking = [worker for worker in knowing if worker.state == "running"]
    if not taking:
        return [
            ClosedGate(
                "no-worker", f"waits for a worker: {_counted(len(knowing), 'is', 'are')} paused or stopping", count=0
            )
        ]
    if all(worker.running >= worker.slots for worker in taking):
        slots, of = sum(worker.slots for worker in taking), _counted(len(taking), "worker", "workers")
        return [
            ClosedGate("no-worker", f"waits for a free slot: all {slots} slots of {of} are occupied", count=len(taking))
        ]
    return []


def _unknown(name: str, workers: Sequence[WorkerInfo]) -> ClosedGate:
    plain = name.partition("@")[0]
    known = {task for worker in workers for task in worker.tasks or ()}
    others = sorted(task for task in known if task.partition("@")[0] == plain)
    of = _counted(len(workers), "worker", "workers")
    if others:
        text = f"waits for a worker with task {name!r}: {of} of the queue have {', '.join(others[:_SHOWN])}"
        return ClosedGate("no-version", text, count=len(workers))
    return ClosedGate(
        "unknown-task", f"waits for a worker with task {name!r}: {of} of the queue do not know it", count=0
    )


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _at(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def _instant(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)


def _gate(kind: GateKind, text: str, stored: StoredGate) -> ClosedGate:
    return ClosedGate(kind, text, _instant(stored.until), stored.by or None, _instant(stored.since), stored.total)


def without_error(found: Explanation) -> Explanation:
    """Return an explanation without the error of a failed job."""
    # The text of an ended job is "failed at <time>: <error>", and only the error can contain ": ".
    return _shortened(found, "ended")


def without_children(found: Explanation) -> Explanation:
    """Return an explanation that counts the children for which a job waits, and does not name them."""
    return _shortened(found, "children", by=None)


def _shortened(found: Explanation, kind: GateKind, **changes: Any) -> Explanation:
    """Return an explanation whose gates of a kind have the text before the first colon, and these changes."""
    gates = tuple(
        replace(each, text=each.text.partition(": ")[0], **changes) if each.kind == kind else each
        for each in found.gates
    )
    return replace(found, gates=gates, summary=_summary(found.job_id, gates))


def _summary(job_id: str, gates: Sequence[ClosedGate]) -> str:
    return f"Job {job_id} {gates[0].text if gates else 'starts with the next claim of a worker'}."


def _ended(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    state, reason = stored.detail.split(" ", 1)
    because = f": {reason}" if reason else ""
    return _gate("ended", f"{state} at {_at(_instant(stored.since))}{because}", stored)


def _running(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    revoked = "; it was revoked and is about to stop" if stored.detail else ""
    by = f" on worker {stored.by}" if stored.by else ""
    return _gate("running", f"runs{by} since {_at(_instant(stored.since))}{revoked}", stored)


def _signal(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    kind, *names = stored.detail.split(_SEP)
    wanted = " or ".join(repr(name) for name in names if name != _CHILD)
    parts = [f"a signal {wanted}" if wanted else ""] if kind[:1] in "nN" else ["any signal"]
    if _CHILD in names:
        parts.append("the end of a child job")
    waits = " or ".join(part for part in parts if part)
    until = _instant(stored.until)
    waits_for = f" for {waits}" if waits else ""
    return _gate("signal", f"is suspended{waits_for}" + (f" until {_at(until)}" if until else ""), stored)


def _delayed(stored: StoredGate, found: StoredExplanation) -> ClosedGate:
    if stored.detail == "follows":
        return _gate("delayed", "waits for the end of the job that owns its deduplication id", stored)
    at = _at(_instant(stored.until))
    if stored.until is not None and stored.until <= found.now:
        return _gate("delayed", f"is due since {at} and enters the queue with the next call of a worker", stored)
    return _gate(
        "delayed", f"waits for its next attempt at {at}" if stored.detail else f"is delayed until {at}", stored
    )


def _expired(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    return _gate("expired", f"expired at {_at(_instant(stored.since))} and fails with the next claim", stored)


def _paused(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    until, since = _instant(stored.until), _instant(stored.since)
    by = f" by {stored.by}" if stored.by else ""
    began, ends = f" since {_at(since)}" if since else "", f" until {_at(until)}" if until else ""
    note = f" ({stored.detail})" if stored.detail else ""
    return _gate("paused", f"waits because the queue is paused{by}{began}{ends}{note}", stored)


def _limited(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    until = _at(_instant(stored.until))
    return _gate("gate", f"waits because a handler raised RateLimited: the queue starts nothing until {until}", stored)


def _window(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    of = f"key {stored.by!r}" if stored.detail == "key" else "the queue"
    starts = _counted(stored.total or 0, "start", "starts")
    text = (
        f"waits for the rate limit of {of} ({starts}), which lets the next job start at {_at(_instant(stored.until))}"
    )
    return _gate("window", text, stored)


def _queue_limit(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    return _gate(
        "queue-limit", f"waits because {stored.total} of {stored.detail} allowed jobs of the queue run", stored
    )


def _key_paused(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    until = _at(_instant(stored.until))
    return _gate("key-paused", f"waits because key {stored.detail!r} is paused until {until}", stored)


def _key_busy(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    key, by, count = stored.detail, stored.by, stored.total or 0
    if stored.until is not None:
        text = f"waits because job {by} of key {key!r} waits for its next attempt at {_at(_instant(stored.until))}"
    elif by and count == 1:
        text = f"waits because job {by} of key {key!r} runs since {_at(_instant(stored.since))}"
    else:
        text = f"waits because {_counted(count, 'job', 'jobs')} of key {key!r} run"
    return _gate("key-busy", text, stored)


def _bucket(stored: StoredGate, _: StoredExplanation) -> ClosedGate:
    at = _at(_instant(stored.until))
    return _gate(
        "bucket", f"waits for the token bucket of key {stored.detail!r}, which has enough tokens at {at}", stored
    )


def _behind(stored: StoredGate, found: StoredExplanation) -> ClosedGate:
    count = stored.total or 0
    text = f"waits for its turn: about {_counted(count, 'job starts', 'jobs start')} before it"
    if found.ended:
        text += f", which takes about {_counted(round(count * RECENT_SECONDS / found.ended), 'second', 'seconds')}"
    return _gate("behind", text, stored)


_GATES: Final[dict[str, Callable[[StoredGate, StoredExplanation], ClosedGate]]] = {
    "ended": _ended,
    "running": _running,
    "signal": _signal,
    "children": lambda stored, _: _gate("children", "waits for its children", stored),
    "delayed": _delayed,
    "expired": _expired,
    "paused": _paused,
    "gate": _limited,
    "window": _window,
    "queue-limit": _queue_limit,
    "key-paused": _key_paused,
    "key-busy": _key_busy,
    "bucket": _bucket,
    "behind": _behind,
}
