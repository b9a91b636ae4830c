"""Spans of workflows: one trace over the runs, their steps, their waits and the jobs that they add."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from glidemq_async import Backoff, GlideMQ, workflows
from glidemq_async.storage import Storage
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, until
from tests.support.telemetry_recorder import Recorder, attributes


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def mq(storage: Storage, name: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> GlideMQ[Any]:
    monkeypatch.setattr(waiting, "GRACE", 0.02)
    return GlideMQ(storage, queue=name, instrumentation=[recorder.telemetry])


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def own_id(span: ReadableSpan) -> int:
    found = span.get_span_context()
    assert found is not None
    return found.span_id


@dataclass
class Approved:
    by: str


@pytest.mark.parametrize("warm_runs", [0, 10])
async def test_one_trace_covers_runs_steps_waits_and_children(
    mq: GlideMQ[Any], recorder: Recorder, warm_runs: int
) -> None:
    mq.signal(Approved)
    failures = [RuntimeError("try again")]

    @mq.step
    async def reserve(item: str) -> str:
        return item

    @mq.step
    async def pay(cents: int) -> int:
        if failures:
            raise failures.pop()
        return cents

    @mq.task
    async def mail(to: str) -> str:
        return to

    @mq.workflow(attempts=2, backoff=Backoff.fixed(0.01))
    async def order() -> str:
        await asyncio.gather(reserve("book"), reserve("pen"))
        approved = await workflows.receive(Approved)
        await pay(5)
        await mail.options(job_id="the-mail").add(approved.by)
        return approved.by

    async with mq, mq.worker(warm_runs=warm_runs):
        run = await order.start()
        async with asyncio.timeout(PATIENCE):
            async for update in run.job.watch():
                if update.state == "suspended":
                    break
        await run.send(Approved("ada"))
        assert await run.result(PATIENCE) == "ada"
        await until(lambda: len(recorder.spans("process")) == 4)
    runs = [span for span in recorder.spans("process") if attributes(span)["messaging.message.id"] == run.id]
    assert [attributes(span)["glidemq.job.outcome"] for span in runs] == ["suspended", "retrying", "completed"]
    assert len({span.context.trace_id for span in recorder.spans() if span.context}) == 1
    reserved, paid = recorder.spans("step reserve"), recorder.spans("step pay")
    assert [parent_of(span) for span in reserved] == [own_id(runs[0])] * 2
    # A function that waits is inside of the span of its wait, which belongs to the run in which the wait began.
    assert [parent_of(span) for span in paid] == [own_id(runs[0 if warm_runs else 1]), own_id(runs[2])]
    assert [span.status.status_code for span in paid] == [StatusCode.ERROR, StatusCode.UNSET]
    assert attributes(reserved[0]) == {"glidemq.step.name": "reserve", "messaging.message.id": run.id}
    [sent] = [span for span in recorder.spans("send") if attributes(span)["messaging.message.id"] == "the-mail"]
    assert parent_of(sent) == own_id(runs[2])


@pytest.mark.parametrize("warm_runs", [0, 10])
async def test_called_tasks_are_in_the_trace_of_the_run(mq: GlideMQ[Any], recorder: Recorder, warm_runs: int) -> None:
    gate = asyncio.Event()

    @mq.step
    async def crop(size: int) -> int:
        return size

    @mq.task
    async def resize(size: int) -> int:
        await gate.wait()
        return size

    @mq.workflow
    async def outer() -> int:
        first, second = await asyncio.gather(resize.call(1), resize.call(2))
        return await inner.task.call(first + second)

    @mq.workflow
    async def inner(size: int) -> int:
        await workflows.receive("go")
        return await crop(size)

    async with mq, mq.worker(warm_runs=warm_runs):
        run = await outer.start()
        async with asyncio.timeout(PATIENCE):
            async for update in run.job.watch():
                if update.state == "suspended":
                    break
        gate.set()
        found: list[Any] = []
        while not found:
            found = [job for job in await mq.queue(outer.queue).get_jobs("suspended") if job.name == "inner"]
            await asyncio.sleep(0.01)
        await found[0].signal("go")
        assert await run.result(PATIENCE) == 3
    spans = {own_id(span): span for span in recorder.spans()}
    assert len({span.context.trace_id for span in spans.values() if span.context}) == 1
    processed = Counter(attributes(span)["messaging.message.id"] for span in recorder.spans("process"))
    assert len(processed) == 4
    [root] = [span for span in spans.values() if span.parent is None]
    for span in spans.values():
        at = span
        while at is not root:
            at = spans[parent_of(at)]
    [cropped] = recorder.spans("step crop")
    assert attributes(cropped)["messaging.message.id"] == found[0].id


async def test_a_step_of_a_thread_has_a_span_in_its_run(mq: GlideMQ[Any], recorder: Recorder) -> None:
    @mq.step
    def count(limit: int) -> int:
        return limit

    @mq.workflow
    async def outer() -> int:
        return await asyncio.to_thread(count.sync, 3)

    async with mq, mq.worker():
        run = await outer.start()
        assert await run.result(PATIENCE) == 3
        await until(lambda: bool(recorder.spans("process")))
    [process] = recorder.spans("process")
    [step] = recorder.spans("step count")
    assert parent_of(step) == own_id(process)


async def test_a_step_that_is_cancelled_has_no_error(mq: GlideMQ[Any], recorder: Recorder) -> None:
    limits: list[asyncio.Timeout] = []

    @mq.step
    async def hang() -> None:
        limits[0].reschedule(asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    @mq.workflow
    async def outer() -> str:
        try:
            async with asyncio.timeout(PATIENCE) as limit:
                limits.append(limit)
                await hang()
        except TimeoutError:
            return "late"
        return "in time"

    async with mq, mq.worker():
        run = await outer.start()
        assert await run.result(PATIENCE) == "late"
    [step] = recorder.spans("step hang")
    assert step.status.status_code == StatusCode.UNSET
