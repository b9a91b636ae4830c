"""Why a job failed for good, and where a dead letter comes from; stored as functions/dead_letters.lua tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, cast, get_args

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.errors import SerializationError

FailureCause: TypeAlias = Literal[
    "retries_exhausted", "unrecoverable", "stalled", "undelivered", "expired", "revoked", "malformed", "oversize"
]
CAUSES: frozenset[str] = frozenset(get_args(FailureCause))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where a job comes from that was moved to a dead-letter queue, and why it failed there."""

    queue: str
    job_id: str
    cause: FailureCause
    reason: str
    attempts_made: int
    failed_ms: int = field(repr=False)
    route: str = field(repr=False)
    """How it waits there when it is ready, as the store keeps it: functions/routes.lua."""

    @property
    def failed_at(self) -> datetime:
        """When it failed, by the clock of its own queue's server."""
        return from_ms(self.failed_ms)

    @classmethod
    def from_wire(cls, packed: bytes) -> DeadLetter:
        """Return what the server stored; raises SerializationError for anything else."""
        try:
            queue, job_id, cause, reason, made, failed_ms, route = cast("list[object]", msgpack.unpackb(packed))
            return cls(
                cast("str", queue),
                cast("str", job_id),
                cast("FailureCause", cause),
                cast("str", reason),
                int(cast("int", made)),
                int(cast("int", failed_ms)),
                cast("str", route),
            )
        except (TypeError, ValueError) as error:
            raise SerializationError(f"not a stored dead letter: {packed[:40]!r} ({error})") from error
