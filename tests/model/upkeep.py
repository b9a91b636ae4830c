"""The rules of time: leases, their renewal, the recovery of stalled runs, and the removal of old data."""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.claims import ClaimingQueue
from tests.model.parts import Job

FORGET_WORKER_MS = 300_000
HEARD_OF_MS = 60_000
MOST_UNDELIVERED = 20
SHORTEST_LEASE_MS = 1_000


class TimedQueue(ClaimingQueue):
    """A queue whose clock moves."""

    def __init__(self, now: int, *, step: int) -> None:
        super().__init__(now, step=step)
        self.alive: dict[str, int] = {}  # worker -> last renewal
        self.swept_at: int | None = None
        self.seen_at: int | None = None  # last sign of life
        self.gap: int | None = None  # a time without a sign of life that counts as an outage
        self.settled_since: int = now  # end of the last outage
        self.away: int = 0  # its length

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        for job in self.having("active"):
            job.idle += ms
        for run in self.stopping.values():
            run.idle += ms

    def renew(
        self, worker: str, held: Sequence[tuple[str, str]], in_transit: Sequence[str] = ()
    ) -> tuple[set[str], set[str]]:
        """Return the leases that the worker has lost, and the leases of runs that it should cancel.

        `in_transit` are the leases of a claim that the worker has not received yet.
        """
        for claimed in self.jobs.values():
            if claimed.state == "active" and claimed.token in in_transit:
                claimed.idle = 0
        newcomer = worker not in self.alive
        self.alive[worker] = self.now
        self._sign_of_life(newcomer=newcomer)
        lost, revoked = set[str](), set[str]()
        for id_, token in held:
            job = self.jobs.get(id_)
            if job is not None and job.state == "active" and job.token == token:
                job.idle, job.renewed = 0, True
                if job.revoking:
                    revoked.add(token)
            else:
                lost.add(token)
            run = self.stopping.get(token)
            if run is not None and run.worker == worker:
                run.idle = 0  # its handler may still execute
        return lost, revoked

    def _sign_of_life(self, *, newcomer: bool = False) -> None:
        """Note that the server was up all the time. A client that was absent before does not prove an outage."""
        if self.seen_at is None:
            self.settled_since, self.away = self.now, 0
        elif self.gap is not None and self.now - self.seen_at > self.gap and not newcomer:
            same = self.seen_at - self.settled_since < self.gap
            began = self.settled_since - self.away if same else self.seen_at
            self.settled_since, self.away = self.now, self.now - began
        self.seen_at = self.now

    def sweep(self, max_stalled: int, interval: int, gap: int) -> tuple[set[str], set[str]] | None:
        """Recover runs with expired leases, and remove old data. Return recovered and failed ids, or None if it is too
        early.

        The time of the last outage does not count against a lease, because no worker could renew then.
        """
        if self.swept_at is not None and self.now - self.swept_at < interval:
            return None
        self.swept_at = self.now
        self.gap = gap
        self._sign_of_life()
        recovered, failed = set[str](), set[str]()
        first, rest = self._runs_by_step()
        for job in first:
            self._reclaim_or_fail(job, max_stalled, recovered, failed)
        self._tidy()
        for job in rest:
            self._reclaim_or_fail(job, max_stalled, recovered, failed)
        if not self.having("active"):
            self.shortest_lease = None
        return recovered, failed

    def _runs_by_step(self) -> tuple[list[Job], list[Job]]:
        """Check the oldest runs of each stream first. Later steps check the others."""
        runs = sorted(self.having("active"), key=lambda job: tuple(int(word) for word in job.token[1:].split("-")))
        streams = [job for job in runs if job.token[0] == "p"], [job for job in runs if job.token[0] != "p"]
        return [job for one in streams for job in one[: self.step]], [
            job for one in streams for job in one[self.step :]
        ]

    def _reclaim_or_fail(self, job: Job, max_stalled: int, recovered: set[str], failed: set[str]) -> None:
        """Return whether the lease has expired, and apply the consequence."""
        idle = self._counted(job.idle)
        if job.record_lost and idle >= (self.shortest_lease or SHORTEST_LEASE_MS):
            self.forget(job)
            self.note("dropped", job.id, "missing")
        elif not job.record_lost and idle >= job.lock:
            if self._was_undelivered(job):
                self._return_undelivered(job, failed)
            else:
                (recovered if self._stall(job, max_stalled) else failed).add(job.id)

    def _counted(self, idle: int) -> int:
        """Return the part of the time since a renewal that counts."""
        return idle - min(max(0, idle - (self.now - self.settled_since)), self.away)

    def _was_undelivered(self, job: Job) -> bool:
        """Return whether its worker missed the reply: it lives, has made no call since the claim, and never renewed."""
        heard = self.alive.get(job.worker, 0) - job.claimed >= job.lock / 2
        return heard and not job.renewed and (job.id, job.fence) in self.claimed_last.get(job.worker, [])

    def _return_undelivered(self, job: Job, failed: set[str]) -> None:
        job.undelivered += 1
        self.note("returned", job.id)
        if job.revoking or job.undelivered > MOST_UNDELIVERED:
            self.fail(job, "revoked" if job.revoking else "undelivered")
            failed.add(job.id)
        else:
            self.put_back(job)

    def _stall(self, job: Job, max_stalled: int) -> bool:
        job.stalls += 1
        self.note("stalled", job.id, str(job.stalls))
        if job.revoking or job.stalls > max_stalled:
            self.fail(job, "revoked" if job.revoking else "stalled")
            return False
        self.put_back(job)
        return True

    def _tidy(self) -> None:
        self.release_held()
        self.trim_kept()
        expired = [job for job in self.jobs.values() if job.expires is not None and job.expires <= self.now]
        for job in sorted(expired, key=lambda job: (job.expires or 0, job.id)):
            if job.record_lost:
                job.expires = None  # discovered at its claim
            else:
                self.fail(job, "expired")
        for token, run in list(self.stopping.items()):
            if self._counted(run.idle) >= run.lock:
                del self.stopping[token]
        running = {job.worker for job in self.having("active")}
        for worker, seen in list(self.alive.items()):
            silent, heard_of = self.now - seen, self.now - self.settled_since >= HEARD_OF_MS
            if silent >= FORGET_WORKER_MS and heard_of and worker not in running:
                del self.alive[worker]

    def close_worker(self, worker: str) -> int:
        """Release the jobs of a worker that is gone; return how many."""
        self.alive.pop(worker, None)
        count = 0
        for job in [job for job in self.having("active") if job.worker == worker]:
            if job.record_lost:
                self.forget(job)
                self.note("dropped", job.id, "missing")
            elif job.revoking:
                self.fail(job, "revoked")
            else:
                self.put_back(job)
                self.note("returned", job.id)
                count += 1
        return count
