"""The model of what users do to single jobs: retry, revocation, promotion, updates, and waiting for a result."""

from __future__ import annotations

from tests.model.model import Queue
from tests.model.parts import Event, Job


class ChangedQueue(Queue):
    """A queue whose jobs are changed by its users."""

    def _own_again(self, job: Job) -> None:
        """A retried job takes its deduplication id again unless the id has ended or has another owner."""
        if job.dedup is None:
            return
        ends, wanted = job.dedup
        others, _ = self.owners.get(wanted, (1, ""))
        if not (0 < ends <= self.now) and 0 < others <= self.now:
            self.owners[wanted], self.marks[job.id] = (ends, job.id), wanted

    def retry(self, id_: str) -> str:
        """Start the job again with fresh attempts. The fencing token continues to grow."""
        code = self._ended(id_)
        if code == "ok":
            self.start_anew(self.jobs[id_], "retried")
        return code

    def _ended(self, id_: str) -> str:
        """Return "ok" if the job has ended and its record is kept."""
        job = self.open(id_)
        if job is None:
            return "missing"
        if not job.over:
            return f"state {job.state}"
        if self.is_gone(job):
            del self.jobs[id_]
            return "missing"
        return "ok"

    def restart_run(self, id_: str) -> str:
        """Start the job again without its journal."""
        code = self._ended(id_)
        if code == "ok":
            job = self.jobs[id_]
            job.steps, job.requeued = None, 0
            self.start_anew(job, "retried")
        return code

    def accept_run(self, id_: str, step: str, value: str) -> str:
        """Start the failed job again with another step in its journal."""
        code = self._ended(id_)
        if code != "ok":
            return code
        job = self.jobs[id_]
        if job.state != "failed":
            return f"state {job.state}"
        job.steps = {**(job.steps or {}), step: value}
        self.start_anew(job, "retried")
        return "ok"

    def restore_steps(self, id_: str, step: str, value: str) -> str:
        """Add a step to the journal of a delayed job."""
        job = self.open(id_)
        if job is None:
            return "missing"
        if job.state != "delayed":
            return f"state {job.state}"
        job.changes += 1
        job.steps = {**(job.steps or {}), step: value}
        return "ok"

    def start_anew(self, job: Job, how: str) -> None:
        """Reset the job to the state before its first run."""
        job.changes += 1
        if job.state == "completed":
            job.steps, job.requeued = None, 0
        elif job.steps is not None:
            job.requeued = job.fence
        job.waiters = []  # they have been notified of the end
        job.failures = job.stalls = 0
        job.ended = job.result = job.error = job.reason = job.cause = job.progress = job.progress_at = job.held = None
        job.drop = ""
        self.to_line(job)
        self._own_again(job)
        self.note("waiting", job.id, how)

    def revoke(self, id_: str) -> str:
        """Revoke the job: it fails immediately, or when its run ends."""
        job = self.open(id_)
        if job is None:
            return "missing"
        if job.over:
            return f"state {job.state}"
        if job.state == "active":
            job.revoking = True
            self.note("revoking", id_)
            return "revoking"
        self.fail(job, "revoked")
        return "revoked"

    def promote(self, id_: str) -> str:
        job = self.open(id_)
        if job is None:
            return "missing"
        if job.state != "delayed":
            return f"state {job.state}"
        self.to_line(job)
        self.note("waiting", id_, "promoted")
        return "ok"

    def change_priority(self, id_: str, priority: int) -> str:
        """Change the priority. In its line the job counts as new; in its key's line it keeps its position."""
        job = self.open(id_)
        if job is None:
            return "missing"
        if not (job.waits or job.state == "delayed"):
            return f"state {job.state}"
        if priority != job.priority:
            job.priority = priority
            job.changes += 1
            job.lifo = False
            if job.waits:
                self.to_line(job)
            self.note("changed", id_, f"priority {priority}")
        return "ok"

    def change_delay(self, id_: str, delay: int) -> str:
        """Delay the job by this time; 0: start it as soon as possible. A waiting keyed job gives up its position."""
        job = self.open(id_)
        if job is None:
            return "missing"
        if not (job.waits or job.state == "delayed"):
            return f"state {job.state}"
        if delay == 0:
            return self.promote(id_) if job.state == "delayed" else "ok"
        job.changes += 1
        if job.waits:
            job.key_position = 0
        self.delay_until(job, self.now + delay)
        self.note("changed", id_, f"delay {delay}")
        return "ok"

    def update(self, id_: str, token: str, kind: str, value: str) -> str:
        """Write progress, data or a log line. A run may write only while it owns the job."""
        job = self.open(id_)
        if job is None:
            return "missing"
        if token and (job.state != "active" or job.token != token):
            return "stale"
        if kind == "log":
            job.logs.append(value)
            return "ok"
        if kind == "progress":
            job.progress = value
            if self.event_rules.tells(job, self.now):
                self.events.append(Event("progress", id_, "", f"{job.name}|{job.key or ''}|{value}"))
        else:
            job.data = value
            self.note("updated", id_)
        return "ok"

    def stream(self, id_: str, token: str, chunk: str) -> str:
        """Append a chunk. Only the run that owns the job may do so, and a refused one changes nothing."""
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.state != "active" or job.token != token:
            return "stale"
        job.plain = False
        job.chunks = [*(job.chunks or []), (job.fence, chunk)]
        return "ok"

    def record_step(self, id_: str, token: str, identity: str, value: str) -> str:
        """Record a step. Only the run that owns the job may do so, and a refused one changes nothing."""
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.state != "active" or job.token != token:
            return "stale"
        job.plain = False
        job.steps = {**(job.steps or {}), identity: value}
        return "ok"

    def receive(self, id_: str, token: str, value: str, signal: str) -> str:
        """Take a signal out of the mailbox of a run, and record it as the step "r"."""
        job = self.get(id_)
        if job is None or job.state != "active" or job.token != token:
            return self.record_step(id_, token, "r", value)
        job.plain = False
        found = [one for one in job.mailbox if one.stored() == signal]
        if not found:
            return "gone"
        job.mailbox.remove(found[0])
        return self.record_step(id_, token, "r", value)

    def follow(self, id_: str) -> str:
        """Open the stream of a job that has not ended."""
        job = self.get(id_)
        if job is None or self.is_gone(job):
            return "missing"
        if job.over:
            return job.state
        job.plain = False
        job.chunks = job.chunks or []
        return "open"

    def await_job(self, id_: str, channel: str) -> str:
        job = self.get(id_)
        if job is None:
            return "missing"
        if job.over:
            return "missing" if self.is_gone(job) else job.state
        if channel not in job.waiters:
            job.waiters.append(channel)
        return "waiting"

    def abandon(self, id_: str, channel: str) -> str:
        """Revoke the job of a client that waits no longer, unless others wait."""
        job = self.open(id_)
        self.forget_reply(id_, channel)
        if job is not None and job.over:
            return f"state {job.state}"
        return "awaited" if job is not None and job.waiters and not job.over else self.revoke(id_)

    def forget_reply(self, id_: str, channel: str) -> None:
        job = self.jobs.get(id_)
        if job is not None and job.held is not None:
            self._confirm(channel, id_)
        elif job is not None:
            job.waiters = [one for one in job.waiters if one != channel]

    def set_paused(self, paused: bool) -> None:
        """Publish an event only for a change."""
        if paused != self.paused:
            self.paused = paused
            self.note("paused" if paused else "resumed", "")

    # Damage.

    def delete_record(self, id_: str) -> None:
        """Delete the record as a user of the server might. The next call that visits the job removes its remains."""
        self.jobs[id_].record_lost = True
