"""Changes of whole queues, of their keys and of their schedules. Each writes an audit line."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from glidemq_async.durations import instant_to_ms
from glidemq_async.jobs.job import Job
from glidemq_async.ops.errors import SettingsChanged, WrongTicket
from glidemq_async.ops.part import OpsPart
from glidemq_async.options.retention import KeepJobs, checked_keep
from glidemq_async.queues.cleaning import CleanState
from glidemq_async.queues.event_rules import EventContent, change_events
from glidemq_async.queues.events import EventKind
from glidemq_async.queues.limits import UNCHANGED, Unchanged, change_key_limits, change_limits, change_pause
from glidemq_async.queues.queue import Queue
from glidemq_async.queues.rates import RateLimit, TokenBucket
from glidemq_async.queues.retention import hold_retention
from glidemq_async.queues.schedulers import pause_scheduler
from glidemq_async.storage import FunctionError
from glidemq_async.stored.dead_letter import FailureCause
from glidemq_async.stored.record import State


@dataclass(frozen=True, slots=True)
class ObliteratePreview:
    """The jobs that `obliterate` would remove: `counts` by state, and `count` in all. `ticket` permits the removal."""

    queue: str
    count: int
    counts: dict[State, int]
    ticket: str


class QueueChanges(OpsPart):
    """The methods of Ops that change whole queues.

    A pause, a limit and a retention that are set here override the declarations of the code until they are released.
    All methods raise QueueNotFound, and `reason` becomes a part of the audit line.
    """

    async def pause(self, queue: str, *, note: str = "", until: datetime | None = None, reason: str = "") -> None:
        """Stop the claims of a queue. `until` ends the pause, and `note` tells other operators why.

        Replaces an earlier pause. Raises TypeError or ValueError for an instant without a time zone.
        """
        ends = 0 if until is None else instant_to_ms("until", until)
        opened = await self.queue(queue)
        async with self.changing("pause", queue, reason=reason or note, until=until):
            await change_pause(opened, self._author(note or reason), paused=True, until_ms=ends)

    async def resume(self, queue: str, *, reason: str = "") -> None:
        """End the pause of a queue."""
        opened = await self.queue(queue)
        async with self.changing("resume", queue, reason=reason):
            await change_pause(opened, self._author(), paused=False)

    async def pause_key(self, queue: str, key: str, seconds: float | timedelta, *, reason: str = "") -> None:
        """Stop starts of jobs with a key for `seconds`; see `Queue.pause_key`."""
        opened = await self.queue(queue)
        async with self.changing("pause key", queue, key, reason=reason, seconds=seconds):
            await opened.pause_key(key, seconds)

    async def resume_key(self, queue: str, key: str, *, reason: str = "") -> None:
        """End the pause of a key."""
        opened = await self.queue(queue)
        async with self.changing("resume key", queue, key, reason=reason):
            await opened.pause_key(key, 0)

    async def set_limits(
        self,
        queue: str,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate_limit: RateLimit | Unchanged | None = UNCHANGED,
        max_waiting: int | Unchanged | None = UNCHANGED,
        note: str = "",
        version: str = "",
        reason: str = "",
    ) -> None:
        """Set limits of a queue. None removes a limit, also one that the code declares; what is left out stays.

        `concurrency` is the number of jobs that run at the same time, `rate_limit` the starts in a window, and
        `max_waiting` the number of waiting jobs from which on adds raise QueueFull. `note` tells other operators why.
        With a `version` of `settings_and_version`, raises SettingsChanged if the limits have changed since. The server
        compares and changes them in one step. Raises TypeError or ValueError for a bad limit, and TypeError without
        one.
        """
        given = _given(concurrency=concurrency, rate_limit=rate_limit, max_waiting=max_waiting)
        opened = await self.queue(queue)
        async with self.changing("set limits", queue, reason=reason or note, limits=given):
            author = self._author(note or reason)
            try:
                await change_limits(opened, author, concurrency, rate_limit, max_waiting, version)
            except FunctionError as error:
                raise SettingsChanged(queue) if error.code == "CHANGED" else error from None

    async def set_key_limits(
        self,
        queue: str,
        key: str | None,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate_limit: RateLimit | Unchanged | None = UNCHANGED,
        token_bucket: TokenBucket | Unchanged | None = UNCHANGED,
        note: str = "",
        reason: str = "",
    ) -> None:
        """Set limits of an ordering key, or with None the default of all keys; see `Queue.set_key_limits`."""
        given = _given(concurrency=concurrency, rate_limit=rate_limit, token_bucket=token_bucket)
        opened = await self.queue(queue)
        async with self.changing("set key limits", queue, key or "", reason=reason or note, limits=given):
            author = self._author(note or reason)
            await change_key_limits(opened, author, key, concurrency, rate_limit, token_bucket)

    async def set_retention(
        self,
        queue: str,
        *,
        completed: bool | int | KeepJobs | None = None,
        failed: bool | int | KeepJobs | None = None,
        note: str = "",
        reason: str = "",
    ) -> None:
        """Set the retention of ended jobs, which overrides the options `keep_completed` and `keep_failed` of the jobs.

        A job that ends applies the held retention, until `release_hold(queue, "keep_completed")`. Jobs with their own
        `result_ttl` keep it. None leaves the retention of `completed` or `failed` jobs as it is. `note` tells other
        operators why.

        Raises TypeError or ValueError for a bad retention, and TypeError without one.
        """
        given = {"keep_completed": checked_keep("completed", completed), "keep_failed": checked_keep("failed", failed)}
        held = {name: keep for name, keep in given.items() if keep is not None}
        if not held:
            raise TypeError("set_retention needs at least one of completed= and failed=")
        opened = await self.queue(queue)
        async with self.changing("set retention", queue, reason=reason or note, retention=held):
            await hold_retention(opened, self._author(note or reason), held)

    async def set_events(
        self,
        queue: str,
        *,
        max_events: int | Unchanged | None = UNCHANGED,
        off: Sequence[EventKind] | Literal["all"] | Unchanged | None = UNCHANGED,
        progress_interval: float | timedelta | Unchanged | None = UNCHANGED,
        content: EventContent | Unchanged | None = UNCHANGED,
        note: str = "",
        reason: str = "",
    ) -> None:
        """Hold rules of a queue's events, as in EventRules. None holds the absence of a rule; the others stay.

        `progress_interval` is in seconds. A rule applies to later events until `release_hold(queue, "events_off")`, and
        so on for "max_events", "progress_interval" and "event_content". Results, `job.watch` and the figures of queues
        do not need events. `note` tells other operators why.

        Raises TypeError or ValueError for a bad rule, and TypeError without one.
        """
        given = _given(max_events=max_events, off=off, progress_interval=progress_interval, content=content)
        opened = await self.queue(queue)
        async with self.changing("set events", queue, reason=reason or note, events=given):
            author = self._author(note or reason)
            await change_events(opened, author, max_events, off, progress_interval, content)

    async def drain(self, queue: str, *, delayed: bool = False, reason: str = "") -> int:
        """Remove the waiting jobs, and with `delayed` the delayed and suspended ones too. Return their number."""
        opened = await self.queue(queue)
        async with self.changing("drain", queue, reason=reason, delayed=delayed) as change:
            change.count = await opened.drain(delayed)
        return change.count

    async def clean(
        self,
        queue: str,
        grace: float | timedelta = 0,
        limit: int = 1_000,
        state: CleanState = "completed",
        *,
        reason: str = "",
    ) -> list[str]:
        """Remove old jobs in a state, and return their ids; see `Queue.clean`."""
        opened = await self.queue(queue)
        async with self.changing("clean", queue, reason=reason, grace=grace, limit=limit, state=state) as change:
            removed = await opened.clean(grace, limit, state)
            change.count = len(removed)
        return removed

    async def retry_jobs(
        self,
        queue: str,
        state: Literal["completed", "failed"] = "failed",
        limit: int | None = None,
        *,
        reason: str = "",
    ) -> int:
        """Run ended jobs again, the newest first, and return their number; see `Queue.retry_jobs`.

        Unlike a bulk operation, this method, `promote_jobs` and `replay_dead_letters` write nothing in the histories of
        the jobs.
        """
        opened = await self.queue(queue)
        async with self.changing("retry", queue, f"state:{state}", reason=reason, limit=limit) as change:
            change.count = await opened.retry_jobs(state, limit)
        return change.count

    async def promote_jobs(self, queue: str, limit: int | None = None, *, reason: str = "") -> int:
        """Make delayed jobs ready now, and return their number; see `Queue.promote_jobs`."""
        opened = await self.queue(queue)
        async with self.changing("promote", queue, "state:delayed", reason=reason, limit=limit) as change:
            change.count = await opened.promote_jobs(limit)
        return change.count

    async def replay_dead_letters(
        self, queue: str, limit: int | None = None, *, cause: FailureCause | None = None, reason: str = ""
    ) -> int:
        """Run dead letters again, the oldest first, and return their number; see `Queue.replay_dead_letter_jobs`."""
        opened = await self.queue(queue)
        async with self.changing("replay", queue, cause or "", reason=reason, limit=limit) as change:
            change.count = await opened.replay_dead_letter_jobs(limit, cause=cause)
        return change.count

    async def release_deduplication(self, queue: str, deduplication_id: str, *, reason: str = "") -> bool:
        """Release a deduplication id; see `Queue.release_deduplication`. Return False if no job owns it."""
        opened = await self.queue(queue)
        async with self.changing("release_deduplication", queue, deduplication_id, reason=reason) as change:
            found = await opened.release_deduplication(deduplication_id)
            change.count = int(found)
        return found

    async def preview_obliterate(self, queue: str) -> ObliteratePreview:
        """Return what `obliterate` would remove, and the ticket that permits it."""
        opened = await self.queue(queue)
        counts = await opened.get_job_counts()
        count = sum(counts.values())
        return ObliteratePreview(queue, count, counts, _ticket(await _incarnation(opened), count))

    async def obliterate(self, queue: str, ticket: str, *, force: bool = False, reason: str = "") -> int:
        """Remove a queue with all its jobs, and return their number; see `Queue.obliterate`.

        `ticket` comes from `preview_obliterate`. Raises WrongTicket if it belongs to another queue of this name, or if
        the queue has since grown by more than a tenth of its jobs plus 100. Raises QueueBusy while jobs run, unless
        `force`.
        """
        opened = await self.queue(queue)
        async with self.changing("obliterate", queue, reason=reason, force=force) as change:
            change.count = 0
            current = await self.preview_obliterate(queue)
            counted = _counted(ticket)
            if counted is None or ticket != _ticket(await _incarnation(opened), counted):
                raise WrongTicket(f"{ticket!r} is not a ticket of queue {queue!r}; make a preview and use its ticket")
            if current.count > counted * 1.1 + 100:
                raise WrongTicket(
                    f"queue {queue!r} has {current.count:,} jobs, and the preview counted {counted:,}; make another"
                )
            change.count = await opened.obliterate(force)
        return change.count

    async def fire_schedule(self, queue: str, scheduler_id: str, *, reason: str = "") -> Job[Any, Any]:
        """Add a job of a scheduler now; see `Queue.trigger_job_scheduler`."""
        opened = await self.queue(queue)
        async with self.changing("fire schedule", queue, scheduler_id, reason=reason):
            return await opened.trigger_job_scheduler(scheduler_id)

    async def pause_schedule(self, queue: str, scheduler_id: str, *, note: str = "", reason: str = "") -> bool:
        """Pause a scheduler. A deploy does not end the pause. Return False if the scheduler does not exist.

        `note` tells other operators why.
        """
        opened = await self.queue(queue)
        async with self.changing("pause schedule", queue, scheduler_id, reason=reason or note) as change:
            found = await pause_scheduler(opened, scheduler_id, self._author(note or reason))
            change.count = int(found)
        return found

    async def resume_schedule(self, queue: str, scheduler_id: str, *, reason: str = "") -> bool:
        """Resume a scheduler. Return False if it does not exist."""
        opened = await self.queue(queue)
        async with self.changing("resume schedule", queue, scheduler_id, reason=reason) as change:
            found = await opened.resume_job_scheduler(scheduler_id)
            change.count = int(found)
        return found

    async def remove_schedule(self, queue: str, scheduler_id: str, *, reason: str = "") -> bool:
        """Remove a scheduler. Return False if it does not exist. Code that declares it adds it again."""
        opened = await self.queue(queue)
        async with self.changing("remove schedule", queue, scheduler_id, reason=reason) as change:
            found = await opened.remove_job_scheduler(scheduler_id)
            change.count = int(found)
        return found


def _given(**limits: object) -> dict[str, object]:
    return {name: value for name, value in limits.items() if not isinstance(value, Unchanged)}


async def _incarnation(queue: Queue[Any, Any]) -> str:
    await queue.connect()
    return queue._client.functions.caller.incarnation  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _ticket(incarnation: str, count: int) -> str:
    return f"{count}-{hashlib.sha256(f'{incarnation} {count}'.encode()).hexdigest()[:10]}"


def _counted(ticket: str) -> int | None:
    number = ticket.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else None
