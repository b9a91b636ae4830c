"""Headers of messages, and the trace from a publish to the jobs of its subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import GlideMQ, PayloadTooLarge, Topic, current_job
from glidemq_async.options.validation import MAX_HEADERS_BYTES
from glidemq_async.storage import Storage
from tests.support.helpers import until
from tests.support.telemetry_recorder import Recorder, attributes


def trace_of(span: Any) -> int:
    found = span.get_span_context()
    assert found is not None
    return int(found.trace_id)


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_the_jobs_of_a_message_are_in_the_trace_of_its_publish(
    storage: Storage, name: str, *, is_bulk: bool
) -> None:
    recorder = Recorder()
    mq: GlideMQ[Any] = GlideMQ(storage, instrumentation=[recorder.telemetry])
    seen: list[Any] = []

    @mq.subscribe(name, name="invoices", start="beginning")
    async def invoice(number: int) -> None:
        seen.append(number)

    @mq.subscribe(name, name="audit", start="beginning")
    async def audit(number: int) -> None:
        seen.append(number)

    async with mq, mq.worker():
        topic = mq.topic(name)
        if is_bulk:
            await topic.publish_many([("order.paid", 1), ("order.paid", 2)])
        else:
            await topic.publish("order.paid", 1)
            await topic.publish("order.paid", 2)
        await until(lambda: len(recorder.spans("process")) == 4)
    origins = recorder.spans(f"create topic/{name}") if is_bulk else recorder.spans(f"send topic/{name}")
    traces = {trace_of(span): 0 for span in origins}
    assert len(traces) == 2
    for span in recorder.spans("process"):
        traces[trace_of(span)] += 1
    assert list(traces.values()) == [2, 2]
    assert {attributes(span)["messaging.destination.name"] for span in origins} == {f"topic/{name}"}
    assert {attributes(span)["glidemq.add.outcome"] for span in origins} == {"added"}


async def test_the_headers_of_a_message_reach_its_jobs(storage: Storage, name: str) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage)
    seen: list[dict[str, str]] = []

    @mq.subscribe(name, name="audit", start="beginning", headers={"tenant": "none", "part": "audit"})
    async def audit(number: int) -> None:
        seen.append(dict(current_job().headers))

    async with mq, mq.worker():
        topic = mq.topic(name)
        entry = await topic.publish("order.paid", 1, headers={"tenant": "7", "subject": "mine"})
        await until(lambda: len(seen) == 1)
        async for message in topic.listen(start="beginning"):
            assert message.headers == {"tenant": "7", "subject": "mine"}
            break
    assert seen == [{"tenant": "7", "part": "audit", "topic": name, "subject": "order.paid", "message_id": entry}]


async def test_large_headers_do_not_hold_up_a_subscription(storage: Storage, name: str) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage)
    seen: list[tuple[int, set[str]]] = []

    @mq.subscribe(name, name="audit", start="beginning", headers={"part": "x" * (MAX_HEADERS_BYTES - 2_000)})
    async def audit(number: int) -> None:
        seen.append((number, set(current_job().headers)))

    async with mq, mq.worker():
        await mq.topic(name).publish("order.paid", 1, headers={"text": "y" * (MAX_HEADERS_BYTES - 4)})
        await mq.topic(name).publish("order.paid", 2)
        await until(lambda: len(seen) == 2)
    own = {"part", "topic", "subject", "message_id"}
    assert sorted(seen) == [(1, own), (2, own)]


async def test_headers_are_checked_before_anything_is_sent(storage: Storage, name: str) -> None:
    async with Topic(name, storage) as topic:
        with pytest.raises(PayloadTooLarge, match="headers"):
            await topic.publish("a", 1, headers={"text": "y" * MAX_HEADERS_BYTES})
        with pytest.raises(TypeError, match="must map str to str"):
            await topic.publish("a", 1, headers={"text": 5})  # type: ignore[dict-item]
        assert (await topic.info()).published == 0


async def test_a_subscription_with_too_large_headers_is_refused(storage: Storage, name: str) -> None:
    mq: GlideMQ[Any] = GlideMQ(storage)

    @mq.subscribe(name, name="audit", headers={"part": "x" * (MAX_HEADERS_BYTES - 100)})
    async def audit(number: int) -> None:
        raise AssertionError(number)

    with pytest.raises(PayloadTooLarge, match="headers of subscription 'audit'"):
        async with mq:
            pass
