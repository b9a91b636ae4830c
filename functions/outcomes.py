"""The outcomes of runs as types. settle.py encodes them for the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FailureCause: TypeAlias = Literal[
    "retries_exhausted",
    "unrecoverable",
    "stalled",
    "undelivered",
    "expired",
    "revoked",
    "malformed",
    "oversize",
    "child_failed",
    "diverged",
]


@dataclass(frozen=True, slots=True)
class Retention:
    """The number and the age of the other ended jobs that the queue keeps. None means no limit.

    `ttl_ms` keeps this job's record for exactly that time instead.
    """

    count: int | None = None
    age_ms: int | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned a result. Without a retention the queue's default applies."""

    result: bytes
    retention: Retention | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job has failed for good. `error` is the packed failure, b"" for a revoked job."""

    error: bytes
    cause: FailureCause
    reason: str
    retention: Retention | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt has failed, and the job runs again after `delay` seconds. `error` is the packed failure."""

    error: bytes
    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class Delayed:
    """The job runs again after `delay` seconds, and no attempt is counted. The reason may be empty.

    `due_ms` is the instant instead, by the server's clock. `step` names the part of the handler that runs next.
    """

    delay: float
    reason: str = ""
    step: str = ""
    due_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Suspended:
    """The job runs again when it gets a signal, and no attempt is counted. `waits` is in its stored form.

    With `gives_back`, the signals that the runs of the job have got return to its mailbox. `known_ends` is the number
    of ended children that the run knows: the job also runs again when more of them have ended. None does not wait for
    children. With `is_warm`, the worker keeps the function of the run in memory, and gets the next run if it is idle.
    """

    waits: str
    timeout_ms: int | None
    step: str = ""
    gives_back: bool = False
    known_ends: int | None = None
    is_warm: bool = False


@dataclass(frozen=True, slots=True)
class RateLimited:
    """Like Delayed. In addition the job's key, or the queue of a job without one, starts nothing before that time."""

    delay: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """The job was not run to its end. It returns to the queue, and no attempt is counted."""


@dataclass(frozen=True, slots=True)
class WaitsForChildren:
    """The job runs again when the children that it has added have ended, and no attempt is counted."""


# The effects of each outcome besides the new location of the job:
# - Completed and Failed end the job. Only they have a retention.
# - Retry adds one to `failures`. The worker sends it only while attempts are left; the server does not count them.
# - Delayed, Suspended, RateLimited, WaitsForChildren and Released count nothing: the handler did not fail.
# - A lost lease has no outcome. The sweep adds one to `stalls` instead, because the worker may be dead.
Outcome: TypeAlias = Completed | Failed | Retry | Delayed | Suspended | RateLimited | WaitsForChildren | Released
