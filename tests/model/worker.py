"""What a worker knows, and the wire forms of what goes to the server and comes back."""

from __future__ import annotations

import msgpack

from glidemq_async.functions.callers import AddRequest, Arg, ClaimedJob, Lane, SettleRequest
from tests.model.compare import created, route
from tests.model.compare_letters import letter
from tests.model.parts import Job, NewJob, Settled

DEFAULT_COST = 1_000


class Worker:
    """What a worker knows: its slots, and the leases it holds (or thinks it holds)."""

    def __init__(self, name: str, capacity: int, lock: int, *, listens: bool = True) -> None:
        self.name = name
        self.capacity = capacity
        self.lock = lock
        self.listens = listens
        self.registered = True  # may still be noted as idle
        self.lane = Lane(name)
        self.held: dict[str, str] = {}  # lease -> job
        self.unanswered: Unanswered | None = None

    @property
    def flags(self) -> str:
        return ("" if self.listens else "u") + ("i" if self.registered else "")

    @property
    def free(self) -> int:
        return max(0, self.capacity - len(self.held))


class Unanswered:
    """A call whose answer the worker has not received yet."""

    def __init__(self, request: SettleRequest, refused: dict[int, str], jobs: list[Job], slots: int) -> None:
        self.request = request
        self.refused = refused
        self.tokens = [job.token for job in jobs]
        self.free = slots - len(jobs)
        self.due: set[int] = {0}  # when to claim again: what may be answered


def add_request(job: NewJob) -> AddRequest:
    named: dict[str, object] = {"delay": job.delay, "at": job.at, "ttl": job.ttl, "reply": job.reply}
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


def run_args(run: Settled) -> list[Arg]:
    policy = "" if run.retention is None else f"{run.retention[0]} {run.retention[1]}"
    policy += "" if run.ttl is None else f" t{run.ttl}"
    option = {
        "c": policy,
        "f": f"{policy};{run.cause};{run.reason}",
        "r": f"{run.delay} {run.reason}",
        "d": str(run.delay),
        "l": str(run.delay),
        "b": "",
    }
    return [run.verb, run.id, run.token, run.payload, option[run.verb]]


def claimed_fields(fields: ClaimedJob) -> tuple[object, ...]:
    name, data, _, fence, id_, entry, *history = [value.decode(errors="replace") if value else None for value in fields]
    if len(history) == 1:
        history = [None, None, None, None, *history, None]
    failures, stalls, added, progress, way, _ = history or [None] * 6
    since, origin = created(added, entry or "", way), letter(fields[11]) if len(fields) > 11 and fields[11] else None
    counts = int(fence or 0), int(failures or 0), int(stalls or 0)
    return name, data, id_, entry, counts, progress, since, route(way), origin


def as_claimed(job: Job, since: int) -> tuple[object, ...]:
    counts = job.fence, job.failures, job.stalls
    return job.name, job.data, job.id, job.token, counts, job.progress, since, job.route, job.origin
