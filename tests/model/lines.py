"""How jobs wait: the lines and their order, the keys, and what limits delay.

The lines of a queue, each claimed from its head:
    returned     released jobs, before all others
    plain        first in, first out
    lifo         last in, first out
    key k        the jobs of one key, by priority and position; no more of them run than the key allows
    prioritized  by priority, only while no other line has a job that can start
plain, lifo and the keys take turns.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

from tests.model.event_rules import EventRules
from tests.model.limits import Key, Limits, Usage
from tests.model.parts import READY, Event, Job, State, StoppingRun

SEP = "\x1f"
NEVER = 253_402_300_799_000
"""The due time of a successor whose predecessor has not ended."""


class Lines:
    """The jobs of one queue and the lines in which they wait."""

    def __init__(self, now: int, *, step: int) -> None:
        self.now: int = now
        self.step = step  # maximum number of due or expired jobs that one call handles
        self.jobs: dict[str, Job] = {}
        self.paused = False
        self.events: list[Event] = []
        self.event_rules = EventRules()
        self.line = itertools.count(1)
        self.limits = Limits()
        self.usage = Usage()
        self.gate = 0  # nothing starts before this time
        self.behind = False  # the last claim left due jobs to the next one
        self.common = Limits()  # the limits of keys without limits
        self.keys: dict[str, Key] = defaultdict(Key)
        self.owners: dict[str, tuple[int, str]] = {}  # deduplication id -> end of its time (0: no end), job
        self.successors: dict[str, str] = {}  # deduplication id -> the job that follows its owner
        self.stopping: dict[str, StoppingRun] = {}  # lease -> run
        self.marks: dict[str, str] = {}  # job -> the deduplication id that its end frees, or SEP and a scheduler

    # Reading.

    def get(self, id_: str) -> Job | None:
        """Return the job, or None if its record is gone."""
        job = self.jobs.get(id_)
        return None if job is None or job.record_lost else job

    def having(self, *states: State) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in states]

    def lines(self) -> dict[str, list[Job]]:
        """Return the waiting jobs of each line, from its head."""
        lines = defaultdict[str, list[Job]](list)
        for job in self.having(*READY):
            lines[job.line_name].append(job)
        for name, line in lines.items():
            line.sort(key=_sort_key, reverse=name == "lifo")
        return lines

    def scheduled(self) -> list[Job]:
        """Return the delayed jobs in the order of their due times. Equal due times keep the order of the calls."""
        return sorted(self.having("delayed"), key=lambda job: (job.due, job.line))

    def suspended(self) -> list[Job]:
        """Return the suspended jobs in the order of their deadlines."""
        return sorted(self.having("suspended"), key=lambda job: (job.due, job.id))

    def ended(self, state: State) -> list[Job]:
        """Return the ended jobs, oldest first. A job with a time to live is sorted by the end of that time."""
        return sorted(self.having(state), key=lambda job: (job.position, job.id))

    def note(self, kind: str, id_: str, detail: str = "") -> None:
        """Expect an event, unless it is switched off."""
        if self.event_rules.is_on(kind):
            self.events.append(Event(kind, id_, detail, self.event_rules.content(kind, self.jobs.get(id_))))

    def forget(self, job: Job) -> None:
        """Remove every trace of a job."""
        del self.jobs[job.id]
        self.free_dedup(job.id)

    def free_dedup(self, *ids: str) -> None:
        """Free the deduplication ids of owners that end or are removed. Their successors become owners and start."""
        passed_on = list[str]()
        for id_ in ids:
            wanted = self.marks.pop(id_, "")
            if wanted.startswith(SEP):
                self.note_end_of_job(wanted.removeprefix(SEP), id_)
            elif wanted and self.owners.get(wanted, (0, ""))[1] == id_:
                passed_on.append(wanted)
            elif wanted and self.successors.get(wanted) == id_:
                del self.successors[wanted]
        for wanted in passed_on:
            successor = self.successors.pop(wanted, "")
            if successor and self.start_next(successor):
                self.owners[wanted] = 0, successor
            else:
                del self.owners[wanted]

    def start_next(self, id_: str) -> bool:
        """Let a successor start unless it was moved; return whether it has not ended yet."""
        job = self.get(id_)
        if job is None or job.over or job.ending:
            return False
        if job.state != "delayed" or job.due != NEVER:
            return True
        sign, ms = job.after
        due = ms + (self.now if sign == "+" else 0)
        if due > self.now:
            self.delay_until(job, due)
        else:
            self.to_line(job)
            self.note("waiting", id_, "followed")
        return True

    def note_end_of_job(self, scheduler: str, job: str) -> None:
        """Note the end of a job whose scheduler waits for it."""
        raise NotImplementedError

    # Waiting.

    def to_line(self, job: Job) -> None:
        """Put a job that may start into its line. A keyed job keeps the position that it had in its key's line."""
        job.returned = job.resting = job.plain = False
        if job.key is not None:
            job.state, job.key_position = "key-waiting", job.key_position or next(self.line)
        else:
            job.state, job.line = "prioritized" if job.priority else "waiting", next(self.line)

    def delay_until(self, job: Job, due: int) -> None:
        """Put a job among the delayed ones."""
        job.state, job.due, job.line, job.plain = "delayed", due, next(self.line), False

    def put_back(self, job: Job) -> None:
        """Put a released job back at its old position, before all jobs that have not started yet."""
        job.plain = False
        if job.key is not None:
            self.to_line(job)
        else:
            job.state, job.returned = "waiting", True

    # Keys.

    def limits_of(self, key: str) -> Limits:
        return self.keys[key].own.over(self.common)

    def room(self, key: str) -> int:
        """Return how many more jobs of the key may run. With a concurrency of 1, the key also waits for a job between
        attempts.
        """
        most = self.limits_of(key).concurrency or 1
        mine = [job for job in self.jobs.values() if job.key == key]
        if most == 1 and any(job.state == "delayed" and job.resting for job in mine):
            return 0
        stopping = sum(run.key == key for run in self.stopping.values())
        return max(0, most - sum(job.state == "active" for job in mine) - stopping)

    def opens_at(self, key: str, head: Job) -> int:
        """Return the time at which pause, window and bucket let this job of the key start: now, or later."""
        state, limits = self.keys[key], self.limits_of(key)
        instants = [self.now, state.paused_until]
        if limits.rate:
            instants.append(state.usage.left(limits.rate, self.now)[1])
        if limits.bucket:
            # The cost of a job without a record is unknown.
            instants.append(state.usage.affordable_at(limits.bucket, 0 if head.record_lost else head.cost, self.now))
        return max(instants)

    def held_back(self) -> dict[str, int]:
        """Return the keys that have a waiting job and a free slot, and the times at which their heads may start."""
        found = dict[str, int]()
        for name, line in self.lines().items():
            key = name.removeprefix("key ")
            if key != name and line and self.room(key):
                found[key] = self.opens_at(key, line[0])
        return found

    def startable_keys(self) -> set[str]:
        return {key for key, at in self.held_back().items() if at <= self.now}

    def set_key_limit(self, key: str, name: str, value: str) -> None:
        if key:
            self.keys[key].own = self.keys[key].own.changed(name, value)
        else:
            self.common = self.common.changed(name, value)

    def pause_key(self, key: str, length: int) -> None:
        """Pause a key; 0 ends the pause."""
        self.keys[key].paused_until = self.now + length if length else 0
        self.note("key-paused" if length else "key-resumed", key, str(length))

    # The limits of the queue.

    def set_limit(self, name: str, value: str) -> None:
        self.limits = self.limits.changed(name, value)
        if self.limits.rate is None:
            self.usage.starts.clear()

    def running(self) -> int:
        """Return the number of runs that count under the limit of the queue."""
        return len(self.having("active")) + len(self.stopping)

    def is_full(self) -> bool:
        """Return whether only the end of a run makes a slot free."""
        most = self.limits.concurrency
        return self.gate <= self.now and most is not None and self.running() >= most

    def queue_opens_at(self) -> int:
        """Return the time at which gate and window let a job start: now, or later."""
        if self.gate > self.now:
            return self.gate
        return self.usage.left(self.limits.rate, self.now)[1] if self.limits.rate else self.now

    def allowance(self, slots: int) -> int:
        """Return how many of this number of jobs the limits of the queue let start now."""
        if self.queue_opens_at() > self.now or self.is_full():
            return 0
        if self.limits.rate:
            slots = min(slots, self.usage.left(self.limits.rate, self.now)[0])
        if self.limits.concurrency is not None:
            slots = min(slots, self.limits.concurrency - self.running())
        return slots

    # Time.

    def promote_due(self) -> None:
        due = [job for job in self.scheduled() if job.due <= self.now][: self.step]
        self.behind = len(due) == self.step
        for job in due:
            if job.record_lost:
                self.forget(job)
                self.note("dropped", job.id, "missing")
            else:
                self.to_line(job)
                self.note("waiting", job.id)

    def next_due(self, sleeping: Mapping[str, int] | None = None) -> int:
        """Return when a worker that finds nothing has to look again by itself; 0: never.

        sleeping: the wake times of keys that the server has not visited since, where they differ from the present ones.
        """
        if self.is_full() and not self.paused:
            return 0
        # A paused queue moves due jobs to their lines, and starts nothing.
        opens, held = self.now if self.paused else self.queue_opens_at(), self.held_back()
        if opens > self.now and (self.startable_keys() or self.having("waiting", "prioritized")):
            return opens
        instants = sleeping.values() if sleeping is not None else [at for at in held.values() if at > self.now]
        dues = [*(job.due for job in self.scheduled()[:1]), *instants]
        dues += [job.due for job in self.suspended()[:1] if job.due < NEVER]
        return max(min(dues), opens if opens > self.now else 0) if dues else 0


def _sort_key(job: Job) -> tuple[int, int]:
    if job.key is not None:
        return job.priority, job.key_position
    return 0 if job.returned else job.priority, job.line
