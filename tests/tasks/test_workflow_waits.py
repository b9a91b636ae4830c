"""Workflows wait for signals and instants without a slot, and each signal is received once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobFailed, SerializationError, Signal, Workflow, current_job, workflows
from glidemq_async.storage import Storage
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, reaches

calls: list[Any] = []
"""What the workflows of this test have done."""


@pytest.fixture(autouse=True)
def forget_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


@dataclass
class Approved:
    by: str


@dataclass
class Rejected:
    reason: str


@pytest.fixture
def signals(mq: GlideMQ[Any]) -> None:
    mq.signal(Approved)
    mq.signal(Rejected)


@pytest.mark.usefixtures("signals")
async def test_a_run_holds_no_slot_until_a_signal_comes(mq: GlideMQ[Any], name: str) -> None:
    @mq.workflow
    async def order(number: int) -> str:
        answer = await workflows.receive(Approved, Rejected)
        return f"{number} {answer}"

    async with mq, mq.worker(concurrency=1):
        runs = [await order.start(number) for number in range(3)]
        for run in runs:
            await reaches(run, "suspended")
        job = await mq.queue(name).get_job(runs[0].id)
        assert job is not None
        assert job.suspension is not None
        assert (job.suspension.signals, job.suspension.deadline) == (("Approved", "Rejected"), None)
        assert job.suspension.reason == "waits for Approved, Rejected"
        assert await runs[0].send(Approved("ada"))
        assert await runs[1].signal("Rejected", {"reason": "no"})
        assert await runs[0].result(PATIENCE) == "0 Approved(by='ada')"
        assert await runs[1].result(PATIENCE) == "1 Rejected(reason='no')"
        assert await runs[2].state() == "suspended"
        assert not await mq.queue(name).check()
        await runs[2].send(Approved("eve"))
        assert await runs[2].result(PATIENCE) == "2 Approved(by='eve')"


async def test_early_signals_are_received_in_their_order(mq: GlideMQ[Any], name: str) -> None:
    @mq.workflow
    async def chat() -> list[Any]:
        named = await workflows.receive("b")
        return [named.name, named.data, *[(await workflows.receive()).data for _ in range(3)]]

    async with mq:
        run = await chat.start()
        for name_of, data in (("a", 1), ("b", 2), ("b", 3), ("a", 4)):
            assert not await run.signal(name_of, data)
        async with mq.worker():
            assert await run.result(PATIENCE) == ["b", 2, 1, 3, 4]
        assert not await mq.queue(name).check()


async def test_later_runs_return_the_same_signals(mq: GlideMQ[Any]) -> None:
    @mq.workflow(attempts=20)
    async def forgetful() -> list[Any]:
        got: list[Any] = []
        for _ in range(3):
            got.append((await workflows.receive("n")).data)
            job = current_job()
            calls.append(tuple(got))
            if calls.count(tuple(got)) == 1:
                raise ValueError(f"run {job.fence} fails")
        return got

    async with mq, mq.worker():
        run = await forgetful.start()
        for number in range(3):
            await run.signal("n", number)
        assert await run.result(PATIENCE) == [0, 1, 2]


async def test_concurrent_waits_get_one_signal_each(mq: GlideMQ[Any], name: str) -> None:
    @mq.workflow
    async def many() -> dict[str, list[Any]]:
        async with asyncio.TaskGroup() as group:
            same = [group.create_task(workflows.receive("n", key=f"{place}")) for place in range(4)]
            other = group.create_task(workflows.receive("other"))
        return {"n": sorted(task.result().data for task in same), "other": [other.result().data]}

    async with mq, mq.worker():
        run = await many.start()
        await run.signal("n", 0)
        await reaches(run, "suspended")
        await asyncio.gather(run.signal("other", "x"), *[run.signal("n", number) for number in range(1, 4)])
        assert await run.result(PATIENCE) == {"n": [0, 1, 2, 3], "other": ["x"]}
        assert not await mq.queue(name).check()


async def test_a_timeout_is_recorded(mq: GlideMQ[Any]) -> None:
    @mq.workflow(attempts=2)
    async def late() -> list[str]:
        job = current_job()
        try:
            await workflows.receive("n", timeout=0.1)
        except TimeoutError as error:
            calls.append(str(error).replace(f"run {job.id} ", "run ID "))
        if len(calls) == 1:
            await job.signal("n", "too late")
            raise ValueError("again")
        return calls

    async with mq, mq.worker():
        run = await late.start()
        text = "workflow run ID has not received n within 0.1"
        assert await run.result(PATIENCE) == [text, text]


async def test_the_server_resumes_a_run_at_its_deadline(mq: GlideMQ[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SHORT", 0)

    @mq.workflow
    async def waits() -> list[Any]:
        # A loop that is held up for longer than a wait does not suspend the run.
        await workflows.sleep("1000ms")
        with pytest.raises(TimeoutError):
            await workflows.receive(timeout=timedelta(seconds=1))
        async with asyncio.TaskGroup() as group:
            late = group.create_task(workflows.sleep(3_600))
            soon = group.create_task(workflows.sleep(1))
            soon.add_done_callback(lambda _: late.cancel())
        return [current_job().resumed_by, current_job().fence]

    async with mq, mq.worker():
        run = await waits.start()
        assert await run.result(PATIENCE) == ["timeout", 4]
        names = [step.name for step in await run.steps()]
        assert (names.count("workflow.sleep"), names.count("workflow.timeout")) == (3, 1)


async def test_a_signal_that_nobody_receives_returns_to_the_mailbox(mq: GlideMQ[Any], name: str) -> None:
    @mq.workflow
    async def changes() -> list[Any]:
        first = "a" if current_job().fence == 1 else "b"
        found = await workflows.receive(first)
        return [found.name, (await workflows.receive("a")).data]

    async with mq, mq.worker(warm_runs=0):
        run = await changes.start()
        await reaches(run, "suspended")
        await run.signal("a", 1)
        await run.signal("a", 2)
        async with asyncio.timeout(PATIENCE):
            while len(await mq.queue(name).get_mailbox(run.id)) != 2:  # noqa: ASYNC110 - no event tells this
                await asyncio.sleep(0.01)
        assert [one.data for one in await mq.queue(name).get_mailbox(run.id)] == [1, 2]
        assert not await mq.queue(name).check()
        await run.signal("b")
        assert await run.result(PATIENCE) == ["b", 1]


async def test_a_run_that_does_something_else_keeps_its_slot(mq: GlideMQ[Any]) -> None:
    answered = asyncio.Event()

    @mq.step
    async def slow() -> str:
        calls.append("slow")
        await answered.wait()
        return "slow"

    @mq.workflow
    async def both() -> list[Any]:
        plain = asyncio.create_task(answered.wait())
        waited, result = await asyncio.gather(workflows.receive("n"), slow())
        await plain
        return [waited.data, result, current_job().fence]

    async with mq, mq.worker():
        run = await both.start()
        async with asyncio.timeout(PATIENCE):
            while not calls:  # noqa: ASYNC110 - the step is called in the loop of the worker
                await asyncio.sleep(0.01)
        await asyncio.sleep(10 * waiting.GRACE)
        assert await run.state() == "active"
        answered.set()
        await run.signal("n", 7)
        waited, result, fence = await run.result(PATIENCE)
        assert (waited, result, calls) == (7, "slow", ["slow"])
        assert fence > 1


async def test_a_suspended_function_cannot_record_steps(mq: GlideMQ[Any]) -> None:
    @mq.step
    async def undo() -> None:
        calls.append("undone")

    @mq.workflow
    async def careful() -> str:
        try:
            return str((await workflows.receive("n")).data)
        except asyncio.CancelledError:
            calls.append("cancelled")
            await undo()
            raise

    async with mq, mq.worker(warm_runs=0):
        run = await careful.start()
        await reaches(run, "suspended")
        assert calls == ["cancelled"]
        await run.signal("n", 7)
        assert await run.result(PATIENCE) == "7"
        assert calls == ["cancelled"]


async def test_a_revoked_run_may_compensate(mq: GlideMQ[Any], name: str) -> None:
    started = asyncio.Event()

    @mq.step
    async def undo() -> None:
        calls.append("undone")

    @mq.workflow
    async def careful() -> None:
        try:
            started.set()
            await asyncio.sleep(PATIENCE)
        finally:
            await undo()

    async with mq, mq.worker():
        run = await careful.start()
        await started.wait()
        await mq.queue(name).revoke(run.id)
        with pytest.raises(JobFailed, match="revoked"):
            await run.result(PATIENCE)
        assert calls == ["undone"]


async def test_bad_arguments(mq: GlideMQ[Any]) -> None:
    problems: list[str] = []

    @mq.workflow
    async def wrong() -> None:
        waits: list[Callable[[], Awaitable[object]]] = [
            lambda: workflows.receive(int),
            lambda: workflows.receive(""),
            lambda: workflows.receive("n", timeout="soon"),
            lambda: workflows.sleep(-1),
            lambda: workflows.sleep("1 hour"),
            lambda: workflows.receive(*map(str, range(101))),
        ]
        for wait in waits:
            with pytest.raises((TypeError, ValueError)) as caught:
                await wait()
            problems.append(str(caught.value))

    async with mq, mq.worker():
        await (await wrong.start()).result(PATIENCE)
    assert "is not a signal" in problems[0]
    assert '"90s" or "1h30m"' in problems[2]
    assert "at most 100 names" in problems[5]
    with pytest.raises(RuntimeError, match="outside of a workflow"):
        await workflows.receive("n")


@pytest.mark.usefixtures("signals")
async def test_a_payload_of_another_form_is_shown(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def typed() -> str:
        with pytest.raises(SerializationError, match="cannot be read as Approved"):
            await workflows.receive(Approved)
        return (await workflows.receive(Approved)).by

    async with mq, mq.worker():
        run = await typed.start()
        await run.signal("Approved", 7)
        await run.send(Approved("ada"))
        assert await run.result(PATIENCE) == "ada"


def typed_calls(mq: GlideMQ[Any]) -> Workflow[[], str]:
    """Let the type checkers see the types of received signals."""

    @mq.workflow
    async def typed() -> str:
        one: Approved = await workflows.receive(Approved)
        two: Approved | Rejected = await workflows.receive(Approved, Rejected, timeout=5)
        three: Signal = await workflows.receive("a", "b")
        return f"{one.by} {two} {three.name}"

    return typed
