"""Typed calls of the functions for job schedulers: `schedulers.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from glidemq_async.functions.calling import Arg, Calls, Wait, text
from glidemq_async.functions.scheduler_list import StoredScheduler
from glidemq_async.functions.settings import Author, packed_author


class NextCall(NamedTuple):
    """The server's time, and when to call `take` again, both in ms of the server. `at` is 0 if nothing is scheduled."""

    now: int
    at: int


class SchedulerTemplate(NamedTuple):
    """The content of an upsert: the schedule in its stored form, and the job as for `addJob`."""

    spec: bytes
    limit: int | None
    overlap: bool
    name: str
    data: bytes
    opts: bytes
    extra: bytes
    wait: Wait
    after: str = ""
    """For a schedule that counts from the end of the last job: "a<ms>" or "a<ms> <end ms>"."""


class DueScheduler(NamedTuple):
    """A scheduler whose next fire time has come."""

    id: str
    rev: str
    fire_time: int
    spec: bytes
    wait: Wait


class DueReply(NamedTuple):
    """Reply of `takeSchedules`.

    `at` is when to call again (server ms), 0 when nothing is scheduled. A process has been present without a gap since
    `since`.
    """

    now: int
    holds_role: bool
    is_first: bool
    at: int
    due: list[DueScheduler]
    since: int


class Firing(NamedTuple):
    """The jobs to add for a due scheduler: its fire times, the number of skipped ones, and the next fire time."""

    due: DueScheduler
    fire_times: tuple[int, ...]
    skipped: int
    next: int | None

    def first(self, count: int) -> Firing:
        """Return the same for the first fire times only."""
        # The first fire time that is left out becomes the stored next one. If the process dies after this part, another
        # one continues exactly there.
        if len(self.fire_times) <= count:
            return self
        return self._replace(fire_times=self.fire_times[:count], next=self.fire_times[count])

    def after(self, done: int) -> Firing | None:
        """Return the rest after `done` fire times, None when nothing is left."""
        left = self.fire_times[done:]
        # Skipped fire times were counted by the first part.
        return Firing(self.due._replace(fire_time=left[0]), left, 0, self.next) if left else None


class TriggerReply(NamedTuple):
    """The job that `triggerScheduler` added, or the one that blocked it; `outcome` is the same as for an add."""

    now: int
    id: str
    outcome: str
    name: str
    data: bytes
    opts: bytes


class SchedulerCalls(Calls):
    """Calls of the functions in `schedulers.lua`."""

    __slots__ = ()

    async def upsert(
        self,
        process: str,
        scheduler_id: str,
        seen: StoredScheduler | None,
        template: SchedulerTemplate,
        next_fire: int | None,
        declared: tuple[Author, str] | None = None,
    ) -> NextCall | None:
        """Store a scheduler. Return None if it has changed since it was read.

        `declared` is the author of a scheduler that code declares, and its schedule for people.
        """
        # The next fire time was computed here, from the record that was read before. If another process has changed the
        # scheduler since, that time may be wrong, so the server compares the revision and the caller reads again.
        rev: Arg = seen.record.get(b"rev", b"") if seen else ""
        args: list[Arg] = [process, scheduler_id, rev, _number(seen.next if seen else None), template.spec]
        args += [_number(template.limit), template.after or ("1" if template.overlap else "")]
        args += [template.name, template.data, template.opts, template.extra, template.wait, _number(next_fire)]
        if declared is not None:
            args += [packed_author(declared[0]), declared[1]]
        reply = await self._caller.once("upsertScheduler", args, wait=template.wait)
        return _next_call(reply)

    async def remove(self, scheduler_id: str) -> bool:
        """Delete a scheduler and its history. Return False if it does not exist."""
        return await self._caller.once("removeScheduler", [scheduler_id]) == 1

    async def pause(self, scheduler_id: str, by: Author | None = None) -> bool:
        """Pause a scheduler. Return False if it does not exist."""
        return await self._caller.once("pauseScheduler", [scheduler_id, packed_author(by)]) == 1

    async def resume(self, process: str, seen: StoredScheduler, next_fire: int | None) -> NextCall | None:
        """End a pause. Return None if the scheduler has changed since it was read."""
        args: list[Arg] = [process, seen.id, seen.record.get(b"rev", b""), _number(next_fire)]
        return _next_call(await self._caller.once("resumeScheduler", args))

    async def fire(self, firings: Sequence[Firing], wait: Wait) -> list[int | str]:
        """Add the jobs of up to 100 schedulers. Each fire time adds one job, however many processes try.

        Return for each scheduler the number of fire times that are done, "moved" if it has changed since it was read,
        or why it cannot be read. The list is shorter than `firings` if the server has spent its budget for one call.
        The other schedulers are unchanged then.
        """
        args: list[Arg] = [len(firings)]
        for firing in firings:
            due = firing.due
            args += [
                due.id,
                due.rev,
                due.fire_time,
                _number(firing.next),
                firing.skipped,
                len(firing.fire_times),
                *firing.fire_times,
            ]
        _, *done = cast("list[int | bytes]", await self._caller.once("fireSchedulers", args, wait=wait))
        return [each if isinstance(each, int) else each.decode(errors="replace") for each in done]

    async def trigger(self, scheduler_id: str, wait: Wait) -> TriggerReply | None:
        """Add a job of a scheduler now. Return None if the scheduler does not exist."""
        reply = cast("list[object]", await self._caller.once("triggerScheduler", [scheduler_id], wait=wait))
        if not reply:
            return None
        now, job_id, status, name, data, opts = reply
        template = cast("bytes", data), cast("bytes", opts)
        return TriggerReply(cast("int", now), text(job_id), text(status), text(name), *template)

    async def take(self, process: str, after: tuple[int, str] | None = None, spread: int | None = None) -> DueReply:
        """Read the due schedulers and when to call again, and take a free role.

        `after`: only schedulers after this fire time and id. `spread`: a process that is not the first receives a part
        of the due schedulers that depends on this number, instead of the oldest ones.
        """
        fire_time, scheduler_id = after or ("", "")
        args: list[Arg] = [process, fire_time, scheduler_id, _number(spread)]
        reply = await self._caller.call("takeSchedules", args)
        now, role, at, rows, since = cast("tuple[int, int, int, list[list[bytes]], int]", reply)
        return DueReply(
            now=now, holds_role=role != 0, is_first=role == 1, at=at, due=[_due(row) for row in rows], since=since
        )

    async def leave(self, process: str) -> None:
        """Give up the role of a process that signs off."""
        await self._caller.call("leaveSchedules", [process])


def _next_call(reply: object) -> NextCall | None:
    status, now, at = cast("tuple[bytes, int, int]", reply)
    return NextCall(now, at) if status == b"ok" else None


def _due(row: list[bytes]) -> DueScheduler:
    scheduler_id, rev, fire_time, spec, wait = row
    return DueScheduler(
        id=scheduler_id.decode(),
        rev=rev.decode(),
        fire_time=int(fire_time),
        spec=spec,
        wait=cast("Wait", wait.decode()),
    )


def _number(value: int | None) -> Arg:
    return "" if value is None else value
