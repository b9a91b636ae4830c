"""A queue of layout 1 is converted when a client opens it."""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from asyncio.subprocess import PIPE, STDOUT
from typing import Any

import pytest

from glidemq_async import OldWorkersRunning, Producer, Queue
from glidemq_async.storage import Storage
from tests.migration.old_queue import OldJob, old_queue, options, snapshot
from tests.support.helpers import echo, worker_of
from tests.support.stores import RunningStore


@pytest.mark.everywhere
@pytest.mark.usefixtures("layout1")
async def test_waiting_jobs_of_layout_1_run_in_their_order(storage: Storage, store: RunningStore, name: str) -> None:
    async with old_queue(store, name) as old:
        returned = await old.add([OldJob(number) for number in range(10)])
        leases = await old.claim("old", 5)
        await old.settle("old", leases[3:], "b")
        await old.add([OldJob(number) for number in range(10, 20)])
        urgent = await old.add([OldJob(90, extra=options(priority=1))])
        async with Queue[Any, Any](name, storage) as queue:
            assert await queue.check() == []
            assert await queue.get_job_counts() == await queue.get_job_counts() | {
                "waiting": 17, "active": 3, "prioritized": 1,
            }  # fmt: skip
            started: list[object] = []

            async def note(job: Any) -> None:
                started.append(job.data)

            async with worker_of(queue, note, concurrency=1):
                await queue.add_and_wait("n", "last", wait_timeout=10)
            assert started[:2] == [3, 4]
            assert [one for one in started if isinstance(one, int) and 4 < one < 90] == list(range(5, 20))
            assert returned
            assert urgent
            assert await queue.check() == []


@pytest.mark.usefixtures("layout1")
async def test_a_producer_migrates_a_queue_before_it_adds(storage: Storage, store: RunningStore, name: str) -> None:
    async with old_queue(store, name) as old:
        await old.add([OldJob(1)])
        async with Producer[Any](name, storage) as producer:
            await producer.add("n", 2)
        async with Queue[Any, Any](name, storage) as queue:
            assert [job.data async for job in queue.iter_jobs("waiting")] == [1, 2]
            assert await queue.check() == []


@pytest.mark.everywhere
@pytest.mark.usefixtures("layout1")
async def test_a_running_worker_of_layout_1_keeps_its_queue(storage: Storage, store: RunningStore, name: str) -> None:
    async with old_queue(store, name) as old:
        await old.add([OldJob(1)])
        await old.functions.leases.renew("host-1", b"\x80", [], 0)
        before = await snapshot(store, old)
        for _ in range(2):
            with pytest.raises(OldWorkersRunning, match=r"host-1.*Stop them"):
                await Queue[Any, Any](name, storage).connect()
        assert await snapshot(store, old) == before
        await old.call("closeWorker", "host-1")
        async with Queue[Any, Any](name, storage) as queue, worker_of(queue, echo):
            assert await queue.add_and_wait("n", 7, wait_timeout=10) == 7


async def test_commands_name_the_workers_that_hold_up_a_migration(own: tuple[Storage, RunningStore]) -> None:
    _, store = own
    async with old_queue(store, "q") as old:
        await old.add([OldJob(1)])
        await old.functions.leases.renew("host-1", b"\x80", [], 0)
        code, shown = await _run("doctor", "--deep", "--url", store.url)
        assert code == 1
        assert "host-1" in shown
        assert "the next client that opens the queue migrates it" in shown
        _, shown = await _run("queues", "--url", store.url)
        assert "are running: host-1" in shown
        await old.call("closeWorker", "host-1")
        code, shown = await _run("queues", "--json", "--url", store.url)
        assert code == 0
        [found] = json.loads(shown)["queues"]
        assert (found["name"], found["problem"], found["counts"]["waiting"]) == ("q", None, 1)


async def _run(*words: str) -> tuple[int | None, str]:
    """Run a command. Return its exit code and its output without line breaks."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "glidemq_async", *words, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode, " ".join(output.decode().split())


def test_the_refusal_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(OldWorkersRunning("q", ("w",), 3.2)))
    assert isinstance(error, OldWorkersRunning)
    assert (error.queue, error.workers, error.seconds_ago) == ("q", ("w",), 3.2)
    assert "last sign of life 3 s ago" in str(error)
