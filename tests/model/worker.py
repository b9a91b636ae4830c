"""The state of a worker, and the wire forms of its requests and replies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import cast

import msgpack

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob, JobHistory
from glidemq_async.functions.outcomes import Delayed, Outcome, Retention, Suspended
from glidemq_async.functions.settle import SettleRequest
from glidemq_async.stored.hand_over import Waits
from tests.model.choices import SETTLE_STEP
from tests.model.compare import created, route
from tests.model.compare_dead_letters import decode_origin
from tests.model.parts import Job, NewJob, Settled
from tests.support.fake_worker import SettledRun, build_outcome, build_retention

DEFAULT_COST = 1_000


class Worker:
    """The state of a worker: its slots, and the leases that it believes to own."""

    def __init__(
        self, name: str, capacity: int, lock: int, *, listens: bool = True, accepts_pushes: bool = False
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.lock = lock
        self.listens = listens
        self.accepts_pushes = accepts_pushes
        self.pushed: dict[str, str] = {}  # lease -> job, of the jobs that were pushed since the last call
        self.has_push = False  # and have arrived
        self.registered = True  # may still be registered as idle
        self.channel = RequestChannel(name)
        self.held: dict[str, str] = {}  # lease -> job
        self.unanswered: Unanswered | None = None

    @property
    def free(self) -> int:
        return max(0, self.capacity - len(self.held))


class Unanswered:
    """A call whose reply the worker has not received yet."""

    def __init__(
        self, request: SettleRequest, refused: dict[int, str], settled: int, jobs: list[Job], slots: int
    ) -> None:
        self.request = request
        self.refused = refused
        self.settled = settled
        self.tokens = [job.token for job in jobs]
        self.free = slots - len(jobs)
        self.due: set[int] = {0}  # the possible times of the next claim


def add_request(job: NewJob) -> AddRequest:
    named: dict[str, object] = {"delay": job.delay, "at": job.at, "reply": job.reply, "ttl": job.ttl}
    named |= {"priority": job.priority or None, "lifo": job.lifo or None, "key": job.key}
    named |= {"cost": job.cost if job.cost != DEFAULT_COST else None}
    extra = {name: value for name, value in named.items() if value is not None}
    if job.dedup is not None:
        extra["dedup"] = {name: value for name, value in job.dedup._asdict().items() if value is not None}
    opts = {name: value for name, value in (("l", job.lease), ("r", job.result_ttl)) if value is not None}
    return AddRequest(
        job.id,
        job.name,
        job.data.encode(),
        msgpack.packb(opts) if opts else b"",
        packed_extra(extra),
    )


def packed_extra(extra: dict[str, object]) -> bytes:
    if extra.keys() == {"key"}:
        return f"k{extra['key']}".encode()
    return msgpack.packb(extra) if extra else b""


def settled_run(run: Settled) -> SettledRun:
    return SettledRun(run.id, run.token, _outcome(run), run.since or "", run.key, run.claimed_at)


def _parts(runs: Sequence[Settled]) -> tuple[list[list[Settled]], list[Settled]]:
    """Return the groups of completed runs, and the other runs."""
    groups = dict[tuple[object, ...], list[Settled]]()
    for run in runs:
        if run.group:
            groups.setdefault(run.group, []).append(run)
    return [*groups.values()], [run for run in runs if not run.group]


def in_groups(runs: Sequence[Settled]) -> list[Settled]:
    """Return the runs in the order in which the server settles them: the groups of completed runs first."""
    groups, others = _parts(runs)
    return [*chain.from_iterable(groups), *others]


def settled_early(runs: Sequence[Settled]) -> list[int]:
    """Return how many runs a call may settle that ends as early as possible.

    A step of a group ends with the group, and so does the call if a job of the step has a record or gets one. The other
    runs follow if the groups had fewer runs than one step.
    """
    groups, others = _parts(runs)
    settled, counts = 0, list[int]()
    for group in groups:
        settled += min(len(group), SETTLE_STEP)
        counts.append(settled)
        if settled >= SETTLE_STEP:
            return counts
    return [*counts, settled + min(len(others), SETTLE_STEP)]


def _outcome(run: Settled) -> Outcome:
    if run.code == "s":
        waits, timeout = Waits("", run.names, run.single).stored(), None if run.delay < 0 else run.delay
        return Suspended(waits, timeout, run.step, run.gives_back, is_warm=run.warm)
    if run.code == "d" and run.step:
        return Delayed(run.delay / 1000, run.payload, run.step)
    # A run that is delayed or rate-limited has its reason in the place of a payload.
    reason = run.payload if run.code in {"d", "l"} else run.reason
    payload, retention = run.payload.encode(), _retention(run)
    return build_outcome(run.code, payload, delay_ms=run.delay, cause=run.cause, reason=reason, retention=retention)


def _retention(run: Settled) -> Retention | None:
    if run.retention is None:
        return None if run.ttl is None else Retention(ttl_ms=run.ttl)
    return build_retention(*run.retention, run.ttl)


def claimed_fields(job: ClaimedJob) -> tuple[object, ...]:
    history = job.history or JobHistory(None)
    added, way, progress = (
        None if field is None else field.decode() for field in (history.added, history.route, history.progress)
    )
    since, origin = created(added, job.entry, way), decode_origin(history.origin) if history.origin else None
    counts = job.fence, history.failures, history.stalls
    handed = _handed(history.hand_over)
    return job.name, job.data.decode() or None, job.id, job.entry, counts, progress, since, route(way), origin, handed


def _handed(packed: bytes | None) -> list[str]:
    items = cast("list[bytes]", msgpack.unpackb(packed, raw=True)) if packed else [b"", b""]
    return [item.decode() for item in items]


def as_claimed(job: Job, since: int) -> tuple[object, ...]:
    counts = job.fence, job.failures, job.stalls
    handed = [*job.handed[:2], *(one.stored() for one in job.handed[2])]
    return job.name, job.data, job.id, job.token, counts, job.progress, since, job.route, job.origin, handed
