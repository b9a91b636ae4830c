"""A sweep passes over healthy runs without a command for each of them."""

from __future__ import annotations

import re

from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore

RUNS = 250


async def commands(store: RunningStore) -> int:
    """Return the number of reading commands that the server has run."""
    text = await store.ask("INFO", "commandstats")
    assert isinstance(text, bytes)
    return sum(int(calls) for calls in re.findall(rb"cmdstat_(?:xrange|hget|hmget):calls=(\d+)", text))


async def test_healthy_runs_cost_a_sweep_no_commands(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add_bulk([("n", number) for number in range(RUNS)])
    worker, other = FakeWorker(queue, store), FakeWorker(queue, store)
    holds = list[Lease]()
    while len(holds) < RUNS:
        holds += await worker.claim(RUNS - len(holds))
    await worker.sweep()
    # Older than the shortest lease that a worker may have, and younger than the lease of this worker.
    await worker.vanish(*holds, for_ms=5_000)
    before = await commands(store)
    assert await worker.sweep() == []
    assert await commands(store) - before < RUNS / 5
    assert len(holds) == RUNS
    await queue.add("short")
    (short,) = await other.claim(1, lock_ms=2_000)
    await other.vanish(short, for_ms=5_000)
    assert await worker.sweep() == [short.id]
