"""A job as its user sees it: from `add`, from `get_job`, or in the hands of a handler.

What it shows is told in job_fields.py; here is what it can be asked to do. How a job is run is the worker's business.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

from glidemq_async._internal.forgotten_calls import noted
from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.result_listener import Ended
from glidemq_async.durations import to_ms
from glidemq_async.errors import GlideMQError, ResultTimeout
from glidemq_async.jobs.reply_codes import WAITING_FOR, check_word, not_found
from glidemq_async.jobs.snapshot import UNREAD, JobFields
from glidemq_async.jobs.sync import SyncJob
from glidemq_async.options.validation import optional_seconds
from glidemq_async.options.validation import priority as check_priority
from glidemq_async.options.validation import reason as check_reason
from glidemq_async.stored.failure import stored_failure
from glidemq_async.stored.record import State


class Job(JobFields[Data, Result]):
    """One job of a queue.

    The fields show the job as it was when it was read; `refresh()` reads it again. Payloads are decoded when they
    are first looked at. Inside a handler, `log`, `update_progress` and `update_data` are fenced: once another
    claim holds the job they raise LeaseLost and change nothing.

    An add can be a duplicate of a job whose record is gone (`gone`): its id is known, all other fields and all
    methods raise JobNotFound.
    """

    __slots__ = ()

    @property
    def sync(self) -> SyncJob[Data, Result]:
        """The same methods for code without an event loop, such as a handler of the thread executor."""
        return cast("SyncJob[Data, Result]", self._client.blocking(self))

    def _check_word(self, word: str, asked: str) -> None:
        check_word(word, asked, self.id)

    @noted
    async def log(self, line: str) -> None:
        """Append one line to the job's log, which keeps the last 1,000.

        In a handler the worker's JobBudget bounds the lines: a long one is cut, and one beyond the rate waits.
        Raises LeaseLost, JobNotFound, TypeError for anything but text, PayloadTooLarge.
        """
        self._client.check_text(line, "log line")
        if (meter := self._metered()) is not None:
            line = await meter.line(line)
        self._check_word(await self._client.functions.update_job(self.id, self._entry, "log", line), "log")

    @noted
    async def update_progress(self, progress: object) -> None:
        """Say how far the run is: a number, or any payload.

        In a handler the worker's JobBudget bounds the updates: of faster ones only the latest is stored.
        Raises LeaseLost, JobNotFound, SerializationError.
        """
        packed = self._client.encode(progress, "progress", self.name, self.id)
        if (meter := self._metered()) is not None:
            await meter.progress(packed, self._write_progress)
        else:
            await self._write_progress(packed)
        self._progress = packed

    async def _write_progress(self, packed: bytes) -> None:
        word = await self._client.functions.update_job(self.id, self._entry, "progress", packed)
        self._check_word(word, "update the progress")

    @noted
    async def update_data(self, data: Data) -> None:
        """Replace the payload; a later run sees it. Raises LeaseLost, JobNotFound, SerializationError."""
        packed = self._client.encode_data(data, self.name, self.id, self.dead_letter)
        if (meter := self._metered()) is not None:
            await meter.data(len(packed))
        word = await self._client.functions.update_job(self.id, self._entry, "data", packed)
        self._check_word(word, "update the data")
        self._data_bytes, self._data = packed, UNREAD

    @noted
    async def heartbeat(self) -> None:
        """Say that the run is alive.

        It matters only to executors that end runs which stay silent (SubprocessExecutor's `heartbeat_timeout`).
        """
        await self._client.heartbeat(self.id)

    async def result(self, timeout: float | timedelta | None = None) -> Result:
        """Wait until the job has ended and return its result.

        Raises JobFailed when it failed, ResultTimeout after `timeout` seconds (the job goes on), JobNotFound when
        its record is gone.
        """
        patience = optional_seconds("timeout", timeout)
        try:
            async with asyncio.timeout(patience):
                results = self._client.results
                await results.listen()
                ended = await results.wait(self.id, results.watch(self.id, asked=False), asked=False)
        except TimeoutError:
            raise ResultTimeout(
                f"waited {patience} s for the result of job {self.id} of queue {self.queue!r}: {await self._why()}. "
                "It can be awaited again"
            ) from None
        return self.outcome_of(ended)

    async def _why(self) -> str:
        """Say what keeps the job from having a result, for a message; never raises, takes a second at most."""
        try:
            async with asyncio.timeout(1.0):
                state = await self.get_state()
                paused = state == "waiting" and await self._client.functions.is_paused()
        except (TimeoutError, GlideMQError) as error:
            return f"its state cannot be read ({error!r})"
        if paused:
            return "it is waiting, and the queue is paused: resume it"
        return WAITING_FOR.get(state, f"it is {state}")

    def outcome_of(self, ended: Ended) -> Result:
        """Return the result of a job that ended like this, or raise JobFailed. For queues."""
        if ended.state == "failed":
            raise stored_failure(ended.payload, ended.reason)
        return self._result_of(ended.payload)

    async def refresh(self) -> None:
        """Read the job again. Raises JobNotFound."""
        record = (await self._client.functions.get_records([self.id]))[0]
        if b"place" not in record:
            raise not_found("refresh", self.id)
        self.name = record.get(b"name", b"").decode(errors="replace")
        self._read(record)

    async def get_state(self) -> State:
        """Return the present state. Raises JobNotFound."""
        await self.refresh()
        return self.state

    async def remove(self) -> None:
        """Delete the job and all that belongs to it; a running one is told to stop, its outcome is refused.

        Removing a running job frees its key immediately, so the key's next job may start before the run has stopped. To
        keep them apart, `revoke()` the job, wait until it has failed, and then remove it.
        Raises JobNotFound.
        """
        self._check_word(await self._client.functions.change_job("removeJob", self.id), "remove")

    async def retry(self) -> None:
        """Run a completed or failed job again, with fresh attempts. Raises JobStateError, JobNotFound."""
        self._check_word(await self._client.functions.change_job("retryJob", self.id), "retry")

    async def promote(self) -> None:
        """Let a delayed job start now. Raises JobStateError, JobNotFound."""
        self._check_word(await self._client.functions.change_job("promoteJob", self.id), "promote")

    async def update_result_ttl(self, ttl: float | timedelta | None) -> None:
        """Let the record and the result of this ended job stay for `ttl` seconds from now on, and end then.

        None leaves them to the retention of the queue again, which counts from the job's end and may be over.
        Raises JobStateError when the job has not ended, JobNotFound, TypeError or ValueError for a bad `ttl`.
        """
        ttl_ms = None if ttl is None else to_ms("ttl", ttl, allow_zero=False)
        word = await self._client.functions.set_result_ttl(self.id, ttl_ms)
        self._check_word(word, "change the result ttl of")

    async def change_priority(self, priority: int) -> None:
        """Give a job that has not started another priority; among its equals it goes to the end.

        In its key's line a keyed job keeps its place among jobs of the new priority. A delayed one has it when it is
        due. Raises JobStateError, JobNotFound, TypeError and ValueError for what is no priority.
        """
        number = check_priority("priority", priority)
        self._check_word(await self._client.functions.change_priority(self.id, number), "change the priority of")
        self._route = self._route._replace(priority=number, lifo=self._route.lifo and not number)

    async def change_delay(self, delay: float | timedelta) -> None:
        """Let a job that has not started wait `delay` seconds from now on; 0 = it may start at once.

        Raises JobStateError, JobNotFound, TypeError and ValueError for what is no delay.
        """
        self._check_word(
            await self._client.functions.change_delay(self.id, to_ms("delay", delay)), "change the delay of"
        )

    async def revoke(self, reason: str | None = None) -> bool:
        """Make sure the job does not run to its end: it fails with the reason "revoked".

        With a `reason`, one line of at most 500 characters, the failed reason is "revoked: <reason>": in the record, in
        the event and in the JobFailed of whoever waits.

        A running job is cancelled by its worker; if its handler returns a result first, that stands. Returns True
        when the job is revoked already, False while its worker has to stop it. Raises JobStateError, JobNotFound,
        TypeError or ValueError for a bad reason.
        """
        word = await self._client.functions.revoke_job(self.id, check_reason("reason", reason))
        if word in {"revoked", "revoking"}:
            return word == "revoked"
        self._check_word(word, "revoke")
        return False
