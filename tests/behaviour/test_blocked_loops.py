"""A handler that blocks the event loop keeps its job. A worker that cannot renew its leases loses them."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any, Self

import pytest

from glidemq_async import Job, LeaseLost, Queue, Worker
from glidemq_async._internal import failpoints
from glidemq_async.storage import MemoryStorage, Storage
from tests.support.helpers import PATIENCE, AnyJob, Gate, Heard, ended, soon, until, worker_of


class Elsewhere:
    """A worker in a separate thread and event loop, as in another process."""

    def __init__(self, storage: Storage, queue: str, handler: Any) -> None:
        self._storage = storage
        self._queue = queue
        self._handler = handler
        self._up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker[Any, Any] | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._storage:
            self._worker = Worker(self._queue, self._handler, self._storage, lock_duration=1, handle_signals=False)
            running = asyncio.create_task(self._worker.run())
            self._up.set()
            await running

    async def __aenter__(self) -> Self:
        self._thread.start()
        await asyncio.to_thread(self._up.wait, 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._worker is not None
        self._loop.call_soon_threadsafe(self._worker.stop)
        await asyncio.to_thread(self._thread.join, 10)


async def test_a_blocked_loop_does_not_lose_its_job() -> None:
    runs: list[str] = []

    async def block(job: AnyJob) -> str:
        runs.append("here")
        time.sleep(2.2)  # noqa: ASYNC251 - the test needs a blocked loop
        return "here"

    async def there(job: Job[Any, Any]) -> str:
        runs.append("there")
        return "there"

    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        async with worker_of(queue, block, lock_duration=1):
            job = await queue.add("n")
            await until(lambda: bool(runs))
            async with Elsewhere(storage.clone(), "q", there):
                assert await job.result(10) == "here"
        await job.refresh()
        assert (runs, job.stalled_count, job.fence) == (["here"], 0, 1)
        assert await queue.check() == []


async def test_a_worker_that_cannot_renew_stops_claiming_and_its_job_runs_elsewhere() -> None:
    gate = Gate()
    cut_off = threading.Event()
    first_thread = threading.get_ident()

    def fail_here() -> None:
        if cut_off.is_set():
            raise OSError("cut off")

    async def there(job: Job[Any, Any]) -> str:
        return "there"

    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        worker = worker_of(queue, gate, lock_duration=1, shutdown_timeout=0)
        errors, lost = Heard(worker, "error"), Heard(worker, "lease_lost")
        failpoints.arm("renew.before_send", fail_here)
        try:
            await worker.start()
            job = await queue.add("n", 1)
            held = await gate.running()
            cut_off.set()
            while True:
                [error] = await errors.next()
                if isinstance(error, LeaseLost):
                    break
            later = await queue.add("n", 2)
            await asyncio.sleep(0.1)
            assert gate.started.empty()  # it claims nothing while it cannot renew
            takeover = worker_of(queue, there, lock_duration=1)
            await takeover.start()
            assert await later.result(10) == "there"
            assert await job.result(10) == "there"
            cut_off.clear()
            assert (await gate.stopped()).abort.reason == "lease lost"
            assert (await lost.next())[0].id == held.id
            await takeover.close()
            await worker.close()
        finally:
            failpoints.disarm()
        await job.refresh()
        assert (job.state, job.stalled_count, job.fence) == ("completed", 1, 2)
        assert threading.get_ident() == first_thread
        assert await queue.check() == []


async def test_the_lease_of_a_job_is_renewed_at_its_own_interval() -> None:
    """The worker's lease is long, and the lease of the job is short."""

    async def long(job: AnyJob) -> str:
        await asyncio.sleep(1.6)
        return "done"

    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        async with worker_of(queue, long, lock_duration=60):
            job = await queue.add("n", lock_duration=1)
            async with worker_of(queue, long, lock_duration=1):
                await soon(ended(job))
        assert (job.state, job.stalled_count) == ("completed", 0)


@pytest.mark.parametrize("name", ["add.nonsense", ""])
def test_an_unknown_failpoint_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown failpoint"):
        failpoints.arm(name, lambda: None)


def blocking_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "glidemq_async.worker.loop_watch"]


async def test_a_handler_that_blocks_the_loop_is_reported_once_during_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    async def sleepy(job: AnyJob) -> None:
        began = time.monotonic()
        # The warning comes late if the host pauses.
        while time.monotonic() - began < (2.8 if blocking_warnings(caplog) else PATIENCE):
            time.sleep(0.05)  # noqa: ASYNC251 - the test needs a blocked loop
        seen.append(len(blocking_warnings(caplog)))

    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue, worker_of(queue, sleepy):
        for _ in range(2):
            await queue.add_and_wait("report", wait_timeout=PATIENCE)
    (warning,) = blocking_warnings(caplog)
    assert re.search(r"the handler of job 'report' of queue 'q' has blocked the event loop for [12]\.", warning)
    assert "test_blocked_loops.py" in warning
    assert "in sleepy" in warning
    assert "asyncio.to_thread" in warning
    assert seen == [1, 1], "the block must be logged while it lasts"


async def test_a_handler_that_awaits_for_long_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def patient(job: AnyJob) -> None:
        await asyncio.sleep(1.8)

    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue:
        async with worker_of(queue, patient), worker_of(queue, patient):
            await queue.add_and_wait("report", wait_timeout=10)
        assert not [thread for thread in threading.enumerate() if thread.name == "glidemq-leases"]
    assert blocking_warnings(caplog) == []
