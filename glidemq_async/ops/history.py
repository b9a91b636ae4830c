"""The history of a job, and the notes about what operators did with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glidemq_async.ops.actor import Actor
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.job_history import HistoryEntry
from glidemq_async.queues.queue import Queue

__all__ = ["HistoryEntry", "note_action"]


async def note_action(
    queue: Queue[Any, Any], job_ids: Sequence[str], actor: Actor, action: str, reason: str = ""
) -> int:
    """Add an action to the histories of these jobs, in steps of 200 jobs. Return how many of them exist.

    The changes of single jobs and bulk operations do this themselves. Call it after a change of your own.
    """
    await queue.connect()
    return await client_of(queue).functions.job_history.note_action(job_ids, actor.label, action, reason)
