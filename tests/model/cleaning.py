"""Bulk work in steps: draining, cleaning, promoting, retrying. Other calls may come between the steps.

The server chooses the size and direction of each step. This module checks what the complete loop promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.model.dead_letters import DeadLetterQueue
from tests.model.lines import NEVER
from tests.model.parts import READY, Final, Job, State


@dataclass
class Loop:
    """A loop of steps. `cursor` is the cursor that the last step returned."""

    cursor: str = ""
    total: int = 0


@dataclass
class Draining(Loop):
    """`promised` holds the jobs that waited at the start, and their number of moves at that time."""

    delayed: bool = False
    promised: list[tuple[Job, tuple[int, int]]] = field(default_factory=list[tuple[Job, tuple[int, int]]])


@dataclass
class Cleaning(Loop):
    """Clean at most `left` more of the jobs that ended in this state by `bound`."""

    state: Final = "completed"
    bound: int = 0
    left: int = 0


@dataclass
class Sifting(Loop):
    """Remove at most `left` more of the jobs that wait in this state and were added by `bound`.

    `promised` holds the jobs that were old at the start, and their number of moves at that time.
    """

    state: State = "waiting"
    bound: int = 0
    left: int = 0
    promised: list[tuple[Job, tuple[int, int]]] = field(default_factory=list[tuple[Job, tuple[int, int]]])


@dataclass
class Promoting(Loop):
    """Start at most `left` more of the jobs that were delayed before the number `bound` was given out."""

    bound: int = 0
    left: int = 0


@dataclass
class Retrying(Loop):
    """`promised` holds the jobs that had ended in this state at the start, with end times and numbers of moves."""

    state: Final = "failed"
    bound: int = 0
    limit: int | None = None
    promised: list[tuple[Job, int | None, int]] = field(default_factory=list[tuple[Job, int | None, int]])
    started: list[Job] = field(default_factory=list[Job])
    again: int = 0  # restarts of jobs that ended again within the millisecond of the first step


def _past(job: Job) -> tuple[int, int]:
    """Return a value that changes when the job is claimed or moved."""
    return job.fence, job.changes


class CleanedQueue(DeadLetterQueue):
    """A queue whose jobs are drained, cleaned and retried in bulk."""

    def _drainable(self, delayed: bool) -> list[Job]:
        return self.having(*READY, "delayed", "suspended") if delayed else self.having(*READY)

    def begin_draining(self, delayed: bool) -> Draining:
        return Draining(delayed=delayed, promised=[(job, _past(job)) for job in self._drainable(delayed)])

    def drain(self, loop: Draining, gone: Sequence[Job], cursor: str) -> None:
        """Check and apply a step that removed these jobs."""
        allowed = self._drainable(loop.delayed)
        for job in gone:
            assert job in allowed, f"job {job.id} was {job.state}, and drained"
            self.forget(job)
        loop.total += len(gone)
        assert gone or not cursor or cursor != loop.cursor, f"draining makes no progress after {cursor}"
        loop.cursor = cursor
        if cursor:
            return
        if loop.total:
            self.note("drained", "", str(loop.total))
        left = [job.id for job in self._drainable(loop.delayed) if (job, _past(job)) in loop.promised]
        assert not left, f"{left} waited when draining began and were not removed"

    def record_completed(self) -> None:
        """Completed jobs without a record get one, because the steps of the loop walk through the records."""
        for job in self.having("completed"):
            job.plain = False

    def begin_cleaning(self, state: Final, grace: int, limit: int) -> Cleaning:
        return Cleaning(state=state, bound=self.now - grace, left=limit)

    def clean(self, loop: Cleaning, ids: Sequence[str], cursor: str) -> None:
        """Check and apply a step that removed these jobs, the oldest first."""
        if loop.state == "completed":
            self.record_completed()
        old = [job for job in self.ended(loop.state) if job.position <= loop.bound]
        expected = [job.id for job in old[: len(ids)]]
        assert ids == expected, f"{ids} were cleaned, but the oldest are {expected}"
        assert len(ids) <= loop.left, f"{ids} were cleaned, but the limit was {loop.left}"
        assert cursor == "" or ids, f"cleaning makes no progress after {cursor}"
        for job in old[: len(ids)]:
            self.forget(job)
        loop.left -= len(ids)
        loop.total += len(ids)
        loop.cursor = cursor
        if not cursor:
            assert not loop.left or len(ids) == len(old), f"{old[len(ids) :]} were left"
            if loop.total:
                self.note("cleaned", "", str(loop.total))

    def begin_sifting(self, state: State, grace: int, limit: int, added: Mapping[str, int]) -> Sifting:
        loop = Sifting(state=state, bound=self.now - grace, left=limit)
        # A younger job whose record is deleted later counts as old from then on. The walk may have passed it before.
        loop.promised = [(job, _past(job)) for job in self._old(loop, added)]
        return loop

    def _old(self, loop: Sifting, added: Mapping[str, int]) -> list[Job]:
        """Return the jobs that the loop may remove: line by line in the order in which they would start, and jobs with
        a key in the order in which they began to wait.
        """
        if loop.state == "delayed":
            jobs = self.scheduled()
        elif loop.state == "suspended":
            jobs = self.suspended()
        elif loop.state == "key-waiting":
            jobs = sorted(self.having("key-waiting"), key=lambda job: job.key_position)
        else:
            jobs = [job for line in self.lines().values() for job in line if job.state == loop.state]
        return [job for job in jobs if job.record_lost or added[job.id] <= loop.bound]

    def sift(self, loop: Sifting, ids: Sequence[str], cursor: str, added: Mapping[str, int]) -> None:
        """Check and apply a step that removed these jobs. `added`: the times at which jobs were added."""
        old = self._old(loop, added)
        unexpected = {id_: (self.jobs[id_].state, added[id_]) for id_ in ids if self.jobs[id_] not in old}
        assert not unexpected, f"{unexpected} were cleaned as {loop.state} jobs added by {loop.bound}"
        assert len(ids) <= loop.left, f"{ids} were cleaned, but the limit was {loop.left}"
        assert ids or not cursor or cursor != loop.cursor, f"cleaning makes no progress after {cursor}"
        for line in {_line_of(job) for job in old}:
            own = [job.id for job in old if _line_of(job) == line]
            order = [id_ for id_ in ids if id_ in own]
            assert order == [id_ for id_ in own if id_ in ids], f"{order} of {line} were cleaned, the order is {own}"
        for id_ in ids:
            self.forget(self.jobs[id_])
        loop.left -= len(ids)
        loop.total += len(ids)
        loop.cursor = cursor
        if cursor:
            return
        if loop.total:
            self.note("cleaned", "", str(loop.total))
        left = [job.id for job in self._old(loop, added) if (job, _past(job)) in loop.promised]
        assert not loop.left or not left, f"{left} were old when cleaning began and were not removed"

    def begin_promoting(self, limit: int | None) -> Promoting:
        there = len(self.having("delayed"))
        return Promoting(bound=next(self.line), left=there if limit is None else min(limit, there))

    def promote_all(self, loop: Promoting, gone: Sequence[Job], count: int, cursor: str) -> None:
        """Check and apply a step that took these jobs out of the delayed ones, in the order of their due times."""
        delayed = [job for job in self.scheduled() if job.due != NEVER and job.line <= loop.bound]
        expected = _ids(delayed[: len(gone)])
        assert _ids(gone) == expected, f"{_ids(gone)} were promoted, the first are {expected}"
        started = [job for job in gone if not job.record_lost]
        for job in gone:
            if job.record_lost:
                self.forget(job)
                self.note("dropped", job.id, "missing")
        for job in started:
            self.to_line(job)
            self.note("waiting", job.id, "promoted")
        assert len(started) == count, f"{count} were promoted, the model expects {_ids(started)}"
        loop.left -= count
        loop.total += count
        assert gone or not cursor or cursor != loop.cursor, f"promoting makes no progress after {cursor}"
        assert loop.left >= 0, f"{-loop.left} more were promoted than the limit allows"
        loop.cursor = cursor
        if not cursor and loop.left:
            left = _ids(delayed[len(gone) :])
            assert not left, f"{left} were delayed when promoting began and were not promoted"

    def begin_retrying(self, state: Final, limit: int | None) -> Retrying:
        promised = [(job, job.ended, job.changes) for job in self.ended(state) if not self.is_gone(job)]
        return Retrying(state=state, bound=self.now, limit=limit, promised=promised)

    def _promised(self, loop: Retrying) -> list[Job]:
        """Return the jobs that are still to be retried, the newest first."""
        ended = [job for job in self.ended(loop.state)[::-1] if job not in loop.started and not self.is_gone(job)]
        return [job for job in ended if (job, job.ended, job.changes) in loop.promised]

    def retry_all(self, loop: Retrying, gone: Sequence[Job], count: int, cursor: str) -> None:
        """Check and apply a step that took these jobs out of the ended ones and restarted `count` of them, the newest
        first.
        """
        if loop.state == "completed":
            self.record_completed()
        order, promised = self.ended(loop.state)[::-1], self._promised(loop)
        walked = order[: order.index(gone[0]) + 1] if gone else []
        passed = [job.id for job in promised if job in walked and job not in gone]
        assert not passed, f"{_ids(gone)} were retried, but {passed} was passed over"
        started = list[Job]()
        for job in gone[::-1]:
            assert (job.ended or 0) <= loop.bound, f"job {job.id} ended later, and was retried"
            if self.is_gone(job):
                del self.jobs[job.id]
                continue
            loop.again += job not in promised
            started.append(job)
            self.start_anew(job, "retried")
        loop.started += started
        assert len(started) == count, f"{count} were restarted, the model expects {_ids(started)}"
        loop.total += count
        assert loop.limit is None or loop.total <= loop.limit, f"{loop.total} were retried instead of {loop.limit}"
        loop.cursor = cursor
        if not cursor and (loop.limit is None or loop.total < loop.limit):
            left = _ids(self._promised(loop))
            assert len(left) <= loop.again, f"{left} had ended before the loop and were not retried"


def _line_of(job: Job) -> str:
    """Return the line in which cleaning keeps the order: all delayed jobs are one line, and all jobs with a key."""
    return job.line_name if job.state in ("waiting", "prioritized") else job.state


def _ids(jobs: Sequence[Job]) -> list[str]:
    return [job.id for job in jobs]
