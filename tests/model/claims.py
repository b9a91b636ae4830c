"""The jobs that a claim may return. The server chooses between several lines; this module checks the bounds of its
choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tests.model.changes import ChangedQueue
from tests.model.parts import Job

RETURNED = ("returned from another structure", "returned from the line")
MOST_PASSED_OVER = 2
"""The number of consecutive claims that may pass over a line with a job that could start."""
KEY_PASSED_OVER = 3
"""A key may be passed over once more if it could not start for a moment between two claims."""


class ClaimingQueue(ChangedQueue):
    """A queue whose jobs are claimed."""

    def __init__(self, now: int, *, step: int) -> None:
        super().__init__(now, step=step)
        self._passed = Counter[str]()
        self.shortest_lease: int | None = None  # no job runs with a shorter one
        self.claimed_last: dict[str, list[tuple[str, int]]] = {}  # worker -> jobs and fencing tokens of its last call
        self._first = ""  # the line that served the last claim with a choice first

    def claim(self, worker: str, slots: int, lock: int, started: Sequence[str], still: Collection[str]) -> list[Job]:
        """Check the jobs that a worker's claim returned. `still` holds the jobs that wait afterwards. A paused queue
        starts nothing.

        A job that left its line without a start had expired or had lost its record.
        """
        self.behind = False
        self.promote_due()
        self.resume_due()
        self.claimed_last[worker] = []
        if self.paused:
            assert not started, f"{started} started while the queue is paused"
            return []
        allowed = self.allowance(slots) if slots else 0
        before, lines = self._turns(), self.lines()
        taken = {name: [job for job in line if job.id not in still] for name, line in lines.items()}
        for name, jobs in taken.items():
            head = [job.id for job in lines[name][: len(jobs)]]
            assert head == [job.id for job in jobs], f"{[job.id for job in jobs]} left {name}, its head was {head}"
            assert (order := [job.id for job in jobs if job.id in started]) == [
                one for one in started if one in head
            ], f"started from {name}: {started}, expected the order {order}"
            for job in jobs:
                self._take(job, worker if job.id in started else None, lock)
        assert set(started) <= {job.id for jobs in taken.values() for job in jobs}, f"{started} were not all waiting"
        assert len(started) <= allowed, f"{started} started, but only {allowed} were allowed to start"
        self._check_order({name for name, jobs in taken.items() if jobs}, len(started) < allowed)
        free = allowed - sum(job.id in started for name in RETURNED for job in taken.get(name, ()))
        self._check_turns(before, {name for name, jobs in taken.items() if jobs}, free)
        line_of = {
            job.id: name.partition(" ")[0] for name, jobs in taken.items() if name not in RETURNED for job in jobs
        }
        self._check_first(before, [line_of[id_] for id_ in started if id_ in line_of], {*line_of.values()})
        self.usage.starts += [self.now] * len(started) if self.limits.rate else []
        jobs = [self.jobs[id_] for id_ in started]
        self.claimed_last[worker] = [(job.id, job.fence) for job in jobs]
        for job in jobs:
            job.line = job.line or next(self.line)  # a job that is released returns to the position of this start
        return jobs

    def push(self, worker: str, lock: int, pushed: Sequence[str]) -> list[Job]:
        """Start the jobs that an add pushed to an idle worker. A claim of this worker would return them."""
        lines, line, key = self.lines(), self.jobs[pushed[0]].line_name, self.jobs[pushed[0]].key
        jobs = lines[line][: len(pushed)]
        assert [job.id for job in jobs] == [*pushed], f"{pushed} were pushed, the line is {lines[line]}"
        before = [job.id for name in {*RETURNED, "plain", "lifo"} - {line} for job in lines[name]]
        assert not before, f"{before} could start and was passed over for the push of {pushed}"
        assert not self.startable_keys() - {key}, f"a key could start and was passed over for the push of {pushed}"
        is_held_back = self.paused or self.gate > self.now or any(self.limits)
        assert not is_held_back, f"{pushed} were pushed against a pause or limits"
        for job in jobs:
            assert job.lease is None, f"job {job.id} was pushed although it has a lease of its own"
            self._take(job, worker, lock)
            job.line = job.line or next(self.line)
        self.claimed_last[worker] = [*self.claimed_last.get(worker, ()), *((job.id, job.fence) for job in jobs)]
        return jobs

    def continue_on(self, job: Job, worker: str, lock: int) -> None:
        assert job.key is None, f"job {job.id} was pushed against the limits of its key"
        is_held_back = self.paused or self.gate > self.now or any(self.limits)
        assert not is_held_back, f"job {job.id} was pushed against a pause or limits"
        assert job.lease is None, f"job {job.id} was pushed although it has a lease of its own"
        self._start(job, worker, lock)
        job.stream, job.is_from_elsewhere, job.returned, job.line = "l", True, False, next(self.line)
        self.claimed_last[worker] = [*self.claimed_last.get(worker, ()), (job.id, job.fence)]

    def _take(self, job: Job, worker: str | None, lock: int) -> None:
        key = job.key
        if key is not None:
            opens = self.opens_at(key, job)
            assert opens <= self.now, f"job {job.id} left the line of key {key}, which is limited until {opens}"
            assert self.room(key), f"job {job.id} left the line of key {key}, which has no free slot"
            usage, limits, cost = self.keys[key].usage, self.limits_of(key), 0 if job.record_lost else job.cost
            usage.start(limits, cost, self.now)
            if worker is None:
                usage.take_back(limits, cost)
        late = job.expires is not None and job.expires <= self.now
        assert (worker is None) == (late or job.record_lost), (
            f"job {job.id} left its line, expired: {late}, record lost: {job.record_lost}"
        )
        if worker is not None:
            self._start(job, worker, lock)
        elif job.record_lost and not late:
            self.forget(job)
            self.note("dropped", job.id, "missing")
        else:
            self._expire(job)

    def _start(self, job: Job, worker: str, lock: int) -> None:
        if job.key is not None:
            job.stream = "k"
        elif job.returned:
            job.stream = "l"
        else:
            job.is_from_elsewhere = job.lifo or job.priority > 0
            job.stream = "l" if job.is_from_elsewhere else "p"
            job.line = 0 if job.is_from_elsewhere else job.line
        job.state, job.token, job.worker, job.idle = "active", "?", worker, 0
        job.claimed, job.renewed = self.now, False
        job.fence += 1
        job.lock = job.lease or lock
        self.shortest_lease = min(self.shortest_lease or lock, lock, job.lock)
        job.expires = None  # it started in time
        self.note("active", job.id)

    def _expire(self, job: Job) -> None:
        if job.record_lost:
            self.forget(job)
            self.note("dropped", job.id, "missing")
        else:
            self.fail(job, "expired")

    def _check_order(self, touched: set[str], dry: bool) -> None:
        """Check that the first jobs started first, and that a free slot left no job that it could start."""
        lines = self.lines()
        returned = [job.id for name in RETURNED for job in lines[name]]
        turns = [job.id for name in ("plain", "lifo") for job in lines[name]]
        turns += [f"first of key {key}" for key in self.startable_keys()]
        if dry or touched - set(RETURNED):
            assert not returned, f"{returned} had been released and was passed over for {touched}"
        if dry or "prioritized" in touched:
            assert not turns, f"{turns} could start and was passed over for {touched}"
        if dry and not self.behind:
            assert not lines["prioritized"], f"{[job.id for job in lines['prioritized']]} could start and was left"

    def _turns(self) -> set[str]:
        """Return the lines that take turns and have a job that can start. Each key counts as one line."""
        lines, keys = self.lines(), self.startable_keys()
        return {name for name in ("plain", "lifo") if lines[name]} | {"keys" for _ in keys} | {f"key {k}" for k in keys}

    def _check_turns(self, before: set[str], touched: set[str], free: int) -> None:
        """Check that no line or key starves, and that a claim with a slot for each line serves each line."""
        keys = {name for name in touched if name.startswith("key ")}
        served = keys | (touched & {"plain", "lifo"}) | {"keys" for _ in keys}
        waits = before & self._turns()
        for name in {"plain", "lifo", "keys", *self._passed, *before}:
            rivals = keys if name.startswith("key ") else served - keys
            if name in served or name not in waits:
                self._passed[name] = 0
            elif rivals:
                self._passed[name] += 1
                assert name.startswith("key ") or free < 3, f"{name} got nothing of {free} slots"
                most = KEY_PASSED_OVER if name.startswith("key ") else MOST_PASSED_OVER
                assert self._passed[name] <= most, f"{name} was passed over {self._passed[name]} times in a row"

    def _check_first(self, before: set[str], order: list[str], touched: set[str]) -> None:
        """Check that the line that came first the last time does not come first again if another line could."""
        several = [{"keys": "key"}.get(name, name) for name in before if not name.startswith("key ")]
        if order and several == ["plain"]:
            self._first = ""  # the server may know a key that turned out not to start, and counts this claim then
        if not order or order[0] not in several or several == ["plain"]:
            return
        others = [name for name in several if name != order[0] and (name in order or name not in touched)]
        assert order[0] != self._first or not others, f"{order[0]} came first again, before {others}"
        self._first = order[0]
