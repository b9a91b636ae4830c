"""A job as its user sees it: from `add`, from `get_job`, or in the hands of a handler.

What the fields are stored as is told in record.py; how a job is run is the worker's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, Generic, Literal, TypeAlias, cast

from glidemq_async.abort import AbortSignal
from glidemq_async.client import QueueClient
from glidemq_async.durations import from_ms, to_ms
from glidemq_async.errors import (
    GlideMQError,
    JobNotFound,
    JobStateError,
    LeaseLost,
    ResultTimeout,
    SerializationError,
)
from glidemq_async.failure import stored_failure
from glidemq_async.functions.callers import AddRequest, ClaimedJob, Record
from glidemq_async.generics import Data, Result
from glidemq_async.letter import DeadLetter, FailureCause
from glidemq_async.option_checks import optional_seconds
from glidemq_async.option_checks import priority as check_priority
from glidemq_async.options import JobOptions
from glidemq_async.record import FINAL, PLAIN, Route, State, claim_of, created_ms, place_of, route_of, whole
from glidemq_async.results import Ended

Outcome: TypeAlias = Literal["added", "duplicate", "completed"]

_UNREAD: Final = object()
_NOT_ACTIVE: Final = ""


class Job(Generic[Data, Result]):
    """One job of a queue.

    The fields show the job as it was when it was read; `refresh()` reads it again. Payloads are decoded when they
    are first looked at. Inside a handler, `log`, `update_progress` and `update_data` are fenced: once another
    claim holds the job they raise LeaseLost and change nothing.
    """

    __slots__ = (
        "_abort",
        "_client",
        "_created",
        "_data",
        "_data_bytes",
        "_ended",
        "_entry",
        "_error",
        "_letter",
        "_options",
        "_opts",
        "_progress",
        "_result",
        "_route",
        "_started",
        "_unreadable",
        "attempts_made",
        "failed_reason",
        "failure_cause",
        "fence",
        "id",
        "name",
        "outcome",
        "stalled_count",
        "state",
    )

    id: str
    name: str
    state: State
    attempts_made: int
    """Runs that ended with a result or a failure. One that was cut off by a crash counts in `stalled_count`; one that
    was handed back, or ended with RetryLater or RateLimited, counts nowhere."""
    stalled_count: int
    fence: int
    """How often the job was claimed. Store it with what the handler writes elsewhere, and refuse lower ones."""
    outcome: Outcome
    """What came of the `add` that returned this object."""
    failed_reason: str | None
    """The text of the error that it failed with, or "revoked", "expired", "stalled", "malformed"."""
    failure_cause: FailureCause | None
    """Why it failed for good, one word; None for a job that has not."""

    def __init__(self, client: QueueClient, job_id: str, name: str) -> None:
        self._client = client
        self.id = job_id
        self.name = name
        self.state = "waiting"
        self.outcome = "added"
        self.attempts_made = self.stalled_count = self.fence = 0
        self.failed_reason = None
        self.failure_cause = None
        self._letter: bytes | None = None
        self._unreadable: SerializationError | None = None
        self._data: object = _UNREAD
        self._data_bytes = b""
        self._opts = b""
        self._options: JobOptions | None = None
        self._progress: bytes | None = None
        self._result: bytes | None = None
        self._error: bytes | None = None
        self._created = self._started = self._ended = 0
        self._entry = _NOT_ACTIVE
        self._route = PLAIN
        self._abort: AbortSignal | None = None

    @classmethod
    def from_claim(cls, client: QueueClient, claimed: ClaimedJob, now: int) -> Job[Data, Result]:
        """Make the job of a claim. For workers."""
        name, data, opts, fence, job_id, entry = claimed[:6]
        job = cls(client, cast("bytes", job_id).decode(), cast("bytes", name).decode(errors="replace"))
        job.state = "active"
        job._data_bytes = data or b""
        job._opts = opts or b""
        job.fence = int(cast("bytes", fence))
        job._entry = cast("bytes", entry).decode()
        job._started = now
        if len(claimed) > 6:
            failures, stalls, added, progress, route, job._letter = claimed[6:]
            job.attempts_made = int(failures or 0)
            job.stalled_count = int(stalls or 0)
            job._created = int(added or 0)
            job._progress = progress
            if route:
                job._route = route_of(route)
        return job

    @classmethod
    def from_record(cls, client: QueueClient, job_id: str, record: Record) -> Job[Data, Result]:
        """Make the job of a stored record. For queues."""
        job = cls(client, job_id, record.get(b"name", b"").decode(errors="replace"))
        job._read(record)
        return job

    @classmethod
    def from_add(cls, client: QueueClient, request: AddRequest, job_id: str, now: int) -> Job[Data, Result]:
        """Make the job of an add, as it was then. For queues."""
        job = cls(client, job_id, request.name)
        job._data_bytes = request.data
        job._opts = request.opts
        job._created = now
        return job

    def note_options(self, options: JobOptions, now: int) -> None:
        """Note what the options of its add say about an added job; `now` is the server's time then. For queues."""
        self._route = Route(options.priority, options.lifo, options.key)
        extra = options.to_extra()
        if cast("int", extra.get("delay", 0)) > 0 or cast("int", extra.get("at", 0)) > now:
            self.state = "delayed"
        elif options.key is not None:
            self.state = "key-waiting"
        elif options.priority:
            self.state = "prioritized"

    def settle_as_completed(self, payload: bytes) -> None:
        """Note that the run's result has been stored. For workers."""
        self.state, self._result = "completed", payload
        self.attempts_made += 1

    def settle_as_failed(self, cause: FailureCause, reason: str) -> None:
        """Note that the run's failure has been stored as final. For workers."""
        self.state, self.failure_cause, self.failed_reason = "failed", cause, reason
        self.attempts_made += 1

    def _read(self, record: Record) -> None:
        place = place_of(record)
        claim = claim_of(record)
        self.state = place.state
        self._data = _UNREAD
        self._data_bytes = record.get(b"data", b"")
        self._opts = record.get(b"opts", b"")
        self._options = None
        self._progress = record.get(b"progress")
        self._result = record.get(b"result")
        self._error = record.get(b"error")
        self._created = created_ms(record.get(b"added"), place.entry)
        self._started = claim.started if claim else 0
        self._ended = whole(record, b"ended") if place.state in FINAL else 0
        self._route = route_of(record.get(b"route"))
        self.fence = claim.fence if claim else 0
        self.attempts_made = whole(record, b"failures") + (place.state == "completed")
        self.stalled_count = whole(record, b"stalls")
        reason = record.get(b"reason")
        self.failed_reason = reason.decode() if reason and place.state != "completed" else None
        cause = record.get(b"cause", b"").decode()
        self.failure_cause = cast("FailureCause", cause) if cause and place.state == "failed" else None
        self._letter = record.get(b"letter")

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} of {self._client.queue!r}, {self.state}>"

    @property
    def queue(self) -> str:
        """The name of the job's queue."""
        return self._client.queue

    @property
    def data(self) -> Data:
        """The payload. Raises SerializationError when the stored bytes cannot be decoded."""
        if self._data is _UNREAD:
            try:
                self._data = self._client.decode(self._data_bytes, f"data of job {self.id}")
            except SerializationError as error:
                self._unreadable = error
                raise
        return cast("Data", self._data)

    @property
    def data_size(self) -> int:
        """The size of the stored payload in bytes."""
        return len(self._data_bytes)

    @property
    def options(self) -> JobOptions:
        """The options that travel with the job; those that only concern its adding (delay, ttl) do not."""
        if self._options is None:
            self._options = JobOptions.from_wire(self._opts)
        return self._options

    @property
    def has_options(self) -> bool:
        """Whether any option differs from the default."""
        return bool(self._opts)

    @property
    def entry(self) -> str:
        """The lease token of the run, "" outside of one. For workers."""
        return self._entry

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Where the job comes from if it was moved here as a dead letter of another queue, else None."""
        return DeadLetter.from_wire(self._letter) if self._letter else None

    def is_unreadable(self, error: BaseException) -> bool:
        """Return whether this is what decoding the job's own data raised. For workers."""
        return error is self._unreadable

    @property
    def headers(self) -> Mapping[str, str]:
        """The short texts that travel with the job."""
        return self.options.headers

    @property
    def key(self) -> str | None:
        """The ordering key."""
        return self._route.key

    @property
    def priority(self) -> int:
        """The priority, as the last change left it; 0 is the most urgent."""
        return self._route.priority

    @property
    def lifo(self) -> bool:
        """Whether the job goes before those that wait already."""
        return self._route.lifo

    @property
    def progress(self) -> object:
        """What the handler last said about its progress, None before that."""
        if self._progress is None:
            return None
        return self._client.decode(self._progress, f"progress of job {self.id}")

    @property
    def return_value(self) -> Result | None:
        """The result of a completed job, None for any other."""
        if self.state != "completed" or self._result is None:
            return None
        return cast("Result", self._client.decode(self._result, f"result of job {self.id}"))

    @property
    def stacktrace(self) -> str | None:
        """The traceback of the last failed run, as text."""
        return stored_failure(self._error, "").traceback or None if self._error else None

    @property
    def created_at(self) -> datetime | None:
        """When the job was added, by the server's clock."""
        created = self._created or created_ms(None, self._entry)
        return from_ms(created) if created else None

    @property
    def processed_at(self) -> datetime | None:
        """When the last run started."""
        return from_ms(self._started) if self._started else None

    @property
    def finished_at(self) -> datetime | None:
        """When the job reached its final state."""
        return from_ms(self._ended) if self._ended else None

    @property
    def abort(self) -> AbortSignal:
        """Set when this run should stop; a coroutine handler is cancelled as well."""
        if self._abort is None:
            self._abort = AbortSignal()
        return self._abort

    async def log(self, line: str) -> None:
        """Append one line to the job's log, which keeps the last 1,000.

        Raises LeaseLost, JobNotFound, TypeError for anything but text, PayloadTooLarge.
        """
        self._client.check_text(line, "log line")
        self._check_word(await self._client.functions.update_job(self.id, self._entry, "log", line), "log")

    async def update_progress(self, progress: object) -> None:
        """Say how far the run is: a number, or any payload. Raises LeaseLost, JobNotFound, SerializationError."""
        packed = self._client.encode(progress, "progress")
        word = await self._client.functions.update_job(self.id, self._entry, "progress", packed)
        self._check_word(word, "update the progress")
        self._progress = packed

    async def update_data(self, data: Data) -> None:
        """Replace the payload; a later run sees it. Raises LeaseLost, JobNotFound, SerializationError."""
        packed = self._client.encode(data, "data")
        word = await self._client.functions.update_job(self.id, self._entry, "data", packed)
        self._check_word(word, "update the data")
        self._data_bytes, self._data = packed, _UNREAD

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
        return _WAITING_FOR.get(state, f"it is {state}")

    def outcome_of(self, ended: Ended) -> Result:
        """Return the result of a job that ended like this, or raise JobFailed. For queues."""
        if ended.state == "failed":
            raise stored_failure(ended.payload, ended.reason)
        return cast("Result", self._client.decode(ended.payload, f"result of job {self.id}"))

    async def refresh(self) -> None:
        """Read the job again. Raises JobNotFound."""
        record = (await self._client.functions.get_records([self.id]))[0]
        if b"place" not in record:
            raise _not_found("refresh", self.id)
        self._read(record)

    async def get_state(self) -> State:
        """Return the present state. Raises JobNotFound."""
        await self.refresh()
        return self.state

    async def remove(self) -> None:
        """Delete the job and all that belongs to it; a running one is told to stop, its outcome is refused.

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

    async def revoke(self) -> bool:
        """Make sure the job does not run to its end: it fails with the reason "revoked".

        A running one is cancelled by its worker; if its handler returns a result first, that stands. Returns True
        when the job is revoked already, False while its worker has to stop it. Raises JobStateError, JobNotFound.
        """
        word = await self._client.functions.change_job("revokeJob", self.id)
        if word in {"revoked", "revoking"}:
            return word == "revoked"
        self._check_word(word, "revoke")
        return False

    def _check_word(self, word: str, asked: str) -> None:
        if word == "ok":
            return
        if word == "missing":
            raise _not_found(asked, self.id)
        if word == "stale":
            raise LeaseLost(
                f"asked to {asked} in job {self.id}, found that this run no longer holds the job: stop working on "
                "it; its result would be refused too"
            )
        state = word.removeprefix("state ")
        raise JobStateError(f"{asked} job {self.id}", state, _FITTING.get(asked, ""))


_WAITING_FOR: Final = {
    "waiting": "it is waiting: is a worker running on this queue, in this storage? (Two memory:// objects are two)",
    "active": "it is running",
    "delayed": "it is delayed, or waits for its next attempt",
    "prioritized": "it waits by priority, behind jobs of priority 0 and of lower numbers: are workers running?",
    "key-waiting": "it waits in the line of its key: are workers running, and does a job of this key run or rest?",
    "rate-limited": "its key is paused, or has used up its rate",
}

_FITTING: Final = {
    "change the priority of": "only a job that has not started can change its priority",
    "change the delay of": "only a job that has not started can be delayed; in a handler raise RetryLater",
    "retry": "only a completed or failed job can be retried",
    "promote": "only a delayed job can be promoted",
    "change the result ttl of": "the job has not ended: give `result_ttl` when adding it",
    "revoke": "a job that has ended cannot be revoked; remove it instead",
}


def _not_found(asked: str, job_id: str) -> JobNotFound:
    return JobNotFound(
        f"asked to {asked} job {job_id!r}, found no such job: it never was, was removed, or its retention is over"
    )
