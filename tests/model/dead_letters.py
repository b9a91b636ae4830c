"""Dead letters: jobs delivered by other queues, and replays with fresh attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from tests.model.parts import Job, NewJob, Origin
from tests.model.upkeep import TimedQueue

WALK_STEP = 3
MOST_MOVED = 6
Verdict = Literal["gone", "skip", "stop"]


class Arrival(NamedTuple):
    """A job that another queue posted. `token` makes its delivery unique."""

    token: str
    job: NewJob
    origin: Origin | None


class Return(NamedTuple):
    """A dead letter that its dead-letter queue returns to this queue."""

    token: str
    failed: int
    job: NewJob


class DeadLetterQueue(TimedQueue):
    """A queue that receives dead letters and replays them."""

    def __init__(self, now: int, *, step: int) -> None:
        super().__init__(now, step=step)
        self.tokens: set[str] = set()  # of all jobs that other queues delivered

    def deliver(self, arrivals: Sequence[Arrival]) -> dict[int, str]:
        """Add jobs that another queue posted. Return the reply codes of those that were not added."""
        outcomes = dict[int, str]()
        marked = False
        for position, (token, new, origin) in enumerate(arrivals):
            code = "seen" if token in self.tokens else self.in_the_way(new)[0]
            self.tokens.add(token)
            if code:
                outcomes[position] = code
                continue
            self.create(new.id, new)
            if origin is not None:
                job = self.jobs[new.id]
                job.origin, job.moved, marked = origin, origin.failed, True
        if marked:
            self._cap_moved()
        return outcomes

    def _cap_moved(self) -> None:
        """Keep the newest jobs. Running jobs end by themselves."""
        moved = self.moved()
        for job in moved[: max(0, len(moved) - MOST_MOVED)]:
            self.drop_moved([job.id])
            job.moved = None

    def moved(self) -> list[Job]:
        """Return the jobs, oldest first."""
        moved = [job for job in self.jobs.values() if job.moved is not None]
        return sorted(moved, key=lambda job: (job.moved or 0, job.id))

    def drop_moved(self, ids: Sequence[str]) -> int:
        """Delete dead letters that no worker runs; return how many."""
        dropped = 0
        for id_ in ids:
            job = self.get(id_)
            if job is None:
                self.clean_up(self.jobs.get(id_), id_)
            elif job.state != "active":
                self.remove(id_)
                dropped += 1
        return dropped

    # Reading.

    def dead(self, which: Literal["failed", "moved"], cause: str) -> list[str]:
        """Return the jobs, newest first."""
        jobs = self.moved() if which == "moved" else self.ended("failed")
        return [job.id for job in jobs[::-1] if self._fits(which, job, cause)]

    def _fits(self, which: Literal["failed", "moved"], job: Job, cause: str) -> bool:
        """Return the dead letters. A revoked job is not one, because a user ended it."""
        if which == "failed":
            return job.cause != "revoked" and cause in ("", job.cause) and not self.is_gone(job)
        return not cause or (not job.record_lost and job.origin is not None and job.origin.cause == cause)

    # Replaying.

    def _walk(self, jobs: list[Job], skip: int, left: int | None, each: Callable[[Job], Verdict]) -> tuple[int, int]:
        """One step, oldest first. `skip` jobs were passed over; `left` jobs are still to be visited (None: all)."""
        left = len(jobs) if left is None else left
        if left <= 0:
            return skip, 0
        ahead = jobs[skip : skip + min(WALK_STEP, left)]
        if not ahead:
            return skip, 0
        for job in ahead:
            verdict = each(job)
            if verdict == "stop":
                break
            skip += verdict == "skip"
            left -= 1
        return skip, left

    def replay_failed(self, skip: int, left: int | None, count: int, cause: str) -> tuple[int, int, int]:
        """Restart up to `count` jobs that failed here."""
        started = list[Job]()

        def start(job: Job) -> Verdict:
            if not self._fits("failed", job, cause):
                return "skip"
            if len(started) == count:
                return "stop"
            self.start_anew(job, "replayed")
            started.append(job)
            return "gone"

        return *self._walk(self.ended("failed"), skip, left, start), len(started)

    def read_moved(self, skip: int, left: int | None, count: int, cause: str) -> tuple[int, int, list[Job]]:
        """Return up to `count` jobs that were moved here and that no worker runs."""
        found = list[Job]()

        def read(job: Job) -> Verdict:
            if not self._fits("moved", job, cause):
                return "skip"
            if len(found) == count:
                return "stop"
            if job.record_lost or job.state == "active":
                return "skip"
            found.append(job)
            return "gone"

        return *self._walk(self.moved(), skip, left, read), found

    def revive(self, returns: Sequence[Return]) -> list[str]:
        """Apply a return from the dead-letter queue: the failed job starts again, or is added if it was deleted."""
        codes = list[str]()
        known = set(self.tokens)
        for token, failed, new in returns:
            codes.append("seen" if token in known else self._revive(failed, new))
            known.add(token)
            self.tokens.add(token)
        return codes

    def _revive(self, failed: int, new: NewJob) -> str:
        job = self.get(new.id)
        if job is not None and job.state == "failed" and self.is_gone(job):
            del self.jobs[new.id]
            job = None
        if job is None:
            self.create(new.id, new)
        elif job.state == "failed" and job.ended == failed:
            self.start_anew(job, "replayed")
        else:
            return "superseded"
        return "ok"
