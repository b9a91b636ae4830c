"""The rules of one queue in plain Python: what every call does to the jobs, and what it answers.

Read it top to bottom to learn the queue; upkeep.py goes on with time and leases. No storage, no bytes on a
wire: those are the library's, and machine.py compares the two after each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from tests.model.parts import DEFAULT_RETENTION, Event, Final, Job, NewJob, Retention, Settled, State

HOLD_MS = 60_000
"""A result somebody waits for stays readable at least this long."""


class Queue:
    """One queue."""

    def __init__(self, now: int, *, step: int) -> None:
        self.now: int = now
        self.step = step  # how many due or expired jobs one call handles at most
        self.jobs: dict[str, Job] = {}
        self.paused = False
        self.events: list[Event] = []
        self.keep: dict[Final, Retention | None] = {"completed": None, "failed": None}  # applied last
        self.line = itertools.count(1)
        self.last_id = 0

    # Looking.

    def get(self, id_: str) -> Job | None:
        """The job, unless its record is gone."""
        job = self.jobs.get(id_)
        return None if job is None or job.torn else job

    def having(self, *states: State) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in states]

    def waiting(self) -> list[Job]:
        """In the order in which they will be claimed: what came back first, then first in, first out."""
        return sorted(self.having("waiting"), key=lambda job: (not job.returned, job.line))

    def scheduled(self) -> list[Job]:
        return sorted(self.having("delayed"), key=lambda job: (job.due, job.id))

    def ended(self, state: State) -> list[Job]:
        """Oldest first."""
        return sorted(self.having(state), key=lambda job: (job.ended or 0, job.id))

    def note(self, kind: str, id_: str, detail: str = "") -> None:
        self.events.append(Event(kind, id_, detail))

    # Adding.

    def add(self, new: Sequence[NewJob], named: Sequence[str]) -> dict[int, str]:
        """Answer why some were not added. `named`: the ids that the queue answered, chosen where none is asked.

        Chosen ids are growing numbers; one that somebody uses as a custom id is skipped, never overwritten.
        """
        outcomes = dict[int, str]()
        custom = {one.id for one in new}
        for position, (one, id_) in enumerate(zip(new, named, strict=True)):
            if one.id:
                assert id_ == one.id, f"asked for the id {one.id}, named {id_}"
            else:
                assert int(id_) > self.last_id, f"the generated id {id_} follows {self.last_id}"
                assert id_ not in {*self.jobs, *custom}, f"the generated id {id_} is a custom one"
                self.last_id = int(id_)
            there = self.get(id_)
            if there is not None:
                outcomes[position] = "completed" if there.state == "completed" else "duplicate"
            else:
                self._create(id_, one)
        return outcomes

    def _create(self, id_: str, one: NewJob) -> None:
        job = self.jobs[id_] = Job(id_, one.name, one.data, one.lease)
        due = one.at or (self.now + one.delay if one.delay else 0)
        if one.ttl:
            job.expires = self.now + one.ttl
        if one.reply:
            job.waiters = [one.reply]
        self.note("added", id_, one.name)
        if due > self.now:
            job.state, job.due = "delayed", due
            self.note("delayed", id_)
        else:
            self._to_line(job)

    def _to_line(self, job: Job) -> None:
        job.state, job.returned, job.line = "waiting", False, next(self.line)

    # Settling and claiming.

    def settle(self, runs: Sequence[Settled]) -> dict[int, str]:
        """End runs; answer why some were refused. A refused run changes nothing."""
        refused = self._refusals(runs)
        ended: dict[tuple[Final, Retention | None], list[Job]] = {}
        for position, run in enumerate(runs):
            if position not in refused:
                job = self.jobs[run.id]
                state = self._apply(job, run)
                if state:
                    ended.setdefault((state, run.retention), []).append(job)
        for (state, retention), jobs in ended.items():
            self._store(state, retention, jobs)
        return refused

    def _refusals(self, runs: Sequence[Settled]) -> dict[int, str]:
        """The fence: only the present lease of a job settles it, and only once."""
        refused, seen = dict[int, str](), set[str]()
        for position, run in enumerate(runs):
            job = self.jobs.get(run.id)
            if job is None or job.torn:
                refused[position] = "missing"
                self._clean(job)
                if job is not None and job.state == "active" and job.token == run.token:
                    del self.jobs[run.id]  # nothing is left of it now
            elif job.state != "active" or job.token != run.token or run.token in seen:
                refused[position] = "stale"
            seen.add(run.token)
        return refused

    def _clean(self, job: Job | None) -> None:
        """What stood beside a record that was deleted by hand goes when that is found out."""
        if job is not None:
            job.expires, job.revoking, job.waiters, job.logs = None, False, [], []

    def _apply(self, job: Job, run: Settled) -> Final | None:
        """What one run comes to; answers the final state if it is one."""
        verb, reason = run.verb, run.reason
        if job.revoking and verb != "c":
            verb, reason = "f", "revoked"  # a revoked job does not come back
        if verb == "c":
            job.result = run.payload
            return "completed"
        if verb in "fr":
            job.failures += 1
            job.error, job.reason = run.payload, reason
        if verb == "f":
            return "failed"
        if verb == "b":
            self._come_back(job)
        elif verb == "r" and run.delay == 0:
            self._to_line(job)
        else:
            job.state, job.due = "delayed", self.now + run.delay
        if verb == "r":
            self.note("retrying", job.id, f"{run.delay} {run.reason}")
        elif verb == "d":
            self.note("delayed", job.id)
        return None

    def _come_back(self, job: Job) -> None:
        """Unfinished and unjudged: to the head, in the original order."""
        job.state, job.returned = "waiting", True
        self.note("returned", job.id)

    def claim(self, worker: str, slots: int, lock: int) -> list[Job]:
        """Start up to `slots` jobs. Nothing moves while the queue is paused."""
        if self.paused:
            return []
        self._promote_due()
        started = list[Job]()
        for job in self.waiting():
            if len(started) == slots:
                break
            if job.expires is not None and job.expires <= self.now:
                self._expire(job)
            elif job.torn:
                del self.jobs[job.id]
                self.note("dropped", job.id, "missing")
            else:
                self._start(job, worker, lock)
                started.append(job)
        return started

    def _start(self, job: Job, worker: str, lock: int) -> None:
        job.state, job.token, job.worker, job.idle = "active", "?", worker, 0
        job.fence += 1
        job.lock = job.lease or lock
        job.expires = None  # it started in time
        self.note("active", job.id)

    def _promote_due(self) -> None:
        for job in [job for job in self.scheduled() if job.due <= self.now][: self.step]:
            if job.torn:
                del self.jobs[job.id]
            else:
                self._to_line(job)
                self.note("waiting", job.id)

    def next_due(self) -> int:
        """When a worker should look again by itself; 0: it need not."""
        scheduled = self.scheduled()
        return scheduled[0].due if scheduled and not self.paused else 0

    # Ends.

    def _fail(self, job: Job, reason: str) -> None:
        """Failed by the queue, not by a run: no failure is counted."""
        job.reason = reason
        self._store("failed", None, [job])

    def _expire(self, job: Job) -> None:
        if job.torn:
            del self.jobs[job.id]
        else:
            self._fail(job, "expired")

    def _store(self, state: Final, retention: tuple[int, int] | None, jobs: list[Job]) -> None:
        """Tell the waiters, then keep what the policy keeps; a job somebody waited for stays a while.

        The policy of the job that ends last holds for the whole set. (The default one leaves ages to the sweep.)
        """
        count, age = retention or DEFAULT_RETENTION[state]
        for job in jobs:
            job.state, job.ended, job.expires, job.revoking = state, self.now, None, False
            self.note(state, job.id, (job.reason or "") if state == "failed" else "")
            waited, job.waiters = bool(job.waiters), []
            if waited:
                job.held = self.now + HOLD_MS
            if count == 0 and waited:
                job.drop = True
            elif count == 0:
                del self.jobs[job.id]
        if count == 0:
            return
        self.keep[state] = retention
        kept = self.ended(state)
        if count > 0:
            self._discard(kept[: max(0, len(kept) - count)])
        if retention is not None:
            self._discard_older(state, age)

    def _discard_older(self, state: Final, age: int) -> None:
        if age >= 0:
            self._discard(job for job in self.ended(state) if (job.ended or 0) <= self.now - age)

    def _discard(self, jobs: Iterable[Job]) -> None:
        for job in list(jobs):
            if job.held is None:
                del self.jobs[job.id]

    # What users do.

    def remove(self, id_: str) -> str:
        job = self.get(id_)
        if job is None:
            return "missing"
        del self.jobs[id_]
        self.note("removed", id_, job.state)
        return "ok"

    def retry(self, id_: str) -> str:
        """Again, with fresh attempts; the fence goes on counting."""
        job = self.get(id_)
        if job is None:
            return "missing"
        if not job.over:
            return f"state {job.state}"
        job.failures = job.stalls = 0
        job.ended = job.result = job.error = job.reason = job.progress = job.held = None
        job.drop = False
        self._to_line(job)
        self.note("waiting", id_, "retried")
        return "ok"

    def revoke(self, id_: str) -> str:
        """It will not run (again): failed at once, or when its run ends."""
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.over:
            return f"state {job.state}"
        if job.state == "active":
            job.revoking = True
            self.note("revoking", id_)
            return "revoking"
        self._fail(job, "revoked")
        return "revoked"

    def promote(self, id_: str) -> str:
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.state != "delayed":
            return f"state {job.state}"
        self._to_line(job)
        self.note("waiting", id_, "promoted")
        return "ok"

    def update(self, id_: str, token: str, kind: str, value: str) -> str:
        """Progress, data or a log line; a run may write only while the job is its own."""
        job = self.get(id_)
        if job is None:
            return "missing"
        if token and (job.state != "active" or job.token != token):
            return "stale"
        if kind == "log":
            job.logs.append(value)
            return "ok"
        if kind == "progress":
            job.progress = value
        else:
            job.data = value
        self.note("progress" if kind == "progress" else "updated", id_)
        return "ok"

    def await_job(self, id_: str, channel: str) -> str:
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.over:
            return job.state
        job.waiters = [*(one for one in job.waiters if one != channel), channel]
        return "waiting"

    def forget_reply(self, id_: str, channel: str) -> None:
        job = self.jobs.get(id_)
        if job is not None:
            job.waiters = [one for one in job.waiters if one != channel]

    def set_paused(self, paused: bool) -> None:
        """Only a change is an event."""
        if paused != self.paused:
            self.paused = paused
            self.note("paused" if paused else "resumed", "")

    # Damage.

    def tear(self, id_: str) -> None:
        """Somebody deletes the record by hand. The place is cleaned up when it is next touched."""
        self.jobs[id_].torn = True
