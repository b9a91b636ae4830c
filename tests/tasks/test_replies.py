"""The sender of a signal waits for the reply of the run, which is recorded once and found whenever it was made."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from glidemq_async import (
    GlideMQ,
    JobNotFound,
    JobStateError,
    NoReply,
    ResultTimeout,
    RunHandle,
    Workflow,
    workflows,
)
from glidemq_async.client.job_tail import Feed
from glidemq_async.storage import Storage
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, soon, until

calls: list[Any] = []


@dataclass
class Approve:
    by: str


class Verdict(NamedTuple):
    approved: bool
    round: int


@pytest.fixture(autouse=True)
def forget_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name)
    mq.signal(Approve)
    mq.signal(Verdict)
    return mq


def order_of(mq: GlideMQ[Any]) -> Workflow[[], str]:
    """Return a workflow that replies to `Approve` and to signals "ask", until it gets "end"."""

    @mq.workflow(attempts=20)
    async def order() -> str:
        rounds = 0
        while True:
            asked = await workflows.receive(Approve, "ask", "end")
            if isinstance(asked, Approve):
                await workflows.reply(asked, Verdict(asked.by == "ada", rounds))
            elif asked.name == "end":
                return f"{rounds} rounds"
            elif asked.data != "silence":
                await workflows.reply(asked, {"echo": asked.data})
            rounds += 1

    return order


@pytest.mark.everywhere
async def test_a_sender_gets_the_reply_of_the_run(mq: GlideMQ[Any], name: str) -> None:
    order = order_of(mq)
    async with mq, mq.worker():
        run = await order.start()
        assert await run.send_and_wait(Approve("ada"), timeout=PATIENCE) == {"approved": True, "round": 0}
        verdict = await run.job.send_and_wait(Approve("eve"), timeout=PATIENCE, reply_type=Verdict)
        assert verdict == Verdict(approved=False, round=1)
        # Each of several senders gets its own reply.
        asked = [mq.queue(name).send_and_wait(run.id, "ask", n, timeout=PATIENCE) for n in range(5)]
        assert await asyncio.gather(*asked) == [{"echo": n} for n in range(5)]
        await run.signal("ask", "nobody waits")
        await run.signal("end")
        assert await run.result(PATIENCE) == "8 rounds"
        replies = [step for step in await run.steps() if step.name == "workflow.reply"]
        assert len(replies) == 7
        assert not await mq.queue(name).check()


@pytest.mark.everywhere
async def test_a_repeated_call_finds_the_recorded_reply(mq: GlideMQ[Any]) -> None:
    order = order_of(mq)
    async with mq:
        run = await order.start()
        with pytest.raises(ResultTimeout, match=r"has not replied to signal 'ask' within 1\.0 s"):
            await run.send_and_wait("ask", 1, timeout=1, once="delivery 1")
        async with mq.worker():
            await run.signal("end")
            await run.result(PATIENCE)
        # The run has ended, and nobody listened when it replied.
        assert await run.send_and_wait("ask", 1, timeout=PATIENCE, once="delivery 1") == {"echo": 1}
        with pytest.raises(JobStateError, match="completed"):
            await run.send_and_wait("ask", 1, timeout=PATIENCE)
        with pytest.raises(JobStateError, match="completed"):
            await run.send_and_wait("ask", 1, timeout=PATIENCE, once="delivery 2")
        with pytest.raises(JobNotFound):
            await mq.queue(order.queue).send_and_wait("nobody", "ask", timeout=PATIENCE)


@pytest.mark.parametrize("end", ["completed", "failed", "removed"])
async def test_a_run_that_ends_without_a_reply_ends_the_wait(mq: GlideMQ[Any], end: str) -> None:
    order = order_of(mq)
    async with mq, mq.worker():
        run = await order.start()
        asked = asyncio.create_task(run.send_and_wait("ask", "silence", timeout=PATIENCE))
        async with asyncio.timeout(PATIENCE):
            async for update in run.job.watch():
                if update.state == "suspended" and await run.steps():
                    break
        if end == "completed":
            await run.signal("end")
        elif end == "failed":
            await run.cancel()
        else:
            await run.job.remove()
        with pytest.raises(NoReply, match=rf"is {end} and has not replied to signal 'ask'"):
            await asked


async def test_a_run_that_is_removed_with_its_journal_has_still_replied(mq: GlideMQ[Any]) -> None:
    @mq.workflow(keep_completed=False)
    async def order() -> None:
        await workflows.reply(await workflows.receive("ask"), "x" * 50_000)

    async with mq, mq.worker():
        for _ in range(10):
            run = await order.start()
            assert len(await run.send_and_wait("ask", timeout=PATIENCE)) == 50_000


async def test_a_reply_is_recorded_once_although_runs_are_repeated(mq: GlideMQ[Any]) -> None:
    @mq.workflow(attempts=5)
    async def order() -> str:
        asked = await workflows.receive("ask")
        calls.append(asked.question)
        if len(calls) == 1:
            raise RuntimeError("before the reply")
        await workflows.reply(asked, len(calls))
        await workflows.reply(asked, "the second reply does not count")
        if len(calls) < 4:
            raise RuntimeError("after the reply")
        return "done"

    async with mq, mq.worker():
        run = await order.start()
        assert await run.send_and_wait("ask", timeout=PATIENCE) == 2
        assert await run.result(PATIENCE) == "done"
        assert len(calls) == 4
        assert len(set(calls)) == 1
        assert [step.result for step in await run.steps() if step.name == "workflow.reply"] == [2]


async def test_a_large_reply_is_read_from_the_journal(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> None:
        await workflows.reply(await workflows.receive("ask"), "x" * 200_000)

    async with mq, mq.worker():
        run = await order.start()
        assert len(await run.send_and_wait("ask", timeout=PATIENCE)) == 200_000


async def test_a_thread_waits_for_a_reply(mq: GlideMQ[Any]) -> None:
    order = order_of(mq)
    async with mq, mq.worker():
        run = await order.start()
        job = run.job
        assert await asyncio.to_thread(job.sync.send_and_wait, "ask", 5, timeout=PATIENCE) == {"echo": 5}


async def test_wrong_uses_are_refused(mq: GlideMQ[Any]) -> None:
    @mq.workflow
    async def order() -> list[str]:
        said: list[str] = []
        for wrong in (1, "ask"):
            with pytest.raises(TypeError, match="is not a signal") as caught:
                await workflows.reply(wrong)
            said.append(str(caught.value))
        return said

    async with mq, mq.worker():
        run = await order.start()
        for call in (
            run.send_and_wait(object(), timeout=1),
            run.send_and_wait(Approve("ada"), {"by": "eve"}, timeout=1),
            run.send_and_wait("ask", timeout=1, reply_type=int),
        ):
            with pytest.raises(TypeError):
                await call
        with pytest.raises(ValueError, match="timeout"):
            await run.send_and_wait("ask", timeout=-1)
        assert len(await run.result(PATIENCE)) == 2
    with pytest.raises(RuntimeError, match="outside of a workflow"):
        await workflows.reply(Approve("ada"))


async def test_a_sender_that_leaves_ends_its_subscription(mq: GlideMQ[Any]) -> None:
    order = order_of(mq)
    async with mq:
        run: RunHandle[str] = await order.start()
        asked = asyncio.create_task(run.send_and_wait("ask", 1))
        while not await mq.queue(order.queue).get_mailbox(run.id):  # noqa: ASYNC110 - another call sends it
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(asked)
        [waiting_signal] = await mq.queue(order.queue).get_mailbox(run.id)
        assert waiting_signal.question is not None


@pytest.mark.parametrize("turns", range(4))
async def test_a_sender_is_cancelled_at_any_moment_of_the_confirmation(
    mq: GlideMQ[Any], monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """On Python 3.11, `asyncio.wait_for` loses a cancellation that comes together with the end of its wait."""
    feeds: list[Feed] = []

    def note(feed: Feed, _is_up: bool) -> None:
        feeds.append(feed)

    monkeypatch.setattr(Feed, "_on_change", note)
    order = order_of(mq)
    async with mq:
        run: RunHandle[str] = await order.start()
        asked = asyncio.create_task(run.send_and_wait("ask", 1))
        await until(lambda: bool(feeds))
        feeds[0].confirmed.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait([asked], timeout=PATIENCE / 3)
        assert asked.cancelled()
