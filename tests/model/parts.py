"""The values of the model: a job, the requests of clients, and the events of a queue.

The rules are in lines.py (waiting, keys, limits), model.py (adding, ending, users), claims.py (the choice of claims)
and upkeep.py (time, leases, stalls).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tests.model.suspending import Sent

State = Literal["waiting", "prioritized", "key-waiting", "active", "delayed", "suspended", "completed", "failed"]
Final = Literal["completed", "failed"]
FINAL: tuple[Final, Final] = ("completed", "failed")
READY: tuple[State, ...] = ("waiting", "prioritized", "key-waiting")
"""The states of a job that waits for its claim."""

Retention = tuple[int, int]
"""Keep this many jobs, for this many ms; -1 = no limit."""
DEFAULT_RETENTION: dict[Final, Retention] = {"completed": (1_000, 86_400_000), "failed": (10_000, 2_592_000_000)}


class Event(NamedTuple):
    kind: str
    id: str
    detail: str = ""
    content: str = ""
    """The name and the key of the job, and the size or the value of its result or progress, joined by "|"."""


class Origin(NamedTuple):
    """The origin of a dead letter and the cause of its failure."""

    queue: str
    id: str
    cause: str
    reason: str
    attempts: int
    failed: int
    route: tuple[object, ...]  # how the job waited there


class Dedup(NamedTuple):
    """A deduplication: several adds with this id store one job."""

    id: str
    mode: Literal["simple", "throttle", "debounce", "keep_last"]
    ttl: int | None = None


class NewJob(NamedTuple):
    """A request of `add`. An empty id asks for a generated one."""

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

    @property
    def is_plain(self) -> bool:
        """True if the job needs no record, see functions/plain.lua."""
        return self == NewJob(
            name=self.name,
            data=self.data,
            lease=self.lease,
            ttl=self.ttl,
            reply=self.reply,
            result_ttl=self.result_ttl,
        )

    def __repr__(self) -> str:
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        return f"NewJob({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class Settled(NamedTuple):
    """A run that ended.

    Outcome codes: c completed, f failed, r retry, d delayed, b released, l rate-limited, s suspended. The delay of a
    suspended job is its timeout, -1 without one.
    """

    code: str
    id: str
    token: str
    payload: str = ""
    retention: Retention | None = None
    delay: int = 0
    reason: str = "error"
    cause: str = "retries_exhausted"
    ttl: int | None = None  # the record stays for exactly this time, whatever the retention
    step: str = ""  # of a run that is delayed or suspended
    names: tuple[str, ...] | None = None  # the signals that a suspended job waits for, None: any
    single: bool = False  # and it takes one of them
    gives_back: bool = False  # and the signals that its runs have got return to the mailbox
    warm: bool = False  # and the worker keeps the function of the run
    since: int | None = None  # when the run began, of a job that was plain when its worker claimed it
    key: str | None = None  # the ordering key if the worker sends it
    claimed_at: int | None = None  # when the run of a job that is not plain began, if the worker sends it

    @property
    def group(self) -> tuple[object, ...] | None:
        """The group of completed runs in which the run is sent, None if it is sent by itself.

        The first value is `since` for a job that was plain, and otherwise the prefix of the lease.
        """
        prefix = self.token[:1]
        if self.code != "c" or (self.since is None and prefix != "l" and (prefix != "k" or self.key is None)):
            return None
        return (prefix if self.since is None else self.since), self.retention, self.ttl


@dataclass
class StoppingRun:
    """A run whose job was removed. Until its end is reported or its lease expires it counts under the limits."""

    key: str | None
    worker: str
    lock: int
    idle: int


@dataclass(eq=False)
class Job:
    id: str
    name: str
    data: str
    lease: int | None  # the job's own policy, or the policy of the worker that claimed it
    priority: int = 0
    lifo: bool = False
    key: str | None = None
    cost: int = 1_000
    result_ttl: int | None = None  # of an end by the queue itself
    dedup: tuple[int, str] | None = None  # the deduplication id that it owns or owned, and the end of its time
    after: tuple[str, int] = ("+", 0)  # of a job that follows another one: its due time after the end of that job
    ending: bool = False  # its run is being settled for good
    state: State = "waiting"
    line: int = 0  # its position in the line; it grows with each entry into the line
    key_position: int = 0  # its position in its key's line, kept after a release; 0: none yet
    returned: bool = False  # released: waits before all other jobs of the line
    is_from_elsewhere: bool = False  # its last run did not begin in the stream
    resting: bool = False  # waits for its next attempt, and keeps its position in its key's line
    due: int = 0
    changes: int = 0  # how often it was moved: changed or restarted
    expires: int | None = None  # must start before this time
    # The present or last run.
    token: str = ""  # the lease, named by the server; "?" until the test has seen it
    stream: str = "p"  # the stream of the run
    plain: bool = False  # it has no record, see functions/plain.lua
    worker: str = ""
    fence: int = 0
    lock: int = 0
    idle: int = 0  # age of the lease: since the claim or the last renewal
    claimed: int = 0  # time of the claim
    renewed: bool = False  # since the claim
    revoking: bool = False
    # Counters and written data.
    failures: int = 0
    stalls: int = 0
    undelivered: int = 0  # claims whose reply a live worker did not receive
    progress: str | None = None
    progress_at: int | None = None  # the time of the last event of progress, if the rules of events have an interval
    logs: list[str] = field(default_factory=list[str])
    chunks: list[tuple[int, str]] | None = None  # the run and the payload of each; None: it has no stream
    waits_for: tuple[str, ...] | None = None  # the signals that the suspended job waits for
    warm: str = ""  # the worker that keeps the function of the suspended job
    mailbox: list[Sent] = field(default_factory=list["Sent"])
    handed: tuple[str, str, list[Sent]] = ("", "", [])  # how it was resumed, its step, and its signals
    steps: dict[str, str] | None = None  # the values of recorded steps by identity; None: it has no journal
    requeued: int = 0  # the fencing token of the last run before the job was requeued with its journal
    # The end.
    ended: int | None = None
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    cause: str | None = None  # the cause of the final failure
    origin: Origin | None = None  # it was moved here
    moved: int | None = None  # of a moved job that has not ended: the time of its failure there
    waiters: list[str] = field(default_factory=list[str])  # channels that wait for the result
    held: int | None = None  # a client may still read the result until then
    drop: Literal["", "1", "t"] = ""  # it is removed when no client can be reading it
    position: int = 0  # sort key among the ended jobs: its end, or the end of its time to live
    record_lost: bool = False  # its record was deleted by hand; its location still has it

    @property
    def over(self) -> bool:
        return self.state in FINAL

    @property
    def waits(self) -> bool:
        return self.state in READY

    @property
    def route(self) -> tuple[object, ...]:
        """Describe how the job waits."""
        if self.key is not None:
            return "k", self.priority, self.cost, self.key
        return ("p", self.priority) if self.priority else ("l",) if self.lifo else ()

    @property
    def line_name(self) -> str:
        """Return the line in which a waiting job is. Claims take the head of each line."""
        if self.key is not None:
            return f"key {self.key}"
        if self.returned:
            return "returned from another structure" if self.is_from_elsewhere else "returned from the line"
        return "prioritized" if self.priority else "lifo" if self.lifo else "plain"
