"""The fields of a job, as a snapshot.

stored/record.py describes the stored form, and job.py has the methods of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, Self, TypeAlias, cast

from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import from_ms
from glidemq_async.errors import JobNotFound, SerializationError
from glidemq_async.functions.callers import AddRequest, ClaimedJob, Record
from glidemq_async.jobs.abort import AbortSignal
from glidemq_async.jobs.reply_codes import not_found
from glidemq_async.options.budget import Meter
from glidemq_async.options.job_options import JobOptions
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.stored.dead_letter import DeadLetter, FailureCause
from glidemq_async.stored.failure import stored_failure
from glidemq_async.stored.record import FINAL, PLAIN, Route, State, claim_of, created_ms, place_of, route_of, whole

Outcome: TypeAlias = Literal["added", "duplicate", "completed"]

UNREAD: Final = object()
_NOT_ACTIVE: Final = ""


class JobFields(Generic[Data, Result]):
    """The fields of a Job as a snapshot. Payloads are decoded on first access."""

    __slots__ = (
        "_abort",
        "_client",
        "_created",
        "_data",
        "_data_bytes",
        "_due",
        "_ended",
        "_entry",
        "_error",
        "_last_entry",
        "_letter",
        "_meter",
        "_options",
        "_opts",
        "_progress",
        "_read_result",
        "_result",
        "_route",
        "_started",
        "_stored_options",
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
    """The number of runs that ended with a result or a failure. Runs that were cut off by a crash count in
    `stalled_count`. Released runs and runs that ended with RetryLater or RateLimited are not counted."""
    stalled_count: int
    fence: int
    """The number of claims of the job. Store it with external writes, and refuse writes with a lower number."""
    outcome: Outcome
    """The result of the `add` that returned this object. "duplicate" and "completed": this is an existing job."""
    failed_reason: str | None
    """The text of the handler's error, or "revoked", "revoked: <reason>", "expired", "stalled", "malformed"."""
    failure_cause: FailureCause | None
    """The cause of the permanent failure; None for a job that has not failed."""

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
        self._data: object = UNREAD
        self._data_bytes = b""
        self._opts = b""
        self._options: JobOptions | None = None
        self._stored_options: JobOptions | None = None
        self._meter: Meter | None = None
        self._progress: bytes | None = None
        self._result: bytes | None = None
        self._read_result: Callable[[Any], Any] | None = None
        self._error: bytes | None = None
        self._created = self._started = self._ended = self._due = 0
        self._entry = _NOT_ACTIVE
        self._route = PLAIN
        self._abort: AbortSignal | None = None

    @classmethod
    def from_claim(cls, client: QueueClient, claimed: ClaimedJob, now: int) -> Self:
        """Create the job of a claim. Used by workers."""
        job_id, job_entry, fence, name, data, opts, history = claimed
        job = cls(client, job_id, name)
        job.state = "active"
        job._data_bytes = data
        job._opts = opts
        job.fence = fence
        job._entry = job_entry
        job._started = now
        if history is not None:
            job.attempts_made, job.stalled_count = history.failures, history.stalls
            job._progress, job._letter = history.progress, history.origin
            job._created = created_ms(history.added, "", history.route)
            job._route = route_of(history.route)
        return job

    def to_plain(self) -> list[object]:
        """Return the data of this run as plain values for a handler, with the payload in the default serialization.

        Raises SerializationError when the payload cannot be decoded. Used by executors.
        """
        data = MsgpackSerializer().dumps(self.data)
        route: object = list(self._route) if self._route is not PLAIN else None
        progress = None if self._progress is None else MsgpackSerializer().dumps(self.progress)
        known = [self.id, self.name, data, self._opts, self.fence, self._entry, self._started, self.attempts_made]
        return [*known, self.stalled_count, self._created, progress, route, self._letter]

    @classmethod
    def from_plain(cls, client: QueueClient, values: list[Any]) -> Self:
        """Create the job of a run from the result of `to_plain`. Used by executors."""
        job = cls(client, values[0], values[1])
        job.state = "active"
        job._data_bytes, job._opts, job.fence, job._entry, job._started, job.attempts_made = values[2:8]
        job.stalled_count, job._created, job._progress, route, job._letter = values[8:13]
        if route:
            job._route = Route(*route)
        return job

    @classmethod
    def from_record(cls, client: QueueClient, job_id: str, record: Record) -> Self:
        """Create the job of a stored record. Used by queues."""
        job = cls(client, job_id, record.get(b"name", b"").decode(errors="replace"))
        job._read(record)
        return job

    @classmethod
    def from_add(cls, client: QueueClient, request: AddRequest, job_id: str, now: int) -> Self:
        """Create the job of an add, as it was at that time. Used by queues."""
        job = cls(client, job_id, request.name)
        job._data_bytes = request.data
        job._opts = request.opts
        job._created = now
        return job

    @classmethod
    def from_gone(cls, client: QueueClient, job_id: str) -> Self:
        """Create a job whose record has been removed. Used by queues."""
        job = cls.__new__(cls)
        job._client, job.id, job._entry = client, job_id, _NOT_ACTIVE  # noqa: SLF001 - of this class
        return job

    if not TYPE_CHECKING:  # otherwise type checkers would accept every name as a field

        def __getattr__(self, name: str) -> NoReturn:
            # Called for a missing attribute. A job whose record is gone has only the attributes above.
            if name in JobFields.__slots__ and name != "id":
                raise not_found("read", self.id)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def note_options(self, options: JobOptions, now: int, *, held: bool) -> None:
        """Set the fields that follow from the options of an add at the server's time `now`. Used by queues.

        With `held` the job waits for the end of another job.
        """
        self._options = options
        if not options.places:
            return
        self._route = Route(options.priority, options.lifo, options.key, options.cost)
        due = options.due_ms(now)
        if held:
            self.state = "delayed"
        elif due > now:
            self.state, self._due = "delayed", due
        elif options.key is not None:
            self.state = "key-waiting"
        elif options.priority:
            self.state = "prioritized"

    def leave_out_data(self) -> None:
        """Set the data to None. Used by queues that read jobs without payloads."""
        self._data_bytes, self._data = b"", None

    def settle_as_completed(self, payload: bytes) -> None:
        """Record that the result of the run was stored. Used by workers."""
        self.state, self._result = "completed", payload
        self.attempts_made += 1

    def settle_as_failed(self, cause: FailureCause, reason: str) -> None:
        """Record that the failure of the run was stored as final. Used by workers."""
        self.state, self.failure_cause, self.failed_reason = "failed", cause, reason
        self.attempts_made += 1

    def end_as(self, other: JobFields[Any, Any]) -> None:
        """Copy the final state from another object of the same job. Used by the test tools."""
        self.state, self.attempts_made, self.fence = other.state, other.attempts_made, other.fence
        self.failed_reason, self.failure_cause = other.failed_reason, other.failure_cause
        self._result, self._error = other._result, other._error
        self._started, self._ended = other._started, other._ended
        self._last_entry = other._entry or other._last_entry

    _last_entry: str

    def _read(self, record: Record) -> None:
        place = place_of(record)
        claim = claim_of(record)
        self.state = place.state
        self._last_entry = place.entry if place.state in FINAL or place.state == "active" else _NOT_ACTIVE
        self._data = UNREAD
        self._data_bytes = record.get(b"data", b"")
        self._opts = record.get(b"opts", b"")
        self._options = self._stored_options = None
        self._progress = record.get(b"progress")
        self._result = record.get(b"result")
        self._error = record.get(b"error")
        self._created = created_ms(record.get(b"added"), place.entry, record.get(b"route"))
        self._started = claim.started if claim else 0
        self._ended = whole(record, b"ended") if place.state in FINAL else 0
        self._due = whole(record, b"due")
        self._route = route_of(record.get(b"route"))
        self.fence = claim.fence if claim else 0
        self.attempts_made = whole(record, b"failures") + (place.state == "completed")
        self.stalled_count = whole(record, b"stalls")
        reason = record.get(b"reason")
        self.failed_reason = reason.decode(errors="replace") if reason and place.state != "completed" else None
        cause = record.get(b"cause", b"").decode()
        self.failure_cause = cast("FailureCause", cause) if cause and place.state == "failed" else None
        self._letter = record.get(b"letter")

    @property
    def gone(self) -> bool:
        """True if an add found this job and its record was already removed. A `refresh` may find a new record."""
        try:
            return not self.state
        except JobNotFound:
            return True

    def __repr__(self) -> str:
        if self.gone:
            return f"<Job {self.id} of {self._client.queue!r}, gone>"
        return f"<Job {self.id} {self.name!r} of {self._client.queue!r}, {self.state}>"

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._client.queue

    @property
    def data(self) -> Data:
        """The payload. Raises SerializationError when the stored bytes cannot be decoded."""
        if self._data is UNREAD:
            try:
                self._data = self._client.decode_data(self._data_bytes, self.name, self.id, self.dead_letter)
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
        """The options of the job. Options that were not given have their defaults.

        `priority`, `lifo`, `key` and `cost` are the current ones, all other options those of the add. Except in the job
        that `add` returns, `job_id` is None, because the store does not distinguish given ids from generated ones. A
        dead letter and a replayed job have the options of the job that failed.
        """
        if self._options is None:
            route, stored = self._route, self.run_options
            self._options = stored if route is PLAIN else stored.changed(**_given(route))
        return self._options

    @property
    def run_options(self) -> JobOptions:
        """The options without `priority`, `lifo`, `key` and `cost`. Used by workers, which do not need these."""
        if self._stored_options is None:
            self._stored_options = JobOptions.from_wire(self._opts)
        return self._stored_options

    @property
    def has_options(self) -> bool:
        """True if any option differs from its default."""
        return bool(self._opts)

    @property
    def entry(self) -> str:
        """The fencing token of the run, "" outside of a run. Used by workers."""
        return self._entry

    @property
    def payload_limit(self) -> int:
        """The maximum size of a result in bytes, before serializer and codecs. Used by executors."""
        return self._client.payloads.plain_limit

    @property
    def dead_letter(self) -> DeadLetter | None:
        """The origin of a job that was moved here as a dead letter, else None."""
        return DeadLetter.from_wire(self._letter) if self._letter else None

    def is_unreadable(self, error: BaseException) -> bool:
        """Return whether this error was raised by decoding the job's own data. Used by workers."""
        return error is self._unreadable

    @property
    def meter(self) -> Meter | None:
        """The used budget of the run, None if nothing was used. Used by workers."""
        return self._meter

    def _metered(self) -> Meter | None:
        """Return the budget of the run, None outside of a run."""
        budget = self._client.budget
        if budget is None or not self._entry:
            return None
        if self._meter is None:
            self._meter = Meter(budget)
        return self._meter

    @property
    def headers(self) -> Mapping[str, str]:
        """The short texts that are sent along with the job."""
        return self.run_options.headers

    @property
    def key(self) -> str | None:
        """The ordering key."""
        return self._route.key

    @property
    def priority(self) -> int:
        """The current priority; 0 is the most urgent."""
        return self._route.priority

    @property
    def lifo(self) -> bool:
        """True if the job was added with `lifo`: the newest such job starts first."""
        return self._route.lifo

    @property
    def progress(self) -> object:
        """The last progress that the handler reported, None if there is none."""
        if self._progress is None:
            return None
        return self._client.decode(self._progress, "progress", self.name, self.id)

    @property
    def return_value(self) -> Result | None:
        """The result of a completed job, None for other jobs."""
        if self.state != "completed" or self._result is None:
            return None
        return self._result_of(self._result)

    @property
    def stacktrace(self) -> str | None:
        """The traceback of the last failed run, as text."""
        return stored_failure(self._error, "").traceback or None if self._error else None

    @property
    def created_at(self) -> datetime | None:
        """The time when the job was added, by the server's clock."""
        created = self._created or created_ms(None, self._entry)
        return from_ms(created) if created else None

    @property
    def processed_at(self) -> datetime | None:
        """The time when the last run started."""
        return from_ms(self._started) if self._started else None

    @property
    def due_at(self) -> datetime | None:
        """The time when a delayed job becomes ready, for example at the end of its `delay` or for its next attempt.

        None for a job that was not delayed when it was read, and for a job that waits for the end of another job.
        """
        return from_ms(self._due) if self._due else None

    @property
    def waited(self) -> float | None:
        """Seconds between the time when the last run could have started and its start; None if unknown.

        Counts from the add, or from the end of a delay. For a job with a priority, a key or lifo the delay is included,
        and the value is unknown for its later attempts.
        """
        if not self._started:
            return None
        # A stream entry is created when a job becomes ready. An entry of the active stream is created by the claim.
        ready = created_ms(None, self._entry or self._last_entry) or (0 if self.fence > 1 else self._created)
        return max(0, self._started - ready) / 1000 if ready else None

    @property
    def finished_at(self) -> datetime | None:
        """The time when the job reached its final state."""
        return from_ms(self._ended) if self._ended else None

    @property
    def abort(self) -> AbortSignal:
        """Set when this run should stop. A coroutine handler is also cancelled."""
        if self._abort is None:
            self._abort = AbortSignal()
        return self._abort

    def read_result_as(self, reader: Callable[[Any], Any]) -> None:
        """Convert the stored result with `reader` before it is returned to callers. Used by tasks."""
        self._read_result = reader

    def _result_of(self, payload: bytes) -> Result:
        value = self._client.decode(payload, "result", self.name, self.id)
        return cast("Result", value if self._read_result is None else self._read_result(value))


def _given(route: Route) -> dict[str, object]:
    """Return the options of a route that differ from their defaults."""
    pairs = zip(Route._fields, route, PLAIN, strict=True)
    return {name: value for name, value, default in pairs if value != default}
