"""What the model speaks of: a job, what is asked of a queue, and what a queue reports.

The rules themselves are in model.py (adding, claiming, ending) and upkeep.py (time, leases, recovery).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

State = Literal["waiting", "active", "delayed", "completed", "failed"]
Final = Literal["completed", "failed"]
FINAL: tuple[Final, Final] = ("completed", "failed")

Retention = tuple[int, int]
"""How many, and for how many ms; -1 = without limit."""
DEFAULT_RETENTION: dict[Final, Retention] = {"completed": (1_000, 86_400_000), "failed": (10_000, 2_592_000_000)}


class Event(NamedTuple):
    kind: str
    id: str
    detail: str = ""


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


class Settled(NamedTuple):
    """A run that ended. Verbs: c complete, f fail, r retry, d delay, b hand back."""

    verb: str
    id: str
    token: str
    payload: str = ""
    retention: Retention | None = None
    delay: int = 0
    reason: str = "error"


@dataclass
class Job:
    id: str
    name: str
    data: str
    lease: int | None  # the job's own; else the claiming worker's
    state: State = "waiting"
    line: int = 0  # its place in the line: grows with each entry into the line
    returned: bool = False  # came back unfinished: stands before the line, in the order of `line`
    due: int = 0
    expires: int | None = None  # must start before this
    # The present or last run.
    token: str = ""  # the lease, named by the server; "?" until it was seen
    worker: str = ""
    fence: int = 0
    lock: int = 0
    idle: int = 0  # age of the lease: since the claim or the last renewal
    revoking: bool = False
    # What was counted and written.
    failures: int = 0
    stalls: int = 0
    progress: str | None = None
    logs: list[str] = field(default_factory=list[str])
    # The end.
    ended: int | None = None
    result: str | None = None
    error: str | None = None
    reason: str | None = None
    waiters: list[str] = field(default_factory=list[str])
    held: int | None = None  # somebody may still read the result until then
    drop: bool = False  # kept only because it is held
    torn: bool = False  # its record was deleted by hand; its place is still there

    @property
    def over(self) -> bool:
        return self.state in FINAL
