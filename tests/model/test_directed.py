"""Short sequences of calls that random steps seldom take."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest

from glidemq_async.functions import loader
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.outcomes import Completed, Delayed, Outcome, Released
from glidemq_async.functions.settle import SettleReply
from tests.model.choices import START_MS
from tests.model.driver import BASE, Driver, run
from tests.model.machine import QueueMachine
from tests.model.parts import NewJob
from tests.model.running import library
from tests.model.wakeups import Wakeups
from tests.support.fake_worker import SettledRun, with_runs

Call = Callable[..., SettleReply]
COMPLETED = Completed(b"")


@pytest.fixture
def call(driver: Driver) -> Call:
    """Settle and claim as a worker does."""
    driver.load(loader.source(testing=True))
    driver.reset(START_MS)
    channels: dict[str, RequestChannel] = {}

    def settle_and_claim(worker: str, slots: int, *settled: SettledRun) -> SettleReply:
        channel = channels.setdefault(worker, RequestChannel(worker))
        request = driver.functions.settle.request(channel, worker, slots, 30_000, subscribed=True, idle=True)
        return run(driver.functions.settle.send(with_runs(request, settled)))

    return settle_and_claim


def add(driver: Driver, count: int, **extra: object) -> list[str]:
    packed = msgpack.packb(extra) if extra else b""
    return run(driver.functions.add.jobs([AddRequest("", "n", b"", b"", packed)] * count)).ids


def ids_of(reply: SettleReply) -> list[str]:
    return [job.id for job in reply.jobs]


def ended(job: ClaimedJob, outcome: Outcome = COMPLETED) -> SettledRun:
    return SettledRun(job.id, job.entry, outcome)


def end(reply: SettleReply, outcome: Outcome = COMPLETED) -> list[SettledRun]:
    """Return the ends of all runs of a claim."""
    return [ended(job, outcome) for job in reply.jobs]


def woken(wakeups: Wakeups, name: str) -> bool:
    wakeups.ask()
    wakeups.read_messages()
    return wakeups.woken(name)


def test_jobs_that_become_due_wake_others_when_the_caller_is_full(driver: Driver, call: Call) -> None:
    wakeups = Wakeups(driver.subscription, ["w1", "w2", "w3"])
    for name, slots in (("w1", 1), ("w2", 1), ("w3", 4)):
        call(name, slots)
    add(driver, 4, delay=1_000)
    first, second = call("w1", 1), call("w3", 4)
    assert [first.due, second.due] == [START_MS + 1_000, START_MS + 1_100]
    add(driver, 4)
    wakeups.ask()
    wakeups.read_messages()
    assert wakeups.woken("w3")
    driver.set_clock(START_MS + 1_000)
    wakeups.calls("w3")
    assert len(call("w3", 4).jobs) == 4
    assert run(driver.functions.reading.count_jobs())["waiting"] == 4
    wakeups.ask()
    wakeups.read_messages()
    assert wakeups.woken("w2"), "four jobs can start, and w2 sleeps without an alarm"


def test_a_worker_that_leaves_wakes_another_one(driver: Driver, call: Call) -> None:
    wakeups = Wakeups(driver.subscription, ["w1", "w2"])
    call("w1", 1)
    call("w2", 2)
    add(driver, 1)
    wakeups.ask()
    wakeups.read_messages()
    assert (wakeups.woken("w1"), wakeups.woken("w2")) == (False, True)
    call("w2", 0)
    wakeups.ask()
    wakeups.read_messages()
    assert wakeups.woken("w1"), "a job can start, the worker that was woken for it left, and w1 sleeps"


def test_a_caller_without_free_slots_does_not_become_the_timer(driver: Driver, call: Call) -> None:
    wakeups = Wakeups(driver.subscription, ["w1", "w2"])
    add(driver, 1)
    job = call("w2", 1).jobs[0]
    call("w1", 1)
    call("w2", 0, ended(job, Delayed(7.0)))
    wakeups.ask()
    wakeups.read_messages()
    assert wakeups.woken("w1"), "a job is due in 7 s, and no worker has set an alarm"


def test_a_claim_can_fill_many_thousand_slots(driver: Driver, call: Call) -> None:
    ids = [id_ for _ in range(20) for id_ in add(driver, 1_000)]
    ids += add(driver, 1, ttl=60_000)
    started, slots = list[str](), 30_000
    while (reply := call("w1", slots - len(started))).due == reply.now:
        assert reply.jobs, "a call that ends early must start a job"
        started += ids_of(reply)
    assert sorted(started + ids_of(reply)) == sorted(ids)


def test_a_queue_works_on_after_its_consumer_group_was_destroyed(driver: Driver, call: Call) -> None:
    ids = add(driver, 3)
    held = call("w1", 2).jobs
    held = [*held[1:], *call("w1", 1, ended(held[0], Released())).jobs]
    assert [job.entry[:1] for job in held] == ["p", "l"]
    driver.wire.send("XGROUP", "DESTROY", f"{BASE}:fifo", "workers")
    assert call("w1", 0, ended(held[1])).refused == {}
    run(driver.functions.stalled.sweep(9, 0, 10**9, resume=False))
    seen = {held[1].id}
    while jobs := call("w2", 1).jobs:
        assert call("w2", 0, ended(jobs[0])).refused == {}
        seen.add(jobs[0].id)
    assert seen == set(ids)
    assert run(driver.functions.reading.count_jobs())["completed"] == 3
    assert driver.findings(ids) == []


def test_jobs_that_one_millisecond_started_return_in_the_order_of_their_starts(driver: Driver, call: Call) -> None:
    add(driver, 12, lifo=True)
    replies = [call("w1", 1) for _ in range(12)]
    started = [job for reply in replies for job in reply.jobs]
    call("w1", 0, *(ended(job, Released()) for job in reversed(started)))
    again = [job.id for _ in range(12) for job in call("w1", 1).jobs]
    assert again == [job.id for job in started]
    assert len(again) == 12


def test_an_expired_job_does_not_hide_the_next_one_of_its_key(driver: Driver, call: Call) -> None:
    add(driver, 1, key="x", ttl=1_000)
    second = add(driver, 1, key="x")
    driver.set_clock(START_MS + 1_000)
    assert ids_of(call("w1", 2)) == second, "the first one has expired, the second one can start, and w1 is idle"


@pytest.mark.parametrize("how", ["removed", "stalled", "closed"])
def test_a_run_that_ends_without_its_worker_frees_a_slot_of_the_queue(driver: Driver, call: Call, how: str) -> None:
    wakeups = Wakeups(driver.subscription, ["w1", "w2"])
    run(driver.functions.limits.set(concurrency="1"))
    add(driver, 2)
    [claimed] = call("w1", 1).jobs
    held = [claimed.id]
    call("w2", 1)
    assert not woken(wakeups, "w2")
    if how == "removed":
        run(driver.functions.jobs.remove(held[0]))
        assert not woken(wakeups, "w2")
        assert call("w2", 1).jobs == [], "the removed run still takes the only slot of the queue"
        assert run(driver.functions.leases.end_runs("w1", [claimed.entry])) == 1
    elif how == "closed":
        run(driver.functions.jobs.revoke(held[0]))
        run(driver.functions.stalled.close_worker("w1"))
    else:
        run(driver.functions.stalled.sweep(0, 0, 10**9, resume=False))
        driver.set_clock(START_MS + 40_000)
        driver.age(49_000)
        reply = run(driver.functions.stalled.sweep(0, 0, 10**9, resume=False))
        assert reply is not None
        assert reply.failed == held
    assert woken(wakeups, "w2"), "there is a free slot for the second job, and w2 sleeps"


def test_a_debounced_add_that_is_refused_replaces_nothing(driver: Driver, call: Call) -> None:
    dedup = {"id": "d", "mode": "debounce"}
    request = AddRequest("", "n", b"", b"", msgpack.packb({"dedup": dedup}))
    run(driver.functions.add.jobs([request._replace(id="waits"), AddRequest("taken", "n", b"", b"", b"")]))
    assert run(driver.functions.add.jobs([request._replace(id="taken")])).outcomes == {0: "duplicate"}
    assert set(ids_of(call("w1", 5))) == {"waits", "taken"}


@pytest.mark.parametrize("others", [{"lifo": True}, {"key": "x"}])
def test_sources_that_are_refilled_before_every_claim_take_turns(
    driver: Driver, call: Call, others: dict[str, object]
) -> None:
    """The turns count both when adds and claims alternate and when they do not."""
    run(driver.functions.limits.set_key("", concurrency="9"))
    plain, started, held = {*add(driver, 30)}, list[str](), list[SettledRun]()
    add(driver, 1, **others)
    for _ in range(6):
        add(driver, 1, **others)
        reply = call("w1", 1, *held)
        started += ids_of(reply)
        held = end(reply)
    assert 2 <= len(plain & {*started}) <= 4, "two lines, six claims of one job each"


def test_a_claim_of_many_expired_jobs_ends_and_the_next_claim_comes_immediately(driver: Driver, call: Call) -> None:
    for _ in range(3):
        add(driver, 1_000, ttl=1_000)
    good = add(driver, 1)
    driver.set_clock(START_MS + 1_000)
    first = call("w1", 1)
    assert (first.jobs, first.due) == ([], START_MS + 1_000)
    counts = run(driver.functions.reading.count_jobs())
    assert 0 < counts["failed"] < 3_000
    while not (reply := call("w1", 1)).jobs:
        assert reply.due == START_MS + 1_000
    assert ids_of(reply) == good


def test_a_new_common_limit_applies_to_each_key(driver: Driver, call: Call) -> None:
    ids = add(driver, 2, key="x")
    assert ids_of(call("w1", 5)) == ids[:1]
    run(driver.functions.limits.set_key("", concurrency="2"))
    run(driver.functions.limits.review_keys())
    assert ids_of(call("w1", 5)) == ids[1:]


def test_a_debounced_add_does_not_replace_a_running_job(driver: Driver, call: Call) -> None:
    dedup = {"id": "d", "mode": "debounce"}
    [first] = add(driver, 1, dedup=dedup)
    reply = call("w1", 1)
    assert ids_of(reply) == [first]
    [second] = add(driver, 1, dedup=dedup)
    after = call("w1", 1, *end(reply))
    assert (after.refused, ids_of(after)) == ({}, [second])


def test_the_worker_of_a_removed_run_is_notified(driver: Driver, call: Call) -> None:
    wakeups = Wakeups(driver.subscription, ["w1"])
    [first] = add(driver, 1)
    [job] = call("w1", 1).jobs
    assert run(driver.functions.jobs.remove(first)).code == "ok"
    wakeups.ask()
    assert wakeups.read_messages() == [("w1", f"x {job.entry}")]


def test_a_worker_that_dies_without_the_reply_to_its_claim_loses_its_wake_up(driver: Driver) -> None:
    class Machine(QueueMachine):
        pass

    driver.load(library())
    Machine.driver = driver
    machine = Machine()
    machine.begin(plain=False, bare=False, swept=True, dead_letter_queue="", early=False, alike=False)
    machine.claim("w1", "once")
    machine.settle_and_claim("w2", [], False, "once", answered=False)
    machine.add([("", NewJob())], "once", loses_push=False)  # w2 has registered two free slots
    machine.trouble("w2", "crash and close", "once")
    machine.compare_all()


def length(driver: Driver, structure: str) -> object:
    return driver.wire.send("XLEN" if structure == "fifo" else "ZCARD", f"{BASE}:{structure}")


@pytest.mark.parametrize(("lifo", "structure"), [(False, "fifo"), (True, "runs")])
@pytest.mark.parametrize("order", ["older first", "newer first"])
def test_a_settle_deletes_only_the_entries_of_its_runs(
    driver: Driver, call: Call, lifo: bool, structure: str, order: str
) -> None:
    ids = [*add(driver, 30, lifo=lifo)] if lifo else [*add(driver, 30)]
    older, newer = call("w1", 10), call("w2", 10)
    first, second = (older, newer) if order == "older first" else (newer, older)
    waiting = 0 if lifo else 10
    assert call("w1", 0, *end(first)).refused == {}
    assert length(driver, structure) == 10 + waiting
    assert call("w2", 0, *end(second)).refused == {}
    assert length(driver, structure) == waiting
    last = call("w1", 30)
    assert {*ids_of(older), *ids_of(newer), *ids_of(last)} == {*ids}
    assert call("w1", 0, *end(last)).refused == {}
    assert length(driver, structure) == 0
    assert driver.findings(ids) == []
