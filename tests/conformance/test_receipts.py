"""Awaited results and retention: a result is kept until it was received, then as long as the queue keeps results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.client import result_listener
from glidemq_async.client.result_listener import ResultListener
from glidemq_async.storage import Storage
from tests.support.clocked_queue import MINUTE, Timed
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, counts, echo, soon, worker_of
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore

REPLIES_MAX = 1_000


async def reached(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a state of the server that no message announces."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def many(queue: AnyQueue, number: int, **options: Any) -> list[Any]:
    """Return the results of this many awaited jobs, 50 of them concurrently."""
    values: list[Any] = []
    for start in range(0, number, 50):
        asked = range(start, min(start + 50, number))
        values += await asyncio.gather(*(queue.add_and_wait("n", n, wait_timeout=PATIENCE, **options) for n in asked))
    return values


def _unheard(*_details: object) -> None:
    pass


async def bytes_of(job: AnyJob) -> bytes:
    return b"r" * int(job.data)


@pytest.mark.everywhere
@pytest.mark.parametrize(("keep", "left"), [(False, 0), (7, 7)])
async def test_awaited_jobs_are_kept_by_their_retention(
    queue: AnyQueue, store: RunningStore, keep: bool | int, left: int
) -> None:
    async with worker_of(queue, echo, concurrency=20):
        assert await many(queue, 200, keep_completed=keep) == list(range(200))

    async def trimmed() -> bool:
        return (await counts(queue)).get("completed", 0) == left

    await reached(trimmed)  # no worker is left that could sweep
    of_jobs = [key for key in await store.keys() if key.startswith(f"glide:{{{queue.name}}}:job:")]
    assert len(of_jobs) <= left  # a job whose end needs no record has none
    assert await queue.check() == []


async def test_closing_a_queue_confirms_the_received_results(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as worked, worker_of(worked, echo):
        async with Queue[Any, Any](name, storage) as queue:
            assert await queue.add_and_wait("n", 1, keep_completed=False, wait_timeout=PATIENCE) == 1
        assert await counts(worked) == {}


@pytest.mark.everywhere
async def test_a_result_whose_message_was_lost_is_still_stored(
    storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_listener, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(ResultListener, "_on_message", _unheard)
    async with Queue[Any, Any](name, storage) as queue, worker_of(queue, echo, concurrency=20):
        assert await many(queue, 20, keep_completed=False) == list(range(20))

        async def gone() -> bool:
            return await counts(queue) == {}

        await reached(gone)


async def test_no_result_is_lost_while_links_break(
    queue: AnyQueue, store: RunningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_listener, "RECHECK_SECONDS", 0.2)

    async def cut() -> None:
        while True:
            await store.command("CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.sleep(0.02)

    async with worker_of(queue, echo, concurrency=20):
        cutting = asyncio.create_task(cut())
        try:
            assert await many(queue, 300, keep_completed=False) == list(range(300))
        finally:
            cutting.cancel()


@pytest.mark.parametrize("size", [70_000, 900_000])
async def test_a_large_result_is_read_and_then_removed(queue: AnyQueue, size: int) -> None:
    async with worker_of(queue, bytes_of):
        assert await queue.add_and_wait("n", size, keep_completed=False, wait_timeout=PATIENCE) == b"r" * size

        async def gone() -> bool:
            return await counts(queue) == {}

        await reached(gone)


async def test_one_receipt_does_not_remove_the_result_for_others(
    storage: Storage, name: str, store: RunningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(result_listener, "RECHECK_SECONDS", 0.5)
    async with Queue[Any, Any](name, storage) as one, Queue[Any, Any](name, storage) as other, worker_of(one, gate):
        job = await one.add("n", 1, keep_completed=False)
        there = await other.get_job(job.id)
        assert there is not None
        listener = other._client.results  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(listener, "_on_message", _unheard)
        waiting = [asyncio.create_task(job.result(PATIENCE)), asyncio.create_task(there.result(PATIENCE))]
        await gate.running()

        async def both_wait() -> bool:
            channels = await store.ask("HGET", f"glide:{{{name}}}:waiters", job.id)
            return isinstance(channels, bytes) and len(channels.split()) == 2

        await reached(both_wait)
        gate.release()
        assert await asyncio.gather(*waiting) == [1, 1]


async def test_an_id_can_be_used_again_after_its_result_was_received(queue: AnyQueue) -> None:
    runs: list[object] = []

    async def note(job: AnyJob) -> int:
        runs.append(job.data)
        return len(runs)

    async with worker_of(queue, note):
        for number in range(1, 6):
            value = await queue.add_and_wait("n", job_id="a", keep_completed=False, wait_timeout=PATIENCE)
            assert value == number


async def test_an_id_can_be_used_again_while_its_receipt_is_on_its_way(storage: Storage, name: str) -> None:
    """The add must not overtake the receipt. It would find the record of the earlier job."""
    relay, sent, go_on = Relay(storage), asyncio.Event(), asyncio.Event()

    async def hold(function: str, _args: object) -> None:
        if function == "confirmReplies":
            sent.set()
            await go_on.wait()

    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo):
        options: dict[str, Any] = {"job_id": "a", "keep_completed": False, "wait_timeout": PATIENCE}
        assert await queue.add_and_wait("n", 1, **options) == 1
        relay.before_call = hold
        await soon(sent.wait())
        relay.calls.clear()
        again = asyncio.create_task(queue.add_and_wait("n", 2, **options))
        for _ in range(3):
            await queue.is_paused()
        assert not [call for call in relay.calls if call.startswith("add")]
        go_on.set()
        assert await again == 2


async def test_unconfirmed_results_are_bounded_and_expire(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResultListener, "_confirm", _unheard)
    queue = timed.queue
    async with worker_of(queue, echo, concurrency=100):
        await many(queue, REPLIES_MAX + 200, keep_completed=False)
        assert await counts(queue) == {"completed": REPLIES_MAX}
        await timed.clock.advance(2 * MINUTE)
        await queue.add("n", 1, keep_completed=True)

        async def released() -> bool:
            return await counts(queue) == {"completed": 1}

        await reached(released)
    assert await queue.check() == []


async def test_a_time_to_live_set_before_the_receipt_applies(timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_listener, "CONFIRM_SECONDS", MINUTE)
    queue = timed.queue
    async with worker_of(queue, echo):
        job = await queue.add("n", 5, keep_completed=3)
        assert await job.result(PATIENCE) == 5
        await queue.update_result_ttl(job.id, 600)
        await queue._client.results.confirm_before(job.id)  # pyright: ignore[reportPrivateUsage]
    assert await job.result(PATIENCE) == 5
    await timed.clock.advance(11 * MINUTE)
    assert await queue.get_job(job.id) is None
