"""Job schedulers: jobs that the queue adds by itself. Each fire time adds one job, however many processes try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from tests.model.cleaning import CleanedQueue
from tests.model.lines import SEP
from tests.model.parts import NewJob

PATROL_MS = 60_000
SECOND_LATER_MS = 200
LATE_MS = 1_000
PROMPT_MS = 5_000
FIRING_MS = 90_000


class Template(NamedTuple):
    """The arguments of an upsert: the jobs, their largest number, and whether each one waits for its predecessor."""

    spec: str
    job: NewJob
    limit: int | None = None
    alone: bool = False
    after: int | None = None  # delay from the end of the last job to the next fire time


@dataclass
class Scheduler:
    """A scheduler and its history. `next` is its next fire time, or None when it has ended."""

    template: Template
    rev: int
    next: int | None
    born: int  # its first rev
    fired: int = 0
    skipped: int = 0
    last_slot: str = ""
    last_job: str = ""
    triggered: str = ""
    paused: bool = False


class ScheduledQueue(CleanedQueue):
    """A queue with job schedulers, and processes that come at their fire times."""

    def __init__(self, now: int, *, step: int) -> None:
        super().__init__(now, step=step)
        self.schedulers: dict[str, Scheduler] = {}
        self.last_rev = 0
        self.roles: dict[int, tuple[str, int]] = {}  # first, second: a process, and its latest time
        self.presence: tuple[int, int] | None = None  # times since and until which a process is present

    def next_fire(self) -> int | None:
        """Return the next fire time of all schedulers."""
        return min((one.next for one in self.schedulers.values() if one.next is not None), default=None)

    def upsert(
        self, process: str, id_: str, seen: tuple[int, int | None] | None, template: Template, next_fire: int | None
    ) -> tuple[int, int] | None:
        """Store a scheduler if it has not changed since the caller read it (rev and next fire time). Its history stays.
        The caller then comes at the fire time.
        """
        stored = self.schedulers.get(id_)
        if (None if stored is None else (stored.rev, stored.next)) != seen:
            return None
        self.last_rev += 1
        if stored is None:
            stored = self.schedulers[id_] = Scheduler(template, self.last_rev, next_fire, self.last_rev)
        stored.template, stored.rev = template, self.last_rev
        stored.next = None if stored.paused else next_fire
        due = self.next_fire()
        return self.now, 0 if due is None else self._take_role(process, due, first=True)[1]

    def _take_role(self, process: str, due: int, *, first: bool) -> tuple[int, int, int]:
        """Assign the roles: one process comes at the fire time, a second one a little later, the others patrol.

        Return the role, the time, and since when a process is present.
        """
        since = self.now
        if self.presence is not None and self.now <= self.presence[1] <= self.now + 2 * FIRING_MS:
            since = min(self.presence[0], self.now)
        if first or self._is_free(1, process):
            if self.roles.get(2, ("", 0))[0] == process:
                del self.roles[2]
            role, at = 1, max(due, self.now)
        elif self._is_free(2, process):
            role, at = 2, max(due, self.now) + SECOND_LATER_MS
        else:
            return 0, self.now + PATROL_MS, since
        self.roles[role] = process, min(at, self.now + PATROL_MS)
        self.presence = since, self.now + FIRING_MS if due <= self.now else self.roles[role][1] + PROMPT_MS
        return role, self.roles[role][1], since

    def _is_free(self, role: int, process: str) -> bool:
        holder, latest = self.roles.get(role, (process, 0))
        return holder == process or self.now > latest + LATE_MS or latest > self.now + 2 * PATROL_MS

    def take_schedules(
        self, process: str, after: tuple[int, str] | None
    ) -> tuple[bool, bool, int, list[tuple[str, int, int]], int]:
        """Return whether the process has a role and is first, when it comes again, what is due (id, rev, fire time),
        and since when.
        """
        rows = sorted((one.next, id_, one.rev) for id_, one in self.schedulers.items() if one.next is not None)
        if after is not None:
            still_stored = after[1] in self.schedulers and self.schedulers[after[1]].next == after[0]
            rows = [row for row in rows if (row[:2] > after if still_stored else row[0] >= after[0])]
        if not rows:
            return False, False, 0, [], self.now
        role, at, since = self._take_role(process, rows[0][0], first=False)
        return (
            role > 0,
            role == 1,
            at,
            [(id_, rev, fire_time) for fire_time, id_, rev in rows if fire_time <= self.now],
            since,
        )

    def leave_schedules(self, process: str) -> None:
        left = {role: one for role, one in self.roles.items() if one[0] != process}
        if self.roles and not left and self.presence is not None:
            self.presence = self.presence[0], self.now
        self.roles = left

    def pause_scheduler(self, id_: str) -> bool:
        """Take away the next fire time until the scheduler is resumed."""
        stored = self.schedulers.get(id_)
        if stored is None:
            return False
        stored.paused, stored.next = True, None
        return True

    def resume_scheduler(self, process: str, id_: str, rev: int, next_fire: int | None) -> tuple[int, int] | None:
        """Set the next fire time of a paused scheduler that has not changed since the caller read it."""
        stored = self.schedulers.get(id_)
        if stored is None or not stored.paused or stored.rev != rev:
            return None
        stored.paused = False
        if stored.template.after is not None and self._has_not_ended(stored.last_job):
            self.marks[stored.last_job] = SEP + id_
            return self.now, 0
        stored.next = next_fire
        due = self.next_fire()
        return self.now, 0 if due is None else self._take_role(process, due, first=True)[1]

    def remove_scheduler(self, id_: str) -> bool:
        """Remove a scheduler. Its jobs stay."""
        found = self.schedulers.pop(id_, None)
        if found is not None and not self.schedulers:
            self.roles.clear()
            self.presence = None
        return found is not None

    def fire(
        self, id_: str, seen: tuple[int, int], fire_times: Sequence[int], skipped: int, next_fire: int | None
    ) -> bool:
        """Add the jobs of these fire times if they are due and the caller knows the present scheduler."""
        stored = self.schedulers.get(id_)
        if stored is None or (stored.rev, stored.next) != seen or any(fire_time > self.now for fire_time in fire_times):
            return False
        limit, job, alone = stored.template.limit, stored.template.job, stored.template.alone
        busy, after, before = self._has_not_ended(stored.triggered), stored.template.after, stored.fired
        if after is not None and self._has_not_ended(stored.last_job):
            self.marks[stored.last_job], stored.next = SEP + id_, None
            return True
        if skipped:
            self.note("skipped", id_, f"{skipped} missed")
        stored.skipped += skipped
        for fire_time in fire_times:
            if limit is not None and stored.fired >= limit:
                break
            code = "overlap"
            if not (alone and (busy or self._has_not_ended(stored.last_job))):
                name = f"{id_}@{fire_time}"
                code = self._add_own(job._replace(id=name), name)[1]
            if code:
                stored.skipped += 1
                self.note("skipped", id_, f"{fire_time} {code}")
            else:
                stored.last_job, stored.last_slot = f"{id_}@{fire_time}", str(fire_time)
                stored.fired += 1
        if after is not None and stored.fired > before:
            self.marks[stored.last_job], next_fire = SEP + id_, None
        elif after is not None and next_fire is not None:
            next_fire = self.now + after
        over = limit is not None and stored.fired >= limit
        stored.next = None if over else next_fire
        return True

    @override
    def note_end_of_job(self, scheduler: str, job: str) -> None:
        stored = self.schedulers.get(scheduler)
        if stored is None or stored.template.after is None or stored.last_job != job or stored.paused:
            return
        limit = stored.template.limit
        if limit is None or stored.fired < limit:
            stored.next = self.now + stored.template.after

    def trigger(self, id_: str, named: str) -> tuple[str, str]:
        """Add a job now, named by the server; return it, or the existing job, and the reply code."""
        stored = self.schedulers[id_]
        found, code = self._add_own(stored.template.job, named)
        stored.triggered = found
        return found, code or "added"

    def _add_own(self, new: NewJob, named: str) -> tuple[str, str]:
        """Return the job, or the existing job, and the reply code."""
        code, owner = self.in_the_way(new)
        if code:
            self.note("duplicate", owner, new.dedup.id if new.dedup else "")
            return owner, code
        if not new.id:
            self.take_id(named)
        self.create(named, new)
        return named, ""

    def _has_not_ended(self, id_: str) -> bool:
        job = self.get(id_)
        return job is not None and not job.over
