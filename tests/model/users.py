"""Actions of users: they add and change jobs, wait for them, set limits, and sometimes break something."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Literal, cast

import hypothesis.strategies as st
from hypothesis import note

from glidemq_async.functions.jobs import EndReply
from glidemq_async.functions.steps import StepGroup
from glidemq_async.functions.streaming import ChunkGroup
from tests.model.choices import (
    ADD_STEP,
    CHANGES,
    COMPACT,
    DELIVERY,
    EVENT_RULES,
    FITS,
    IDS,
    KEY_LIMITS,
    LIMITS,
    NEW,
    NUMBER,
    Change,
    action,
)  # fmt: skip
from tests.model.compare import same
from tests.model.driver import BASE, KEYS, Delivery, run
from tests.model.lines import SEP
from tests.model.machine_base import BaseMachine
from tests.model.parts import FINAL, READY, Job, NewJob
from tests.model.streams import NO_LIMIT
from tests.model.worker import add_request

ONE_OF = 16
"""In a bare run, one of this many jobs may have options."""


class Users(BaseMachine):
    """Random users of one queue."""

    @action(
        8,
        new=st.lists(st.tuples(IDS, st.sampled_from(NEW)), min_size=1, max_size=4),
        delivery=DELIVERY,
        loses_push=st.sampled_from([False, False, True]),
    )
    def add(self, new: list[tuple[str, NewJob]], delivery: Delivery, loses_push: bool = False) -> None:
        jobs = list[NewJob]()
        for id_, kind in new:
            if self.bare and self.made % ONE_OF:
                id_, kind = "", NewJob()  # noqa: PLW2901
            if not self.is_record_lost(id_):
                self.made += 1
                one = kind._replace(priority=0, lifo=False, key=None, dedup=None) if self.plain else kind
                jobs.append(one._replace(id=id_, name=f"n{self.made}", data=f"d{self.made}"))
        while jobs:
            self.driver.delivery = delivery
            reply = run(self.functions.add.some([add_request(job) for job in jobs]))
            same("number of added jobs", len(reply.ids), min(len(jobs), ADD_STEP) if self.ends_early else len(jobs))
            same("results of add", reply.outcomes, self.model.add(jobs[: len(reply.ids)], reply.ids))
            same("server time", reply.now, self.model.now)
            jobs = jobs[len(reply.ids) :]
            self.take_pushes(reply.ids, lost=loses_push)

    @action(3, kind=st.sampled_from(COMPACT), delivery=DELIVERY, loses_push=st.sampled_from([False, True]))
    def add_compact(self, kind: NewJob, delivery: Delivery, loses_push: bool) -> None:
        self.add([("", kind)], delivery, loses_push)

    @action(2, number=NUMBER, delivery=DELIVERY)
    def retry(self, number: int, delivery: Delivery) -> None:
        self.change("retryJob", number, delivery)

    @action(1, number=NUMBER, delivery=DELIVERY)
    def revoke(self, number: int, delivery: Delivery) -> None:
        self.change("revokeJob", number, delivery)

    @action(3, what=st.sampled_from(CHANGES), number=NUMBER, delivery=DELIVERY)
    def change(self, what: Change, number: int, delivery: Delivery) -> None:
        """Call a function for one job, in most cases one that its state permits."""
        id_ = self.pick(number, *FITS[what])
        self.driver.delivery, self.dirty = delivery, True
        jobs, model = self.functions.jobs, self.model
        calls: dict[Change, Callable[[str], Coroutine[Any, Any, EndReply | str]]] = {
            "removeJob": jobs.remove, "retryJob": jobs.retry, "revokeJob": jobs.revoke, "promoteJob": jobs.promote,
        }  # fmt: skip
        reply = run(calls[what](id_))
        code = reply.code if isinstance(reply, EndReply) else reply
        job = model.get(id_)
        if job is not None and job.state == "active" and self.wakeups.listens(job.worker):
            messages = {"removeJob": f"x {job.token}", "revokeJob": f"r {job.token}"}
            self.expected_messages += [(job.worker, messages[what])] if what in messages else []
        rules = {
            "removeJob": model.remove, "retryJob": model.retry, "revokeJob": model.revoke, "promoteJob": model.promote,
        }  # fmt: skip
        same(f"reply of {what}", code, rules[what](id_))

    @action(2, paused=st.sampled_from([True] + [False] * 9), delivery=DELIVERY)
    def pause(self, paused: bool, delivery: Delivery) -> None:
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.queue.set_paused(paused))
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
        code = run(self.functions.updates.write(id_, lease, kind, value))
        same("reply of update", code, self.model.update(id_, lease, kind, value))

    @action(3, number=NUMBER, token=NUMBER, delivery=DELIVERY)
    def stream(self, number: int, token: int, delivery: Delivery) -> None:
        """Stream a chunk from a run, or from a run that has lost its job."""
        self.made += 1
        id_, stale = self.pick(number, "active"), self.stale_tokens()
        job = self.model.jobs.get(id_)
        lease = job.token if job is not None and job.token else "p1-1"
        if token % 3 == 2 and stale:
            id_, lease = stale[token // 3 % len(stale)]
        self.driver.delivery, self.dirty = delivery, True
        chunk = f"c{self.made}"
        group = ChunkGroup(id_, lease, NO_LIMIT, NO_LIMIT, NO_LIMIT, [chunk.encode()])
        same(
            "reply of addChunks", run(self.functions.streaming.append([group])), [self.model.stream(id_, lease, chunk)]
        )

    @action(3, number=NUMBER, token=NUMBER, step=st.sampled_from(["a", "b", "c"]), delivery=DELIVERY)
    def record_step(self, number: int, token: int, step: str, delivery: Delivery) -> None:
        """Record a step from a run, or from a run that has lost its job."""
        self.made += 1
        id_, stale = self.pick(number, "active"), self.stale_tokens()
        job = self.model.jobs.get(id_)
        lease = job.token if job is not None and job.token else "p1-1"
        if token % 3 == 2 and stale:
            id_, lease = stale[token // 3 % len(stale)]
        self.driver.delivery, self.dirty = delivery, True
        value = f"s{self.made}"
        group = StepGroup(id_, lease, NO_LIMIT, NO_LIMIT, [(step, value.encode())])
        code = self.model.record_step(id_, lease, step, value)
        same("reply of recordSteps", run(self.functions.steps.record([group])), [code])

    @action(2, what=st.sampled_from(["restart", "accept", "restore"]), number=NUMBER, delivery=DELIVERY)
    def mend(self, what: Literal["restart", "accept", "restore"], number: int, delivery: Delivery) -> None:
        """Start an ended job again without its journal or with another step, or add a step to a delayed job."""
        self.made += 1
        id_ = self.pick(number, *(("delayed",) if what == "restore" else ("failed", "completed")))
        self.driver.delivery, self.dirty = delivery, True
        step, value, mending = "d", f"s{self.made}", self.functions.mending
        if what == "restart":
            same("reply of restartRun", run(mending.restart(id_)), self.model.restart_run(id_))
        elif what == "accept":
            code = run(mending.accept(id_, step, value.encode()))
            same("reply of acceptRun", code, self.model.accept_run(id_, step, value))
        else:
            code = run(mending.restore(id_, [(step, value.encode())]))
            same("reply of restoreSteps", code, self.model.restore_steps(id_, step, value))

    @action(2, number=NUMBER)
    def follow(self, number: int) -> None:
        id_, self.dirty = self.pick(number, "active", *READY), True
        same("reply of followChunks", run(self.functions.streaming.follow(id_, NO_LIMIT)), self.model.follow(id_))

    @action(
        4,
        number=NUMBER,
        name=st.sampled_from(["a", "a", "b", "c"]),
        ttl=st.sampled_from([0, 0, 0, 5_000, 5_000]),
        question=st.sampled_from(["", "", "q"]),
        delivery=DELIVERY,
    )
    def signal(self, number: int, name: str, ttl: int, question: str, delivery: Delivery) -> None:
        """Send a signal to a job, in most cases to one that has not ended."""
        self.made += 1
        id_ = self.pick(number, *(("suspended",) if self.model.having("suspended") else ("active", "delayed", *READY)))
        self.driver.delivery, self.dirty, data = delivery, True, f"s{self.made}"
        code = run(self.functions.signals.send(id_, name, data.encode(), ttl, "", question))
        self.expect_resumed()
        same("reply of sendSignal", code, self.model.send(id_, name, data, ttl, question))
        self.take_resumed(lost=self.made % 3 == 0)

    @action(2, number=NUMBER, is_gone=st.sampled_from([False, False, True]), delivery=DELIVERY)
    def receive_signal(self, number: int, is_gone: bool, delivery: Delivery) -> None:
        """Let a run receive the last signal of its mailbox, or one that is not there."""
        self.made += 1
        id_ = self.pick(number, "active")
        job = self.model.jobs.get(id_)
        lease = job.token if job is not None and job.token else "p1-1"
        signal = "1 0 a\x1fgone" if is_gone or job is None or not job.mailbox else job.mailbox[-1].stored()
        self.driver.delivery, self.dirty = delivery, True
        value = f"s{self.made}"
        group = StepGroup(id_, lease, NO_LIMIT, NO_LIMIT, [("r", value.encode())])
        code = self.model.receive(id_, lease, value, signal)
        same("reply of receiveSignal", run(self.functions.steps.receive(group, signal.encode())), code)

    @action(1, number=NUMBER, delivery=DELIVERY)
    def resume_suspended(self, number: int, delivery: Delivery) -> None:
        id_ = self.pick(number, "suspended")
        self.driver.delivery, self.dirty = delivery, True
        code = run(self.functions.signals.resume(id_))
        self.expect_resumed()
        same("reply of resumeJob", code, self.model.resume_by_operator(id_))
        self.take_resumed(lost=number % 3 == 0)

    @action(3, number=NUMBER, channel=st.sampled_from(["r1", "r2", "r3"]), forget=st.sampled_from([False, False, True]))
    def wait_for(self, number: int, channel: str, forget: bool) -> None:
        over = [job for job in self.model.having(*FINAL) if self.model.is_gone(job)]
        id_, self.dirty = self.pick_of(number, over or self.model.having("active")), True
        if forget:
            run(self.functions.job_waiters.remove(id_, channel))
            self.model.forget_reply(id_, channel)
            return
        code, record = run(self.functions.job_waiters.add(id_, channel))
        same("reply of awaitJob", code, self.model.await_job(id_, channel))
        same("a record is returned only for an ended job", bool(record), code in ("completed", "failed"))

    @action(3, number=NUMBER, channel=st.sampled_from(["r1", "r2", "r3"]), delivery=DELIVERY)
    def abandon(self, number: int, channel: str, delivery: Delivery) -> None:
        awaited = [job for job in self.model.having("active", *READY) if job.waiters]
        id_ = self.pick_of(number, awaited or self.model.having("active", *FINAL))
        self.driver.delivery, self.dirty = delivery, True
        code = run(self.functions.jobs.abandon(id_, channel, "")).code
        job = self.model.get(id_)
        if code == "revoking" and job is not None and self.wakeups.listens(job.worker):
            self.expected_messages.append((job.worker, f"r {job.token}"))
        same("reply of abandonJob", code, self.model.abandon(id_, channel))

    @action(3, number=NUMBER, count=st.integers(1, 4), channel=st.sampled_from(["r1", "r2"]), forget=st.booleans())
    def wait_for_many(self, number: int, count: int, channel: str, forget: bool) -> None:
        ids = [self.pick(number + each, "active", *READY, *FINAL) for each in range(count)]
        self.dirty = True
        if forget:
            run(self.functions.job_waiters.remove_many(ids, channel))
            for id_ in ids:
                self.model.forget_reply(id_, channel)
            return
        ends = run(self.functions.job_waiters.add_many(ids, channel))
        assert ends, "a call looks at one job at least"
        for id_, end in zip(ids, ends, strict=False):
            same("reply of awaitJobs", end.state, self.model.await_job(id_, channel))

    @action(3, number=NUMBER, channel=st.sampled_from(["r1", "r2", "r3"]))
    def confirm(self, number: int, channel: str) -> None:
        """Acknowledge results that a client has received, sometimes long ago."""
        owed = [job.id for job in self.model.having(*FINAL) if job.held is not None and channel in job.waiters]
        ids = owed[: number % 3] or [self.pick_of(number, self.model.having(*FINAL))]
        self.dirty = True
        run(self.functions.job_waiters.confirm(channel, ids))
        self.model.confirm_replies(channel, ids)

    @action(2, number=NUMBER)
    def delete_record(self, number: int) -> None:
        """Delete a record as a user of the server might."""
        # The server reads the cost of a waiting job when it visits the job's key. It does not visit the key when a user
        # deletes a record. When the server discovers the end of such an owner, the position of its successor in a line
        # is not specified.
        followed = set(self.model.successors)
        tied = {id_ for id_, wanted in self.model.marks.items() if wanted in followed or wanted.startswith(SEP)}
        whole = [job for job in self.model.jobs.values() if not (job.over or job.record_lost or self.is_weighed(job))]
        whole = [job for job in whole if job.id not in tied and not job.plain]
        if not whole:
            return
        running = [job for job in whole if job.state == "active"]
        ids = [job.id for job in (running if running and number % 4 < 2 else whole)]
        id_ = ids[number // 4 % len(ids)]
        if id_ not in ("1", "2", "5", "9"):
            note(f"  job {id_!r}")
            self.driver.wire.send("UNLINK", f"{BASE}:job:{id_}")
            self.driver.wire.send("HDEL", f"{BASE}:compact", id_)
            self.driver.wire.send("HDEL", f"{BASE}:compact_runs", id_)
            self.model.delete_record(id_)
            self.dirty = True

    def is_weighed(self, job: Job) -> bool:
        return job.state == "key-waiting" and self.model.limits_of(job.key or "").bucket is not None

    @action(3, number=NUMBER, priority=st.sampled_from([0, 1, 2]), delivery=DELIVERY)
    def change_priority(self, number: int, priority: int, delivery: Delivery) -> None:
        id_ = self.pick(number, *READY, "delayed")
        self.driver.delivery, self.dirty = delivery, True
        code = run(self.functions.changes.set_priority(id_, priority))
        same("reply of changePriority", code, self.model.change_priority(id_, priority))

    @action(2, number=NUMBER, delay=st.sampled_from([0, 0, 1, 7_000, 20_000]), delivery=DELIVERY)
    def change_delay(self, number: int, delay: int, delivery: Delivery) -> None:
        id_ = self.pick(number, *READY, "delayed")
        self.driver.delivery, self.dirty = delivery, True
        code = run(self.functions.changes.set_delay(id_, delay))
        same("reply of changeDelay", code, self.model.change_delay(id_, delay))

    @action(2, number=NUMBER, ttl=st.sampled_from([None, 1, 7_000, 70_000]), delivery=DELIVERY)
    def update_result_ttl(self, number: int, ttl: int | None, delivery: Delivery) -> None:
        living = [job for job in self.model.having(*FINAL) if job.drop == "t"]
        id_ = self.pick_of(number, living) if ttl is None and living else self.pick(number, *FINAL)
        self.driver.delivery, self.dirty = delivery, True
        code = run(self.functions.result_ttl.set(id_, ttl))
        same("reply of setResultTtl", code, self.model.set_result_ttl(id_, ttl))

    @action(1, rule=EVENT_RULES, delivery=DELIVERY)
    def set_events(self, rule: tuple[str, str], delivery: Delivery) -> None:
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.event_rules.set(None, dict([rule])))
        self.model.event_rules.set(*rule)

    # Limits.

    @action(1, limit=LIMITS, delivery=DELIVERY)
    def limit(self, limit: tuple[str, str], delivery: Delivery) -> None:
        if self.plain:
            return
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.limits.set(**cast("dict[str, Any]", {limit[0]: limit[1]})))
        self.model.set_limit(*limit)

    @action(3, key=st.sampled_from(["", "x", "x", "y"]), limit=KEY_LIMITS, delivery=DELIVERY)
    def limit_key(self, key: str, limit: tuple[str, str], delivery: Delivery) -> None:
        if self.plain:
            return
        key = "" if self.alike else key
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.limits.set_key(key, **cast("dict[str, Any]", {limit[0]: limit[1]})))
        self.model.set_key_limit(key, *limit)
        if not key:
            run(self.functions.limits.review_keys())
            # A deleted record no longer names its key. The server discovers such a waiting job when another call visits
            # the key.
            for name, line in self.model.lines().items():
                if all(job.record_lost for job in line) and name.startswith("key "):
                    run(self.functions.limits.set_key(name.removeprefix("key ")))

    @action(1, key=st.sampled_from(KEYS), ms=st.sampled_from([0, 7_000, 20_000]), delivery=DELIVERY)
    def pause_key(self, key: str, ms: int, delivery: Delivery) -> None:
        self.driver.delivery, self.dirty = delivery, True
        run(self.functions.limits.pause_key(key, ms))
        self.model.pause_key(key, ms)
