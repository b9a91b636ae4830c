"""The cause of a permanent failure and the origin of a dead letter, as stored by functions/dead_letters.lua."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import cast, get_args

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.errors import SerializationError
from glidemq_async.functions.outcomes import FailureCause

__all__ = ["CAUSES", "DeadLetter", "FailureCause", "read_dead_letter"]

CAUSES: frozenset[str] = frozenset(get_args(FailureCause))


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The origin of a job that was moved to a dead-letter queue, and the cause of its failure.

    `queue` and `job_id` name the job that failed. `cause` and `reason` explain the failure, and `attempts_made` is the
    number of its attempts. `failed_at` is the time of the failure, by the clock of the original queue's server.
    """

    queue: str
    job_id: str
    cause: FailureCause
    reason: str
    attempts_made: int
    failed_at: datetime


def read_dead_letter(packed: bytes) -> tuple[DeadLetter, str]:
    """Decode a stored dead letter: its origin, and the stored route by which the job waits when it is ready.

    functions/routes.lua describes the route. Raises SerializationError for other bytes.
    """
    try:
        queue, job_id, cause, reason, made, failed_at, route = cast("list[object]", msgpack.unpackb(packed))
        origin = DeadLetter(
            cast("str", queue),
            cast("str", job_id),
            cast("FailureCause", cause),
            cast("str", reason),
            int(cast("int", made)),
            from_ms(int(cast("int", failed_at))),
        )
        return origin, cast("str", route)
    except (TypeError, ValueError, OverflowError) as error:
        raise SerializationError(f"the stored dead letter {packed[:40]!r} is invalid: {error}") from error
