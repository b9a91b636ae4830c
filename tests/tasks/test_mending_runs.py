"""Runs of workflows are cancelled, retried, restarted, accepted and forked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobFailed, JobStateError, WorkflowExists, workflows
from glidemq_async.storage import Storage
from glidemq_async.tasks.workflows import RunHandle
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, reaches

calls: list[Any] = []
"""What the steps of this test have done."""
broken: set[str] = set()
"""The names of steps that fail."""


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    broken.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


def app(storage: Storage, name: str, *, changed: bool = False) -> tuple[GlideMQ[Any], Any]:
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name)

    @mq.step
    async def reserve(item: str) -> str:
        calls.append(("reserve", item))
        return f"{item}!"

    @mq.step
    async def charge(cents: int) -> int:
        calls.append(("charge", cents))
        if "charge" in broken:
            raise ValueError("declined")
        return cents

    @mq.step
    async def ship(parcel: str) -> str:
        calls.append(("ship", parcel))
        if "ship" in broken:
            raise ValueError("no driver")
        return parcel

    async def order(cents: int) -> str:
        parcel = await reserve("book")
        await charge(cents)
        return await ship(parcel)

    async def changed_order(cents: int) -> str:
        parcel = await reserve("book")
        await charge(cents + 1)
        return await ship(parcel)

    return mq, mq.workflow(name="order")(changed_order if changed else order)


async def fails(run: RunHandle[Any], match: str) -> None:
    with pytest.raises(JobFailed, match=match):
        await run.result(PATIENCE)


async def test_a_retried_run_repeats_only_what_has_failed(storage: Storage, name: str) -> None:
    mq, order = app(storage, name)
    broken.add("ship")
    async with mq, mq.worker():
        run = await order.start(5)
        await fails(run, "no driver")
        broken.clear()
        await run.retry()
        assert await run.result(PATIENCE) == "book!"
    assert calls == [("reserve", "book"), ("charge", 5), ("ship", "book!"), ("ship", "book!")]


@pytest.mark.parametrize("fails_first", [False, True])
async def test_a_restarted_run_repeats_everything(storage: Storage, name: str, *, fails_first: bool) -> None:
    mq, order = app(storage, name)
    if fails_first:
        broken.add("ship")
    async with mq, mq.worker():
        run = await order.start(5)
        if fails_first:
            await fails(run, "no driver")
        else:
            await run.result(PATIENCE)
        broken.clear()
        calls.clear()
        await run.restart()
        assert await run.result(PATIENCE) == "book!"
        assert [step.name for step in await run.steps()] == ["reserve", "charge", "ship"]
        assert await mq.queue(name).check() == []
    assert calls == [("reserve", "book"), ("charge", 5), ("ship", "book!")]


@dataclass
class Approved:
    by: str


async def test_a_restarted_run_waits_for_its_signal_again(storage: Storage, name: str) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name)
    mq.signal(Approved)

    @mq.workflow
    async def publish() -> str:
        return (await workflows.receive(Approved)).by

    async with mq, mq.worker():
        run = await publish.start()
        await reaches(run, "suspended")
        await run.send(Approved("ada"))
        assert await run.result(PATIENCE) == "ada"
        await run.restart()
        await reaches(run, "suspended")
        await run.send(Approved("bob"))
        assert await run.result(PATIENCE) == "bob"


async def test_an_accepted_run_continues_with_the_changed_code(storage: Storage, name: str) -> None:
    mq, order = app(storage, name)
    broken.add("ship")
    async with mq, mq.worker():
        run = await order.start(5)
        await fails(run, "no driver")
    changed, order = app(storage, name, changed=True)
    broken.clear()
    async with changed, changed.worker():
        job = await changed.queue(name).get_job(run.id)
        assert job is not None
        run = RunHandle(job)
        await run.retry()
        await fails(run, "has changed")
        calls.clear()
        await run.accept()
        assert await run.result(PATIENCE) == "book!"
        assert await changed.queue(name).check() == []
        assert calls == [("charge", 6), ("ship", "book!")]
        with pytest.raises(JobStateError, match="only a failed run can be accepted"):
            await run.accept()


async def test_a_fork_begins_before_a_step(storage: Storage, name: str) -> None:
    mq, order = app(storage, name)
    async with mq, mq.worker():
        run = await order.start(5)
        await run.result(PATIENCE)
        calls.clear()
        fork = await run.fork(before="ship")
        assert await fork.result(PATIENCE) == "book!"
        assert calls == [("ship", "book!")]
        second = await fork.fork(before="charge", id="mine")
        assert (await second.result(PATIENCE), second.id) == ("book!", "mine")
        assert calls[1:] == [("charge", 5), ("ship", "book!")]
        whole = await second.fork()
        assert await whole.result(PATIENCE) == "book!"
        assert len(calls) == 3
        assert await run.state() == "completed"
        assert await mq.queue(name).check() == []


async def test_a_fork_of_a_failed_run_repeats_the_failed_step(storage: Storage, name: str) -> None:
    mq, order = app(storage, name)
    broken.add("charge")
    async with mq, mq.worker():
        run = await order.start(5)
        await fails(run, "declined")
        broken.clear()
        fork = await run.fork()
        assert await fork.result(PATIENCE) == "book!"
        assert await run.state() == "failed"
    assert calls == [("reserve", "book"), ("charge", 5), ("charge", 5), ("ship", "book!")]


async def test_mistakes_are_refused(storage: Storage, name: str) -> None:
    mq, order = app(storage, name)
    async with mq:
        waiting_run = await order.start(5)
        with pytest.raises(JobStateError, match="only a run that has ended can be restarted"):
            await waiting_run.restart()
        with pytest.raises(WorkflowExists, match="choose another id"):
            await waiting_run.fork(id=waiting_run.id)
        async with mq.worker():
            await waiting_run.result(PATIENCE)
        with pytest.raises(ValueError, match="no step 'shop'; its steps are: charge, reserve, ship"):
            await waiting_run.fork(before="shop")


async def test_a_large_journal_is_forked(storage: Storage, name: str) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name)

    @mq.step
    async def load(number: int) -> str:
        calls.append(number)
        return "x" * 5_000

    @mq.workflow
    async def loads() -> int:
        await asyncio.gather(*(load(number) for number in range(600)))
        return 600

    async with mq, mq.worker():
        run = await loads.start()
        await run.result(PATIENCE)
        fork = await run.fork()
        assert await fork.result(PATIENCE) == 600
    assert len(calls) == 600


async def test_a_cancelled_run_undoes_its_steps(storage: Storage, name: str) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name)
    begun = asyncio.Event()

    @mq.step
    async def refund(cents: int) -> None:
        calls.append(("refund", cents))

    @mq.step
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    @mq.workflow
    async def order() -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            await refund(5)
            raise

    async with mq, mq.worker():
        run = await order.start()
        await begun.wait()
        assert not await run.cancel("no longer wanted")
        await fails(run, "revoked: no longer wanted")
        assert [step.name for step in await run.steps()] == ["refund"]
    assert calls == [("refund", 5)]


async def test_a_suspended_run_is_cancelled_at_once(storage: Storage, name: str) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name)

    @mq.workflow
    async def publish() -> object:
        return await workflows.receive()

    async with mq, mq.worker():
        run = await publish.start()
        await reaches(run, "suspended")
        assert await run.cancel()
        await fails(run, "revoked")
