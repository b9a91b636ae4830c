"""The model of suspended jobs and their signals."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.lines import NEVER, Lines
from tests.model.parts import Job, Settled

MOST_SIGNALS = 4


class Sent(NamedTuple):
    """A signal. `expires` is 0 for one that does not expire."""

    sent: int
    expires: int
    name: str
    data: str
    question: str = ""

    def stored(self) -> str:
        head = f"{self.name}\x1e{self.question}" if self.question else self.name
        return f"{self.sent} {self.expires} {head}\x1f{self.data}"


class SuspendingLines(Lines):
    """A queue whose jobs wait for signals."""

    settling: str = ""
    """The worker that settles runs."""

    def __init__(self, now: int, *, step: int) -> None:
        super().__init__(now, step=step)
        self.continued: dict[str, tuple[str, int]] = {}
        """The jobs that the last call has resumed and pushed, with the worker and its lease."""

    def continue_on(self, job: Job, worker: str, lock: int) -> None:
        """Start a job that is resumed on the worker that keeps its function."""
        raise NotImplementedError

    def take(self, job: Job, names: tuple[str, ...] | None, most: int = MOST_SIGNALS) -> list[Sent]:
        """Take up to `most` signals with these names out of the mailbox, and forget the expired ones."""
        fresh = [one for one in job.mailbox if not 0 < one.expires <= self.now]
        taken = [one for one in fresh if names is None or one.name in names][:most]
        job.mailbox = [one for one in fresh if one not in taken]
        return taken

    def suspend(self, job: Job, run: Settled) -> None:
        self.note("suspended", job.id)
        step = run.step or job.handed[1]
        if run.gives_back:
            job.mailbox = [*job.handed[2], *job.mailbox]
        given = self.take(job, run.names, 1 if run.single else MOST_SIGNALS)
        if given:
            self.wake(job, "signal", given, step)
            return
        job.state, job.waits_for, job.plain = "suspended", run.names, False
        job.due = NEVER if run.delay < 0 else self.now + run.delay
        job.handed = "", step, []
        job.warm = self.settling if run.warm else ""

    def wake(self, job: Job, how: str, given: list[Sent], step: str | None = None) -> None:
        job.handed = how, job.handed[1] if step is None else step, given
        job.changes += 1  # a drain that began before may have passed the line that the job enters
        self.note("waiting", job.id, how)
        keeper, job.warm = job.warm, ""
        worker, lock = self.continued.pop(job.id, ("", 0))
        if worker:
            assert worker == keeper, f"job {job.id} was pushed to {worker}, but {keeper or 'nobody'} has its function"
            self.continue_on(job, worker, lock)
        else:
            self.to_line(job)

    def resume_due(self) -> None:
        """Resume the jobs whose timeout is over, as many as one call does."""
        due = [job for job in self.suspended() if job.due <= self.now][: self.step]
        self.behind = self.behind or len(due) == self.step
        for job in due:
            if job.record_lost:
                self.forget(job)
                self.note("dropped", job.id, "missing")
            else:
                self.wake(job, "timeout", [])

    def send(self, id_: str, name: str, data: str, ttl: int, question: str = "") -> str:
        """Deliver a signal."""
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.over:
            return f"state {job.state}"
        signal = Sent(self.now, self.now + ttl if ttl else 0, name, data, question)
        resumes = job.state == "suspended" and (job.waits_for is None or name in job.waits_for)
        job.plain = False
        if not resumes and len(job.mailbox) >= MOST_SIGNALS:
            self.take(job, ())
            if len(job.mailbox) >= MOST_SIGNALS:
                return "full"
        self.note("signalled", id_, name)
        if resumes:
            self.wake(job, "signal", [signal])
            return "resumed"
        job.mailbox.append(signal)
        return "buffered"

    def resume_by_operator(self, id_: str) -> str:
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.state != "suspended":
            return f"state {job.state}"
        self.wake(job, "operator", [])
        return "ok"
