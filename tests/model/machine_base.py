"""The base of the machine: it holds the model and the driver, chooses a job for each action, and compares them after
it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import ClassVar, Literal

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from glidemq_async.functions.push import JobsPushed
from glidemq_async.storage.redis.wire import ReplyError
from tests.model.choices import ACTIONS, BARE_ACTIONS, START_MS, STEP
from tests.model.compare import Comparer, same
from tests.model.compare_dead_letters import compare_dead_letters
from tests.model.compare_schedulers import compare_schedulers
from tests.model.driver import Driver, Snapshot, run
from tests.model.parts import READY, Job, State
from tests.model.scheduling import ScheduledQueue
from tests.model.signals import compare_signals
from tests.model.steps import compare_journals
from tests.model.streams import compare_streams
from tests.model.wakeups import Wakeups
from tests.model.worker import Worker, as_claimed, claimed_fields


class BaseMachine(RuleBasedStateMachine):
    """The base class of all actions."""

    driver: ClassVar[Driver]
    steps: ClassVar[int] = 0
    differences: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.driver.reset(START_MS)
        self.model = ScheduledQueue(START_MS, step=STEP)
        self.comparer = Comparer()
        self.functions = self.driver.functions
        workers = [
            Worker("w1", 1, 30_000, accepts_pushes=True),
            Worker("w2", 2, 60_000),
            Worker("w3", 6, 60_000, accepts_pushes=True),
            Worker("w4", 3, 100_000, listens=False),
        ]
        self.workers = {worker.name: worker for worker in workers}
        self.wakeups = Wakeups(self.driver.subscription, ["w1", "w2", "w3"])  # w4 only polls
        self.expected_messages: list[tuple[str, str]] = []
        self.made: int = 0
        self.plain_since: dict[str, int] = {}  # lease of a plain run -> when it began
        self.claimed_at: dict[str, int] = {}  # lease of another run -> when it began
        self.sleeping: dict[str, int] = {}
        self.taken = 0
        self.plain = False
        self.alike = False
        self.bare = False
        self.resumed = list[tuple[Worker, JobsPushed]]()
        self.ends_early = False
        self.dirty = False

    # Helpers.

    def pick(self, number: int, *states: State) -> str:
        """Choose a job, preferably in one of these states; sometimes an id that never existed."""
        return self.pick_of(number, self.model.having(*states))

    def pick_of(self, number: int, jobs: list[Job]) -> str:
        """Choose a job, preferably one of these."""
        liked = [job.id for job in jobs] if number % 8 else []
        ids = liked or [*self.model.jobs, "nobody"]
        id_ = ids[number // 8 % len(ids)]
        job = self.model.jobs.get(id_)
        note(f"  job {id_!r} is {job.state + (' without a record' if job.record_lost else '') if job else 'unknown'}")
        return id_

    def is_record_lost(self, id_: str) -> bool:
        """Return whether the job has lost its record. A new job with its id would find data that the model does not
        describe.
        """
        job = self.model.jobs.get(id_)
        return job is not None and job.record_lost

    def stale_tokens(self) -> list[tuple[str, str]]:
        """Return expired leases, preferably leases of existing jobs."""
        running = {job.token for job in self.model.having("active")}
        stale = [(id_, token) for token, id_ in self.comparer.tokens.items() if token not in running]
        return [one for one in stale if one[0] in self.model.jobs] or stale

    def compare_all(self, seen: Snapshot | None = None) -> None:
        """Compare everything stored with the model."""
        self.dirty = False
        if seen is None:
            self.wakeups.ask()
            seen = self.driver.snapshot()
        self.sleeping = seen.sleeping
        compare_dead_letters(seen, self.model)
        self.comparer.compare(seen, self.model)
        compare_schedulers(seen, self.model)
        stored = self.driver.belongings(seen)
        compare_streams(self.driver, stored, self.model)
        compare_signals(stored, self.model)
        compare_journals(self.driver, stored, self.model)
        same("messages to the workers", self.wakeups.read_messages(), self.expected_messages)
        self.expected_messages.clear()
        self.wakeups.check(seen, self.model, {name for name, one in self.workers.items() if one.unanswered})

    def take_pushes(self, added: Collection[str], *, lost: bool) -> None:
        """Let the workers receive what an add has pushed to them, or lose it."""
        pushes = self.wakeups.read_pushes()
        started = list[tuple[Worker, JobsPushed, list[Job]]]()
        for name, pushed in pushes:
            worker = self._pushed_to(name, pushed)
            assert {job.id for job in pushed.jobs} <= {*added}, f"{pushed} has a job that the add did not add"
            jobs = self.model.push(name, worker.lock, [job.id for job in pushed.jobs])
            started.append((worker, pushed, jobs))
        self.compare_all()
        self._receive_pushes(started, lost=lost)

    def expect_resumed(self) -> None:
        """Tell the model which jobs the last call has resumed on workers that keep their functions."""
        for name, pushed in self.wakeups.read_pushes():
            worker = self._pushed_to(name, pushed)
            self.model.continued |= {job.id: (name, worker.lock) for job in pushed.jobs}
            self.resumed.append((worker, pushed))

    def take_resumed(self, *, lost: bool) -> None:
        """Let the workers receive the resumed jobs, or lose them."""
        assert not self.model.continued, f"{self.model.continued} were pushed, but not resumed"
        started = [
            (worker, pushed, [self.model.jobs[job.id] for job in pushed.jobs]) for worker, pushed in self.resumed
        ]
        self.resumed = []
        if started:
            if self.dirty:
                self.compare_all()
            self._receive_pushes(started, lost=lost)

    def _pushed_to(self, name: str, pushed: JobsPushed) -> Worker:
        worker = self.workers[name]
        assert worker.accepts_pushes, f"{name} accepts no pushes"
        assert not worker.pushed, f"{name} was pushed to twice between two calls"
        same("the last call of the worker", pushed.number, worker.channel.number)
        same("time of the push", pushed.claimed_at, self.model.now)
        return worker

    def _receive_pushes(self, started: list[tuple[Worker, JobsPushed, list[Job]]], *, lost: bool) -> None:
        for worker, pushed, jobs in started:
            expected = [as_claimed(job, self.comparer.added[job.id]) for job in jobs]
            same("pushed jobs", [claimed_fields(job) for job in pushed.jobs], expected)
            worker.pushed, worker.has_push = {job.token: job.id for job in jobs}, not lost
            if lost:
                self.wakeups.reconnects(worker.name)
            else:
                worker.held |= worker.pushed
                worker.registered = False
                self.plain_since |= {job.entry: pushed.claimed_at for job in pushed.jobs if job.is_plain}

    def missed(self, worker: Worker) -> list[Job]:
        """Return the jobs that were pushed to a worker, did not reach it, and still run under their leases."""
        if worker.has_push:
            return []
        running = {job.token: job for job in self.model.having("active") if not job.record_lost}
        return [running[token] for token in worker.pushed if token in running]

    def pass_time(self, ms: int) -> None:
        """Advance the clock of the model, of the server and of its pending entries."""
        self.model.advance(ms)
        self.driver.set_clock(self.model.now)
        self.driver.age(ms)

    @contextmanager
    def noting_differences(self) -> Generator[None]:
        """Count a difference when it appears, because Hypothesis may not reach it again when it repeats an example."""
        try:
            yield
        except (AssertionError, ReplyError):
            type(self).differences += 1
            raise

    @invariant()
    def agree(self) -> None:
        with self.noting_differences():
            if self.dirty:
                self.compare_all()
            type(self).steps += 1
            self.taken += 1  # not the sum over examples: Hypothesis must see the same result when it repeats one
            if self.taken % 10 == 0:
                self.check()

    def check(self) -> None:
        """Check that the library's own readers and its integrity check agree as well."""
        record_lost = {job.id for job in self.model.jobs.values() if job.record_lost}
        found = self.driver.findings([*self.model.jobs])
        same("findings", [one for one in found if one.subject not in record_lost], [])
        states: tuple[State, ...] = (*READY, "active", "delayed", "suspended", "completed", "failed")
        counts: dict[str, int] = {state: len(self.model.having(state)) for state in states}
        limited = len(self.sleeping)  # the first job of each sleeping key
        counts |= {"waiting-children": 0, "rate-limited": limited, "key-waiting": counts["key-waiting"] - limited}
        same("counts", run(self.functions.reading.count_jobs()), counts)
        same("paused", run(self.functions.reading.is_paused()), self.model.paused)
        for state in states:
            self.check_listed(state)

    def check_listed(self, state: State) -> None:
        listed, there = self.listed(state), [job.id for job in self.model.having(state)]
        backwards = self.listed(state, backwards=True)
        if state == "completed":
            # Jobs without a record are listed by number and merged with the others by their ends.
            same("set of those listed backwards", sorted(backwards), sorted(listed))
        else:
            same(f"listed backwards as {state}", backwards, listed[::-1])
        if state == "key-waiting":
            # A job without a record may be in both.
            listed = [*{*listed, *self.listed("rate-limited")}]
        same(f"listed as {state}", sorted(listed), sorted(there))
        lines = [*self.model.lines().values()] if state in ("waiting", "prioritized") else []
        if state == "completed":
            plain = self.model.completed_plain()[::-1]
            lines = [[job for job in self.model.ended(state)[::-1] if not job.plain], plain]
            for line in lines:
                ids = [job.id for job in line]
                same("order of those listed backwards", [id_ for id_ in backwards if id_ in ids], ids[::-1])
        elif state == "failed":
            lines = [self.model.ended(state)[::-1]]
        elif state == "delayed":
            lines = [self.model.scheduled()]
        elif state == "suspended":
            lines = [self.model.suspended()]
        for line in lines:
            ids = [job.id for job in line if job.state == state]
            same(f"order of those listed as {state}", [id_ for id_ in listed if id_ in ids], ids)

    def listed(self, state: State | Literal["rate-limited"], *, backwards: bool = False) -> list[str]:
        ids, cursor = list[str](), ""
        while True:
            cursor, some = run(self.functions.reading.list_jobs(state, cursor, 3, backwards=backwards))
            ids += some
            if not cursor:
                return ids

    @precondition(lambda self: not self.bare)
    @rule(action=st.deferred(lambda: st.one_of(ACTIONS)))
    def step(self, action: tuple[str, dict[str, object]]) -> None:
        """Run one of the actions below."""
        self.run_action(*action)

    @precondition(lambda self: self.bare)
    @rule(action=st.deferred(lambda: st.one_of(ACTIONS + BARE_ACTIONS * 8)))
    def bare_step(self, action: tuple[str, dict[str, object]]) -> None:
        """Run one of the actions below, usually one that needs nothing but bare jobs."""
        self.run_action(*action)

    def run_action(self, name: str, arguments: dict[str, object]) -> None:
        """Run an action, and note a difference."""
        with self.noting_differences():
            getattr(self, name)(**arguments)
