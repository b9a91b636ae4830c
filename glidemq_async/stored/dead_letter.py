"""The cause of a permanent failure and the origin of a dead letter, as stored by functions/dead_letters.lua."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import cast, get_args

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.errors import SerializationError
from glidemq_async.functions.outcomes import FailureCause

__all__ = ["CAUSES", "DeadLetter", "FailureCause"]

CAUSES: frozenset[str] = frozenset(get_args(FailureCause))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The origin of a job that was moved to a dead-letter queue, and the cause of its failure."""

    queue: str
    job_id: str
    cause: FailureCause
    reason: str
    attempts_made: int
    failed_ms: int = field(repr=False)
    route: str = field(repr=False)
    """The stored route by which the job waits when it is ready; see functions/routes.lua."""

    @property
    def failed_at(self) -> datetime:
        """The time of the failure, by the clock of the original queue's server."""
        return from_ms(self.failed_ms)

    @classmethod
    def from_wire(cls, packed: bytes) -> DeadLetter:
        """Decode the stored form. Raises SerializationError for other bytes."""
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
            raise SerializationError(f"the stored dead letter {packed[:40]!r} is invalid: {error}") from error
