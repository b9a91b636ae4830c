"""Workflows stay in memory while they wait for called tasks: the next run reads how the children have ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import GlideMQ, StepFailed, UnrecoverableError, current_job, workflows
from glidemq_async.functions.children import ChildCalls
from glidemq_async.storage import Storage
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, reaches

calls: list[Any] = []


@pytest.fixture(autouse=True)
def forget_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


@pytest.fixture
def gates() -> dict[int, asyncio.Event]:
    return {number: asyncio.Event() for number in range(4)}


async def has_no_fault(mq: GlideMQ[Any], name: str) -> bool:
    return not any([await mq.queue(each).check() for each in (name, f"{name}-other")])


async def test_a_run_continues_when_its_calls_end(mq: GlideMQ[Any], name: str, gates: dict[int, asyncio.Event]) -> None:
    @mq.task(queue=f"{name}-other")
    async def pass_gate(number: int) -> int:
        await gates[number].wait()
        return 10 * number

    @mq.step
    async def note(value: int) -> int:
        calls.append(value)
        return value

    async def called(number: int) -> int:
        return await note(await pass_gate.call(number))

    @mq.workflow
    async def order() -> list[Any]:
        calls.append("started")
        first = await called(0)
        rest = await asyncio.gather(called(1), called(2), called(2), workflows.receive("go"))
        return [first, rest[:3], await called(3), current_job().fence]

    async with mq, mq.worker():
        run = await order.start()
        for number in range(4):
            await reaches(run, "suspended")
            gates[number].set()
            if number == 1:
                await run.signal("go")
        first, rest, last, fence = await run.result(PATIENCE)
        assert (first, rest, last) == (0, [10, 20, 20], 30)
        assert fence > 1
        assert sorted(map(str, calls)) == ["0", "10", "20", "20", "30", "started"]
        assert await has_no_fault(mq, name)


@pytest.mark.parametrize("end", ["fails", "revoked", "removed", "expires"])
async def test_a_kept_function_sees_each_end_of_a_child(mq: GlideMQ[Any], name: str, end: str) -> None:
    gate, ids = asyncio.Event(), list[str]()

    @mq.task(queue=f"{name}-other", ttl=0.2 if end == "expires" else None)
    async def fail() -> None:
        ids.append(current_job().id)
        await gate.wait()
        raise UnrecoverableError("it fails")

    @mq.workflow
    async def order() -> str:
        calls.append("started")
        try:
            await fail.call()
        except StepFailed as error:
            return str(error)
        return "no error"

    async with mq, mq.worker([name]):
        run = await order.start()
        await reaches(run, "suspended")
        other = mq.queue(f"{name}-other")
        if end in ("revoked", "removed"):
            (child,) = await other.get_jobs("waiting")
            await (child.revoke() if end == "revoked" else child.remove())
        elif end == "expires":
            await asyncio.sleep(0.25)  # longer than the ttl of the child; only the clock of the server ends it
        gate.set()
        async with mq.worker([f"{name}-other"]):
            said = await run.result(PATIENCE)
        assert {"fails": "it fails", "revoked": "revoked", "removed": "removed", "expires": "expired"}[end] in said
        assert calls == ["started"]
        assert await has_no_fault(mq, name)


async def test_a_kept_function_does_not_continue_after_another_run(
    mq: GlideMQ[Any], name: str, gates: dict[int, asyncio.Event]
) -> None:
    """The next run is on another worker. The first worker keeps the function, which must start again."""
    blocked, free, noted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @mq.task(queue=f"{name}-other")
    async def pass_gate(number: int) -> int:
        await gates[number].wait()
        return number

    @mq.step
    async def note(value: int) -> int:
        calls.append(value)
        noted.set()
        return value

    @mq.task
    async def block() -> None:
        blocked.set()
        await free.wait()

    @mq.workflow
    async def order() -> int:
        calls.append("started")
        return sum([await note(await pass_gate.call(number)) for number in range(3)])

    async with mq, mq.worker([f"{name}-other"]), mq.worker([name], concurrency=1):
        run = await order.start()
        await reaches(run, "suspended")
        await block.add()
        await blocked.wait()
        async with mq.worker([name]):
            gates[0].set()
            await noted.wait()
            await reaches(run, "suspended")
        free.set()
        gates[1].set()
        gates[2].set()
        assert await run.result(PATIENCE) == 3
        assert calls == ["started", "started", 0, "started", 1, 2], (
            "the first worker has not started the function again"
        )
        assert await has_no_fault(mq, name)


@pytest.mark.parametrize("again", ["restart", "retry"])
async def test_a_run_that_was_started_by_hand_does_not_continue(
    mq: GlideMQ[Any], name: str, again: str, gates: dict[int, asyncio.Event]
) -> None:
    @mq.task(queue=f"{name}-other")
    async def pass_gate() -> str:
        calls.append("called")
        await gates[0].wait()
        return "passed"

    @mq.workflow
    async def order() -> str:
        calls.append("started")
        return await pass_gate.call()

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        await run.cancel()
        await run.job.refresh()
        await (run.restart() if again == "restart" else run.retry())
        await reaches(run, "suspended")
        assert sorted(calls) == ["called", "called", "started", "started"]
        gates[0].set()
        assert await run.result(PATIENCE) == "passed"
        assert calls.count("started") == 2
        assert await has_no_fault(mq, name)


async def test_a_continued_run_that_cannot_read_its_children_is_repeated(
    mq: GlideMQ[Any], name: str, monkeypatch: pytest.MonkeyPatch, gates: dict[int, asyncio.Event]
) -> None:
    @mq.task(queue=f"{name}-other")
    async def pass_gate() -> str:
        calls.append("called")
        await gates[0].wait()
        return "passed"

    @mq.workflow(attempts=2)
    async def order() -> str:
        calls.append("started")
        return await pass_gate.call()

    async def refuse(*_: object) -> None:
        calls.append("refused")
        monkeypatch.undo()
        monkeypatch.setattr(waiting, "GRACE", 0.02)
        raise ConnectionError("the server does not answer")

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        monkeypatch.setattr(ChildCalls, "read_present", refuse)
        gates[0].set()
        assert await run.result(PATIENCE) == "passed"
        assert calls == ["started", "called", "refused", "started"]


async def test_a_run_that_is_cancelled_while_it_continues_undoes_its_steps(
    mq: GlideMQ[Any], name: str, monkeypatch: pytest.MonkeyPatch, gates: dict[int, asyncio.Event]
) -> None:
    reading = asyncio.Event()

    @mq.task(queue=f"{name}-other")
    async def pass_gate() -> None:
        await gates[0].wait()

    @mq.step
    async def undo() -> None:
        calls.append("undone")

    @mq.workflow
    async def order() -> None:
        calls.append("started")
        try:
            await pass_gate.call()
        except asyncio.CancelledError:
            await undo()
            raise

    async def hang(*_: object) -> None:
        reading.set()
        await asyncio.Event().wait()

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        monkeypatch.setattr(ChildCalls, "read_present", hang)
        gates[0].set()
        await asyncio.wait_for(reading.wait(), PATIENCE)
        await run.cancel()
        await reaches(run, "failed")
        assert calls == ["started", "undone"]
        assert await has_no_fault(mq, name)
