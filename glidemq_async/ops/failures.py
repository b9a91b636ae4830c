"""Groups of failures over all queues, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glidemq_async.queues.failures import FailureGroup
from glidemq_async.queues.queue import Queue

__all__ = ["FailureGroup", "read_failures"]


async def read_failures(queues: Sequence[Queue[Any, Any]], fingerprint: str | None = None) -> list[FailureGroup]:
    """Return the groups of these queues, the one that failed last first; with a fingerprint only those that have it."""
    found = [group for queue in queues for group in await queue.get_failure_groups()]
    if fingerprint is not None:
        found = [group for group in found if group.fingerprint == fingerprint]
    return sorted(found, key=lambda group: group.last_at, reverse=True)
