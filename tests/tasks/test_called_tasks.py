"""A workflow calls tasks as child jobs: each call is made once, and a run that only waits for them holds no slot."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from glidemq_async import GlideMQ, Queue, StepFailed, UnrecoverableError, current_job, workflows
from glidemq_async.storage import Storage
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, reaches

calls: list[Any] = []
"""What the tasks of this test have done."""


@pytest.fixture(autouse=True)
def forget_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


async def has_no_fault(mq: GlideMQ[Any], *names: str) -> bool:
    return not any([await mq.queue(name).check() for name in names])


@pytest.mark.parametrize("delay", [0, 0.15], ids=["quick", "slow"])
async def test_a_called_task_returns_its_result(mq: GlideMQ[Any], name: str, delay: float) -> None:
    @mq.task
    async def double(value: int) -> tuple[int, int]:
        await asyncio.sleep(delay)
        calls.append(value)
        return value, 2 * value

    @mq.workflow
    async def order(values: list[int]) -> list[tuple[int, int]]:
        first = await double.call(values[0])
        rest = await asyncio.gather(*(double.call(value) for value in values[1:]))
        return [first, *rest]

    async with mq, mq.worker(concurrency=1):
        run = await order.start([1, 2, 3, 2])
        assert await run.result(PATIENCE) == [(1, 2), (2, 4), (3, 6), (2, 4)]
        assert sorted(calls) == [1, 2, 2, 3]
        assert [(step.name, step.result) for step in await run.steps() if step.name == "call double"] == [
            ("call double", [1, 2]),
            *[("call double", [value, 2 * value]) for value in calls[1:]],
        ]
        assert await has_no_fault(mq, name)


async def test_a_run_that_waits_for_a_task_holds_no_slot(mq: GlideMQ[Any], name: str) -> None:
    gate = asyncio.Event()

    @mq.task(queue=f"{name}-other")
    async def wait() -> str:
        await gate.wait()
        return "done"

    @mq.workflow
    async def order() -> str:
        return await wait.call()

    async with mq, mq.worker([name], concurrency=1), mq.worker([f"{name}-other"], concurrency=5):
        runs = [await order.start() for _ in range(3)]
        for run in runs:
            await reaches(run, "suspended")
        job = await mq.queue(name).get_job(runs[0].id)
        assert job is not None
        assert job.suspension is not None
        assert (job.suspension.signals, job.suspension.children) == ((), True)
        assert job.suspension.reason == "waits for a called task"
        assert await has_no_fault(mq, name, f"{name}-other")
        gate.set()
        assert [await run.result(PATIENCE) for run in runs] == ["done"] * 3
        assert (await runs[0].job.get_state()) == "completed"
        assert await has_no_fault(mq, name, f"{name}-other")


async def test_a_failed_task_fails_its_call(mq: GlideMQ[Any], name: str) -> None:
    @mq.task
    async def fail(text: str) -> None:
        calls.append(text)
        raise UnrecoverableError(text)

    @mq.workflow(attempts=3)
    async def caught() -> str:
        try:
            await fail.call("a")
        except StepFailed as error:
            return f"{error}"
        return "?"

    @mq.workflow(attempts=3)
    async def uncaught() -> None:
        await fail.call("b")

    async with mq, mq.worker():
        run = await caught.start()
        assert "call fail" in await run.result(PATIENCE)
        assert "UnrecoverableError: a" in await run.result(PATIENCE)
        failed = await uncaught.start()
        await reaches(failed, "failed")
        assert calls == ["a", "b"]
        # A retry makes the failed call again, with a new child.
        await failed.retry()
        await reaches(failed, "failed")
        assert calls == ["a", "b", "b"]
        assert await has_no_fault(mq, name)


async def test_a_call_and_a_signal_are_awaited_together(mq: GlideMQ[Any], name: str) -> None:
    gate = asyncio.Event()

    @mq.task(queue=f"{name}-other")
    async def wait() -> str:
        await gate.wait()
        return "done"

    @mq.workflow
    async def order() -> list[Any]:
        called = asyncio.ensure_future(wait.call())
        signal = await workflows.receive("go")
        return [signal.data, await called]

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        await run.signal("go", 1)
        gate.set()
        assert await run.result(PATIENCE) == [1, "done"]
        assert await has_no_fault(mq, name, f"{name}-other")


async def test_a_run_that_ends_cancels_its_calls(mq: GlideMQ[Any], name: str) -> None:
    started = asyncio.Event()

    @mq.task(queue=f"{name}-other")
    async def wait() -> None:
        calls.append(current_job().id)
        started.set()
        await asyncio.Event().wait()

    @mq.workflow
    async def order() -> str:
        task = asyncio.ensure_future(wait.call())
        await started.wait()
        task.cancel()
        return "ended"

    async with mq, mq.worker():
        run = await order.start()
        assert await run.result(PATIENCE) == "ended"
        queue: Queue[Any, Any] = mq.queue(f"{name}-other")
        job = await queue.get_job(calls[0])
        assert job is not None
        async with asyncio.timeout(PATIENCE):
            async for update in job.watch():
                if update.state == "failed":
                    break
        assert await has_no_fault(mq, name, f"{name}-other")


async def test_a_run_calls_a_flow_and_a_workflow(mq: GlideMQ[Any], name: str) -> None:
    @mq.task
    async def add_one(value: int) -> int:
        return value + 1

    @mq.workflow
    async def inner(value: int) -> int:
        return await add_one.call(value)

    @mq.workflow
    async def outer() -> list[int]:
        both = add_one.s(1).then(add_one)
        return list(await asyncio.gather(both.call(), inner.task.call(10), add_one.options(priority=3).call(5)))

    async with mq, mq.worker(concurrency=2):
        assert await (await outer.start()).result(PATIENCE) == [3, 11, 6]
        assert await has_no_fault(mq, name)


async def test_a_fork_and_a_restart_make_their_own_calls(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def note(value: int) -> int:
        calls.append(value)
        return value

    @mq.workflow
    async def order() -> int:
        await note.call(1)
        return await note.call(2)

    async with mq, mq.worker():
        run = await order.start(id="order")
        assert await run.result(PATIENCE) == 2
        fork = await run.fork(before="call note")
        assert await fork.result(PATIENCE) == 2
        assert calls == [1, 2, 1, 2]
        await run.restart()
        await reaches(run, "completed")
        assert calls == [1, 2] * 3


async def test_a_call_outside_of_a_workflow_is_refused(mq: GlideMQ[Any]) -> None:
    @mq.task
    async def note() -> None: ...

    async with mq:
        with pytest.raises(RuntimeError, match=r"the call of task 'note' was called outside of a workflow"):
            await note.call()


async def test_a_run_that_is_repeated_waits_for_the_same_child(mq: GlideMQ[Any], name: str) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @mq.task(queue=f"{name}-other")
    async def wait(value: int) -> int:
        calls.append(value)
        started.set()
        await gate.wait()
        return value

    @mq.workflow(attempts=2)
    async def order() -> int:
        called = asyncio.ensure_future(wait.call(1))
        await started.wait()
        if current_job().attempts_made == 0:
            raise RuntimeError("the first attempt fails")
        gate.set()
        return await called

    async with mq, mq.worker():
        assert await (await order.start()).result(PATIENCE) == 1
        assert calls == [1]
        assert await has_no_fault(mq, name, f"{name}-other")


async def test_many_runs_receive_each_end_once(mq: GlideMQ[Any], name: str) -> None:
    chance = random.Random(5)
    delays = [chance.choice([0, 0.01, 0.02, 0.03, 0.06]) for _ in range(300)]

    @mq.task(queue=f"{name}-other")
    async def work(number: int) -> int:
        await asyncio.sleep(delays[number])
        calls.append(number)
        return number

    @mq.workflow
    async def order(first: int) -> int:
        both = await asyncio.gather(work.call(first), work.call(first + 1))
        return sum(both) + await work.call(first + 2)

    async with mq, mq.worker([name], concurrency=4), mq.worker([f"{name}-other"], concurrency=20):
        runs = [await order.start(first) for first in range(0, 300, 3)]
        assert [await run.result(6 * PATIENCE) for run in runs] == [3 * first + 3 for first in range(0, 300, 3)]
        assert sorted(calls) == list(range(300))
        assert await has_no_fault(mq, name, f"{name}-other")
