"""Remove and retry jobs, one or many, in bounded steps, and change how long a result is kept."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.outbox import Outbox, reach_descendants
from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError, QueueBusy
from glidemq_async.jobs.job import Job
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.inspection import Inspection
from glidemq_async.queues.integrity import SINGLE_KEYS, scan_keys
from glidemq_async.stored.names import check_id
from glidemq_async.stored.record import FINAL

CleanState: TypeAlias = Literal[
    "completed", "failed", "waiting", "prioritized", "key-waiting", "delayed", "waiting-children", "suspended"
]
SWEPT_AT_ONCE: Final = 200
"""Number of store keys that one call removes after a queue was obliterated."""

MOST_ADDED: Final = 100_000
"""Number of jobs beyond its first ones that `obliterate` removes before it gives up."""
MOST_LAST_STEPS: Final = 1_000
"""Number of calls of `obliterate` that may find new jobs after all others were removed."""


class Cleaning(Inspection[Data, Result]):
    """The methods of Queue that remove jobs, restart them, or change how long a result is kept (`update_result_ttl`).

    Methods for many jobs work in steps. Each step takes a few milliseconds of the server's time, and other clients are
    served in between. An interrupted method has done a part of the work; call it again to do the rest.
    """

    async def revoke(self, job_id: str, reason: str | None = None) -> bool:
        """Ensure that a job does not complete; see `Job.revoke`.

        Raises JobNotFound and JobStateError, and TypeError or ValueError for a bad reason.
        """
        check_id("job_id", job_id)
        await self.connect()
        return await Job[Data, Result](self._client, job_id, "").revoke(reason)

    async def remove(self, job_id: str) -> bool:
        """Delete a job. Return False if it does not exist."""
        check_id("job_id", job_id)
        await self.connect()
        ending = await self._client.functions.jobs.remove(job_id)
        await reach_descendants(self._client, ending.rest)
        return ending.code == "ok"

    async def release_deduplication(self, deduplication_id: str) -> bool:
        """Release a deduplication id, so that the next add with it creates a job although the owner has not ended.

        The owner continues. With mode "keep_last" the job that waits for the owner's end may start. Return False if no
        job owned the id.
        """
        check_id("deduplication_id", deduplication_id)
        await self.connect()
        return await self._client.functions.deduplication.release(deduplication_id)

    async def drain(self, delayed: bool = False) -> int:
        """Remove the waiting jobs, and with `delayed=True` the delayed and suspended ones too. Return their number.

        Running jobs continue. Every job that was waiting when this was called is gone when it returns, unless a worker
        claimed it first. Jobs added during the call may stay. Callers that wait for the result of a removed job get
        JobNotFound. To its parent, a removed job is a failed one (see `FlowJob.on_failure`). Jobs that no parent needs
        any more are removed too, and the number includes them. One `drained` event at the end contains the number.
        """
        # The cursor is the only state between two steps. It contains the instant of the first step, and jobs that were
        # added later may stay. So producers that add faster than this loop removes cannot keep it from ending.
        _check_flag("delayed", delayed)
        await self.connect()
        removed, cursor = 0, ""
        while True:
            cursor, count = await self._client.functions.cleaning.drain(cursor, delayed=delayed)
            removed += count
            if not cursor:
                return removed

    async def clean(
        self,
        grace: float | timedelta = 0,
        limit: int = 1_000,
        state: CleanState = "completed",
    ) -> list[str]:
        """Remove at most `limit` jobs in `state` that are at least `grace` seconds old. Return their ids.

        The age of an ended job (completed, failed) counts from its end, and the oldest are removed first. A result with
        its own `result_ttl` is kept until that has passed. The age of a job that has not started (waiting, prioritized,
        key-waiting including rate-limited, delayed) counts from its add. Such jobs are removed in the order in which
        they would start, and jobs with a key in the order in which they began to wait. To its parent, a removed job
        is a failed one. Jobs that no parent needs any more are removed too, beyond `limit`, and their ids are not
        returned. Callers that wait for the result of a removed job get JobNotFound. One `cleaned` event contains the
        number. Raises TypeError or ValueError for a bad argument.
        """
        if state not in get_args(CleanState):
            raise ValueError(f"state must be one of {', '.join(get_args(CleanState))}, got {state!r}")
        grace_ms = to_ms("grace", grace)
        whole_number("limit", limit, least=0)
        await self.connect()
        functions = self._client.functions
        step = functions.cleaning.clean_ended if state in FINAL else functions.cleaning.clean_unstarted
        ids: list[str] = []
        cursor = ""
        while limit:
            # The limit applies to the whole method. The cursor contains the number of jobs that earlier steps have
            # removed.
            cursor, cleaned = await step(cursor, state, grace_ms, limit)
            ids += cleaned
            if not cursor:
                break
        return ids

    async def promote_jobs(self, count: int | None = None) -> int:
        """Make at most `count` delayed jobs ready now, the next due ones first. Return their number.

        Affects the jobs that were delayed when this was called, including those between two attempts. A job that waits
        for the end of another one (`Deduplication(mode="keep_last")`) keeps waiting.
        """
        if count is not None:
            whole_number("count", count, least=0)
        await self.connect()
        promoted, cursor = 0, ""
        while count != 0:
            cursor, started = await self._client.functions.cleaning.promote(cursor, count)
            promoted += started
            if not cursor:
                break
        return promoted

    async def update_result_ttl(self, job_id: str, ttl: float | timedelta | None) -> None:
        """Change how long the result of an ended job is kept; see `Job.update_result_ttl`.

        Raises JobNotFound and JobStateError, and TypeError or ValueError for a bad `ttl`.
        """
        check_id("job_id", job_id)
        await self.connect()
        await Job[Data, Result](self._client, job_id, "").update_result_ttl(ttl)

    async def retry_jobs(self, state: Literal["failed", "completed"] = "failed", count: int | None = None) -> int:
        """Run at most `count` ended jobs again with fresh attempts, the newest first. Return their number.

        Affects the jobs in `state` that had ended when this was called. A job that fails again during the call is not
        started twice. Raises TypeError or ValueError for a bad argument.
        """
        _check_final(state, "retried")
        if count is not None:
            whole_number("count", count, least=0)
        await self.connect()
        retried, cursor = 0, ""
        while count != 0:
            cursor, started = await self._client.functions.cleaning.retry(cursor, state, count)
            retried += started
            if not cursor:
                break
        return retried

    async def obliterate(self, force: bool = False) -> int:
        """Remove the queue: its jobs in every state and all its store keys. Return the number of jobs.

        Raises QueueBusy and changes nothing while jobs run, unless `force` is true. With `force`, workers stop the
        running jobs, and the server refuses their outcomes. Claims are paused until the end, and jobs that are added
        during the call are removed too: every job that was added before the queue is gone, while later adds create a
        new queue. Live readers of events receive `obliterated` with the number before the events are deleted.

        Clients that add one job after another cannot delay the end. If clients add jobs in bulk as fast as they are
        removed, this raises QueueBusy after as many new jobs as the queue had, plus 100,000. The queue is then paused,
        and has lost the jobs that were removed.

        Workers and other clients can stay open: the next add creates a new queue. Its ids and events start from the
        beginning, it is not paused, and it has no limits and no dead-letter queue. Each client declares its own
        settings (`mode`, the `dead_letter_queue` of a worker) again before its next add or claim. If another client has
        declared a different mode by then, this raises IncompatibleQueueError. Workers also create their own store keys
        again (their name and heartbeat).

        The last store keys are found by a scan of the server, in steps. An interrupted call leaves the queue paused;
        call it again.
        """
        _check_flag("force", force)
        await self.connect()
        functions, removed, cursor, last_steps = self._client.functions, 0, "", 0
        held = sum((await self.get_job_counts()).values())
        while True:
            # `force` goes with every step. Only the first step looks at it: after that claims are paused, so no further
            # job starts.
            step = await functions.obliterate.step(cursor, sorted(SINGLE_KEYS), force=force)
            if step.refused:
                raise QueueBusy(self.name, step.refused)
            cursor = step.cursor
            removed += step.removed
            if not cursor:
                break
            if step.is_empty:
                last_steps += 1
                await self._relay_outbox()
            if removed > 2 * held + MOST_ADDED or last_steps > MOST_LAST_STEPS:
                raise QueueBusy(self.name, 0, removed - held)
        await self._sweep_remains()
        # The next call of this queue must declare it again.
        self._client.state = None
        return removed

    async def _relay_outbox(self) -> None:
        # Parents in other queues wait for jobs that were removed here. The outbox has the messages for them, and
        # the next step removes it. A queue that cannot be reached must not keep this queue from being removed.
        with suppress(GlideMQError):
            await Outbox(self._client, self._client.id).relay()

    async def _sweep_remains(self) -> None:
        # Other clients may already have created the queue again. A scan cannot see to which of the two queues a store
        # key belongs, so the server decides for each key and keeps what the new queue may own.
        names = [name async for name in scan_keys(self._client) if name not in SINGLE_KEYS]
        for start in range(0, len(names), SWEPT_AT_ONCE):
            await self._client.functions.obliterate.sweep_remains(names[start : start + SWEPT_AT_ONCE])


def _check_final(state: str, done: str) -> None:
    if state not in FINAL:
        raise ValueError(f"only ended jobs can be {done}: state must be failed or completed, got {state!r}")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
