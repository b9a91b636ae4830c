"""Maps of tasks: results in order, a bounded number of live jobs, and no job left behind by a caller that stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from glidemq_async import BatchFailed, GlideMQ, JobFailed, JobOptions, Queue
from glidemq_async.storage import Storage
from tests.support.helpers import PATIENCE, until
from tests.support.stores import RunningStore

ITEMS = 300


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


@pytest.mark.everywhere
async def test_results_have_the_order_of_the_items(mq: GlideMQ[Any], name: str) -> None:
    @mq.task
    async def double(number: int, plus: int = 0) -> int:
        return 2 * number + plus

    async with mq, mq.worker():
        assert await double.map(range(ITEMS), at_once=20).results() == [2 * n for n in range(ITEMS)]
        assert await double.map([]).results() == []
        assert await double.starmap([(1, 5), {"number": 2}, (3,)]).results() == [7, 4, 6]
        assert [outcome.value async for outcome in double.map(iter([1, 2]), at_once=1)] == [2, 4]
        by_position = {position: outcome.value async for position, outcome in double.map(range(50)).as_ended()}
        assert by_position == {n: 2 * n for n in range(50)}
        assert not await mq.queue(name).check()


async def test_failures_are_raised_together_or_returned(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def check(number: int) -> int:
        if number % 3 == 0:
            raise ValueError(f"{number} is wrong")
        return number

    async with mq, mq.worker():
        with pytest.raises(BatchFailed, match="3 of 7 jobs have no result") as caught:
            await check.map(range(7)).results()
        notes = [note for error in caught.value.exceptions for note in error.__notes__ if "position" in note]
        assert [note.split(" at ")[1] for note in notes] == [f"position {n} of the batch" for n in (0, 3, 6)]
        outcomes = await check.map(range(7)).results(on_failure="return")
        assert [type(outcome.error) for outcome in outcomes if outcome.error] == [JobFailed] * 3
        assert [outcome.value for outcome in outcomes if outcome.error is None] == [1, 2, 4, 5]
    with pytest.raises(ValueError, match="on_failure"):
        await check.map([1]).results(on_failure="skip")  # type: ignore[call-overload]


async def test_only_a_window_of_the_jobs_is_live(mq: GlideMQ[Any], name: str) -> None:
    most, read = 0, 0

    def items() -> Iterator[int]:
        nonlocal read
        for number in range(ITEMS):
            read += 1
            yield number

    @mq.task
    async def work(number: int) -> int:
        nonlocal most
        counts = await mq.queue(name).get_job_counts()
        most = max(most, sum(counts[state] for state in counts if state not in {"completed", "failed"}))
        return number

    async with mq, mq.worker(concurrency=5):
        used = 0
        async for outcome in work.map(items(), at_once=20):
            assert outcome.value == used
            used += 1
            assert read <= used + 2 * 20 + 20
    assert (used, read) == (ITEMS, ITEMS)
    assert 5 < most <= 20


async def test_a_slow_first_item_holds_up_the_others_only_at_the_bound(mq: GlideMQ[Any]) -> None:
    release, run = asyncio.Event(), list[int]()

    @mq.task
    async def work(number: int) -> int:
        run.append(number)
        if number == 0:
            await release.wait()
        return number

    async with mq, mq.worker(concurrency=10):
        results = asyncio.create_task(work.map(range(ITEMS), at_once=8).results())
        await until(lambda: len(run) >= 14)
        assert len(run) <= 16
        release.set()
        assert await results == list(range(ITEMS))


async def live_jobs(queue: Queue[Any, Any]) -> int:
    counts = await queue.get_job_counts()
    return sum(counts[state] for state in counts if state not in {"completed", "failed"})


@pytest.mark.parametrize("how", ["break", "cancel", "raise"])
async def test_a_caller_that_stops_leaves_no_job(mq: GlideMQ[Any], name: str, how: str) -> None:
    started = asyncio.Event()

    @mq.task
    async def work(number: int) -> int:
        if number:
            started.set()
            await asyncio.sleep(PATIENCE)
        return number

    async def items() -> AsyncIterator[int]:
        for number in range(10 if how == "raise" else ITEMS):
            yield number
        # Only "raise" comes here. Without a wait, the source could fail before the worker has started a job.
        await started.wait()
        raise LookupError("no more items")

    async def use() -> None:
        outcomes = work.map(items(), at_once=40).outcomes()
        async for outcome in outcomes:
            assert outcome.value == 0
            await started.wait()
            if how == "break":
                break
        await outcomes.aclose()

    async with mq, mq.worker(concurrency=3):
        using = asyncio.create_task(use())
        await started.wait()
        if how == "cancel":
            using.cancel()
        [outcome] = await asyncio.gather(using, return_exceptions=True)
        assert type(outcome) is {"break": type(None), "cancel": asyncio.CancelledError, "raise": LookupError}[how]
        async with asyncio.timeout(PATIENCE):
            while await live_jobs(mq.queue(name)):  # noqa: ASYNC110 - the revocations run in the background
                await asyncio.sleep(0.01)
        revoked = await mq.queue(name).find("cause:revoked", ITEMS)
        assert len(revoked) == len(await mq.queue(name).find("state:failed", ITEMS)) > 0
        assert not await mq.queue(name).check()


async def test_a_slow_source_delays_no_item(mq: GlideMQ[Any]) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        asked.set()
        await answered.wait()
        yield 2

    @mq.task
    async def work(number: int) -> int:
        return number

    async with mq, mq.worker():
        outcomes = work.map(items(), at_once=100).outcomes()
        assert (await anext(outcomes)).value == 1
        await asked.wait()
        answered.set()
        assert [outcome.value async for outcome in outcomes] == [2]


async def test_a_source_that_fails_ends_the_map(mq: GlideMQ[Any]) -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise LookupError("no more items")

    @mq.task
    async def work(number: int) -> int:
        return number

    async with mq, mq.worker():
        with pytest.raises(LookupError):
            await work.map(items()).results()


async def test_lost_messages_are_found_again(mq: GlideMQ[Any], store: RunningStore) -> None:
    @mq.task
    async def work(number: int) -> int:
        if number % 50 == 0:
            await store.command("CLIENT", "KILL", "TYPE", "pubsub")
        return number

    async with mq, mq.worker():
        async with asyncio.timeout(60):
            assert await work.map(range(ITEMS), at_once=40).results() == list(range(ITEMS))


async def test_bad_arguments(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def work(number: int) -> int:
        return number

    for at_once in (0, 100_001, 1.5):
        with pytest.raises((TypeError, ValueError), match="at_once"):
            work.map([1], at_once=at_once)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot have the option job_id"):
        work.options(JobOptions(job_id="one")).map([1])
    async with mq, mq.worker():
        used = work.options(priority=2).map([1])
        assert await used.results() == [1]
        with pytest.raises(RuntimeError, match="read once"):
            await used.results()
        with pytest.raises(TypeError, match="number"):
            await work.starmap([{"numbr": 1}]).results()


async def test_the_blocking_methods(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def work(number: int) -> int:
        return number

    def use() -> list[Any]:
        return [
            work.map(range(5)).sync.results(),
            [outcome.value for outcome in work.map(range(3)).sync.outcomes()],
            sorted(position for position, _ in work.map(range(3)).sync.as_ended()),
        ]

    async with mq, mq.worker():
        assert await asyncio.to_thread(use) == [list(range(5)), [0, 1, 2], [0, 1, 2]]
