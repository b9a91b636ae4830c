"""The gauges of OpenTelemetry for queues: they are read when the SDK collects, in the event loop of the queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import Queue, StorageUnavailable
from glidemq_async.instrumentation import QueueDepth
from glidemq_async.storage import Storage
from glidemq_async.telemetry import queue_gauges
from tests.support.dead_letters import hopeless, run_all
from tests.support.helpers import AnyQueue, Gate, worker_of
from tests.support.recording_storage import Relay
from tests.support.telemetry_recorder import Recorder


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_gauges, "_FRESH_SECONDS", 0.0)


async def collect(recorder: Recorder, metric: str) -> dict[tuple[str, str], float]:
    """Collect like the SDK: in another thread than the event loop."""
    return await asyncio.to_thread(recorder.gauges, metric)


async def test_the_depth_of_a_queue_is_collected(storage: Storage, name: str) -> None:
    recorder, gate = Recorder(), Gate()
    async with Queue[Any, Any](name, storage) as queue:
        await queue.add("n")
        await run_all(queue, hopeless)
        await queue.add("n", delay=60)
        async with worker_of(queue, gate, concurrency=2, instrumentation=[recorder.telemetry]):
            for _ in range(3):
                await queue.add("n")
            for _ in range(2):
                await gate.running()
            jobs = {state: n for (_, state), n in (await collect(recorder, "glidemq.queue.jobs")).items() if n}
            assert jobs == {"active": 2, "waiting": 1, "delayed": 1, "failed": 1}
            assert await collect(recorder, "glidemq.queue.workers") == {(name, ""): 1}
            [age] = (await collect(recorder, "glidemq.queue.oldest.age")).values()
            assert 0 <= age < 60
            gate.release()
        # The worker has stopped, so its queue is forgotten.
        assert await collect(recorder, "glidemq.queue.jobs") == {}


async def test_a_watched_queue_needs_no_worker(queue: AnyQueue) -> None:
    recorder = Recorder()
    recorder.telemetry.watch(queue.name, queue.get_depth)
    await queue.add("n")
    await asyncio.sleep(0.02)
    [age] = (await collect(recorder, "glidemq.queue.oldest.age")).values()
    assert 0.02 <= age < 60
    assert await collect(recorder, "glidemq.queue.workers") == {(queue.name, ""): 0}


async def test_a_queue_that_cannot_be_read_is_left_out(queue: AnyQueue) -> None:
    recorder = Recorder()

    async def away() -> QueueDepth:
        raise StorageUnavailable("gone")

    recorder.telemetry.watch("elsewhere", away)
    recorder.telemetry.watch(queue.name, queue.get_depth)
    assert await collect(recorder, "glidemq.queue.workers") == {(queue.name, ""): 0}


async def test_a_collection_in_the_event_loop_does_not_block_it(queue: AnyQueue) -> None:
    recorder = Recorder()
    recorder.telemetry.watch(queue.name, queue.get_depth)
    await queue.add("n")
    assert recorder.gauges("glidemq.queue.jobs") == {}
    assert (await collect(recorder, "glidemq.queue.jobs"))[queue.name, "waiting"] == 1
    # It has the figures of the reading before.
    await queue.add("n")
    assert recorder.gauges("glidemq.queue.jobs")[queue.name, "waiting"] == 1
    assert (await collect(recorder, "glidemq.queue.jobs"))[queue.name, "waiting"] == 2


async def test_a_blocked_event_loop_delays_a_collection_for_a_limited_time(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_gauges, "_WAIT_SECONDS", 0.05)
    recorder, reading = Recorder(), asyncio.Event()

    async def slow() -> QueueDepth:
        await reading.wait()
        return await queue.get_depth()

    recorder.telemetry.watch(queue.name, slow)
    assert await collect(recorder, "glidemq.queue.workers") == {}
    monkeypatch.setattr(queue_gauges, "_WAIT_SECONDS", 10)
    reading.set()
    assert await collect(recorder, "glidemq.queue.workers") == {(queue.name, ""): 0}


async def test_nothing_is_read_between_collections(storage: Storage, name: str) -> None:
    recorder, recording = Recorder(), Relay(storage)
    async with Queue[Any, Any](name, recording) as queue:
        recorder.telemetry.watch(name, queue.get_depth)
        await queue.add("n")
        assert "summarize" not in recording.calls
        await collect(recorder, "glidemq.queue.workers")
        assert recording.calls.count("summarize") == 3


def test_a_queue_is_watched_in_its_event_loop() -> None:
    async def read() -> QueueDepth:
        return QueueDepth({}, None, 0)

    with pytest.raises(RuntimeError, match="no running event loop"):
        Recorder().telemetry.watch("q", read)
