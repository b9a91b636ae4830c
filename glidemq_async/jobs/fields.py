"""The fields of a job, as a snapshot.

stored/record.py describes the stored form, job.py has the methods of a job, and snapshot.py creates and updates jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, cast

from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import from_ms
from glidemq_async.errors import JobNotFound, SerializationError
from glidemq_async.functions.calling import Record
from glidemq_async.jobs.abort import AbortSignal
from glidemq_async.jobs.journal import Journal
from glidemq_async.jobs.reply_codes import not_found
from glidemq_async.options.budget import Meter
from glidemq_async.options.job_options import JobOptions, replaced
from glidemq_async.options.stored_options import read_options
from glidemq_async.stored.dead_letter import DeadLetter, FailureCause, read_dead_letter
from glidemq_async.stored.failure import stored_failure
from glidemq_async.stored.flow import FlowRef, JobRef, flow_of
from glidemq_async.stored.hand_over import HandOver, ResumeCause, Waits, read_hand_over, read_waits
from glidemq_async.stored.record import FINAL, PLAIN, Route, State, claim_of, created_ms, place_of, route_of, whole

Outcome: TypeAlias = Literal["added", "duplicate", "completed"]

UNREAD: Final = object()
NOT_ACTIVE: Final = ""


_PRIVATE: Final = (
    "_abort",
    "_client",
    "_created",
    "_data",
    "_data_bytes",
    "_due",
    "_ended",
    "_entry",
    "_error",
    "_group",
    "_hand_over",
    "_handed",
    "_last_entry",
    "_origin",
    "_meter",
    "_journal",
    "_options",
    "_opts",
    "_progress",
    "_read_result",
    "_result",
    "_route",
    "_runner",
    "_started",
    "_stored_options",
    "_unreadable",
    "_waits",
)
"""The attributes that only this class, Job and snapshot.py use."""


LATER: Final[Mapping[str, object]] = {
    "stalled_count": 0,
    "outcome": "added",
    "failed_reason": None,
    "failure_cause": None,
    "_unreadable": None,
    "_options": None,
    "_stored_options": None,
    "_progress": None,
    "_result": None,
    "_read_result": None,
    "_error": None,
    "_created": 0,
    "_ended": 0,
    "_due": 0,
    "_abort": None,
    "_handed": None,
    "_hand_over": None,
    "_waits": None,
    "_group": None,
    "_runner": None,
    "_journal": None,
    "_last_entry": NOT_ACTIVE,
}
"""The attributes that most jobs never need, and their first values. A worker creates a job for each claim, so each
attribute that is set there costs something."""


class JobFields(Generic[Data, Result]):
    """The fields of a Job as a snapshot. Payloads are decoded on first access."""

    # The texts are the documentation of the public attributes, which `help(job)` shows.
    __slots__ = {
        "id": "The id of the job.",
        "name": "The name of the job.",
        "state": "The state at the time of the last read.",
        "attempts_made": (
            "The number of runs that ended with a result or a failure. Runs that were cut off by a crash count in "
            "`stalled_count`. Released runs and runs that ended with RetryLater, RateLimited, `suspend` or "
            "`move_to_delayed` are not counted."
        ),
        "stalled_count": "The number of runs that lost their lease, because their worker died or was cut off.",
        "fence": (
            "The number of claims of the job. Store it with external writes, and refuse writes with a lower number."
        ),
        "outcome": (
            'The result of the `add` that returned this object. "duplicate" and "completed": this is an existing job.'
        ),
        "failed_reason": (
            'The text of the handler\'s error, or "revoked", "revoked: <reason>", "expired", "stalled", "malformed", '
            '"child_failed: <path>".'
        ),
        "failure_cause": "The cause of the permanent failure; None for a job that has not failed.",
        **dict.fromkeys(_PRIVATE, ""),
    }

    id: str
    name: str
    state: State
    attempts_made: int
    stalled_count: int
    fence: int
    outcome: Outcome
    failed_reason: str | None
    failure_cause: FailureCause | None

    def __init__(self, client: QueueClient, job_id: str, name: str) -> None:
        # Only the attributes that the life of a plain job reads. `LATER` has the others; see `__getattr__`.
        self._client = client
        self.id = job_id
        self.name = name
        self.state = "waiting"
        self.attempts_made = self.fence = 0
        self._data: Any = UNREAD
        self._data_bytes = b""
        self._opts = b""
        self._started = 0
        self._entry = NOT_ACTIVE
        self._route = PLAIN
        self._origin: bytes | None = None
        self._meter: Meter | None = None

    if not TYPE_CHECKING:  # otherwise type checkers would accept every name as a field

        def __getattr__(self, name: str) -> object:
            # Called for a missing attribute. Two kinds of them are missing: those in `LATER`, which a job gets when it
            # needs them, and all but the id of a job whose record is gone. Such a job has no state either, so the next
            # line raises JobNotFound for it.
            if name in LATER and self.state:
                setattr(self, name, LATER[name])
                return LATER[name]
            if name in JobFields.__slots__ and name != "id":
                raise not_found("read", self.id)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    _last_entry: str
    _unreadable: SerializationError | None
    _options: JobOptions | None
    _stored_options: JobOptions | None
    _progress: bytes | None
    _result: bytes | None
    _read_result: Callable[[Any], Any] | None
    _error: bytes | None
    _created: int
    _ended: int
    _due: int
    _abort: AbortSignal | None
    _handed: bytes | None
    _hand_over: HandOver | None
    _waits: Waits | None
    _group: bytes | None
    _runner: bytes | None
    _journal: Journal | None

    def _read(self, record: Record) -> None:
        place = place_of(record)
        claim = claim_of(record)
        self.state = place.state
        self._last_entry = place.entry if place.state in FINAL or place.state == "active" else NOT_ACTIVE
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
        # The record counts failures only, so that a successful run, which is the usual one, has no counter to write.
        self.attempts_made = whole(record, b"failures") + (place.state == "completed")
        self.stalled_count = whole(record, b"stalls")
        reason = record.get(b"reason")
        self.failed_reason = reason.decode(errors="replace") if reason and place.state != "completed" else None
        cause = record.get(b"cause", b"").decode(errors="replace")
        self.failure_cause = cast("FailureCause", cause) if cause and place.state == "failed" else None
        self._origin = record.get(b"letter")
        self._handed, self._hand_over = record.get(b"handed"), None
        waits = record.get(b"waits")
        self._waits = None if waits is None else read_waits(waits)
        self._group, self._runner = record.get(b"group"), record.get(b"runner")

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
        # Decoded at the first access and not when the job is read: a list of a thousand jobs may show only their
        # states, and one unreadable payload must not prevent the rest from being listed.
        data: Any = self._data
        if data is UNREAD:
            # Most handlers come here, so the usual case makes no further calls.
            loads = self._client.payloads.quick_loads
            try:
                data = UNREAD if loads is None else loads(self._data_bytes)
            except Exception:  # noqa: BLE001 - decoding once more raises the error that names the job
                data = UNREAD
            if data is UNREAD:
                data = self._decoded_data()
            self._data = data
        # A call of `cast` would take a quarter of the time.
        typed: Data = data
        return typed

    def _decoded_data(self) -> object:
        try:
            return self._client.decode_data(self._data_bytes, self.name, self.id, self.dead_letter)
        except SerializationError as error:
            # The worker compares the error of a failed run with this one. If they are the same, the job is malformed,
            # and another attempt would fail in the same way.
            self._unreadable = error
            raise

    @property
    def data_size(self) -> int:
        """The size of the stored payload in bytes."""
        return len(self._data_bytes)

    @property
    def options(self) -> JobOptions:
        """The options of the job. Options that were not given have their defaults.

        `priority`, `lifo`, `key` and `cost` have their current values, and all other options the values of the add.
        Except in the job that `add` returns, `job_id` is None, because the store does not distinguish given ids from
        generated ones. A dead letter and a replayed job have the options of the job that failed.
        """
        if self._options is None:
            route, stored = self._route, self._run_options()
            self._options = stored if route is PLAIN else replaced(stored, **_given(route))
        return self._options

    @property
    def dead_letter(self) -> DeadLetter | None:
        """The origin of a job that was moved here as a dead letter, else None."""
        return read_dead_letter(self._origin)[0] if self._origin else None

    @property
    def resumed_by(self) -> ResumeCause | None:
        """Why the job runs again after its last suspension; None if it was not suspended."""
        return self._resumed_with().cause or None

    @property
    def step_name(self) -> str | None:
        """The last `step` of `suspend` or `move_to_delayed`; None if none was set."""
        return self._resumed_with().step or None

    def _resumed_with(self) -> HandOver:
        if self._hand_over is None:
            self._hand_over = read_hand_over(self._handed)
        return self._hand_over

    @property
    def parents(self) -> tuple[JobRef, ...]:
        """The jobs of the flow that wait for this one, each as its queue and its id."""
        flow = self._flow()
        return flow.parents if flow else ()

    @property
    def parent(self) -> JobRef | None:
        """The first of `parents`, which is the only one in a tree. None for a root and for a job without a flow."""
        return next(iter(self.parents), None)

    def _flow(self) -> FlowRef | None:
        return flow_of(self._opts)

    def _run_options(self) -> JobOptions:
        """Return the options without `priority`, `lifo`, `key` and `cost`, which the record has in another field."""
        if self._stored_options is None:
            self._stored_options = read_options(self._opts)
        return self._stored_options

    def _metered(self) -> Meter | None:
        """Return the budget of the run, None outside of a run."""
        # Only a run has an entry. A program outside of a worker may write to a job as fast as it likes.
        budget = self._client.budget
        if budget is None or not self._entry:
            return None
        if self._meter is None:
            self._meter = Meter(budget)
        return self._meter

    @property
    def headers(self) -> Mapping[str, str]:
        """The short texts that are sent along with the job."""
        return self._run_options().headers

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
    def failure_group(self) -> str | None:
        """The fingerprint of the group of the last failure, None for a job that has not failed."""
        return self._group.decode(errors="replace") if self._group else None

    @property
    def worker_version(self) -> str | None:
        """The version of the worker that ran the last attempt, None if it is unknown.

        It is stored for attempts that fail, and for the attempts after them.
        """
        _, _, version = (self._runner or b"").decode(errors="replace").partition(" ")
        return version or None

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

        For a suspended job, the end of its timeout. None for a job in another state, for a job that waits for the end
        of another job, and without a timeout.
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
        # An entry of `fifo` has the time when its job became ready. The token of another run has the time of its claim.
        ready = created_ms(None, self._entry or self._last_entry) or (0 if self.fence > 1 else self._created)
        return max(0, self._started - ready) / 1000 if ready else None

    @property
    def finished_at(self) -> datetime | None:
        """The time when the job reached its final state."""
        return from_ms(self._ended) if self._ended else None

    @property
    def abort(self) -> AbortSignal:
        """Set when this run should stop. A coroutine handler is also cancelled."""
        # Created at the first access, because most handlers never look at it. That is not safe for threads, so an
        # executor with threads or processes reads it once in the event loop before the handler can.
        if self._abort is None:
            self._abort = AbortSignal()
        return self._abort

    def _result_of(self, payload: bytes) -> Result:
        value = self._client.decode(payload, "result", self.name, self.id)
        return cast("Result", value if self._read_result is None else self._read_result(value))


def _given(route: Route) -> dict[str, object]:
    """Return the options of a route that differ from their defaults."""
    pairs = zip(Route._fields, route, PLAIN, strict=True)
    return {name: value for name, value, default in pairs if value != default}
