"""Access to the private fields of jobs, for the modules that create, run and settle them.

Job shows only what a user may call. Queues, workers and executors use these functions instead.
"""

# This is the only module that uses the private fields of JobFields from outside of the class.
# pyright: reportPrivateUsage=false
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from glidemq_async.client.ended import Ended
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import Record
from glidemq_async.functions.claimed_jobs import BYTES_OF_A_TIME, NAME_AND_DATA, EntryRow, JobHistory
from glidemq_async.jobs.fields import LATER, NOT_ACTIVE, UNREAD
from glidemq_async.jobs.job import Job
from glidemq_async.options.budget import Meter
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.stored_options import due_ms, is_placing
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.stored.dead_letter import FailureCause
from glidemq_async.stored.flow import FlowRef, with_flow
from glidemq_async.stored.hand_over import HandOver, packed_hand_over
from glidemq_async.stored.record import PLAIN, Route, created_ms, route_of

AnyJob: TypeAlias = Job[Any, Any]
_new: Final[Callable[[type[AnyJob]], AnyJob]] = object.__new__

# -- creating jobs ------------------------------------------------------------------------------------------------


def job_of_claim(
    client: QueueClient,
    job_id: str,
    entry: str,
    fence: int,
    name: str,
    data: bytes,
    opts: bytes,
    history: JobHistory | None,
    now: int,
) -> AnyJob:
    """Return the job with these items of a `ClaimedJob`, at the server's time `now`."""
    # The attributes of `__init__`, each set once, because this runs for each job of a worker.
    job: AnyJob = _new(Job)
    job._client = client
    job.id = job_id
    job._entry = entry
    job.fence = fence
    job.name = name
    job._data_bytes = data
    job._opts = opts
    job.state = "active"
    job.attempts_made = 0
    job._data = UNREAD
    job._started = now
    job._route = PLAIN
    job._origin = job._meter = None
    if opts:
        job._stored_options = None
    # Absent if the record has none of these fields, as for a plain job in its first run.
    if history is not None:
        job.attempts_made, job.stalled_count = history.failures, history.stalls
        job._progress, job._origin = history.progress, history.origin
        if history.hand_over is not None:
            job._handed = history.hand_over
        job._created = created_ms(history.added, "", history.route)
        job._route = route_of(history.route)
    return job


class JobsOfEntries(NamedTuple):
    """The jobs of a direct claim."""

    jobs: list[AnyJob]
    tokens: list[str]
    """The fencing token of each run."""
    have_options: bool
    """False if no job has stored options."""
    have_one_name: bool


def jobs_of_entries(client: QueueClient, rows: Sequence[EntryRow], now: int) -> JobsOfEntries:
    """Return the plain jobs of entries that a worker has claimed at the server's time `now`."""
    # The same attributes as in `job_of_claim`. One loop makes all jobs, because a call for each one costs as much as
    # half of its attributes.
    jobs: list[AnyJob] = []
    tokens: list[str] = []
    stored, name, names, have_options = None, "", 0, False
    new, kind = _new, Job
    for entry, fields in rows:
        if fields[0] != stored:  # most jobs of a claim have the name of the one before
            stored = fields[0]
            name = stored.decode(errors="replace")
            names += 1
        text = entry.decode()
        token = "p" + text
        job: AnyJob = new(kind)
        job._client = client
        job.id = text[:-BYTES_OF_A_TIME]
        job._entry = token
        job.fence = 1
        job.name = name
        job._data_bytes = fields[1]
        if len(fields) > NAME_AND_DATA:
            job._opts = fields[2]
            job._stored_options = None
            have_options = True
        else:
            job._opts = b""
        job.state = "active"
        job.attempts_made = 0
        job._data = UNREAD
        job._started = now
        job._route = PLAIN
        job._origin = job._meter = None
        jobs.append(job)
        tokens.append(token)
    return JobsOfEntries(jobs, tokens, have_options, names == 1)


def job_of_record(client: QueueClient, job_id: str, record: Record) -> AnyJob:
    """Return the job of a stored record."""
    job: AnyJob = Job(client, job_id, record.get(b"name", b"").decode(errors="replace"))
    job._read(record)
    return job


def job_of_add(client: QueueClient, request: AddRequest, job_id: str, now: int) -> AnyJob:
    """Return the job of an add, as it was at the server's time `now`."""
    # As in `job_of_claim`, because this runs for each job of a producer.
    job: AnyJob = _new(Job)
    job._client = client
    job.id = job_id
    _, job.name, job._data_bytes, job._opts, _ = request
    job.state = "waiting"
    job.attempts_made = job.fence = job._started = 0
    job._data = UNREAD
    job._entry = NOT_ACTIVE
    job._route = PLAIN
    job._origin = job._meter = None
    job._created = now
    return job


