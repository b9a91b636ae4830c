"""The part of a process that fires schedulers: its cost, its errors, and its end with its queue."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from glidemq_async import Queue, QueueClosed, QueueFull, StorageUnavailable
from glidemq_async.client import scheduler_runner
from glidemq_async.storage import Arg, Storage
from tests.support.helpers import AnyQueue, Reader, echo, listening, soon, until, worker_of
from tests.support.recording_storage import Relay

FAR: dict[str, Any] = {"cron": "0 0 1 1 *"}
PLACES = pytest.mark.only_on("memory")


@pytest.fixture
def relay(storage: Storage) -> Relay:
    return Relay(storage)


@pytest.fixture
async def events(storage: Storage, name: str) -> AsyncIterator[Reader]:
    """The events of the queue, read without the recording storage."""
    async with Queue[Any, Any](name, storage) as queue, listening(queue) as reader:
        yield reader


class Trouble:
    """Fails some calls of one function."""

    def __init__(self, relay: Relay, function: str, error: Exception, times: int, *, after: bool = False) -> None:
        self.left = times
        self._function, self._error = function, error
        if after:
            relay.after_call = self._after
        else:
            relay.before_call = self._before

    async def _before(self, function: str, _args: Sequence[Arg]) -> None:
        if function == self._function and self.left:
            self.left -= 1
            raise self._error

    async def _after(self, function: str, args: Sequence[Arg], _reply: Any) -> None:
        await self._before(function, args)


def for_schedulers(relay: Relay) -> list[str]:
    """Return the calls about schedulers."""
    return [call for call in relay.calls if "chedule" in call]


@PLACES
@pytest.mark.parametrize("scheduled", [False, True])
async def test_only_a_queue_with_schedulers_makes_calls_for_them(
    relay: Relay, storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch, scheduled: bool
) -> None:
    monkeypatch.setattr(scheduler_runner, "FIRST_LOOK", (0.05, 0.1))
    monkeypatch.setattr(scheduler_runner, "BEHIND", (0.05, 0.1))
    if scheduled:
        async with Queue[Any, Any](name, storage) as maker:
            await maker.upsert_job_scheduler("s", **FAR)
    # With a short lease the worker sweeps several times during the test, and each sweep returns the next fire time.
    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo, lock_duration=1):
        assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
        await until(lambda: relay.calls.count("sweep") >= 5)
        if scheduled:
            await until(lambda: bool(for_schedulers(relay)))
    assert bool(for_schedulers(relay)) == scheduled


@PLACES
async def test_waiting_schedulers_cost_one_call_per_patrol(
    relay: Relay, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_runner, "PATROL", (0.2, 0.2))
    rounds = defaultdict[Arg, list[float]](list)
    enough = asyncio.Event()

    async def note(function: str, args: Sequence[Arg]) -> None:
        if function == "takeSchedules":
            times = rounds[args[0]]  # of one process
            times.append(asyncio.get_running_loop().time())
            if len(times) == 4:
                enough.set()

    async with Queue[Any, Any](name, relay) as queue, worker_of(queue, echo):
        await queue.upsert_job_scheduler("s", **FAR)
        relay.before_call = note
        await soon(enough.wait())
        relay.before_call = None
    for times in rounds.values():
        assert all(after - before > 0.19 for before, after in pairwise(times)), times


@PLACES
async def test_firing_continues_after_an_outage_of_the_server(
    relay: Relay, name: str, events: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    async with Queue[Any, Any](name, relay) as queue:
        trouble = Trouble(relay, "takeSchedules", StorageUnavailable("away"), 2)
        await queue.upsert_job_scheduler("s", every=0.3, missed="fire-all")
        assert (await events.next()).kind == "added"
        assert trouble.left == 0
        await queue.remove_job_scheduler("s")
    assert any(line.startswith(f"could not fire the schedulers of queue {name}; ") for line in caplog.messages)


@PLACES
async def test_a_fire_time_that_found_the_queue_full_is_fired_later(relay: Relay, name: str, events: Reader) -> None:
    async with Queue[Any, Any](name, relay) as queue:
        trouble = Trouble(relay, "fireSchedulers", QueueFull("full"), 1)
        made = await queue.upsert_job_scheduler("s", every=0.3, missed="fire-all", limit=2)
        assert made.next_at is not None
        event = await events.next()
        assert event.job_id == f"s@{round(made.next_at.timestamp() * 1000)}"
        assert trouble.left == 0


@PLACES
async def test_a_firing_whose_reply_was_lost_is_not_repeated(relay: Relay, name: str, events: Reader) -> None:
    async with Queue[Any, Any](name, relay) as queue:
        trouble = Trouble(relay, "fireSchedulers", StorageUnavailable("lost"), 2, after=True)
        await queue.upsert_job_scheduler("s", every=0.5, limit=4, missed="fire-all")
        ids = [(await events.next()).job_id for _ in range(4)]
        assert len(set(ids)) == 4
        assert trouble.left == 0
        found = await queue.get_job_scheduler("s")
    assert found is not None
    assert found.fired == 4


@PLACES
async def test_closing_does_not_wait_for_a_server(relay: Relay, name: str) -> None:
    queue: AnyQueue = Queue(name, relay)
    await queue.upsert_job_scheduler("s", every=0.01)
    reached = asyncio.Event()

    async def hang(function: str, _args: Sequence[Arg]) -> None:
        if function in ("takeSchedules", "fireSchedulers", "leaveSchedules"):
            reached.set()
            await asyncio.sleep(60)

    relay.before_call = hang
    await soon(reached.wait())
    await soon(queue.close(), 5)
    with pytest.raises(QueueClosed):
        await queue.add("n")


@PLACES
async def test_a_queue_that_is_not_closed_can_be_collected(storage: Storage, name: str) -> None:
    queue: AnyQueue | None = Queue(name, storage)
    assert queue is not None
    await queue.upsert_job_scheduler("s", **FAR)
    gone = weakref.ref(queue)
    del queue

    def collected() -> bool:
        gc.collect()
        return gone() is None

    await until(collected)
