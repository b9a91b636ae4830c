"""Removing and retrying jobs, one or many, in bounded steps, and how long a result stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import to_ms
from glidemq_async.errors import QueueBusy
from glidemq_async.jobs.job import Job
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.inspection import Inspection
from glidemq_async.queues.integrity import SINGLE_KEYS, scan_keys
from glidemq_async.stored.names import check_id
from glidemq_async.stored.record import FINAL

CleanState: TypeAlias = Literal["completed", "failed", "waiting", "prioritized", "key-waiting", "delayed"]
SWEPT_AT_ONCE: Final = 200
"""Keys of single names that one call removes after a queue was obliterated."""


class Cleaning(Inspection[Data, Result]):
    """The methods of Queue that remove jobs, start them anew, or change how long a result stays (`update_result_ttl`).

    Those for many jobs work in steps of some milliseconds of the server's time and let others in between, however
    many jobs there are. One that is cut off has done a part; calling it again does the rest.
    """

    async def revoke(self, job_id: str, reason: str | None = None) -> bool:
        """Make sure a job does not run to its end; see `Job.revoke`.

        Raises JobNotFound, JobStateError, TypeError or ValueError for a bad reason.
        """
        check_id("job_id", job_id)
        await self.connect()
        return await Job[Data, Result](self._client, job_id, "").revoke(reason)

    async def remove(self, job_id: str) -> bool:
        """Delete a job; returns whether there was one."""
        check_id("job_id", job_id)
        await self.connect()
        return await self._client.functions.change_job("removeJob", job_id) == "ok"

    async def release_deduplication(self, deduplication_id: str) -> bool:
        """Let the next add with this deduplication id make a new job, although the owner has not ended.

        The owner goes on. With mode "keep_last" the job that waits for the owner's end may start. Returns whether a job
        owned the id.
        """
        check_id("deduplication_id", deduplication_id)
        await self.connect()
        return await self._client.functions.release_deduplication(deduplication_id)

    async def drain(self, delayed: bool = False) -> int:
        """Remove the jobs that wait, with `delayed=True` the delayed ones too; returns how many.

        Running jobs go on. No job that waits when this is called is there when it returns, unless a worker claimed
        it before it was reached; jobs added meanwhile may stay. Who waits for the result of a removed job gets
        JobNotFound. One event, `drained`, tells the number at the end.
        """
        _check_flag("delayed", delayed)
        await self.connect()
        removed, cursor = 0, ""
        while True:
            cursor, count = await self._client.functions.drain_jobs(cursor, delayed=delayed)
            removed += count
            if not cursor:
                return removed

    async def clean(
        self,
        grace: float | timedelta = 0,
        limit: int = 1_000,
        state: CleanState = "completed",
    ) -> list[str]:
        """Remove jobs in `state` that are at least `grace` seconds old, at most `limit`; returns their ids.

        Ended jobs (completed, failed) count from their end, the oldest first. A result with a time to live of its own
        (`result_ttl`) stays until that is over. Jobs that wait (waiting, prioritized, key-waiting with the rate-limited
        ones, delayed) count from their add, in the order in which they would start. Whoever waits for the result of
        such a job gets JobNotFound. One event, `cleaned`, has the number of removed jobs.
        """
        if state not in get_args(CleanState):
            raise ValueError(f"state must be one of {', '.join(get_args(CleanState))}, got {state!r}")
        grace_ms = to_ms("grace", grace)
        whole_number("limit", limit, least=0)
        await self.connect()
        functions = self._client.functions
        step = functions.clean_jobs if state in FINAL else functions.clean_unstarted
        ids: list[str] = []
        cursor = ""
        while limit:
            cursor, cleaned = await step(cursor, state, grace_ms, limit)
            ids += cleaned
            if not cursor:
                break
        return ids

    async def promote_jobs(self, count: int | None = None) -> int:
        """Let delayed jobs start now, those that are due next first, at most `count`; returns how many.

        Jobs that were delayed when this was called are meant, those between two attempts too. A job that waits for the
        end of another one (`Deduplication(mode="keep_last")`) goes on waiting.
        """
        if count is not None:
            whole_number("count", count, least=0)
        await self.connect()
        promoted, cursor = 0, ""
        while count != 0:
            cursor, started = await self._client.functions.promote_jobs(cursor, count)
            promoted += started
            if not cursor:
                break
        return promoted

    async def update_result_ttl(self, job_id: str, ttl: float | timedelta | None) -> None:
        """Change how long an ended job's result stays; see `Job.update_result_ttl`.

        Raises JobNotFound, JobStateError, TypeError or ValueError for a bad `ttl`.
        """
        check_id("job_id", job_id)
        await self.connect()
        await Job[Data, Result](self._client, job_id, "").update_result_ttl(ttl)

    async def retry_jobs(self, state: Literal["failed", "completed"] = "failed", count: int | None = None) -> int:
        """Run ended jobs again with fresh attempts, the newest first, at most `count`; returns how many.

        Those that had ended when this was called are meant: one that fails again meanwhile is not started twice.
        """
        _check_final(state, "retried")
        if count is not None:
            whole_number("count", count, least=0)
        await self.connect()
        retried, cursor = 0, ""
        while count != 0:
            cursor, started = await self._client.functions.retry_jobs(cursor, state, count)
            retried += started
            if not cursor:
                break
        return retried

    async def obliterate(self, force: bool = False) -> int:
        """Remove the queue: its jobs in every state and every key of it; returns the number of jobs.

        Nothing is changed and QueueBusy is raised while jobs run, unless `force`: then their outcomes are refused and
        their workers stop them. Claims are paused until the end; jobs that arrive meanwhile are removed too. Who
        reads events live hears `obliterated` with the number before the events go as well. Workers and other clients
        need not be closed: the next add begins a new queue, whose ids and events count from the start and which is
        not paused; limits are gone, and so is what `set_dead_letter_queue` said. What a client declared when it was
        made (its `mode`, a worker's `dead_letter_queue`) it declares again before its next add or claim; when another
        one has declared another mode by then, that raises IncompatibleQueueError. A worker makes its own keys (its
        name, its sign of life) again.

        The last keys are found by a scan of the server's keys, in steps. A call that was cut off leaves the queue
        paused: call it again.
        """
        _check_flag("force", force)
        await self.connect()
        functions, removed, cursor = self._client.functions, 0, ""
        while True:
            step = await functions.obliterate_queue(cursor, sorted(SINGLE_KEYS), force=force)
            if step.refused:
                raise QueueBusy(self.name, step.refused)
            cursor = step.cursor
            removed += step.removed
            if not cursor:
                break
        await self._sweep_remains()
        # Whoever uses this queue next declares it anew.
        self._client.state = None
        return removed

    async def _sweep_remains(self) -> None:
        names = [name async for name in scan_keys(self._client) if name not in SINGLE_KEYS]
        for start in range(0, len(names), SWEPT_AT_ONCE):
            await self._client.functions.sweep_remains(names[start : start + SWEPT_AT_ONCE])


def _check_final(state: str, done: str) -> None:
    if state not in FINAL:
        raise ValueError(f"only ended jobs can be {done}: state must be failed or completed, got {state!r}")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
