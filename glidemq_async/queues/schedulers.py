"""Job schedulers: rules that add jobs to a queue by cron expression or interval."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, Generic, Unpack, cast

import msgpack

from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import from_ms, instant_to_ms
from glidemq_async.errors import SchedulerNotFound, SerializationError
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import Record, Wait
from glidemq_async.functions.scheduler_list import StoredScheduler
from glidemq_async.functions.schedulers import SchedulerTemplate
from glidemq_async.functions.settings import Author
from glidemq_async.jobs.fields import Outcome
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import job_of_add
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.job_options import JobOptions, JobOptionsDict, merge
from glidemq_async.options.stored_options import ReplyTo, read_options, unpack_extra
from glidemq_async.options.table import JOB_OPTIONS
from glidemq_async.options.validation import refuse_unknown
from glidemq_async.queues.base import QueuePart
from glidemq_async.schedules.schedule import (
    FireTimes,
    Schedule,
    ScheduleDict,
    have_same_fire_times,
    interval_ms,
    jitter_ms,
    schedule_text,
)
from glidemq_async.schedules.stored_schedule import read_schedule, schedule_form
from glidemq_async.stored.names import MAX_ID_BYTES, check_id
from glidemq_async.stored.record import whole

__all__ = ["JobScheduler", "SchedulerOptionsDict", "Schedulers"]

#: The job of a fire time has the id "<scheduler id>@<fire time in ms>".
MAX_SCHEDULER_ID_BYTES: Final = MAX_ID_BYTES - 20
PAGE: Final = 20
_NO_DATA: Final[Any] = None
_log = logging.getLogger(__name__)


class SchedulerOptionsDict(ScheduleDict, JobOptionsDict, total=False):
    """The keywords of `upsert_job_scheduler`: the schedule, and the options of its jobs."""


@dataclass(frozen=True, slots=True)
class JobScheduler(Generic[Data]):
    """A snapshot of the job scheduler `id`, which adds jobs at the fire times of `schedule`.

    `next_at` is the next fire time. It is None when the scheduler has ended (by its limit or its end), while it is
    paused (`is_paused`), and with `after_completion` until the last job has ended. `last_at` is the last fire time, and
    `last_job_id` is the job that was added then. `fired` and `skipped` count fire times. `name` and `options` belong to
    the jobs.
    """

    id: str
    schedule: Schedule
    name: str
    options: JobOptions
    next_at: datetime | None
    last_at: datetime | None
    last_job_id: str | None
    fired: int
    skipped: int
    is_paused: bool
    _client: QueueClient = field(repr=False, compare=False)
    _data: bytes = field(repr=False)

    @property
    def data(self) -> Data:
        """The payload of the jobs. Raises SerializationError when the stored bytes cannot be decoded."""
        what = f"data of scheduler {self.id}"
        return cast("Data", self._client.payloads.decode(self._data, "data", self.name, "", what=what))


class Schedulers(QueuePart[Data, Result]):
    """The methods of Queue for job schedulers."""

    _defaults: JobOptions

    @abstractmethod
    def _request(self, name: str, data: Data, options: JobOptions, reply: ReplyTo | None) -> AddRequest:
        """Check and encode one job to add."""

    async def upsert_job_scheduler(
        self,
        scheduler_id: str,
        schedule: Schedule | None = None,
        *,
        name: str | None = None,
        data: Data = _NO_DATA,
        **options: Unpack[SchedulerOptionsDict],
    ) -> JobScheduler[Data]:
        """Create a job scheduler, or change the one with this id. When this returns, it is stored.

        The schedule is a Schedule, or its fields as keywords. `name` (default: the scheduler's id), `data` and the
        options of JobOptions apply to its jobs. `job_id` and `at` are not allowed: the job of each fire time has the id
        "<scheduler id>@<fire time in ms>", so it is added exactly once, whichever process adds it. Every process that
        has the queue open, as a Queue or a Worker, takes part.

        Repeating the call with the same arguments, for example at each start of a program, changes nothing: the
        history, the next fire time and the start of the interval stay. A different schedule keeps the history and
        starts with its first fire time after now. A scheduler that has reached its `limit` or `end` stays listed with
        `next_at` None.

        Raises TypeError or ValueError for a bad schedule or option, and what `add` raises.
        """
        wanted, chosen = _split(schedule, options)
        return await self._upsert(scheduler_id, wanted, scheduler_id if name is None else name, data, chosen, None)

    async def _upsert(
        self, scheduler_id: str, wanted: Schedule, name: str, data: Data, options: JobOptions, by: Author | None
    ) -> JobScheduler[Data]:
        """Upsert a job scheduler; with `by`, as a declaration of the code."""
        _check_scheduler_id(scheduler_id)
        job_options = merge(self._defaults, options)
        request = self._template(name, data, job_options, wanted)
        declared = None if by is None else (by, schedule_text(wanted))
        wait: Wait = job_options.durability
        await self.connect()
        if not self._client.fits(job_options.key):
            await self._client.refuse_key(job_options.key)
        functions, scheduler_runner = self._client.functions, self._client.scheduler_runner
        while True:
            # Compare and set. The next fire time depends on the stored schedule and is computed here, so the server
            # accepts it only if the scheduler is still as it was read. If another process has changed or fired it, read
            # again.
            now, [seen] = await functions.scheduler_list.get([scheduler_id])
            anchor, next_fire = _continue(seen, wanted, now)
            spec = schedule_form(wanted, anchor)
            template = _stored_form(spec, wanted, request, wait)
            reply = await functions.schedulers.upsert(
                scheduler_runner.process, scheduler_id, seen, template, next_fire, declared
            )
            if reply is not None:
                break
        if reply.at:
            scheduler_runner.expect((reply.at - reply.now) / 1000, holds_role=True)
        record: Record = {**(seen.record if seen else {}), **_fields(template)}
        return self._scheduler(StoredScheduler(scheduler_id, None if b"paused" in record else next_fire, record))

    async def pause_job_scheduler(self, scheduler_id: str) -> bool:
        """Stop a job scheduler from adding jobs until it is resumed. Return False if no scheduler has this id.

        It stays listed with `is_paused` True. An upsert does not resume it, and it can still be triggered. Jobs that it
        has already added continue.
        """
        return await pause_scheduler(self, scheduler_id, None)

    async def resume_job_scheduler(self, scheduler_id: str) -> bool:
        """End the pause of a job scheduler. Return False if no scheduler has this id.

        The next fire time is the first one after now. Fire times during the pause are neither fired nor counted. Does
        nothing if the scheduler is not paused. Raises SerializationError if this version cannot read the scheduler.
        """
        _check_scheduler_id(scheduler_id)
        await self.connect()
        functions, scheduler_runner = self._client.functions, self._client.scheduler_runner
        while True:
            now, [seen] = await functions.scheduler_list.get([scheduler_id])
            if seen is None or b"paused" not in seen.record:
                return seen is not None
            schedule, anchor = read_schedule(seen.record.get(b"spec", b""))
            over = schedule.limit is not None and whole(seen.record, b"fired") >= schedule.limit
            next_fire = None if over else FireTimes(schedule, anchor).after(now)
            reply = await functions.schedulers.resume(scheduler_runner.process, seen, next_fire)
            if reply is not None:
                break
        if reply.at:
            scheduler_runner.expect((reply.at - reply.now) / 1000, holds_role=True)
        return True

    async def get_job_scheduler(self, scheduler_id: str) -> JobScheduler[Data] | None:
        """Return a job scheduler, or None if no scheduler has this id.

        Raises SerializationError if this version cannot read it.
        """
        _check_scheduler_id(scheduler_id)
        await self.connect()
        _, [found] = await self._client.functions.scheduler_list.get([scheduler_id])
        return None if found is None else self._scheduler(found)

    async def get_job_schedulers(self) -> list[JobScheduler[Data]]:
        """Return all job schedulers, by id. Those that this version cannot read are logged and left out."""
        await self.connect()
        ids: set[str] = set()
        cursor = "0"
        while cursor:
            cursor, step = await self._client.functions.scheduler_list.list_ids(cursor)
            ids.update(step)
        found: list[JobScheduler[Data]] = []
        for page in _pages(sorted(ids)):
            _, rows = await self._client.functions.scheduler_list.get(page)
            found += self._readable(row for row in rows if row is not None)
        return found

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Delete a job scheduler and its history, but not its jobs. Return False if no scheduler has this id."""
        _check_scheduler_id(scheduler_id)
        await self.connect()
        return await self._client.functions.schedulers.remove(scheduler_id)

    async def trigger_job_scheduler(self, scheduler_id: str) -> Job[Data, Result]:
        """Add a job of a scheduler now, with a generated id. The schedule and the overlap policy are ignored.

        The fire times and the history do not change. With `overlap="skip"` later fire times also wait for this job. If
        its deduplication id is owned by another job, the returned job is that one. Raises SchedulerNotFound, and what
        `add` raises.
        """
        _check_scheduler_id(scheduler_id)
        await self.connect()
        _, [found] = await self._client.functions.scheduler_list.get([scheduler_id])
        # The durability of a call must be known before it is made, so the scheduler is read first. It may be removed in
        # between; the call then returns nothing.
        wait = cast("Wait", found.record.get(b"wait", b"default").decode()) if found else "default"
        added = await self._client.functions.schedulers.trigger(scheduler_id, wait) if found else None
        if added is None:
            raise SchedulerNotFound(
                f"queue {self.name!r} has no job scheduler {scheduler_id!r}; {await self._hint(scheduler_id)}"
            )
        request = AddRequest("", added.name, added.data, added.opts, b"")
        job = job_of_add(self._client, request, added.id, added.now)
        job.outcome = cast("Outcome", added.outcome)
        return job

    async def _hint(self, scheduler_id: str) -> str:
        """Return what to do about an unknown id, with the nearest one of the first known ids."""
        _, known = await self._client.functions.scheduler_list.list_ids("0")
        close = get_close_matches(scheduler_id, known, 1)
        return f"did you mean {close[0]!r}?" if close else "create it with upsert_job_scheduler"

    def _template(self, name: str, data: Data, options: JobOptions, schedule: Schedule) -> AddRequest:
        for option in ("job_id", "at"):
            if getattr(options, option) is not None:
                raise ValueError(
                    f"{option}={getattr(options, option)!r} is not allowed for a scheduler: the job of each fire time "
                    "has its own id and time"
                )
        if options.deduplication is not None and schedule.after_completion:
            raise ValueError("deduplication= and after_completion=True cannot be combined; leave out deduplication=")
        return self._request(name, data, options, None)

    def _scheduler(self, stored: StoredScheduler) -> JobScheduler[Data]:
        try:
            return self._as_stored(stored)
        except SerializationError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SerializationError(f"scheduler {stored.id!r} has an unreadable record: {error!r}") from error

    def _as_stored(self, stored: StoredScheduler) -> JobScheduler[Data]:
        record = stored.record
        schedule, _ = read_schedule(record.get(b"spec", b""))
        last = record.get(b"last_slot")
        return JobScheduler(
            id=stored.id,
            schedule=schedule,
            name=record[b"name"].decode(errors="replace"),
            options=_options_of(record),
            next_at=None if stored.next is None else from_ms(stored.next),
            last_at=from_ms(int(last)) if last else None,
            last_job_id=record.get(b"last_job", b"").decode() or None,
            fired=whole(record, b"fired"),
            skipped=whole(record, b"skipped"),
            is_paused=b"paused" in record,
            _client=self._client,
            _data=record[b"data"],
        )

    def _readable(self, rows: Iterable[StoredScheduler]) -> Iterable[JobScheduler[Data]]:
        for row in rows:
            try:
                yield self._scheduler(row)
            except SerializationError as error:
                _log.warning("job scheduler %r of queue %r cannot be read: %s", row.id, self.name, error)


async def declare_scheduler(
    queue: Schedulers[Any, Any], who: str, scheduler_id: str, schedule: Schedule, data: object, options: JobOptions
) -> None:
    """Upsert a job scheduler that the code declares; see `Schedulers.upsert_job_scheduler`.

    `who` names the version of the code in the settings of the queue.
    """
    by = Author("code", who)
    await queue._upsert(scheduler_id, schedule, scheduler_id, data, options, by)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def pause_scheduler(queue: Schedulers[Any, Any], scheduler_id: str, by: Author | None) -> bool:
    """Pause a job scheduler in the name of an author; see `Schedulers.pause_job_scheduler`."""
    _check_scheduler_id(scheduler_id)
    await queue.connect()
    return await queue._client.functions.schedulers.pause(scheduler_id, by)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _continue(seen: StoredScheduler | None, wanted: Schedule, now: int) -> tuple[int, int | None]:
    """Return the start of the intervals of the new schedule, and its next fire time."""
    # Every start of a program upserts its schedulers, so an upsert without a change must keep the next fire time.
    # Otherwise a program that restarts more often than its interval would never fire. A changed schedule starts anew
    # from now: its fire times in the past were never promised, so none of them counts as missed.
    if seen is None:
        return now, _first_fire_time(wanted, now)
    try:
        before, anchor = read_schedule(seen.record.get(b"spec", b""))
    except SerializationError:
        before, anchor = None, now
    if wanted.limit is not None and whole(seen.record, b"fired") >= wanted.limit:
        return anchor, None
    if before is None or not have_same_fire_times(before, wanted):
        return now, _first_fire_time(wanted, now)
    if seen.next is None and wanted.after_completion and seen.record.get(b"last_job") and not _is_over(seen, before):
        return anchor, None  # the next fire time is set when its last job ends
    # After a scheduler has ended by a limit that is now higher, fire times since then do not count as missed.
    return anchor, seen.next if seen.next is not None else FireTimes(wanted, anchor).after(now)


def _first_fire_time(schedule: Schedule, now: int) -> int | None:
    return FireTimes(schedule, now).after(now - 1 if schedule.immediately else now)


def _is_over(seen: StoredScheduler, schedule: Schedule) -> bool:
    return schedule.limit is not None and whole(seen.record, b"fired") >= schedule.limit


def _stored_form(spec: bytes, schedule: Schedule, request: AddRequest, wait: Wait) -> SchedulerTemplate:
    """Return the stored form of a schedule and of the jobs that it adds."""
    extra, after = request.extra, ""
    if jitter := jitter_ms(schedule):
        extra = msgpack.packb({**unpack_extra(extra), "jitter": jitter})
    if schedule.after_completion:
        after = f"a{interval_ms(schedule)}"
        after += "" if schedule.end is None else f" {instant_to_ms('end', schedule.end)}"
    job = request.name, request.data, request.opts, extra
    return SchedulerTemplate(spec, schedule.limit, schedule.overlap == "skip", *job, wait, after)


def _split(schedule: Schedule | None, options: SchedulerOptionsDict) -> tuple[Schedule, JobOptions]:
    given: dict[str, Any] = {**options}
    fields = {name: given.pop(name) for name in ScheduleDict.__annotations__ if name in given}
    refuse_unknown(given, [*JobOptionsDict.__annotations__, *ScheduleDict.__annotations__], "scheduler")
    if schedule is None:
        return Schedule(**fields), JobOptions(**given)
    if not isinstance(schedule, Schedule):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"schedule must be a Schedule, got {schedule!r}; or pass cron= or every=")
    if fields:
        raise ValueError(f"{', '.join(fields)} cannot be combined with a Schedule object; set it in {schedule!r}")
    return schedule, JobOptions(**given)


