"""The rules of one queue in plain Python: the effect of each call on the jobs, and its reply.

Read lines.py (how jobs wait) first, then this module, claims.py and upkeep.py (time and leases). The model has no
storage and no wire format. machine.py compares it with the library after each step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile

from tests.model.lines import NEVER
from tests.model.parts import DEFAULT_RETENTION, FINAL, Dedup, Final, Job, NewJob, Retention, Settled, StoppingRun
from tests.model.posting import PostingQueue

HOLD_MS = 60_000
"""The minimum time for which an awaited result stays readable."""


def number_of(token: str) -> int:
    """Return the number in the lease of a plain job."""
    return int(token[1:].partition("-")[0])


def _groups(runs: Sequence[Settled]) -> dict[tuple[object, ...], list[int]]:
    """Return the positions of the completed runs that the server settles together."""
    groups = defaultdict[tuple[object, ...], list[int]](list)
    for position, run in enumerate(runs):
        if run.group:
            groups[run.group].append(position)
    return groups


Ended = dict[tuple[Final, "Retention | None", "int | None"], list[Job]]
"""The jobs that ended in a call, by their final state, retention policy and time to live."""


class Queue(PostingQueue):
    """One queue."""

    def __init__(self, now: int, *, step: int) -> None:
        super().__init__(now, step=step)
        self.keep: dict[Final, Retention | None] = {"completed": None, "failed": None}  # the last one that was applied
        self.last_id = 0
        self.first = ""  # the job that the new job has to follow
        self.horizon = 1  # the number after the last completed plain job that retention removed

    # Adding.

    def add(self, new: Sequence[NewJob], named: Sequence[str]) -> dict[int, str]:
        """Add jobs, or let them wait for the end of another job; return the reasons for which some were not added.

        `named`: the ids that the queue returned. It generates one where the caller passes none.

        Generated ids are growing numbers. The server skips a number that a user already took as a custom id.
        """
        outcomes = dict[int, str]()
        custom = {one.id for one in new}
        for position, (one, id_) in enumerate(zip(new, named, strict=True)):
            code, owner = self.in_the_way(one)
            if code:
                assert id_ == owner, f"the existing job is {owner}, returned was {id_}"
                outcomes[position] = code
                self.note("duplicate", owner, one.dedup.id if one.dedup else "")
                continue
            if one.id:
                assert id_ == one.id, f"added with the id {one.id}, returned was {id_}"
            else:
                self.take_id(id_, custom)
            if self.first:
                outcomes[position] = "held"
            self.create(id_, one)
            self.jobs[id_].plain = one.is_plain
        return outcomes

    def take_id(self, id_: str, custom: Collection[str] = ()) -> None:
        """Note an id that the server generated."""
        assert int(id_) > self.last_id, f"the generated id {id_} follows {self.last_id}"
        assert id_ not in {*self.jobs, *custom}, f"the generated id {id_} is a custom one"
        self.last_id = int(id_)

    def in_the_way(self, one: NewJob) -> tuple[str, str]:
        """Return the reason for which this job is not added, and the existing job. A waiting job gives way to a
        debounced one.
        """
        replaced = self.first = ""
        if one.dedup and one.dedup.mode != "keep_last":
            code, owner = self._owner(one.dedup)
            if code in ("duplicate", "completed"):
                return code, owner
            replaced = owner
        there = self.get(one.id)
        if there is not None and self.is_gone(there):
            del self.jobs[one.id]
        elif there is not None and there.id != replaced:
            return ("completed" if there.state == "completed" else "duplicate"), there.id
        if replaced:
            self.remove(replaced, "replaced")
        return self._taker(one, one.dedup.id) if one.dedup and one.dedup.mode == "keep_last" else ("", "")

    def _taker(self, one: NewJob, wanted: str) -> tuple[str, str]:
        """Return the waiting job that takes the data of this one. Without one, `first` is the job that it follows."""
        ends, id_ = self.owners.get(wanted, (1, ""))
        owner = self.get(id_)
        if 0 < ends <= self.now or owner is None or owner.over:
            return "", ""
        successor = self.get(self.successors.get(wanted, ""))
        for job in (owner, successor):
            if job is not None and self._can_take(job):
                job.name, job.data = one.name, one.data
                return "duplicate", job.id
            if job is owner and owner.state != "active" and not owner.fence:
                return "", ""  # expired
        promoted = successor is not None and not successor.over and successor.fence
        self.first = successor.id if successor is not None and promoted else owner.id
        return "", ""

    def _can_take(self, job: Job) -> bool:
        late = job.expires is not None and job.expires <= self.now
        return (job.waits or job.state == "delayed") and not job.fence and not late

    def _owner(self, wanted: Dedup) -> tuple[str, str]:
        ends, id_ = self.owners.get(wanted.id, (1, ""))
        if 0 < ends <= self.now:
            return "", ""
        owner = self.get(id_)
        if wanted.mode == "throttle":
            over = owner is not None and owner.state == "completed" and not self.is_gone(owner)
            return ("completed" if over else "duplicate"), id_
        if owner is None or owner.over:
            return "", ""
        if owner.state != "active" and owner.expires is not None and owner.expires <= self.now:
            return "", ""  # expired, but not failed for it yet
        if wanted.mode == "simple":
            return "duplicate", id_
        return ("", "") if owner.fence else ("replace", id_)

    def create(self, id_: str, one: NewJob) -> None:
        job = Job(id_, one.name, one.data, one.lease, one.priority, one.lifo, one.key, one.cost, one.result_ttl)
        self.jobs[id_] = job
        due = one.at or (self.now + one.delay if one.delay else 0)
        if one.ttl:
            job.expires = self.now + one.ttl
        if one.reply:
            job.waiters = [one.reply]
        if self.first and one.dedup:
            wanted = one.dedup.id
            self.owners[wanted], self.successors[wanted] = (0, self.first), id_
            self.marks[self.first] = self.marks[id_] = wanted
            job.dedup, due = (0, wanted), NEVER
            job.after = ("@", one.at) if one.at else ("+", one.delay or 0)
        elif one.dedup:
            self._replace_owner(one.dedup.id)
            ends = self.now + one.dedup.ttl if one.dedup.ttl and one.dedup.mode != "debounce" else 0
            self.owners[one.dedup.id] = ends, id_
            if one.dedup.mode != "throttle":
                self.marks[id_] = one.dedup.id
                job.dedup = ends, one.dedup.id
        self.note("added", id_, one.name if one.key is None else f"{one.name}\x1e{one.key}")
        if due > self.now:
            self.delay_until(job, due)
            self.note("delayed", id_)
        else:
            self.to_line(job)

    def _replace_owner(self, wanted: str) -> None:
        """Make another job the owner of the id. The successor of the previous owner is dropped."""
        successor = self.successors.pop(wanted, "")
        if successor:
            self.marks.pop(successor, None)
            self.start_next(successor)

    # Settling.

    def settle(self, worker: str, runs: Sequence[Settled]) -> dict[int, str]:
        """End runs; return the reasons for which some were refused.

        A refused run changes nothing, but it proves that the run of a removed job has ended.
        """
        refused, named, self.settling = dict[int, str](), set[str](), worker
        ended: Ended = {}
        awaited = 0
        for group, positions in _groups(runs).items():
            refused |= self._refusals(runs, positions, named)
            if isinstance(group[0], int):
                awaited += self._complete_group(runs, positions, refused, ended)
            else:
                self._settle_each(runs, positions, refused, ended)
        others = [position for position, run in enumerate(runs) if not run.group]
        refused |= self._refusals(runs, others, named)
        self.end_runs(worker, [runs[position].token for position in refused])
        self._settle_each(runs, others, refused, ended)
        for jobs in ended.values():
            for job in jobs:
                job.ending = True
        if ended or awaited:
            self.release_held(sum(map(len, ended.values())) + awaited)
        for (state, retention, ttl), jobs in ended.items():
            self._store(state, retention, ttl, jobs)
        return refused

    def _settle_each(
        self, runs: Sequence[Settled], positions: Sequence[int], refused: Collection[int], ended: Ended
    ) -> None:
        """Apply the outcomes of these runs that are not refused. Collect the jobs that ended, by their policy."""
        for position in positions:
            run = runs[position]
            if position in refused:
                continue
            job = self.jobs[run.id]
            job.plain = False
            state = self._apply(job, run)
            if state:
                # A run that was revoked did not state a retention.
                stated = run.code in "cf"
                policy = run.retention if stated else None, run.ttl if stated else job.result_ttl
                ended.setdefault((state, *policy), []).append(job)

    def _complete_group(
        self,
        runs: Sequence[Settled],
        positions: Sequence[int],
        refused: Collection[int],
        ended: Ended,
    ) -> int:
        """Complete jobs that were plain when they were claimed. Most of them are stored without a record.

        Return how many of these are held for a client.
        """
        first = runs[positions[0]]
        count, age = first.retention or DEFAULT_RETENTION["completed"]
        newest = max(number_of(runs[position].token) for position in positions)
        kept = len(self.completed_plain())
        stays_plain = list[Job]()
        for position in positions:
            run = runs[position]
            if position in refused:
                continue
            job = self.jobs[run.id]
            job.result = run.payload
            number = number_of(run.token)
            near = newest - number > count / 2 or (number < self.horizon + count / 2 and kept > count / 2)
            took_long = age >= 0 and self.now - (run.since or 0) > age / 16
            late = count != 0 and (took_long or number < self.horizon or (count > 0 and near))
            if job.plain and first.ttl is None and not late and not (job.waiters and count == 0):
                stays_plain.append(job)
            else:
                job.plain = False
                ended.setdefault(("completed", run.retention, run.ttl), []).append(job)
        for job in stays_plain:
            job.state, job.ended, job.position = "completed", self.now, self.now
            job.held = self.now + HOLD_MS if job.waiters else None
            self.note("completed", job.id)
            if count == 0:
                del self.jobs[job.id]
        if stays_plain and count != 0:
            self.keep["completed"] = first.retention
            self._trim("completed", count)
            if first.retention is not None:
                self._discard_older("completed", age)
        return sum(bool(job.waiters) for job in stays_plain)

    def end_runs(self, worker: str, tokens: Sequence[str]) -> int:
        """End the runs of removed jobs among these; return their number."""
        ended = [token for token, run in self.stopping.items() if token in tokens and run.worker == worker]
        for token in ended:
            del self.stopping[token]
        return len(ended)

    def _refusals(self, runs: Sequence[Settled], positions: Sequence[int], named: set[str]) -> dict[int, str]:
        """The fencing token: only the present lease of a job can settle it, and only once.

        named: the tokens that the call has named before these.
        """
        refused = dict[int, str]()
        for position in positions:
            run = runs[position]
            job = self.jobs.get(run.id)
            if job is None or job.record_lost:
                refused[position] = "missing"
                self.clean_up(job, run.id)
                if job is not None and job.state == "active" and job.token == run.token:
                    self.forget(job)  # nothing is left of the job now
            elif job.state != "active" or job.token != run.token or run.token in named:
                refused[position] = "stale"
            named.add(run.token)
        return refused

    def clean_up(self, job: Job | None, id_: str) -> None:
        """Remove the remains of a record that was deleted by hand when a call discovers the deletion."""
        self.free_dedup(id_)
        if job is not None:
            job.expires = job.moved = None
            job.mailbox, job.handed = [], ("", "", [])
            job.revoking, job.waiters, job.logs = False, [], []

    def _apply(self, job: Job, run: Settled) -> Final | None:
        """Apply the outcome of one run; return the final state if there is one."""
        code, reason, cause, payload = run.code, run.reason, run.cause, run.payload
        if job.revoking and code != "c":
            payload = payload if code in "fr" else ""
            code, reason, cause = "f", "revoked", "revoked"  # a revoked job is not retried
        if code == "c":
            job.result = run.payload
            return "completed"
        if code in "fr":
            job.failures += 1
            job.error, job.reason = payload, reason
        if code == "f":
            job.cause = cause
            self.post(job, cause, reason)
            return "failed"
        if code == "s":
            self.suspend(job, run)
            return None
        self._apply_unfinished(job, run, code)
        return None

    def _apply_unfinished(self, job: Job, run: Settled, code: str) -> None:
        """Apply the outcome of a run after which the job waits for its next run."""
        if code == "l":
            self._apply_rate_limit(job, run.delay)
        if run.step and code == "d":
            job.handed = job.handed[0], run.step, job.handed[2]
        if code in "bl":
            self.put_back(job)
            self.note("returned" if code == "b" else "limited", job.id, str(run.delay) if code == "l" else "")
        elif code == "r" and run.delay == 0:
            self.to_line(job)
        else:
            self.delay_until(job, self.now + run.delay)
            job.resting = job.key is not None
        if code == "r":
            self.note("retrying", job.id, f"{run.delay} {run.reason}")
        elif code == "d":
            job.reason = run.payload or job.reason
            self.note("delayed", job.id)

    def _apply_rate_limit(self, job: Job, delay: int) -> None:
        """Apply a rate limit that the handler reported: to the job's key, or to the queue for an unkeyed job."""
        if job.key is not None:
            key = self.keys[job.key]
            key.paused_until = max(key.paused_until, self.now + delay)
        else:
            self.gate = max(self.gate, self.now + delay)

    # Ends.

    def fail(self, job: Job, reason: str) -> None:
        """Fail a job by the queue and not by a run. The failure counter does not change."""
        job.reason = job.cause = reason
        self.post(job, reason, reason)
        self.release_held(1)
        self._store("failed", None, job.result_ttl, [job])

    def release_held(self, ended: int | None = None) -> None:
        """Remove records that no client may still be reading and that nothing else keeps. A call that adds some removes
        some.
        """
        held = [job for job in self.jobs.values() if job.held is not None and job.held <= self.now]
        held.sort(key=lambda job: (job.held or 0, job.id))
        for job in held if ended is None else held[: 10 + 2 * ended]:
            self._release(job)

    def _release(self, job: Job) -> None:
        job.held, job.waiters = None, []
        if job.drop:
            del self.jobs[job.id]

    def confirm_replies(self, channel: str, ids: Sequence[str]) -> None:
        """Note that a channel has received these results. The policy decides about a record that no other channel waits
        for.
        """
        free = False
        for id_ in ids:
            free = self._confirm(channel, id_) or free
        if free:
            self.trim_kept()

    def _confirm(self, channel: str, id_: str) -> bool:
        job = self.jobs.get(id_)
        if job is None or job.held is None or not job.waiters:
            return False
        job.waiters = [one for one in job.waiters if one != channel]
        if job.waiters or job.drop == "t":
            return False
        self._release(job)
        return not job.plain  # the retention has never waited for the result of a plain job

    def trim_kept(self) -> None:
        """Apply the retention policies."""
        for state in FINAL:
            count, age = self.keep[state] or DEFAULT_RETENTION[state]
            self._trim(state, count)
            self._discard_older(state, age)

    def _trim(self, state: Final, count: int) -> None:
        """Keep the newest jobs. Expired jobs that still exist do not count."""
        kept = self.ended(state)
        over = sum(job.held is not None and job.held <= self.now for job in self.having(*FINAL))
        ordinary = sum(job.position <= self.now for job in kept) - over
        if count < 0 or ordinary <= count:
            return
        if state == "completed":
            self._remove_oldest_completed(ordinary - count, over)
        else:
            self._discard(kept[: ordinary - count])

    def completed_plain(self) -> list[Job]:
        """Return the completed jobs without a record, in the order in which they were added."""
        return sorted((job for job in self.having("completed") if job.plain), key=lambda job: int(job.id))

    def _remove_oldest_completed(self, surplus: int, expired: int) -> None:
        """Merge the records, by their end, with the jobs without a record, by their number. Remove the first ones."""
        kept, records = self.completed_plain(), [job for job in self.ended("completed") if not job.plain]
        if kept and sum(job.position <= self.now for job in records) == expired:
            records = []
        of_records = of_kept = 0
        while of_records + of_kept < surplus:
            record = records[of_records] if of_records < len(records) else None
            plain = kept[of_kept] if of_kept < len(kept) else None
            if plain and (record is None or record.position > self.now or plain.position <= record.position):
                of_kept += 1
            elif record:
                of_records += 1
            else:
                break
        self._discard(records[:of_records])
        self._discard_plain(kept[:of_kept])

    def _discard_plain(self, jobs: Sequence[Job]) -> None:
        """Remove these jobs. The ones that are held for a client get a record instead."""
        for job in jobs:
            if job.held is None:
                del self.jobs[job.id]
            job.plain = False
            self.horizon = int(job.id) + 1

    def is_gone(self, job: Job) -> bool:
        """Return whether the job has expired, even if it still exists."""
        return bool(job.drop) and job.held is not None and job.held <= self.now

    def _store(self, state: Final, retention: Retention | None, ttl: int | None, jobs: list[Job]) -> None:
        """Notify the waiters, then apply the retention policy. A job that a client waited for stays for a while.

        The policy of the job that ends last applies to the whole set. (The default policy leaves ages to the sweep.) A
        job with a time to live has no policy, and no policy counts it.
        """
        count, age = retention or DEFAULT_RETENTION[state]
        for job in jobs:
            job.plain = False
            job.state, job.ended, job.expires, job.revoking, job.resting = state, self.now, None, False, False
            job.moved, job.position, job.ending = None, self.now, False
            job.mailbox, job.handed = [], ("", "", [])
        self.free_dedup(*(job.id for job in jobs))
        for job in jobs:
            self.note(state, job.id, (job.reason or "") if state == "failed" else "")
            waited = bool(job.waiters)
            if ttl is not None:
                self._live(job, ttl)
                continue
            if waited:
                job.held = self.now + HOLD_MS
            if count == 0 and waited:
                job.drop = "1"
            elif count == 0:
                del self.jobs[job.id]
        if count == 0 or ttl is not None:
            return
        self.keep[state] = retention
        self._trim(state, count)
        if retention is not None:
            self._discard_older(state, age)

    def _live(self, job: Job, ttl: int) -> None:
        job.drop, job.held = "t", self.now + ttl
        job.position = job.held

    def set_result_ttl(self, id_: str, ttl: int | None) -> str:
        """Keep the ended job for this time. None: as the policy says, if it had a time to live."""
        job = self.open(id_)
        if job is None:
            return "missing"
        if not job.over:
            return f"state {job.state}"
        if self.is_gone(job):
            del self.jobs[id_]
            return "missing"
        job.changes += 1
        if ttl is not None:
            self._live(job, ttl)
        elif job.drop == "t":
            job.drop, job.held, job.position, job.waiters = "", None, job.ended or 0, []
        return "ok"

    def _discard_older(self, state: Final, age: int) -> None:
        if age < 0:
            return
        self._discard(job for job in self.ended(state) if job.position <= self.now - age and not job.plain)
        if state == "completed":
            self._discard_plain([*takewhile(lambda job: job.position <= self.now - age, self.completed_plain())])

    def _discard(self, jobs: Iterable[Job]) -> None:
        for job in list(jobs):
            if job.held is None:
                del self.jobs[job.id]

    # Removal.

    def open(self, id_: str) -> Job | None:
        """Return the job, which has a record from now on; None if it does not exist."""
        job = self.get(id_)
        if job is not None:
            job.plain = False
        return job

    def remove(self, id_: str, detail: str = "") -> str:
        job = self.open(id_)
        if job is None:
            return "missing"
        limited = job.key is not None or self.limits.concurrency is not None
        if job.state == "active" and limited:
            self.stopping[job.token] = StoppingRun(job.key, job.worker, job.lock, job.idle)
        self.forget(job)
        self.note("removed", id_, detail or job.state)
        return "ok"
