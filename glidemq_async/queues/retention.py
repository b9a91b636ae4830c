"""The retention of jobs that an operator holds. Server side: retention.lua."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidemq_async.functions.settings import Author
from glidemq_async.options.retention import KeepJobs, age_ms
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.queue import Queue


def stored_retention(keep: KeepJobs) -> str:
    """Return the stored form of a retention."""
    age = age_ms(keep)
    return f"{-1 if keep.count is None else keep.count} {-1 if age is None else age}"


async def hold_retention(queue: Queue[Any, Any], by: Author, held: Mapping[str, KeepJobs | None]) -> None:
    """Hold the retention of "keep_completed" and "keep_failed"; None releases a hold."""
    policies = {name: "" if keep is None else stored_retention(keep) for name, keep in held.items()}
    await queue.connect()
    await client_of(queue).functions.retention.set(by, policies)