def _fields(template: SchedulerTemplate) -> Record:
    return {
        b"spec": template.spec,
        b"name": template.name.encode(),
        b"data": template.data,
        b"opts": template.opts,
        b"extra": template.extra,
        b"wait": template.wait.encode(),
    }


def _options_of(record: Record) -> JobOptions:
    """Return the options of a scheduler's jobs, from the part for workers and the part for the add."""
    found: dict[str, Any] = {"durability": record[b"wait"].decode()} if record[b"wait"] != b"default" else {}
    found |= _options_of_extra(unpack_extra(record[b"extra"]))
    return merge(read_options(record[b"opts"]), found)


def _options_of_extra(extra: dict[str, Any]) -> dict[str, Any]:
    """Decode the result of `to_extra`."""
    sent = ((name, option) for name, option in JOB_OPTIONS.items() if option.sent in extra)
    found: dict[str, Any] = {name: option.unpack(extra[option.sent]) for name, option in sent}
    found = {name: value for name, value in found.items() if value != JOB_OPTIONS[name].default}
    dedup: Deduplication | None = found.get("deduplication")
    if dedup is not None and dedup.mode == "debounce" and found.get("delay") == dedup.ttl:
        found.pop("delay", None)
    return found


def _check_scheduler_id(scheduler_id: str) -> None:
    check_id("scheduler_id", scheduler_id)
    if len(scheduler_id.encode()) > MAX_SCHEDULER_ID_BYTES:
        raise ValueError(
            f"scheduler_id is {len(scheduler_id.encode())} bytes long, at most {MAX_SCHEDULER_ID_BYTES} are allowed: "
            f"{scheduler_id[:40]!r}…"
        )


def _pages(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ids[at : at + PAGE] for at in range(0, len(ids), PAGE))
