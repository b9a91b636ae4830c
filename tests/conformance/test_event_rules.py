"""The rules of a queue's events: which kinds it writes, what they contain, how many it keeps, and who has set that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import EventRules, GlideMQ, QueueEvent
from glidemq_async.functions.settings import Author
from glidemq_async.ops import Actor, NoSuchHold, Ops
from glidemq_async.ops.settings import Setting
from glidemq_async.queues.event_rules import change_events, change_stored_rules
from glidemq_async.storage import FunctionError, Storage
from tests.support.clocked_queue import Timed
from tests.support.helpers import AnyJob, AnyQueue, history, listening, soon, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import waits_for_events


@pytest.fixture
async def ops(queue: AnyQueue) -> AsyncIterator[Ops]:
    """An operations core for Ada. The queue exists."""
    await queue.connect()
    async with Ops(queue.storage, actor=Actor("http", "ada")) as opened:
        yield opened


async def work(job: AnyJob) -> Any:
    """Return the data, or fail with them."""
    if job.name == "fails":
        raise ValueError("no")
    return job.data


async def run(queue: AnyQueue, *jobs: tuple[str, Any, dict[str, Any]]) -> list[QueueEvent]:
    """Run jobs, and return the events that they have written."""
    before = len(await history(queue))
    for name, data, options in jobs:
        await queue.add(name, data, **options)
    await worker_of(queue, work).run(until_empty=True)
    return (await history(queue))[before:]


async def named(ops: Ops, queue: AnyQueue, name: str) -> Setting:
    """Return a setting of a queue."""
    return next(one for one in await ops.settings(queue.name) if one.name == name)


@pytest.mark.everywhere
async def test_completed_events_have_the_size_or_the_value_of_the_result(queue: AnyQueue) -> None:
    def ends(events: list[QueueEvent]) -> list[tuple[Any, ...]]:
        return [(one.name, one.key, one.size, one.value) for one in events if one.kind == "completed"]

    jobs: list[tuple[str, Any, dict[str, Any]]] = [
        ("plain", "abc", {}),
        ("keyed", [1], {"key": "tenant 7"}),
        ("large", "x" * 2_000, {"priority": 3}),
    ]
    assert ends(await run(queue, *jobs)) == [(None, None, None, None)] * 3
    await queue.set_events(content="size")
    assert sorted(ends(await run(queue, *jobs))) == [
        ("keyed", "tenant 7", 2, None),
        ("large", None, 2_003, None),
        ("plain", None, 4, None),
    ]
    await queue.set_events(content="value")
    assert sorted(ends(await run(queue, *jobs)), key=str) == [
        ("keyed", "tenant 7", 2, [1]),
        ("large", None, 2_003, None),
        ("plain", None, 4, "abc"),
    ]
    await queue.set_events(content=None)
    assert ends(await run(queue, *jobs)) == [(None, None, None, None)] * 3


async def test_content_includes_the_name_and_the_key_of_jobs_that_fail(queue: AnyQueue) -> None:
    await queue.set_events(content="size")
    events = await run(queue, ("fails", None, {"key": "x", "attempts": 2, "backoff": 0.001}), ("fails", None, {}))
    found = Counter((one.kind, one.name, one.key) for one in events if one.kind in ("failed", "retrying"))
    assert found == {("retrying", "fails", "x"): 1, ("failed", "fails", "x"): 1, ("failed", "fails", None): 1}


async def test_the_results_of_one_call_have_a_bounded_size_together(queue: AnyQueue) -> None:
    await queue.set_events(content="value")
    count = 100
    await queue.add_bulk([("n", "x" * 1_000)] * count)
    await worker_of(queue, work, concurrency=count).run(until_empty=True)
    done = [one for one in await history(queue) if one.kind == "completed"]
    assert {one.size for one in done} == {1_003}
    entries = Counter(one.position.partition("/")[0] for one in done if one.value is not None)
    assert 1 <= max(entries.values()) <= 65


async def test_kinds_that_are_switched_off_leave_no_gap(queue: AnyQueue) -> None:
    await queue.set_events(off=("active", "progress"))
    events = await run(queue, ("plain", 1, {}), ("keyed", 2, {"key": "x"}))
    assert Counter(one.kind for one in events) == {"added": 2, "completed": 2}
    job = await queue.add("n")
    await job.update_progress(1)
    assert (await history(queue))[-1].kind == "added"
    await queue.set_events(off="all")
    assert await run(queue, ("plain", 1, {}), ("fails", 1, {})) == []
    await job.update_progress(2)
    await job.update_data(3)
    await queue.pause()
    await queue.resume()
    await queue.set_events(off=None)
    await job.update_progress(3)
    last = (await history(queue))[-1]
    assert (last.kind, last.value) == ("progress", 3)
    assert (await queue.get_job_counts())["failed"] == 1


async def test_the_end_of_a_queue_is_an_event_in_any_case(queue: AnyQueue, store: RunningStore) -> None:
    await queue.set_events(off="all", max_events=10, content="size", progress_interval=1)
    await queue.add("n")
    with pytest.raises(ValueError, match="'obliterated' is always written"):
        await queue.set_events(off=("obliterated",))
    async with listening(queue) as events:
        following = asyncio.ensure_future(events.next())
        await waits_for_events(store)
        await queue.obliterate()
        assert (await soon(following)).kind == "obliterated"
    await queue.connect()
    assert await queue.get_event_rules() == EventRules()
    await queue.add("n")
    assert [one.kind for one in await history(queue)] == ["added"]


async def test_the_server_refuses_a_rule_about_the_end_of_a_queue(queue: AnyQueue) -> None:
    await queue.connect()
    with pytest.raises(FunctionError, match="cannot be switched off"):
        await change_stored_rules(queue, None, {"events_off": "active obliterated"})


async def test_a_job_has_one_progress_event_in_each_interval(timed: Timed) -> None:
    queue = timed.queue
    await queue.set_events(progress_interval=10)
    first, second = await queue.add("a"), await queue.add("b")

    async def progress() -> list[tuple[str, Any]]:
        return [(one.job_id, one.value) for one in await history(queue) if one.kind == "progress"]

    for value in range(3):
        await first.update_progress(value)
    await second.update_progress("own interval")
    assert await progress() == [(first.id, 0), (second.id, "own interval")]
    await first.refresh()
    assert first.progress == 2
    await timed.clock.advance(5_000)
    await first.update_progress(3)
    await timed.clock.advance(5_000)
    await first.update_progress(4)
    await first.update_progress(5)
    assert await progress() == [(first.id, 0), (second.id, "own interval"), (first.id, 4)]
    await queue.set_events(progress_interval=None)
    await first.update_progress(6)
    assert (await progress())[-1] == (first.id, 6)


async def test_a_clock_that_was_set_back_does_not_silence_a_job(timed: Timed) -> None:
    await timed.queue.set_events(progress_interval=10)
    job = await timed.queue.add("a")
    await job.update_progress(0)
    await timed.clock.advance(-3_600_000)
    await job.update_progress(1)
    assert [one.value for one in await history(timed.queue) if one.kind == "progress"] == [0, 1]


async def test_a_rule_of_an_operator_holds_over_the_code(ops: Ops, queue: AnyQueue) -> None:
    code = Author("code", "version 7")
    await change_events(queue, code, off=("active",), progress_interval=2)
    declared = await named(ops, queue, "events_off")
    assert (declared.value, declared.declared, declared.origin, declared.who) == (
        "active",
        "active",
        "code",
        "version 7",
    )
    assert (await named(ops, queue, "progress_interval")).value == "2 s"
    await ops.set_events(queue.name, off=("added", "active"), content="value", note="the disk is full")
    await change_events(queue, code, off=("progress",))
    held = await named(ops, queue, "events_off")
    assert (held.value, held.declared, held.origin) == ("active, added", "progress", "operator")
    assert (held.who, held.note) == ("ada", "the disk is full")
    assert await queue.get_event_rules() == EventRules(off=("active", "added"), progress_interval=2, content="value")
    await ops.set_events(queue.name, off=None)
    assert (await queue.get_event_rules()).off is None
    assert (await named(ops, queue, "events_off")).origin == "operator"
    await ops.release_hold(queue.name, "events_off")
    await ops.release_hold(queue.name, "event_content")
    assert await queue.get_event_rules() == EventRules(off=("progress",), progress_interval=2)
    with pytest.raises(NoSuchHold):
        await ops.release_hold(queue.name, "event_content")
    assert [line.action for line in (await ops.audit.read()).lines][-2:] == ["set events", "set events"]


async def test_an_operator_holds_how_many_events_a_queue_keeps(ops: Ops, queue: AnyQueue) -> None:
    await ops.set_events(queue.name, max_events=100, note="the disk is full")
    await queue.add_bulk([("n", None)] * 3_000)
    assert len(await history(queue)) < 2_000
    held = await named(ops, queue, "max_events")
    assert (held.value, held.origin, held.who, held.note) == ("100", "operator", "ada", "the disk is full")
    await ops.release_hold(queue.name, "max_events")
    await queue.add_bulk([("n", None)] * 3_000)
    assert len(await history(queue)) >= 3_000
    assert "max_events" not in {one.name for one in await ops.settings(queue.name)}


async def test_workers_store_the_rules_that_the_code_declares(storage: Storage, name: str) -> None:
    def app(rules: EventRules | None) -> GlideMQ:
        mq = GlideMQ(storage, queue=name)
        mq.queue(name, events=rules)

        @mq.task
        async def load() -> None: ...

        return mq

    rules = EventRules(max_events=500, off=("active",), progress_interval=timedelta(seconds=1), content="size")
    for declared in (rules, None):
        mq = app(declared)
        async with mq, mq.worker():
            assert await mq.queue(name).get_event_rules() == (declared or EventRules())
    first = app(rules)
    with pytest.raises(ValueError, match="two different rules of events"):
        first.queue(name, events=EventRules(max_events=5))
    wrong: Any = {"max_events": 5}
    with pytest.raises(TypeError, match="events must be EventRules"):
        first.queue(name, events=wrong)


@pytest.mark.parametrize(
    ("rules", "error", "text"),
    [
        ({}, TypeError, "at least one rule"),
        ({"max_events": 0}, ValueError, "max_events"),
        ({"max_events": 100_001}, ValueError, "max_events"),
        ({"off": "active"}, TypeError, r"write \('active',\)"),
        ({"off": ("activ",)}, ValueError, "did you mean 'active'"),
        ({"off": ("zzzzzz",)}, ValueError, "the kinds are added"),
        ({"progress_interval": 0}, ValueError, "one day"),
        ({"progress_interval": 90_000}, ValueError, "one day"),
        ({"content": "all"}, ValueError, "content must be"),
    ],
)
async def test_a_bad_rule_is_refused(queue: AnyQueue, rules: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        await queue.set_events(**rules)
    if rules:
        with pytest.raises(error, match=text):
            EventRules(**rules)


def test_blocking_code_sets_rules_too(name: str) -> None:
    from glidemq_async import Queue

    with Queue[Any, Any](name, "memory://").sync as queue:
        queue.set_events(off=("active",))
        assert queue.get_event_rules() == EventRules(off=("active",))
        assert queue.add("n").id
