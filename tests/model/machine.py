"""The hypothesis machine: random calls against the real functions and the model, compared after each one.

The rules are in model.py and upkeep.py; here is how they are called, repeated and torn. Each call may be sent once,
twice, or have its first answer lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar

import hypothesis.strategies as st
import msgpack
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from glidemq_async.functions.callers import AddRequest, Arg, ClaimedJob, Lane, SettleReply, SettleRequest
from glidemq_async.storage.wire import ReplyError
from tests.model.compare import Comparer, created, same
from tests.model.driver import BASE, Delivery, Driver, run
from tests.model.parts import Job, NewJob, Settled, State
from tests.model.upkeep import TimedQueue

START_MS = 1_800_000_000_000
STEP = 4
"""Due and expired jobs handled in one call, pending entries looked at: small, so that the steps are seen."""


class Worker:
    """What a worker knows: its slots, and the leases it holds (or thinks it holds)."""

    def __init__(self, name: str, capacity: int, lock: int, flags: str = "u") -> None:
        self.name = name
        self.capacity = capacity
        self.lock = lock
        self.flags = flags
        self.lane = Lane(name)
        self.held: dict[str, str] = {}  # lease -> job
        self.unanswered: Unanswered | None = None

    @property
    def free(self) -> int:
        return max(0, self.capacity - len(self.held))


class Unanswered:
    """A call whose answer the worker has not received yet."""

    def __init__(self, request: SettleRequest, refused: dict[int, str], jobs: list[Job], due: int) -> None:
        self.request = request
        self.refused = refused
        self.claimed = [(job.id, job.token) for job in jobs]
        self.due = due


WORKERS = st.sampled_from(["w1", "w2", "w3", "w4"])
NUMBER = st.integers(0, 63)
DELIVERY = st.sampled_from(["once", "once", "twice", "lost"])
Change = Literal["removeJob", "retryJob", "revokeJob", "promoteJob"]
CHANGES: tuple[Change, ...] = ("removeJob", "retryJob", "revokeJob", "promoteJob")
FITS: dict[Change, tuple[State, ...]] = {
    "removeJob": ("waiting", "active", "delayed", "completed", "failed"),
    "retryJob": ("failed", "completed"),
    "revokeJob": ("active",),
    "promoteJob": ("delayed",),
}
IDS = st.sampled_from(["", "", "", "a", "b", "1", "2", "5", "9"])
NEW = (
    NewJob(), NewJob(), NewJob(), NewJob(lease=20_000), NewJob(delay=1), NewJob(delay=20_000), NewJob(at=START_MS - 5),
    NewJob(at=START_MS + 70_000), NewJob(ttl=5_000), NewJob(ttl=10_000, delay=20_000), NewJob(ttl=70_000, delay=1),
    NewJob(reply="r1"), NewJob(reply="r2", delay=7_000, ttl=7_000),
)  # fmt: skip
ENDS = (
    Settled("c", "", ""), Settled("c", "", "", retention=(0, 0)), Settled("c", "", "", retention=(1, -1)),
    Settled("c", "", "", retention=(2, -1)), Settled("c", "", "", retention=(-1, 5_000)), Settled("f", "", ""),
    Settled("f", "", "", retention=(1, 60_000)), Settled("f", "", "", retention=(0, -1)), Settled("r", "", ""),
    Settled("r", "", "", delay=1), Settled("r", "", "", delay=20_000), Settled("d", "", "", delay=7_000),
    Settled("b", "", ""), Settled("b", "", ""),
)  # fmt: skip
RUN = st.tuples(st.sampled_from(["held"] * 7 + ["stale", "missing", "again"]), NUMBER, st.sampled_from(ENDS))
RUNS = st.lists(RUN, min_size=1, max_size=4)


F = TypeVar("F", bound=Callable[..., None])
ACTIONS: list[st.SearchStrategy[tuple[str, dict[str, object]]]] = []


def action(weight: int, **arguments: st.SearchStrategy[object]) -> Callable[[F], F]:
    """A rule with a weight: how often it is chosen. (Hypothesis weighs rules alike, and leaves many out of a run.)"""

    def register(method: F) -> F:
        # Not one strategy many times over: that would count once.
        ACTIONS.extend(st.tuples(st.just(method.__name__), st.fixed_dictionaries(arguments)) for _ in range(weight))
        return method

    return register


class QueueMachine(RuleBasedStateMachine):
    """Random users and workers on one queue."""

    driver: ClassVar[Driver]
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.driver.reset(START_MS)
        self.model = TimedQueue(START_MS, step=STEP)
        self.comparer = Comparer()
        self.functions = self.driver.functions
        workers = [Worker("w1", 1, 30_000), Worker("w2", 2, 60_000), Worker("w3", 6, 60_000), Worker("w4", 3, 100_000)]
        self.workers = {worker.name: worker for worker in workers}
        self.made = 0
        self.dirty = False

    # Helpers.

    def pick(self, number: int, *states: State) -> str:
        """A job, preferably in one of these states; sometimes one that never was."""
        liked = [job.id for job in self.model.having(*states)] if number % 8 else []
        ids = liked or [*self.model.jobs, "nobody"]
        id_ = ids[number // 8 % len(ids)]
        job = self.model.jobs.get(id_)
        note(f"  job {id_!r} is {job.state + (' and torn' if job.torn else '') if job else 'unknown'}")
        return id_

    def stale_tokens(self) -> list[tuple[str, str]]:
        """Leases that ran out, those of jobs that are still there if there are any."""
        running = {job.token for job in self.model.having("active")}
        stale = [(id_, token) for token, id_ in self.comparer.tokens.items() if token not in running]
        return [one for one in stale if one[0] in self.model.jobs] or stale

    def look(self) -> None:
        """Compare everything stored with the model."""
        self.dirty = False
        self.comparer.compare(self.driver.snapshot(), self.model)

    @invariant()
    def agree(self) -> None:
        if self.dirty:
            self.look()
        type(self).steps += 1
        if self.steps % 5 == 0:
            self.check()

    def check(self) -> None:
        """The library's own readers and its self-check agree as well."""
        torn = {job.id for job in self.model.jobs.values() if job.torn}
        found = self.driver.findings([*self.model.jobs])
        same("findings", [one for one in found if one.subject not in torn], [])
        states: tuple[State, ...] = ("waiting", "active", "delayed", "completed", "failed")
        counts = {state: len(self.model.having(state)) for state in states}
        same("counts", run(self.functions.count_jobs()), counts)
        same("paused", run(self.functions.is_paused()), self.model.paused)
        orders = {"waiting": self.model.waiting(), "delayed": self.model.scheduled()}
        orders |= {state: self.model.ended(state)[::-1] for state in ("completed", "failed")}
        for state in states:
            listed = self.listed(state)
            if state == "active":
                same("listed as active", set(listed), {job.id for job in self.model.having("active")})
            else:
                same(f"listed as {state}", listed, [job.id for job in orders[state]])

    def listed(self, state: State) -> list[str]:
        ids, cursor = list[str](), ""
        while True:
            cursor, some = run(self.functions.list_jobs(state, cursor, 3))
            ids += some
            if not cursor:
                return ids

    @rule(action=st.deferred(lambda: st.one_of(ACTIONS)))
    def step(self, action: tuple[str, dict[str, object]]) -> None:
        """One of the actions below."""
        name, arguments = action
        getattr(self, name)(**arguments)

    # Users.

    @initialize()
    def first_sweep(self) -> None:
        self.sweep(5, 0, 30_000, "once")

    @action(4, new=st.lists(st.tuples(IDS, st.sampled_from(NEW)), min_size=1, max_size=4), delivery=DELIVERY)
    def add(self, new: list[tuple[str, NewJob]], delivery: Delivery) -> None:
        jobs = list[NewJob]()
        for id_, kind in new:
            there = self.model.jobs.get(id_)
            if there is None or not there.torn:
                self.made += 1
                jobs.append(kind._replace(id=id_, name=f"n{self.made}", data=f"d{self.made}"))
        if jobs:
            self.driver.delivery = delivery
            reply = run(self.functions.add_jobs([_request(job) for job in jobs]))
            same("answer of add", (reply.now, reply.ids, reply.outcomes), (self.model.now, *self.model.add(jobs)))
            self.dirty = True

    @action(2, number=NUMBER, delivery=DELIVERY)
    def retry(self, number: int, delivery: Delivery) -> None:
        self.change("retryJob", number, delivery)

    @action(1, number=NUMBER, delivery=DELIVERY)
    def revoke(self, number: int, delivery: Delivery) -> None:
        self.change("revokeJob", number, delivery)

    @action(3, what=st.sampled_from(CHANGES), number=NUMBER, delivery=DELIVERY)
    def change(self, what: Change, number: int, delivery: Delivery) -> None:
        """What a user does to one job, mostly to one it fits."""
        id_ = self.pick(number, *FITS[what])
        self.driver.delivery, self.dirty = delivery, True
        word = run(self.functions.change_job(what, id_))
        model = self.model
        rules = {
            "removeJob": model.remove, "retryJob": model.retry, "revokeJob": model.revoke, "promoteJob": model.promote,
        }  # fmt: skip
        same(f"answer of {what}", word, rules[what](id_))

    @action(2, paused=st.sampled_from([True, False, False, False, False, False]), delivery=DELIVERY)
    def pause(self, paused: bool, delivery: Delivery) -> None:
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.set_paused(paused))
        self.model.set_paused(paused)

    @action(2, number=NUMBER, token=NUMBER, kind=st.sampled_from(["progress", "data", "log"]), delivery=DELIVERY)
    def update(self, number: int, token: int, kind: Literal["progress", "data", "log"], delivery: Delivery) -> None:
        self.made += 1
        id_, lease, stale = self.pick(number, "active"), "", self.stale_tokens()
        job = self.model.jobs.get(id_)
        if token % 3 == 1 and job is not None:
            lease = job.token
        elif token % 3 == 2 and stale:
            id_, lease = stale[token // 3 % len(stale)]
        value = f"v{self.made}"
        self.driver.delivery, self.dirty = delivery, True
        word = run(self.functions.update_job(id_, lease, kind, value))
        same("answer of update", word, self.model.update(id_, lease, kind, value))

    @action(3, number=NUMBER, channel=st.sampled_from(["r1", "r2", "r3"]), forget=st.sampled_from([False, False, True]))
    def wait_for(self, number: int, channel: str, forget: bool) -> None:
        id_, self.dirty = self.pick(number, "active"), True
        if forget:
            run(self.functions.forget_reply(id_, channel))
            self.model.forget_reply(id_, channel)
            return
        word, record = run(self.functions.await_job(id_, channel))
        same("answer of awaitJob", word, self.model.await_job(id_, channel))
        same("a record comes with an end", bool(record), word in ("completed", "failed"))

    @action(2, number=NUMBER)
    def tear(self, number: int) -> None:
        """Somebody deletes a record by hand."""
        whole = [job for job in self.model.jobs.values() if not (job.over or job.torn)]
        if not whole:
            return
        running = [job for job in whole if job.state == "active"]
        ids = [job.id for job in (running if running and number % 4 < 2 else whole)]
        id_ = ids[number // 4 % len(ids)]
        if id_ not in ("1", "2", "5", "9"):
            note(f"  job {id_!r}")
            self.driver.wire.send("UNLINK", f"{BASE}:job:{id_}")
            self.model.tear(id_)
            self.dirty = True

    # Workers.

    @action(4, name=WORKERS, delivery=DELIVERY)
    def claim(self, name: str, delivery: Delivery) -> None:
        self.settle_and_claim(name, [], False, delivery, True)

    @action(10, name=WORKERS, runs=RUNS, delivery=DELIVERY)
    def settle(self, name: str, runs: list[tuple[str, int, Settled]], delivery: Delivery) -> None:
        busy = [worker.name for worker in self.workers.values() if worker.held]
        chosen = name if name in busy or not busy else busy[len(runs) % len(busy)]
        self.settle_and_claim(chosen, runs, False, delivery, True)

    @action(
        3,
        name=WORKERS,
        runs=RUNS,
        leaves=st.sampled_from([False, False, True]),
        delivery=DELIVERY,
        answered=st.booleans(),
    )
    def settle_and_claim(
        self, name: str, runs: list[tuple[str, int, Settled]], leaves: bool, delivery: Delivery, answered: bool
    ) -> None:
        worker = self.workers[name]
        if worker.unanswered is not None:
            self.ask_again(name)
            return
        settled = self.choose_runs(worker, runs)
        for one in settled:
            worker.held.pop(one.token, None)
        slots = 0 if leaves else worker.free
        request = self.functions.settle_request(
            worker.lane, name, slots, worker.lock, worker.flags, len(settled), [a for s in settled for a in _args(s)]
        )
        self.driver.delivery = delivery
        reply = run(self.functions.settle_and_claim(request))
        refused = self.model.settle(settled)
        jobs = self.model.claim(name, slots, worker.lock)
        due = self.model.next_due() if slots > len(jobs) else 0
        self.look()
        worker.unanswered = Unanswered(request, refused, jobs, due)
        if answered:
            self.receive(worker, reply)

    def choose_runs(self, worker: Worker, runs: list[tuple[str, int, Settled]]) -> list[Settled]:
        settled, held, stale = list[Settled](), list(worker.held.items()), self.stale_tokens()
        for kind, number, end in runs:
            self.made += 1
            id_, token = "nobody", "s1-1"
            if kind == "held":
                if not held:
                    continue
                token, id_ = held.pop(number % len(held))
            elif kind == "stale" and stale:
                id_, token = stale[number % len(stale)]
            elif kind == "again" and settled:
                id_, token = settled[-1].id, settled[-1].token
            note(f"  {end.verb} {end.delay} {end.retention} of job {id_!r} under {token}")
            settled.append(end._replace(id=id_, token=token, payload=f"p{self.made}"))
        return settled

    @action(2, name=WORKERS)
    def ask_again(self, name: str) -> None:
        """The answer was lost, and things went on since: the call is sent again."""
        worker = self.workers[name]
        if worker.unanswered is not None:
            self.driver.delivery = "once"
            self.receive(worker, run(self.functions.settle_and_claim(worker.unanswered.request)))
            self.dirty = True

    def receive(self, worker: Worker, reply: SettleReply) -> None:
        """Only what still runs under its lease is handed out again; all else is as it was."""
        call, worker.unanswered = worker.unanswered, None
        assert call is not None
        running = {job.token: job for job in self.model.having("active") if not job.torn}
        jobs = [running[token] for _, token in call.claimed if token in running]
        expected = [_as_claimed(job, self.comparer.added[job.id]) for job in jobs]
        same("claimed jobs", [_claimed(job) for job in reply.jobs], expected)
        same("refused", reply.refused, call.refused)
        same("due", reply.due, call.due)
        same("the server's time", reply.now, self.model.now)
        worker.held |= {job.token: job.id for job in jobs}

    @action(2, name=WORKERS, number=NUMBER)
    def renew(self, name: str, number: int) -> None:
        worker, stale = self.workers[name], self.stale_tokens()
        held = [(id_, token) for token, id_ in worker.held.items()]
        if number % 3 == 0 and stale:
            held.append(stale[number // 3 % len(stale)])
        lost, revoked = run(self.functions.renew_leases(name, b"info", held, 10))
        same("answer of renew", (set(lost), set(revoked)), self.model.renew(name, held))
        for token in lost:
            worker.held.pop(token, None)
        self.dirty = True

    @action(
        1, name=WORKERS, what=st.sampled_from(["crash", "crash and close", "close", "old number", "shutdown", "shutdown"]), delivery=DELIVERY
    )
    def trouble(self, name: str, what: str, delivery: Delivery) -> None:
        """A crashed worker forgets everything, its leases run on; what is closed must hold nothing."""
        worker = self.workers[name]
        if what == "old number":
            self.send_old_number(worker)
        elif what == "shutdown":
            back = Settled("b", "", "")
            self.settle_and_claim(name, [("held", 0, back) for _ in worker.held], True, delivery, True)
        else:
            self.end(worker, what, delivery)

    def end(self, worker: Worker, what: str, delivery: Delivery) -> None:
        if what != "close":
            worker.held.clear()
            worker.unanswered = None
        if what != "crash" and not worker.held and worker.unanswered is None:
            self.driver.delivery, self.dirty = delivery, True
            count = run(self.functions.close_worker(worker.name))
            same("handed back", count, self.model.close_worker(worker.name))

    def send_old_number(self, worker: Worker) -> None:
        """A call older than the lane's last one comes from a broken caller: refused, and nothing changes."""
        lane = worker.lane
        if lane.number > 1 and worker.unanswered is None:
            args: list[Arg] = [lane.name, lane.number - 1, worker.name, 5, 1000, "u", 0]
            error = ""
            try:
                run(self.functions.settle_and_claim(SettleRequest(lane, lane.number - 1, args)))
            except ReplyError as refused:
                error = str(refused)
            assert error.startswith("GLIDEMQ REPLAY"), f"an older call was answered with {error or 'success'}"
            self.dirty = True

    # Time.

    @action(3, ms=st.sampled_from([7_000, 7_000, 7_000, 28_000, 28_000, 63_000, 63_000, 301_000, 86_401_000]))
    def advance(self, ms: int) -> None:
        self.model.advance(ms)
        self.driver.set_clock(self.model.now)
        self.driver.age(ms)

    @action(4, most=st.sampled_from([0, 1, 5, 5]), interval=st.sampled_from([0, 0, 5_000, 14_000]),
          gap=st.sampled_from([30_000, 10**9, 10**9]), delivery=DELIVERY)  # fmt: skip
    def sweep(self, most: int, interval: int, gap: int, delivery: Delivery) -> None:
        self.driver.age(0)
        self.driver.delivery, self.dirty = delivery, True
        expected, found = self.model.sweep(most, interval, gap), None
        while (reply := run(self.functions.sweep(most, interval, gap, resume=found is not None))) is not None:
            found = found or (set[str](), set[str]())
            found[0].update(reply.recovered)
            found[1].update(reply.failed)
            if not reply.more:
                break
        same("answer of sweep", found, expected)


def _request(job: NewJob) -> AddRequest:
    named = {"delay": job.delay, "at": job.at, "ttl": job.ttl, "reply": job.reply}
    extra = {name: value for name, value in named.items() if value is not None}
    opts = b"" if job.lease is None else msgpack.packb({"l": job.lease})
    return AddRequest(job.id, job.name, job.data.encode(), opts, msgpack.packb(extra) if extra else b"")


def _args(run: Settled) -> list[Arg]:
    policy = "" if run.retention is None else f"{run.retention[0]} {run.retention[1]}"
    option = {
        "c": policy,
        "f": f"{policy};{run.reason}",
        "r": f"{run.delay} {run.reason}",
        "d": str(run.delay),
        "b": "",
    }
    return [run.verb, run.id, run.token, run.payload, option[run.verb]]


def _claimed(fields: ClaimedJob) -> tuple[object, ...]:
    name, data, _, fence, id_, entry, *history = [value.decode(errors="replace") if value else None for value in fields]
    failures, stalls, added, progress = history or [None, None, None, None]
    since = created(added, entry or "")
    return name, data, int(fence or 0), id_, entry, int(failures or 0), int(stalls or 0), progress, since


def _as_claimed(job: Job, since: int) -> tuple[object, ...]:
    return job.name, job.data, job.fence, job.id, job.token, job.failures, job.stalls, job.progress, since
