"""The hypothesis machine: random calls against the real functions and the model, compared after each one.

The rules are in model.py and upkeep.py; here is how they are called, repeated and torn. Each call may be sent once,
twice, or have its first answer lost.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from glidemq_async.functions.callers import Arg, SettleReply, SettleRequest
from glidemq_async.storage.wire import ReplyError
from tests.model.choices import (
    ACTIONS,
    CHANGES,
    DELIVERY,
    FITS,
    IDS,
    KEY_LIMITS,
    LIMITS,
    NEW,
    NUMBER,
    RUNS,
    START_MS,
    STEP,
    WORKERS,
    Change,
    action,
)  # fmt: skip
from tests.model.compare import Comparer, same
from tests.model.driver import BASE, KEYS, Delivery, Driver, Snapshot, run
from tests.model.parts import READY, Job, NewJob, Settled, State
from tests.model.upkeep import TimedQueue
from tests.model.wakeups import SECOND_LATER_MS, Wakeups
from tests.model.worker import Unanswered, Worker, add_request, as_claimed, claimed_fields, run_args


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
        workers = [
            Worker("w1", 1, 30_000),
            Worker("w2", 2, 60_000),
            Worker("w3", 6, 60_000),
            Worker("w4", 3, 100_000, listens=False),
        ]
        self.workers = {worker.name: worker for worker in workers}
        self.wakeups = Wakeups(self.driver.ears, ["w1", "w2", "w3"])  # w4 only polls
        self.told: list[tuple[str, str]] = []
        self.made = 0
        self.sleeping: dict[str, int] = {}
        self.taken = 0
        self.plain = False
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

    def look(self, seen: Snapshot | None = None) -> None:
        """Compare everything stored with the model."""
        self.dirty = False
        if seen is None:
            self.wakeups.ask()
            seen = self.driver.snapshot()
        self.sleeping = seen.sleeping
        self.comparer.compare(seen, self.model)
        same("what workers were told", self.wakeups.hear(), self.told)
        self.told.clear()
        self.wakeups.check(seen, self.model, {name for name, one in self.workers.items() if one.unanswered})

    @invariant()
    def agree(self) -> None:
        if self.dirty:
            self.look()
        type(self).steps += 1
        self.taken += 1  # not the sum over examples: one that is repeated must do the same again
        if self.taken % 10 == 0:
            self.check()

    def check(self) -> None:
        """The library's own readers and its self-check agree as well."""
        torn = {job.id for job in self.model.jobs.values() if job.torn}
        found = self.driver.findings([*self.model.jobs])
        same("findings", [one for one in found if one.subject not in torn], [])
        states: tuple[State, ...] = (*READY, "active", "delayed", "completed", "failed")
        counts: dict[str, int] = {state: len(self.model.having(state)) for state in states}
        limited = len(self.sleeping)  # the first one of each key that sleeps
        counts |= {"rate-limited": limited, "key-waiting": counts["key-waiting"] - limited}
        same("counts", run(self.functions.count_jobs()), counts)
        same("paused", run(self.functions.is_paused()), self.model.paused)
        for state in states:
            self.check_listed(state)

    def check_listed(self, state: State) -> None:
        listed, there = self.listed(state), [job.id for job in self.model.having(state)]
        if state == "key-waiting":
            # One without a record may be in both.
            listed = [*{*listed, *self.listed("rate-limited")}]
        same(f"listed as {state}", sorted(listed), sorted(there))
        lines = [*self.model.lines().values()] if state in ("waiting", "prioritized") else []
        if state in ("completed", "failed"):
            lines = [self.model.ended(state)[::-1]]
        elif state == "delayed":
            lines = [self.model.scheduled()]
        for line in lines:
            ids = [job.id for job in line if job.state == state]
            same(f"order of those listed as {state}", [id_ for id_ in listed if id_ in ids], ids)

    def listed(self, state: State | Literal["rate-limited"]) -> list[str]:
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

    @initialize(plain=st.sampled_from([False, False, True]), swept=st.sampled_from([True, True, False]))
    def begin(self, plain: bool, swept: bool) -> None:
        """In some runs only plain jobs without limits: what is done to many of them is seen sooner."""
        self.plain = plain
        if swept:
            self.sweep(5, 0, 30_000, "once")

    @action(8, new=st.lists(st.tuples(IDS, st.sampled_from(NEW)), min_size=1, max_size=4), delivery=DELIVERY)
    def add(self, new: list[tuple[str, NewJob]], delivery: Delivery) -> None:
        jobs = list[NewJob]()
        for id_, kind in new:
            there = self.model.jobs.get(id_)
            if there is None or not there.torn:
                self.made += 1
                one = kind._replace(priority=0, lifo=False, key=None, dedup=None) if self.plain else kind
                jobs.append(one._replace(id=id_, name=f"n{self.made}", data=f"d{self.made}"))
        if jobs:
            self.driver.delivery = delivery
            reply = run(self.functions.add_jobs([add_request(job) for job in jobs]))
            same("outcomes of add", reply.outcomes, self.model.add(jobs, reply.ids))
            same("the server's time", reply.now, self.model.now)
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
        word, model = run(self.functions.change_job(what, id_)), self.model
        job = model.get(id_)
        if job is not None and job.state == "active" and self.wakeups.listens(job.worker):
            told = {"removeJob": f"x {job.token}", "revokeJob": f"r {id_}"}
            self.told += [(job.worker, told[what])] if what in told else []
        rules = {
            "removeJob": model.remove, "retryJob": model.retry, "revokeJob": model.revoke, "promoteJob": model.promote,
        }  # fmt: skip
        same(f"answer of {what}", word, rules[what](id_))

    @action(2, paused=st.sampled_from([True] + [False] * 9), delivery=DELIVERY)
    def pause(self, paused: bool, delivery: Delivery) -> None:
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.set_paused(paused))
        self.model.set_paused(paused)

    @action(2, number=NUMBER, token=NUMBER, kind=st.sampled_from(["progress", "data", "log"]), delivery=DELIVERY)
    def update(self, number: int, token: int, kind: Literal["progress", "data", "log"], delivery: Delivery) -> None:
        self.made += 1
        id_, lease, stale = self.pick(number, "active", *READY), "", self.stale_tokens()
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
        # What a waiting job costs is read when its key is looked at, and nobody looks when a record is torn.
        whole = [job for job in self.model.jobs.values() if not (job.over or job.torn or self.is_weighed(job))]
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

    def is_weighed(self, job: Job) -> bool:
        return job.state == "key-waiting" and self.model.limits_of(job.key or "").bucket is not None

    @action(3, number=NUMBER, priority=st.sampled_from([0, 1, 2]), delivery=DELIVERY)
    def change_priority(self, number: int, priority: int, delivery: Delivery) -> None:
        id_ = self.pick(number, *READY, "delayed")
        self.driver.delivery, self.dirty = delivery, True
        word = run(self.functions.change_priority(id_, priority))
        same("answer of changePriority", word, self.model.change_priority(id_, priority))

    @action(2, number=NUMBER, delay=st.sampled_from([0, 0, 1, 7_000, 20_000]), delivery=DELIVERY)
    def change_delay(self, number: int, delay: int, delivery: Delivery) -> None:
        id_ = self.pick(number, *READY, "delayed")
        self.driver.delivery, self.dirty = delivery, True
        word = run(self.functions.change_delay(id_, delay))
        same("answer of changeDelay", word, self.model.change_delay(id_, delay))

    # Limits.

    @action(1, limit=LIMITS, delivery=DELIVERY)
    def limit(self, limit: tuple[str, str], delivery: Delivery) -> None:
        if self.plain:
            return
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.set_limits(**{limit[0]: limit[1]}))
        self.model.set_limit(*limit)

    @action(3, key=st.sampled_from(["", "x", "x", "y"]), limit=KEY_LIMITS, delivery=DELIVERY)
    def limit_key(self, key: str, limit: tuple[str, str], delivery: Delivery) -> None:
        if self.plain:
            return
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.set_key_limits(key, **{limit[0]: limit[1]}))
        self.model.set_key_limit(key, *limit)
        if not key:
            run(self.functions.review_keys())

    @action(1, key=st.sampled_from(KEYS), ms=st.sampled_from([0, 7_000, 20_000]), delivery=DELIVERY)
    def pause_key(self, key: str, ms: int, delivery: Delivery) -> None:
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.pause_key(key, ms))
        self.model.pause_key(key, ms)

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
            worker.lane, name, slots, worker.lock, worker.flags, len(settled), [a for s in settled for a in run_args(s)]
        )
        self.driver.delivery = delivery
        self.wakeups.calls(name)
        reply = run(self.functions.settle_and_claim(request))
        refused = self.model.settle(settled)
        self.wakeups.ask()
        seen = self.driver.snapshot()
        started = [str(job[4] or b"", "utf-8") for job in reply.jobs]
        jobs = self.model.claim(name, slots, worker.lock, started, seen.waiting())
        call = worker.unanswered = Unanswered(request, refused, jobs, slots)
        if call.free:
            due = self.model.next_due()
            call.due = {due, due and due + SECOND_LATER_MS, 0} if worker.listens else {due}
            if self.model.behind:
                call.due = {self.model.now}
        self.look(seen)
        # Only now are the names of the new leases known.
        call.tokens = [job.token for job in jobs]
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
        jobs = [running[token] for token in call.tokens if token in running]
        expected = [as_claimed(job, self.comparer.added[job.id]) for job in jobs]
        same("claimed jobs", [claimed_fields(job) for job in reply.jobs], expected)
        same("refused", reply.refused, call.refused)
        assert reply.due in call.due, f"to claim again at {reply.due}, the model says one of {call.due}"
        same("the server's time", reply.now, self.model.now)
        worker.held |= {job.token: job.id for job in jobs}
        worker.registered = call.free > 0
        self.wakeups.answered(worker.name, call.free, reply.due)
        self.dirty = True

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
        2,
        name=WORKERS,
        what=st.sampled_from(["crash", "crash and close", "close", "old number", "shutdown", "shutdown"]),
        delivery=DELIVERY,
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
        if worker.unanswered is None and not worker.held:
            self.wakeups.dies(worker.name)
            worker.registered = True
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

    @action(3, ms=st.sampled_from([7_000] * 4 + [28_000] * 3 + [63_000, 63_000, 301_000, 86_401_000]))
    def advance(self, ms: int) -> None:
        self.model.advance(ms)
        self.driver.set_clock(self.model.now)
        self.driver.age(ms)

    @action(4, most=st.sampled_from([0, 1, 5, 5]), interval=st.sampled_from([0, 0, 5_000, 14_000]),
          gap=st.sampled_from([30_000, 10**9, 10**9, 10**9]), delivery=DELIVERY)  # fmt: skip
    def sweep(self, most: int, interval: int, gap: int, delivery: Delivery) -> None:
        self.driver.age(0)
        self.driver.delivery, self.dirty = delivery, True
        known = set(self.model.alive)
        expected, found = self.model.sweep(most, interval, gap), None
        for name in known - set(self.model.alive):
            self.wakeups.dies(name)  # long without a sign of life: forgotten
        while (reply := run(self.functions.sweep(most, interval, gap, resume=found is not None))) is not None:
            found = found or (set[str](), set[str]())
            found[0].update(reply.recovered)
            found[1].update(reply.failed)
            if not reply.more:
                break
        same("answer of sweep", found, expected)

    @action(2, most=st.sampled_from([1, 5, 5]), delivery=DELIVERY)
    def lapse(self, most: int, delivery: Delivery) -> None:
        """Nobody renews for longer than most leases last, while others sweep."""
        self.advance(63_000)
        self.sweep(most, 0, 10**9, delivery)
