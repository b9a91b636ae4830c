"""Workflows stay in memory while they wait: the next run continues them, and any doubt lets them start again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobStateError, current_job, workflows
from glidemq_async.storage import Storage
from glidemq_async.tasks.workflows import RunHandle
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, reaches

calls: list[Any] = []
RUNS = 30


@pytest.fixture(autouse=True)
def forget_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


async def test_a_run_continues_where_it_waits(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def pay() -> str:
        calls.append("paid")
        return "receipt"

    @mq.workflow
    async def order() -> list[Any]:
        calls.append("started")
        local = object()
        try:
            said = (await workflows.receive("said")).data
            await current_job().update_progress(said)
            later = (await workflows.receive("later")).data
        finally:
            calls.append("left")
        return [said, later, await pay(), current_job().fence, id(local) > 0]

    async with mq, mq.worker():
        run = await order.start()
        for number, name in enumerate(("said", "later"), 1):
            await reaches(run, "suspended")
            assert calls == ["started"]
            await run.signal(name, number)
        assert await run.result(PATIENCE) == [1, 2, "receipt", 3, True]
        assert calls == ["started", "left", "paid"]
        await run.job.refresh()
        assert run.job.progress == 1
        assert [step.run for step in await run.steps() if step.name == "pay"] == [3]
        assert not await mq.queue(order.queue).check()


async def test_a_run_sleeps_and_continues(mq: GlideMQ[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SHORT", 0.0)

    @mq.workflow
    async def order() -> int:
        calls.append("started")
        await workflows.sleep(0.5)
        with pytest.raises(TimeoutError):
            await workflows.receive("never", timeout=0.5)
        return current_job().fence

    async with mq, mq.worker():
        run = await order.start()
        # A loop that is held up for longer than a wait does not suspend the run.
        assert await run.result(PATIENCE) in {2, 3}
        assert calls == ["started"]


async def test_a_signal_for_a_wait_that_was_cancelled_in_the_same_turn_is_kept(
    mq: GlideMQ[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SHORT", 0.0)
    seconds = 0.3
    pause: list[Callable[[], None]] = []

    @mq.workflow
    async def order() -> list[Any]:
        # The signal resumes the job after the end of the sleep, so both waits end when the run continues.
        pause[0]()

        async def give_up() -> None:
            await workflows.sleep(seconds)
            first.cancel()

        late = asyncio.create_task(give_up())
        await workflows.now()  # recorded after the start of the sleep, so the sleep is the first wait and ends first
        first = asyncio.create_task(workflows.receive("said"))
        await asyncio.wait([late, first])
        calls.append("cancelled" if first.cancelled() else "received")
        again = await workflows.receive("said", timeout=PATIENCE) if first.cancelled() else first.result()
        return [again.data, current_job().fence]

    async with mq, mq.worker() as worker:
        pause.append(worker.workers[0].pause)
        run = await order.start()
        await reaches(run, "suspended")
        await asyncio.sleep(seconds)
        await run.signal("said", 1)
        worker.workers[0].resume()
        assert await run.result(PATIENCE) == [1, 2]
        assert calls == ["cancelled"]
        assert not await mq.queue(order.queue).check()


async def test_without_warm_runs_the_function_starts_again(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> None:
        calls.append("started")
        try:
            await workflows.receive("said")
        finally:
            calls.append("left")

    async with mq, mq.worker(warm_runs=0):
        run = await order.start()
        await reaches(run, "suspended")
        await run.signal("said")
        await run.result(PATIENCE)
        assert calls == ["started", "left", "started", "left"]


async def test_the_oldest_warm_run_gives_way(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order(name: str) -> None:
        calls.append(f"{name} started")
        await workflows.receive("said")

    async with mq, mq.worker(warm_runs=1):
        runs = [await order.start("first")]
        await reaches(runs[0], "suspended")
        runs.append(await order.start("second"))
        await reaches(runs[1], "suspended")
        for run in runs:
            await run.signal("said")
            await run.result(PATIENCE)
    assert Counter(calls) == {"first started": 2, "second started": 1}


async def test_a_run_of_another_worker_lets_the_function_start_again(mq: GlideMQ[Any]) -> None:
    blocked, free = asyncio.Event(), asyncio.Event()

    @mq.step
    async def note(text: str) -> None:
        calls.append(text)

    @mq.task
    async def block() -> None:
        blocked.set()
        await free.wait()

    @mq.workflow
    async def order() -> None:
        calls.append("started")
        for number in range(3):
            await workflows.receive("said")
            await note(f"step {number}")

    async with mq, mq.worker(concurrency=1):
        run = await order.start()
        await reaches(run, "suspended")
        await block.add()
        await blocked.wait()
        # The first worker keeps the function, and has no slot for the next run.
        async with mq.worker():
            await run.signal("said")
            await reaches(run, "suspended")
        free.set()
        await run.signal("said")
        await reaches(run, "suspended")
        await run.signal("said")
        await run.result(PATIENCE)
    assert calls == ["started", "started", "step 0", "started", "step 1", "step 2"]


async def test_a_function_that_ran_on_while_its_job_was_suspended_starts_again(mq: GlideMQ[Any]) -> None:
    expired = asyncio.Event()

    @mq.step
    async def undo() -> None:
        calls.append("undone")

    @mq.workflow
    async def order() -> str:
        calls.append("started")
        try:
            async with asyncio.timeout(0.1 if len(calls) == 1 else PATIENCE):
                return str((await workflows.receive("said")).data)
        except TimeoutError:
            expired.set()
            await undo()
            raise

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        await asyncio.wait_for(expired.wait(), PATIENCE)
        await run.signal("said", 7)
        assert await run.result(PATIENCE) == "7"
        assert calls == ["started", "started"]


async def test_a_run_that_was_started_again_does_not_continue(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> int:
        calls.append("started")
        return int((await workflows.receive("said")).data)

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        await run.cancel()
        await run.job.refresh()
        await run.restart()
        await reaches(run, "suspended")
        assert calls == ["started", "started"]
        await run.signal("said", 3)
        assert await run.result(PATIENCE) == 3
        assert calls == ["started", "started"]


@pytest.mark.parametrize("cause", ["revoked", "removed", "run elsewhere"])
async def test_a_worker_leaves_a_function_that_cannot_continue(mq: GlideMQ[Any], cause: str) -> None:
    blocked, free, left = asyncio.Event(), asyncio.Event(), asyncio.Queue[None]()

    @mq.task
    async def block() -> None:
        blocked.set()
        await free.wait()

    @mq.workflow
    async def order() -> None:
        try:
            await workflows.receive("said")
        finally:
            left.put_nowait(None)

    async with mq, mq.worker(concurrency=1, lock_duration=1):
        run = await order.start()
        await reaches(run, "suspended")
        other = await order.start()
        await reaches(other, "suspended")
        assert left.empty()
        if cause == "revoked":
            await run.cancel()
        elif cause == "removed":
            await run.job.remove()
        else:
            await block.add()
            await blocked.wait()
            async with mq.worker():
                await run.signal("said")
                await run.result(PATIENCE)
            await left.get()
        await asyncio.wait_for(left.get(), PATIENCE)
        assert left.empty()
        free.set()
        await other.signal("said")
        await other.result(PATIENCE)


async def test_a_signal_for_nobody_leaves_the_function_waiting(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> list[Any]:
        calls.append("started")
        first, second = await asyncio.gather(workflows.receive("a"), workflows.receive("b"))
        return [first.data, second.data]

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        await run.job.resume()
        await reaches(run, "suspended")
        await run.signal("b", 2)
        await reaches(run, "suspended")
        await run.signal("a", 1)
        assert await run.result(PATIENCE) == [1, 2]
        assert calls == ["started"]


async def converse(run: RunHandle[Any], draw: random.Random) -> None:
    """Send signals to a run until it has ended."""
    with suppress(JobStateError):
        for number in range(100):
            await asyncio.sleep(draw.random() * 0.05)
            for name in draw.sample("ab", 2):
                await run.signal(name, number)


async def test_random_conversations_on_workers_that_come_and_go(mq: GlideMQ[Any]) -> None:
    draw, said = random.Random(5), Counter[str]()

    @mq.step
    async def note(who: int, text: str) -> str:
        said[f"{who} {text}"] += 1
        return text

    async def hear(who: int, name: str) -> int:
        number = int((await workflows.receive(name, timeout="1d")).data)
        await note(who, f"{name}{number}")
        return number

    @mq.workflow
    async def talk(who: int) -> list[int]:
        plan, heard = random.Random(who), list[int]()
        for number in range(4):
            await note(who, f"round {number}")
            if plan.random() < 0.3:
                heard += await asyncio.gather(hear(who, "a"), hear(who, "b"))
            else:
                heard.append(await hear(who, plan.choice("ab")))
        return heard

    async with mq:
        handles = [await talk.start(who) for who in range(RUNS)]
        async with asyncio.TaskGroup() as group:
            for handle in handles:
                group.create_task(converse(handle, draw))
            for _ in range(3):
                async with mq.worker(concurrency=15, warm_runs=10), mq.worker(concurrency=15):
                    await asyncio.sleep(0.25)
            async with mq.worker(warm_runs=20):
                for handle in handles:
                    assert len(await handle.result(PATIENCE)) >= 4
        assert set(said.values()) == {1}
        assert not await mq.queue(talk.queue).check()
