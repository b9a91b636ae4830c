"""What the model speaks of: a job, what is asked of a queue, and what a queue reports.

The rules themselves are in lines.py (waiting, keys, limits), model.py (adding, ending, users), claims.py (what a claim
may answer) and upkeep.py (time, leases, recovery).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

State = Literal["waiting", "prioritized", "key-waiting", "active", "delayed", "completed", "failed"]
Final = Literal["completed", "failed"]
FINAL: tuple[Final, Final] = ("completed", "failed")
READY: tuple[State, ...] = ("waiting", "prioritized", "key-waiting")
"""The states of a job that waits for its claim."""

Retention = tuple[int, int]
"""How many, and for how many ms; -1 = without limit."""
DEFAULT_RETENTION: dict[Final, Retention] = {"completed": (1_000, 86_400_000), "failed": (10_000, 2_592_000_000)}


class Event(NamedTuple):
    kind: str
    id: str
    detail: str = ""


class Letter(NamedTuple):
    """Where a dead letter comes from, and why it failed there."""

    queue: str
    id: str
    cause: str
    reason: str
    attempts: int
    failed: int
    route: tuple[object, ...]  # how it waited there


class Dedup(NamedTuple):
    """Of several adds with this id, one job."""

    id: str
    mode: Literal["simple", "throttle", "debounce", "keep_last"]
    ttl: int | None = None


class NewJob(NamedTuple):
    """What is asked of `add`; id "" asks for a generated one."""

    id: str = ""
    name: str = "n"
    data: str = "d"
    lease: int | None = None
    delay: int | None = None
    at: int | None = None
    ttl: int | None = None
    reply: str | None = None
    priority: int = 0
    lifo: bool = False
    key: str | None = None
    cost: int = 1_000  # thousandths of a token
    dedup: Dedup | None = None
    result_ttl: int | None = None

    def __repr__(self) -> str:
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        return f"NewJob({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class Settled(NamedTuple):
    """A run that ended. Verbs: c complete, f fail, r retry, d delay, b hand back, l limited."""

    verb: str
    id: str
    token: str
    payload: str = ""
    retention: Retention | None = None
    delay: int = 0
    reason: str = "error"
    cause: str = "retries_exhausted"
    ttl: int | None = None  # the record stays exactly so long, whatever the retention


@dataclass(eq=False)
class Job:
    id: str
    name: str
    data: str
    lease: int | None  # the job's own; else the claiming worker's
    priority: int = 0
    lifo: bool = False
    key: str | None = None
    cost: int = 1_000
    result_ttl: int | None = None  # of an end by the queue itself
    dedup: tuple[int, str] | None = None  # the deduplication id that it owns or owned, and the instant that ends
    after: tuple[str, int] = ("+", 0)  # of one that follows another job: when it is due once that has ended
    ending: bool = False  # its run is being settled for good
    state: State = "waiting"
    line: int = 0  # its place in the line: grows with each entry into the line
    seat: int = 0  # its place in its key's line, kept when it comes back; 0: none yet
    returned: bool = False  # came back unfinished: stands before the line
    laned: bool = False  # its last run did not begin in the plain line
    resting: bool = False  # waits for its next attempt, and keeps its place in its key's line
    due: int = 0
    changes: int = 0  # how often somebody put it elsewhere: it was changed, or started anew
    expires: int | None = None  # must start before this
    # The present or last run.
    token: str = ""  # the lease, named by the server; "?" until it was seen
    letter: str = "s"  # where the run stands
    worker: str = ""
    fence: int = 0
    lock: int = 0
    idle: int = 0  # age of the lease: since the claim or the last renewal
    claimed: int = 0  # when
    renewed: bool = False  # since the claim
    revoking: bool = False
    # What was counted and written.
    failures: int = 0
    stalls: int = 0
    undelivered: int = 0  # claims whose reply a worker that lives did not receive
    progress: str | None = None
    logs: list[str] = field(default_factory=list[str])
    # The end.
    ended: int | None = None
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    cause: str | None = None  # why it failed for good
    origin: Letter | None = None  # it was moved here
    moved: int | None = None  # a moved one that has not ended: when it failed there
    waiters: list[str] = field(default_factory=list[str])  # channels; of an ended job those without the answer
    held: int | None = None  # somebody may still read the result until then
    drop: Literal["", "1", "t"] = ""  # it goes when its hold ends: nothing else keeps it; or it has a time to live
    position: int = 0  # among those that ended: when it did, or when its time to live ends
    torn: bool = False  # its record was deleted by hand; its place is still there

    @property
    def over(self) -> bool:
        return self.state in FINAL

    @property
    def waits(self) -> bool:
        return self.state in READY

    @property
    def route(self) -> tuple[object, ...]:
        """How it waits."""
        if self.key is not None:
            return "k", self.priority, self.cost, self.key
        return ("p", self.priority) if self.priority else ("l",) if self.lifo else ()

    @property
    def line_name(self) -> str:
        """The line in which a job that waits stands: each is claimed from its head."""
        if self.key is not None:
            return f"key {self.key}"
        if self.returned:
            return "back from the lane" if self.laned else "back from the line"
        return "prioritized" if self.priority else "lifo" if self.lifo else "plain"