def job_of_flow(
    client: QueueClient,
    request: AddRequest,
    job_id: str,
    now: int,
    ref: FlowRef,
    options: JobOptions,
    *,
    waits: bool,
) -> AnyJob:
    """Return the job of a node of a flow that was added at the server's time `now`. It `waits` if it has children."""
    job = job_of_add(client, request, job_id, now)
    job._opts = with_flow(request.opts, ref)
    note_options(job, options, now, held=False)
    if waits:
        job.state, job._due = "waiting-children", 0
    return job


def job_of_gone(client: QueueClient, job_id: str) -> AnyJob:
    """Return a job whose record has been removed. All fields but the id raise JobNotFound."""
    # `__init__` is not called, so all other slots stay empty. Reading one calls `__getattr__` of JobFields, which
    # raises JobNotFound. A job with default values would look like a waiting job.
    job: AnyJob = Job.__new__(Job)
    job._client, job.id, job._entry = client, job_id, NOT_ACTIVE
    return job


class RunValues(NamedTuple):
    """The data of a run as plain values for another process, which gets them as a list."""

    id: str
    name: str
    data: bytes
    """The payload in the default serialization."""
    opts: bytes
    fence: int
    entry: str
    started: int
    attempts_made: int
    stalled_count: int
    created: int
    progress: bytes | None
    """In the default serialization."""
    route: Sequence[Any] | None
    """The fields of a `Route`, None for a plain job."""
    origin: bytes | None
    handed: bytes | None
    """The hand-over, with payloads in the default serialization."""


def job_of_values(client: QueueClient, values: Iterable[Any], kind: type[AnyJob] = Job) -> AnyJob:
    """Return the job of a run from the items of a `RunValues`, in another process. `kind` is the class of the job."""
    run = RunValues(*values)
    job: AnyJob = kind(client, run.id, run.name)
    job.state = "active"
    job._data_bytes, job._opts, job._progress = run.data, run.opts, run.progress
    job.fence, job._entry, job._started = run.fence, run.entry, run.started
    job.attempts_made, job.stalled_count = run.attempts_made, run.stalled_count
    job._created, job._origin, job._handed = run.created, run.origin, run.handed
    if run.route:
        job._route = Route(*run.route)
    return job


def values_of(job: AnyJob) -> RunValues:
    """Return the data of a run for another process.

    Raises SerializationError when the payload cannot be decoded.
    """
    # The child has neither the serializer nor the codecs of the queue, and must not have their keys. So the payload is
    # decoded here, in the worker.
    data = MsgpackSerializer().dumps(job.data)
    return RunValues(
        id=job.id,
        name=job.name,
        data=data,
        opts=job._opts,
        fence=job.fence,
        entry=job._entry,
        started=job._started,
        attempts_made=job.attempts_made,
        stalled_count=job.stalled_count,
        created=job._created,
        progress=None if job._progress is None else MsgpackSerializer().dumps(job.progress),
        route=None if job._route is PLAIN else job._route,
        origin=job._origin,
        handed=_plain_hand_over(job),
    )


def _plain_hand_over(job: AnyJob) -> bytes | None:
    if job._handed is None:
        return None
    kept, dumps = job._resumed_with(), MsgpackSerializer().dumps
    pairs = zip(kept.signals, job.signals, strict=True)
    return packed_hand_over(kept.cause, kept.step, [one._replace(data=dumps(seen.data)) for one, seen in pairs])


# -- reading what users do not need -------------------------------------------------------------------------------


def client_of(job: AnyJob) -> QueueClient:
    """Return the client through which the job was added or read."""
    return job._client


def hand_over_of(job: AnyJob) -> HandOver:
    """Return the values that the resume of the job gives to its runs."""
    return job._resumed_with()


def entry_of(job: AnyJob) -> str:
    """Return the fencing token of the run, "" outside of a run."""
    return job._entry


_OF_A_RUN: Final = (
    "state", "attempts_made", "stalled_count", "fence", "_entry", "_data", "_data_bytes", "_opts", "_started",
    "_created", "_progress", "_route", "_origin", "_meter", "_abort", "_handed", "_hand_over", "_journal",
)  # fmt: skip
"""The attributes that may differ from run to run of a job."""
_OF_A_READ: Final = tuple((name, first) for name, first in LATER.items() if name not in _OF_A_RUN)
"""The other attributes of a job, for which only a read has values, and their first values."""


