"""A run receives a signal that is in its mailbox without a suspension, also while it does something else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobFailed, SerializationError, current_job, workflows
from glidemq_async.storage import Storage
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, reaches


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    return GlideMQ(storage, queue=name)


@pytest.mark.everywhere
async def test_early_signals_are_received_in_the_first_run(mq: GlideMQ[Any], name: str) -> None:
    @mq.workflow
    async def order() -> list[Any]:
        first = (await workflows.receive("b")).data
        rest = await asyncio.gather(*(workflows.receive() for _ in range(3)))
        return [first, *(one.data for one in rest), current_job().fence]

    async with mq:
        run = await order.start()
        for name_of, data in (("a", 1), ("b", 2), ("b", 3), ("a", 4)):
            await run.signal(name_of, data)
        async with mq.worker():
            assert await run.result(PATIENCE) == [2, 1, 3, 4, 1]
        assert not await mq.queue(name).get_mailbox(run.id)
        assert not await mq.queue(name).check()


async def test_a_busy_run_receives_a_signal_without_a_suspension(
    mq: GlideMQ[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.02)
    listening = asyncio.Event()

    @mq.workflow
    async def order() -> list[Any]:
        async def busy() -> None:
            listening.set()
            await asyncio.Event().wait()

        async def listen() -> list[Any]:
            return [(await workflows.receive("say")).data for _ in range(2)]

        work, heard = asyncio.create_task(busy()), asyncio.create_task(listen())
        await asyncio.wait([work, heard], return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        return [*heard.result(), current_job().fence]

    async with mq, mq.worker():
        run = await order.start()
        await listening.wait()
        for word in (1, 2):
            assert not await run.signal("say", word)
        assert await run.result(PATIENCE) == [1, 2, 1]


async def test_a_received_signal_is_received_again_by_later_runs_only(mq: GlideMQ[Any]) -> None:
    runs: list[Any] = []

    @mq.workflow(attempts=5)
    async def order() -> list[Any]:
        said = [(await workflows.receive("say")).data]
        runs.append(said[0])
        if len(runs) < 3:
            raise RuntimeError("again")
        said.append((await workflows.receive("say")).data)
        return said

    async with mq:
        run = await order.start()
        await run.signal("say", 1)
        await run.signal("say", 2)
        async with mq.worker():
            assert await run.result(PATIENCE) == [1, 2]
        assert runs == [1, 1, 1]


async def test_a_payload_that_cannot_be_read_fails_its_receiver(mq: GlideMQ[Any], name: str) -> None:
    @mq.workflow
    async def order() -> str:
        with pytest.raises(SerializationError):
            await workflows.receive("bad")
        return (await workflows.receive("good")).name

    async with mq:
        run = await order.start()
        await mq.queue(name)._client.functions.signals.send(run.id, "bad", b"\xc1", 0)  # pyright: ignore[reportPrivateUsage]
        await run.signal("good")
        async with mq.worker():
            assert await run.result(PATIENCE) == "good"


@pytest.mark.parametrize("warm_runs", [0, 10])
async def test_a_payload_that_cannot_be_read_fails_its_receiver_after_a_resume_too(
    mq: GlideMQ[Any], name: str, warm_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.02)

    @mq.workflow
    async def order() -> str:
        with pytest.raises(SerializationError):
            await workflows.receive("bad")
        return (await workflows.receive("good")).name

    async with mq, mq.worker(warm_runs=warm_runs):
        run = await order.start()
        await reaches(run, "suspended")
        await mq.queue(name)._client.functions.signals.send(run.id, "bad", b"\xc1", 0)  # pyright: ignore[reportPrivateUsage]
        await run.signal("good")
        assert await run.result(PATIENCE) == "good"


@pytest.mark.parametrize("has_step", [True, False])
async def test_a_signal_that_is_too_large_to_be_recorded_fails_the_run(
    storage: Storage, name: str, has_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.02)
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name, payload_limit=300)
    executed: list[str] = []

    @mq.step
    async def note(text: str) -> None:
        executed.append(text)

    @mq.workflow
    async def order() -> None:
        # The record of a signal is larger than the signal.
        await workflows.receive("large")
        if has_step:
            await note("after the signal")

    async with mq, mq.worker():
        run = await order.start()
        await reaches(run, "suspended")
        await run.signal("large", "x" * 290)
        with pytest.raises(JobFailed, match="PayloadTooLarge"):
            await run.result(PATIENCE)
    assert not executed
