"""The inputs of `add_bulk`, and the outcome of each of them if one of its calls fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import cast

from glidemq_async.errors import BulkOutcome, GlideMQError, StorageUnavailable
from glidemq_async.queues.add_buffer import Added


def check_input(item: object) -> None:
    """Raise TypeError if this is not one job of `add_bulk`."""
    if not isinstance(item, (tuple, list)) or not 2 <= len(cast("Sequence[object]", item)) <= 3:
        raise TypeError(f"each job to add must be (name, data) or (name, data, JobOptions), got {item!r}")


async def wait_for_parts(futures: Sequence[asyncio.Future[Added]]) -> list[Added]:
    """Return the reply of every part. Waits for all of them, then raises the first error."""
    # `asyncio.wait` and not `gather`: the other jobs must not be abandoned when one call fails, because the outcome of
    # each is part of the error.
    if futures:
        await asyncio.wait(futures)
    parts = [future.result() for future in futures]
    if any(part.errors for part in parts):
        raise _bulk_error(parts)
    return parts


def _bulk_error(parts: Sequence[Added]) -> BaseException:
    """Return the first error of a bulk. An error of this library lists the outcome of each input."""
    outcomes: list[str | BaseException] = []
    for part in parts:
        ids = part.ids or [""] * len(part.errors)
        outcomes += [part.errors.get(position, job_id) for position, job_id in enumerate(ids)]
    errors = {position: error for position, error in enumerate(outcomes) if isinstance(error, BaseException)}
    first = next(iter(errors.values()))
    if not isinstance(first, GlideMQError):
        return first
    # Other callers that shared the call get the same exception. Raise a copy, because `bulk` differs for each.
    raised = copy(first)
    raised.bulk = BulkOutcome(
        {position: job_id for position, job_id in enumerate(outcomes) if isinstance(job_id, str)},
        tuple(position for position, error in errors.items() if not isinstance(error, StorageUnavailable)),
        tuple(position for position, error in errors.items() if isinstance(error, StorageUnavailable)),
    )
    raised.add_note(str(raised.bulk))
    raised.__cause__ = first
    return raised