# This takes a part of the time in which a warm run continues. Reading an attribute that was never set costs as much as
# ten others, so attributes that only a read sets are not looked at without one.
def continue_as(job: AnyJob, following: AnyJob) -> None:
    """Update the job object of an earlier run to the next run of its job. From now on both share one journal."""
    following.abort  # noqa: B018 - made now, so that both objects have the same one
    journal = job._journal
    following._journal = journal
    if journal is not None:
        journal.reopen(following._entry, following.fence)
    for name in _OF_A_RUN:
        setattr(job, name, getattr(following, name))
    was_read = _was_read(following)
    for name, first in _OF_A_READ:
        setattr(job, name, getattr(following, name) if was_read else first)


def take_meter(job: AnyJob, earlier: AnyJob) -> None:
    """Give a run the budget that its function has used through the job object of an earlier run."""
    job._meter = earlier._meter


def _was_read(job: AnyJob) -> bool:
    """Return whether the job of a claim was read since, for example by a middleware."""
    try:
        object.__getattribute__(job, "_ended")
    except AttributeError:
        return False
    return True


def started_ms(job: AnyJob) -> int | None:
    """Return when the last run started (server ms), None if there was none."""
    return job._started or None


def has_options(job: AnyJob) -> bool:
    """Return whether the job has stored options. If not, `run_options` returns only defaults."""
    return bool(job._opts)


def run_options(job: AnyJob) -> JobOptions:
    """Return the options that a run needs, which are all but `priority`, `lifo`, `key` and `cost`."""
    return job._run_options()


def payload_limit(job: AnyJob) -> int:
    """Return the maximum size of a result in bytes, before serializer and codecs."""
    return job._client.payloads.plain_limit


def meter_of(job: AnyJob) -> Meter | None:
    """Return the used budget of the run, None if nothing was used."""
    return job._meter


def is_unreadable(job: AnyJob, error: BaseException) -> bool:
    """Return whether this error was raised by decoding the job's own data."""
    return error is job._unreadable


def result_of(job: AnyJob, ended: Ended) -> Any:
    """Return the result of an ended job, or raise JobFailed."""
    return job._outcome_of(ended)


# -- updating jobs ------------------------------------------------------------------------------------------------


def note_options(job: AnyJob, options: JobOptions, now: int, *, held: bool) -> None:
    """Set the fields that follow from the options of an add at the server's time `now`.

    With `held` the job waits for the end of another job.
    """
    job._options = options
    if not is_placing(options):
        return
    job._route = Route(options.priority, options.lifo, options.key, options.cost)
    due = due_ms(options, now)
    if held:
        job.state = "delayed"
    elif due > now:
        job.state, job._due = "delayed", due
    elif options.key is not None:
        job.state = "key-waiting"
    elif options.priority:
        job.state = "prioritized"


def leave_out_data(job: AnyJob) -> None:
    """Set the data to None, for jobs that were read without payloads."""
    job._data_bytes, job._data = b"", None


def read_result_as(job: AnyJob, reader: Callable[[Any], Any]) -> None:
    """Convert the stored result with `reader` before it is returned to callers."""
    job._read_result = reader


def settle_as_completed(jobs: Iterable[AnyJob], payloads: Iterable[bytes]) -> None:
    """Record that the results of the runs of these jobs were stored."""
    for job, payload in zip(jobs, payloads, strict=False):
        job.state, job._result = "completed", payload
        job.attempts_made += 1


def settle_first_runs(jobs: Iterable[AnyJob], payload: bytes) -> None:
    """Record that this result of the first run of each of these jobs was stored."""
    for job in jobs:
        job.state, job._result, job.attempts_made = "completed", payload, 1


def settle_as_failed(job: AnyJob, cause: FailureCause, reason: str) -> None:
    """Record that the failure of the run was stored as final."""
    job.state, job.failure_cause, job.failed_reason = "failed", cause, reason
    job.attempts_made += 1


def end_as(job: AnyJob, other: AnyJob) -> None:
    """Copy the final state from another object of the same job."""
    job.state, job.attempts_made, job.fence = other.state, other.attempts_made, other.fence
    job.failed_reason, job.failure_cause = other.failed_reason, other.failure_cause
    job._result, job._error = other._result, other._error
    job._started, job._ended = other._started, other._ended
    job._last_entry = other._entry or other._last_entry


def stored_parts(job: Job[Any, Any]) -> tuple[bytes, bytes]:
    """Return the stored data and the stored options of a job."""
    return job._data_bytes, job._opts  # pyright: ignore[reportPrivateUsage]
