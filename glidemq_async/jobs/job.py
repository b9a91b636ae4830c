"""The methods of a job as returned by `add` or `get_job`, or passed to a handler.

fields.py has the fields of a job, and snapshot.py creates and updates jobs. The worker runs them.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Generic

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.forgotten_calls import noted
from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.result_listener import Ended
from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError, ResultTimeout
from glidemq_async.jobs.fields import UNREAD, JobFields
from glidemq_async.jobs.reply_codes import WAITING_FOR, check_reply, not_found
from glidemq_async.options.validation import optional_seconds
from glidemq_async.options.validation import priority as check_priority
from glidemq_async.options.validation import reason as check_reason
from glidemq_async.stored.failure import stored_failure
from glidemq_async.stored.record import State


class Job(JobFields[Data, Result]):
    """One job of a queue.

    The fields are a snapshot of the time when the job was read; `refresh()` reads them again. Payloads are decoded on
    first access. Inside a handler, `log`, `update_progress` and `update_data` carry the fencing token of the run: if
    another claim has taken over the job, they raise LeaseLost and change nothing.

    An add can be a duplicate of a job whose record has been removed (`gone`). Its id is known; all other fields and
    all methods raise JobNotFound.
    """

    __slots__ = ()

    @property
    def sync(self) -> SyncJob[Data, Result]:
        """The blocking methods of a job, for code without an event loop, such as a handler of the thread executor."""
        return SyncJob(self, self._client.home)

    def _check_reply(self, code: str, asked: str) -> None:
        check_reply(code, asked, self.id)

    @noted
    async def log(self, line: str) -> None:
        """Append one line to the job's log, which keeps the last 1,000 lines.

        In a handler the worker's JobBudget applies: long lines are cut, and lines beyond the rate wait. Raises
        LeaseLost, JobNotFound, TypeError unless the line is a str, and PayloadTooLarge.
        """
        self._client.check_text(line, "log line")
        if (meter := self._metered()) is not None:
            line = await meter.line(line)
        self._check_reply(
            await self._client.functions.updates.write(self.id, self._entry, "log", line), "write to the log of"
        )

    @noted
    async def update_progress(self, progress: object) -> None:
        """Store the progress of the run: a number, or any payload.

        In a handler the worker's JobBudget applies: if updates come too fast, only the latest value is stored. Raises
        LeaseLost, JobNotFound, SerializationError.
        """
        packed = self._client.encode(progress, "progress", self.name, self.id)
        if (meter := self._metered()) is not None:
            await meter.progress(packed, self._write_progress)
        else:
            await self._write_progress(packed)
        self._progress = packed

    async def _write_progress(self, packed: bytes) -> None:
        # The entry is the fencing token. Outside of a handler it is empty, and the server accepts the write in any
        # state of the job.
        code = await self._client.functions.updates.write(self.id, self._entry, "progress", packed)
        self._check_reply(code, "update the progress of")

    @noted
    async def update_data(self, data: Data) -> None:
        """Replace the payload for later runs. Raises LeaseLost, JobNotFound, SerializationError."""
        packed = self._client.encode_data(data, self.name, self.id, self.dead_letter)
        if (meter := self._metered()) is not None:
            await meter.data(len(packed))
        code = await self._client.functions.updates.write(self.id, self._entry, "data", packed)
        self._check_reply(code, "update the data of")
        # Decoded again at the next access, so that the handler sees what a later run will see, for example a list
        # instead of a tuple.
        self._data_bytes, self._data = packed, UNREAD

    @noted
    async def heartbeat(self) -> None:
        """Report that the run is alive.

        Only needed for executors that end silent runs (`heartbeat_timeout` of SubprocessExecutor).
        """
        await self._client.heartbeat(self.id)

    async def result(self, timeout: float | timedelta | None = None) -> Result:
        """Wait until the job has ended, and return its result.

        Raises JobFailed if the job failed, ResultTimeout after `timeout` seconds (the job continues), and JobNotFound
        if its record has been removed.
        """
        seconds = optional_seconds("timeout", timeout)
        try:
            async with asyncio.timeout(seconds):
                results = self._client.results
                # The subscription comes before the look at the record. If the job ends between the two, the look finds
                # it.
                await results.listen()
                ended = await results.wait(self.id, results.watch(self.id, asked=False), asked=False)
        except TimeoutError:
            raise ResultTimeout(
                f"job {self.id} of queue {self.queue!r} did not end within {seconds} s: {await self._why()}. "
                "The job continues and its result can be awaited again"
            ) from None
        return self._outcome_of(ended)

    async def _why(self) -> str:
        """Return why the job has no result yet, for an error message. Never raises; takes at most one second."""
        try:
            async with asyncio.timeout(1.0):
                state = await self.get_state()
                paused = state == "waiting" and await self._client.functions.reading.is_paused()
        except (TimeoutError, GlideMQError) as error:
            return f"its state cannot be read ({error!r})"
        if paused:
            return "it is waiting because the queue is paused; call resume()"
        return WAITING_FOR.get(state, f"it is {state}")

    def _outcome_of(self, ended: Ended) -> Result:
        """Return the result of an ended job, or raise JobFailed."""
        if ended.state == "failed":
            raise stored_failure(ended.payload, ended.reason)
        return self._result_of(ended.payload)

    async def refresh(self) -> None:
        """Read the job again. Raises JobNotFound."""
        record = (await self._client.functions.reading.get_records([self.id]))[0]
        if b"place" not in record:
            raise not_found("refresh", self.id)
        self.name = record.get(b"name", b"").decode(errors="replace")
        self._read(record)

    async def get_state(self) -> State:
        """Return the current state. Raises JobNotFound."""
        await self.refresh()
        return self.state

    async def remove(self) -> None:
        """Delete the job and its data. A running job is stopped, and its outcome is refused.

        A running job occupies its ordering key, and counts towards the queue's concurrency limit, until its handler has
        ended or its lease expires. Raises JobNotFound.
        """
        self._check_reply(await self._client.functions.jobs.remove(self.id), "remove")

    async def retry(self) -> None:
        """Run a completed or failed job again, with fresh attempts. Raises JobStateError, JobNotFound."""
        self._check_reply(await self._client.functions.jobs.retry(self.id), "retry")

    async def promote(self) -> None:
        """Make a delayed job ready now. Raises JobStateError, JobNotFound."""
        self._check_reply(await self._client.functions.jobs.promote(self.id), "promote")

    async def update_result_ttl(self, ttl: float | timedelta | None) -> None:
        """Keep the record and the result of this ended job for exactly `ttl` seconds from now.

        With None the retention of the queue applies again. It counts from the job's end, so the record may be removed
        immediately. Raises JobStateError if the job has not ended, JobNotFound, and TypeError or ValueError for a bad
        `ttl`.
        """
        ttl_ms = None if ttl is None else to_ms("ttl", ttl, allow_zero=False)
        code = await self._client.functions.result_ttl.set(self.id, ttl_ms)
        self._check_reply(code, "change the result ttl of")

    async def change_priority(self, priority: int) -> None:
        """Change the priority of a job that has not started. It goes behind the jobs that already have this priority.

        A job with a key moves only within its key. A delayed job uses the new priority when it is due. Raises
        JobStateError, JobNotFound, and TypeError or ValueError for a bad priority.
        """
        number = check_priority("priority", priority)
        self._check_reply(await self._client.functions.changes.set_priority(self.id, number), "change the priority of")
        self._route, self._options = self._route._replace(priority=number, lifo=self._route.lifo and not number), None

    async def change_delay(self, delay: float | timedelta) -> None:
        """Delay a job that has not started by `delay` seconds from now; 0 makes it ready immediately.

        Raises JobStateError, JobNotFound, and TypeError or ValueError for a bad delay.
        """
        self._check_reply(
            await self._client.functions.changes.set_delay(self.id, to_ms("delay", delay)), "change the delay of"
        )

    async def revoke(self, reason: str | None = None) -> bool:
        """Ensure that the job does not complete: it fails with the reason "revoked".

        With a `reason` (one line of at most 500 characters) the failed reason is "revoked: <reason>" in the record, in
        the event, and in the JobFailed of callers that wait for the result.

        The worker cancels a running job. If the handler returns a result before that, the job completes. Return True if
        the job has failed now, False if a worker still has to stop it. Raises JobStateError, JobNotFound, and TypeError
        or ValueError for a bad reason.
        """
        code = await self._client.functions.jobs.revoke(self.id, check_reason("reason", reason))
        if code in {"revoked", "revoking"}:
            return code == "revoked"
        self._check_reply(code, "revoke")
        return False


class SyncJob(Blocking[Job[Data, Result]], Generic[Data, Result]):
    """`job.sync`: the blocking methods of a job for code without an event loop.

    Parameters, results and errors are the same as in Job. In a handler of the thread executor,
    `job.sync.log(...)` and the other methods use the worker's event loop.
    """

    log = blocking(Job[Data, Result].log)
    update_progress = blocking(Job[Data, Result].update_progress)
    update_data = blocking(Job[Data, Result].update_data)
    heartbeat = blocking(Job[Data, Result].heartbeat)
    result = blocking(Job[Data, Result].result)
    refresh = blocking(Job[Data, Result].refresh)
    get_state = blocking(Job[Data, Result].get_state)
    remove = blocking(Job[Data, Result].remove)
    retry = blocking(Job[Data, Result].retry)
    promote = blocking(Job[Data, Result].promote)
    update_result_ttl = blocking(Job[Data, Result].update_result_ttl)
    change_priority = blocking(Job[Data, Result].change_priority)
    change_delay = blocking(Job[Data, Result].change_delay)
    revoke = blocking(Job[Data, Result].revoke)
