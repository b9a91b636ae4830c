"""A sweep runs no command for a healthy run, and reads the payload of a stalled plain job once."""

from __future__ import annotations

import re

import pytest

from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore

RUNS = 250


async def commands(store: RunningStore, names: bytes = b"xrange|hget|hmget") -> int:
    """Return how many of these commands the server has run."""
    text = await store.ask("INFO", "commandstats")
    assert isinstance(text, bytes)
    return sum(int(calls) for calls in re.findall(rb"cmdstat_(?:" + names + rb"):calls=(\d+)", text))


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


@pytest.mark.parametrize("has_record", [False, True])
async def test_a_sweep_reads_the_entry_of_a_stalled_plain_job_at_most_once(
    queue: AnyQueue, store: RunningStore, *, has_record: bool
) -> None:
    fake_worker = FakeWorker(queue, store)
    await queue.set_dead_letter_queue(f"{queue.name}-dead")
    reads: list[int] = []
    for number in (1, 4):
        await queue.add_bulk([("n", "x" * 10_000)] * number)
        holds = await fake_worker.claim(number)
        for lease in holds if has_record else ():
            await fake_worker.update(lease, "progress", b"\x01")
        await fake_worker.vanish(*holds)
        before = await commands(store, b"xrange")
        await fake_worker.sweep(max_stalled=0)
        reads.append(await commands(store, b"xrange") - before)
    assert reads[1] - reads[0] == (0 if has_record else 3)
    assert (await queue.get_job_counts())["failed"] == 5
