"""The state, progress and log of a job as an async iterator."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, cast

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.functions.watching import UpdateRead
from glidemq_async.jobs.reply_codes import not_found
from glidemq_async.options.streams import StreamLimits
from glidemq_async.stored.record import FINAL, State


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """The `state` and the `progress` of a watched job at one moment, and the `log` lines since the last update.

    `missed_lines` is the number of log lines that were trimmed before the watcher has read them.
    """

    state: State
    progress: Any
    log: tuple[str, ...] = ()
    missed_lines: int = 0


async def watch_job(client: QueueClient, job_id: str) -> AsyncGenerator[JobUpdate]:
    """Iterate over the updates of a job; see `Job.watch`."""
    tail = client.tail  # raises in the process of a job
    await client.open()
    async with tail.listen(job_id) as feed:
        lines, last = 0, None
        while True:
            seen = feed.updates.count
            found = await tail.read_update(job_id, lines)
            if found.state in ("", "removed"):
                raise not_found("watch", job_id)
            is_over = found.state in FINAL
            if not is_over and not found.is_open:
                # From now on the server announces the changes of the job.
                await client.functions.streaming.follow(job_id, StreamLimits().ttl_ms)
                continue
            update = _update(client, job_id, found, lines)
            lines += len(update.log) + update.missed_lines
            if update.log or update.missed_lines or last != (update.state, found.progress):
                last = update.state, found.progress
                yield update
            if lines < found.total_lines:
                continue
            if is_over:
                return
            await feed.updates.wait(seen)


def _update(client: QueueClient, job_id: str, found: UpdateRead, lines: int) -> JobUpdate:
    progress = client.decode(found.progress, "progress", found.name, job_id) if found.progress else None
    missed = max(0, found.trimmed_lines - lines)
    return JobUpdate(cast("State", found.state), progress, tuple(found.lines), missed)
