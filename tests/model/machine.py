"""The hypothesis machine: makes random calls to the real functions and the model, and compares them after each call.

The rules are in model.py and upkeep.py. This module calls them, repeats calls and breaks connections. A call is sent
once, sent twice, or loses its first reply. users.py has the actions of users; the actions of workers and of time are
here.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.stateful import initialize

from glidemq_async.functions.lease import Held
from glidemq_async.functions.settle import SettleReply, SettleRequest
from glidemq_async.storage.redis.wire import ReplyError
from tests.model.choices import DELIVERY, NUMBER, RUNS, WORKERS, action
from tests.model.cleaning_actions import CleaningActions
from tests.model.compare import same
from tests.model.dead_letter_actions import DeadLetterActions
from tests.model.driver import Delivery, run
from tests.model.parts import Settled
from tests.model.schedule_actions import ScheduleActions
from tests.model.users import ONE_OF, Users
from tests.model.wakeups import SECOND_LATER_MS
from tests.model.worker import Unanswered, Worker, as_claimed, claimed_fields, in_groups, settled_early, settled_run
from tests.support.fake_worker import with_runs


class QueueMachine(Users, DeadLetterActions, CleaningActions, ScheduleActions):
    """Random users and workers on one queue."""

    @initialize(
        plain=st.sampled_from([False, True]),
        bare=st.booleans(),
        swept=st.sampled_from([True, True, False]),
        dead_letter_queue=st.sampled_from(["graves", "graves", ""]),
        early=st.booleans(),
        alike=st.booleans(),
    )
    def begin(self, plain: bool, bare: bool, swept: bool, dead_letter_queue: str, early: bool, alike: bool) -> None:
        """Some runs have only plain jobs without limits. They reach effects of many jobs sooner.

        Most jobs of a bare run have no options at all, so that workers read their entries directly. If keys are alike,
        all of them have the default limits.
        """
        self.plain, self.bare, self.alike = plain, bare, alike
        self.ends_early = early
        self.driver.end_calls_early(early)
        self.set_dead_letter_queue(dead_letter_queue)
        if swept:
            self.sweep(5, 0, 30_000, "once")

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
            self.repeat_call(name)
            return
        settled, held = in_groups(self.choose_runs(worker, runs)), dict(worker.held)
        for one in settled:
            worker.held.pop(one.token, None)
        slots = 0 if leaves else worker.free
        request = self.functions.settle.request(
            worker.channel,
            name,
            slots,
            worker.lock,
            subscribed=worker.listens,
            idle=worker.registered,
            accepts_pushes=worker.accepts_pushes,
            has_push=worker.has_push,
            is_direct=slots > 0 and self.driver.calls % 2 == 0,
        )
        with_runs(request, map(settled_run, settled))
        self.driver.delivery = delivery
        self.wakeups.calls(name)
        reply = run(self.functions.settle.send(request))
        count = reply.settled if self.ends_early else len(settled)
        assert not self.ends_early or count in settled_early(settled), f"the call settled {count} runs"
        rest = {one.token for one in settled[count:]} - {one.token for one in settled[:count]}
        worker.held |= {token: held[token] for token in rest if token in held}
        self.expect_resumed()
        refused = self.model.settle(name, settled[:count])
        self.wakeups.ask()
        seen = self.driver.snapshot()
        missed = self.missed(worker)
        worker.pushed, worker.has_push = {}, False
        started = [job.id for job in reply.jobs[: len(reply.jobs) - len(missed)]]
        free = max(0, slots - len(missed))
        jobs = self.model.claim(name, free, worker.lock, started, seen.waiting())
        self.model.claimed_last[name] += [(job.id, job.fence) for job in missed]
        call = worker.unanswered = Unanswered(request, refused, count, jobs + missed, max(slots, len(missed)))
        self.wakeups.registers(name, call.free)
        if call.free:
            due = self.model.next_due()
            call.due = {due, due and due + SECOND_LATER_MS, 0} if worker.listens else {due}
            # A paused queue starts nothing, so an alarm at the due time is enough. Another worker may have set it.
            if self.model.behind and not self.model.paused:
                call.due = {self.model.now}
        posted = len(self.model.entries)
        self.compare_all(seen)
        posted = len(self.model.entries) - posted
        self.take_resumed(lost=self.made % 3 == 0)
        assert reply.posted or not posted, "the worker did not learn that the outbox has entries to relay"
        # The names of the new leases are known only now.
        call.tokens = [job.token for job in jobs + missed]
        if answered:
            self.receive(worker, reply)

    def choose_runs(self, worker: Worker, runs: list[tuple[str, int, Settled]]) -> list[Settled]:
        settled, held, stale = list[Settled](), list(worker.held.items()), self.stale_tokens()
        for kind, number, end in runs:
            self.made += 1
            if self.bare and self.made % ONE_OF:
                kind, end = "held", Settled("c", "", "")  # noqa: PLW2901
            id_, token = "nobody", "p1-1"
            if kind == "held":
                if not held:
                    continue
                token, id_ = held.pop(number % len(held))
            elif kind == "stale" and stale:
                id_, token = stale[number % len(stale)]
            elif kind == "again" and settled:
                id_, token = settled[-1].id, settled[-1].token
            note(f"  {end.code} {end.delay} {end.retention} of job {id_!r} under {token}")
            payload = "" if end.code == "b" else f"p{self.made}"  # a released run has nothing to store
            since = self.plain_since.get(token)
            job = self.model.jobs.get(id_)
            key = job.key if job is not None and token.startswith("k") and number % 4 else None
            at = self.claimed_at.get(token) if number % 5 else None
            settled.append(end._replace(id=id_, token=token, payload=payload, since=since, key=key, claimed_at=at))
        return settled

    @action(2, name=WORKERS)
    def repeat_call(self, name: str) -> None:
        """Repeat a call whose reply was lost and after which other calls were made."""
        worker = self.workers[name]
        if worker.unanswered is not None:
            self.driver.delivery = "once"
            self.receive(worker, run(self.functions.settle.send(worker.unanswered.request)))
            self.dirty = True

    def receive(self, worker: Worker, reply: SettleReply) -> None:
        """Check that a repeated claim returns only jobs that still run under their leases, and changes nothing else."""
        call, worker.unanswered = worker.unanswered, None
        assert call is not None
        running = {job.token: job for job in self.model.having("active") if not job.record_lost}
        jobs = [running[token] for token in call.tokens if token in running]
        expected = [as_claimed(job, self.comparer.added[job.id]) for job in jobs]
        same("claimed jobs", [claimed_fields(job) for job in reply.jobs], expected)
        same("refused", reply.refused, call.refused)
        same("settled", reply.settled, call.settled)
        assert not reply.posted or self.model.outbox is not None, "there is nothing to relay"
        assert reply.due in call.due, f"the next claim is due at {reply.due}, the model expects one of {call.due}"
        same("time of the server", reply.now, self.model.now)
        worker.held |= {job.token: job.id for job in jobs}
        for job in reply.jobs:
            (self.plain_since if job.is_plain else self.claimed_at)[job.entry] = reply.claimed_at
        worker.registered = call.free > 0
        self.wakeups.answered(worker.name, reply.due)
        self.dirty = True

    def lease_of(self, id_: str, token: str) -> Held:
        return Held(id_, token, self.plain_since.get(token, ""))

    @action(2, name=WORKERS, number=NUMBER)
    def renew(self, name: str, number: int) -> None:
        worker, stale = self.workers[name], self.stale_tokens()
        held = [self.lease_of(id_, token) for token, id_ in worker.held.items()]
        if number % 4 == 1:
            held = held[::2]  # the other leases go on as they are
        if number % 3 == 0 and stale:
            held.append(self.lease_of(*stale[number // 3 % len(stale)]))
        last, waiting = worker.channel.number, worker.unanswered
        # The worker may name its last answered call, and the call whose reply is in transit.
        answered = (last - 1 if waiting else last) if number % 2 == 0 else 0
        in_transit = last if waiting and number % 5 else 0
        lost, revoked = run(
            self.functions.leases.renew(name, b"info", held, 10, answered=answered, in_transit=in_transit)
        )
        claimed = [*waiting.tokens, *self.workers[name].pushed] if waiting and in_transit else []
        same("reply of renew", (set(lost), set(revoked)), self.model.renew(name, [one[:2] for one in held], claimed))
        for token in lost:
            worker.held.pop(token, None)
        self.dirty = True

    @action(2, name=WORKERS, number=NUMBER, delivery=DELIVERY)
    def end_runs(self, name: str, number: int, delivery: Delivery) -> None:
        """Handlers of removed jobs have ended, mostly those of this worker."""
        stopping = [*self.model.stopping]
        own = [token for token in stopping if self.model.stopping[token].worker == name]
        tokens = (own if number % 4 else stopping)[: 1 + number // 4 % 2] or ["k1-1"]
        note(f"  runs {tokens}")
        self.dirty = True
        ended = self.model.end_runs(name, tokens)
        same("ended runs", run(self.functions.leases.end_runs(name, tokens)), ended)
        if delivery != "once":
            same("ended runs, second call", run(self.functions.leases.end_runs(name, tokens)), 0)

    @action(
        2,
        name=WORKERS,
        what=st.sampled_from(["crash", "crash and close", "close", "old number", "shutdown", "shutdown"]),
        delivery=DELIVERY,
    )
    def trouble(self, name: str, what: str, delivery: Delivery) -> None:
        """Crash a worker, which forgets everything while its leases continue, or close one that has no jobs."""
        worker = self.workers[name]
        if what == "old number":
            self.send_old_number(worker)
        elif what == "shutdown":
            released = Settled("b", "", "")
            self.settle_and_claim(name, [("held", 0, released) for _ in worker.held], True, delivery, True)
        else:
            self.end(worker, what, delivery)

    def end(self, worker: Worker, what: str, delivery: Delivery) -> None:
        if what != "close":
            worker.held.clear()
            worker.unanswered, worker.has_push = None, False
        if worker.unanswered is None and not worker.held:
            self.wakeups.dies(worker.name, self.model.now)
            worker.registered = True
        if what != "crash" and not worker.held and worker.unanswered is None:
            self.driver.delivery, self.dirty = delivery, True
            count = run(self.functions.stalled.close_worker(worker.name))
            same("released jobs", count, self.model.close_worker(worker.name))

    def send_old_number(self, worker: Worker) -> None:
        """Send a number below the channel's last one, as a broken client does. The server refuses the call."""
        channel = worker.channel
        if channel.number > 1 and worker.unanswered is None:
            head = (channel.name, channel.number - 1, worker.name, 5, 1000, "u", "0 0")
            error = ""
            try:
                run(self.functions.settle.send(SettleRequest(channel, channel.number - 1, head, "")))
            except ReplyError as refused:
                error = str(refused)
            assert error.startswith("GLIDEMQ REPLAY"), f"an older call returned {error or 'success'}"
            self.dirty = True

    @action(2, name=WORKERS, number=NUMBER, names=st.sampled_from([None, None, ("a",), ()]), delivery=DELIVERY)
    def converse(self, name: str, number: int, names: tuple[str, ...] | None, delivery: Delivery) -> None:
        """Suspend a job, send it a signal, run it again, and suspend it again."""
        suspended = Settled("s", "", "", delay=7_000, names=names, warm=number % 2 == 0)
        for _ in range(2):
            if not self.model.having("suspended"):
                self.settle_and_claim(name, [("held", number, suspended)], False, delivery, True)
            self.signal(8 * number + 1, "a", 0, "q" if number % 2 else "", delivery)
            self.settle_and_claim(name, [], False, delivery, True)
        self.settle_and_claim(name, [("held", number, suspended)], False, delivery, True)

    # Time.

    @action(3, ms=st.sampled_from([7_000] * 4 + [28_000] * 3 + [63_000, 63_000, 301_000, 86_401_000]))
    def advance(self, ms: int) -> None:
        self.pass_time(ms)

    @action(4, most=st.sampled_from([0, 1, 5, 5]), interval=st.sampled_from([0, 0, 5_000, 14_000]),
          gap=st.sampled_from([30_000, 10**9, 10**9, 10**9]), delivery=DELIVERY)  # fmt: skip
    def sweep(self, most: int, interval: int, gap: int, delivery: Delivery) -> None:
        self.driver.age(0)
        self.driver.delivery, self.dirty = delivery, True
        known = set(self.model.alive)
        expected, found, posted = self.model.sweep(most, interval, gap), None, False
        for name in known - set(self.model.alive):
            self.wakeups.dies(name, self.model.now)  # forgotten after a long time without a sign of life
        while (reply := run(self.functions.stalled.sweep(most, interval, gap, resume=found is not None))) is not None:
            found = found or (set[str](), set[str]())
            found[0].update(reply.recovered)
            found[1].update(reply.failed)
            # A slow server needs several calls, and only the later ones know what the later steps have posted.
            posted = posted or reply.posted
            due = self.model.next_fire()
            wanted = None if due is None else max(0, due - self.model.now) / 1000
            same("next fire time", reply.next_fire, wanted)
            if not reply.more:
                break
        same("reply of sweep", found, expected)
        if found is not None:
            same("whether the outbox has entries to relay", posted, self.model.has_outbox)

    @action(2, most=st.sampled_from([1, 5, 5]), delivery=DELIVERY)
    def expire_leases(self, most: int, delivery: Delivery) -> None:
        """Let most leases expire because no worker renews, while other calls sweep."""
        self.advance(63_000)
        self.sweep(most, 0, 10**9, delivery)
