"""The ordering key and the slot of a removed job stay held until its run has ended, or its lease has expired."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import BatchOptions, JobOptions
from glidemq_async.executors import SubprocessExecutor
from tests.executors.handlers import hold_lock
from tests.support.clocked_queue import SECOND, Timed
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyJob, AnyQueue, Heard, counts, ended, idle, soon, until, worker_of

KEYED = pytest.mark.parametrize("limit", ["key", "key of 2", "queue"])


async def removed_runs(timed: Timed, limit: str) -> list[Lease]:
    """Remove all runs of a limit that is full, with two more jobs waiting behind it."""
    most = 2 if limit == "key of 2" else 1
    if limit == "queue":
        await timed.queue.set_global_concurrency(most)
    elif most > 1:
        await timed.queue.set_key_limits("k", concurrency=most)
    key = None if limit == "queue" else "k"
    await timed.queue.add_bulk([(name, None, JobOptions(key=key)) for name in "abcd"[: most + 2]])
    leases = await timed.fake_worker.claim(10)
    assert len(leases) == most
    for lease in leases:
        assert await timed.queue.remove(lease.id)
        assert await timed.queue.get_job(lease.id) is None
    assert await timed.names() == []
    return leases


@KEYED
async def test_the_end_of_a_removed_run_frees_its_slot(timed: Timed, limit: str) -> None:
    leases = await removed_runs(timed, limit)
    assert "active" not in await counts(timed.queue)
    assert await timed.queue.get_jobs("active") == []
    for lease in leases:
        assert await timed.fake_worker.end(lease) == 1
        assert await timed.fake_worker.end(lease) == 0
        [started] = await timed.names()
        assert started in "bcd"
    assert await timed.names() == []
    await timed.fake_worker.leave()


@KEYED
@pytest.mark.parametrize("code", ["c", "f", "r", "b", "d", "l"])
async def test_a_refused_outcome_frees_the_slot(timed: Timed, limit: str, code: str) -> None:
    leases = await removed_runs(timed, limit)
    for lease in leases:
        assert await timed.fake_worker.settle(lease, code) == "missing"
    assert len(await timed.names()) == len(leases)
    await timed.fake_worker.leave()


@KEYED
async def test_the_lease_of_a_removed_run_frees_the_slot_when_it_expires(timed: Timed, limit: str) -> None:
    leases = await removed_runs(timed, limit)
    await timed.clock.advance(20 * SECOND)
    assert await timed.fake_worker.renew(*leases) == [lease.entry for lease in leases]
    await timed.clock.advance(20 * SECOND)
    await timed.fake_worker.sweep()
    assert await timed.names() == []
    await timed.clock.advance(11 * SECOND)
    await timed.fake_worker.sweep()
    assert len(await timed.names()) == len(leases)
    await timed.fake_worker.leave()


async def test_an_outage_does_not_count_against_a_removed_run(timed: Timed) -> None:
    await timed.fake_worker.first_sweep(15 * SECOND)
    [lease] = await removed_runs(timed, "key")
    await timed.fake_worker.renew(lease)
    await timed.clock.advance(60 * SECOND)
    await timed.fake_worker.first_sweep(15 * SECOND)
    assert await timed.names() == []
    await timed.fake_worker.end(lease)
    assert await timed.run() == ["b"]
    await timed.fake_worker.leave()


async def test_the_age_of_the_lease_counts_from_its_last_renewal(timed: Timed) -> None:
    await timed.queue.add_bulk([(name, None, JobOptions(key="k")) for name in "ab"])
    [lease] = await timed.fake_worker.claim()
    await timed.fake_worker.vanish(lease, for_ms=25 * SECOND)
    await timed.queue.remove(lease.id)
    await timed.clock.advance(6 * SECOND)
    await timed.fake_worker.sweep()
    assert await timed.run() == ["b"]


async def test_another_worker_cannot_end_the_run(timed: Timed) -> None:
    [lease] = await removed_runs(timed, "key")
    other = FakeWorker(timed.queue, timed.store)
    assert await other.end(lease) == 0
    assert await other.settle(lease) == "missing"
    assert await other.renew(lease) == [lease.entry]
    assert await timed.names() == []
    assert await timed.fake_worker.end(lease) == 1
    assert await timed.run() == ["b"]
    await other.leave()


async def test_a_job_that_reuses_the_id_waits_and_stays_unchanged(timed: Timed) -> None:
    await timed.queue.add("old", 1, job_id="mine", key="k")
    [lease] = await timed.fake_worker.claim()
    await timed.queue.remove("mine")
    again = await timed.queue.add("new", 2, job_id="mine", key="k")
    assert await timed.names() == []
    assert await timed.fake_worker.update(lease, "progress", b"\x07") == "stale"
    assert await timed.fake_worker.settle(lease) == "stale"
    await again.refresh()
    assert (again.name, again.data, again.state, again.progress) == ("new", 2, "key-waiting", None)
    [new] = await timed.fake_worker.claim()
    assert await timed.fake_worker.end(lease) == 0
    assert await timed.fake_worker.settle(new) is None
    assert await again.get_state() == "completed"


async def test_a_sign_off_does_not_free_the_slot(timed: Timed) -> None:
    """A thread may still run when its worker has signed off."""
    [lease] = await removed_runs(timed, "key")
    await timed.fake_worker.leave()
    other = FakeWorker(timed.queue, timed.store)
    assert await other.claim() == []
    await timed.clock.advance(31 * SECOND)
    await other.sweep()
    [next_one] = await other.claim()
    assert next_one.name == "b"
    assert await timed.fake_worker.settle(lease) == "missing"
    assert await other.claim() == []
    await other.leave()


async def test_removing_a_run_without_a_key_or_limit_stores_no_stopping_run(timed: Timed) -> None:
    await timed.queue.add("n")
    [lease] = await timed.fake_worker.claim()
    await timed.queue.remove(lease.id)
    assert not [key for key in await timed.store.keys() if ":stopping" in key]
    assert await timed.fake_worker.end(lease) == 0


@KEYED
async def test_obliteration_forgets_removed_runs(timed: Timed, limit: str) -> None:
    """A recreated queue shares no data with the previous one, and an old run cannot change it."""
    leases = await removed_runs(timed, limit)
    await timed.queue.obliterate(force=True)
    assert not [key for key in await timed.store.keys() if ":stopping" in key or ":running" in key]
    await timed.queue.add_bulk([(name, None, JobOptions(key="k")) for name in "xy"])
    assert await timed.names() == ["x"]
    for lease in leases:
        assert await timed.fake_worker.renew(lease) == [lease.entry]
        assert await timed.fake_worker.end(lease) == 0
        assert await timed.fake_worker.settle(lease) in ("missing", "stale")  # generated ids begin anew too
    assert await timed.names() == []
    await timed.fake_worker.leave()


# -- with workers -----------------------------------------------------------------------------------------------------


class SlowToStop:
    """A coroutine handler that needs time to end after its cancellation, and notes how many of its runs overlap."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[AnyJob] = asyncio.Queue()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()
        self.running = self.most = 0

    async def __call__(self, job: AnyJob) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.put_nowait(job)
        try:
            if job.name == "a":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await self.go_on.wait()
            raise
        finally:
            self.running -= 1


async def added(queue: AnyQueue, limit: str) -> tuple[AnyJob, AnyJob]:
    """Add two jobs of which only one may run."""
    if limit == "queue":
        await queue.set_global_concurrency(1)
    first, second = await queue.add_bulk(
        [(name, None, JobOptions(key=None if limit == "queue" else "k")) for name in "ab"]
    )
    return first, second


@pytest.mark.everywhere
@pytest.mark.parametrize("limit", ["key", "queue"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_the_slot_of_a_removed_coroutine_is_free_when_it_ends(queue: AnyQueue, limit: str, workers: int) -> None:
    handler = SlowToStop()
    async with AsyncExitStack() as stack:
        for _ in range(workers):
            await stack.enter_async_context(worker_of(queue, handler, concurrency=4))
        first, second = await added(queue, limit)
        assert (await soon(handler.started.get())).id == first.id
        await first.remove()
        await soon(handler.cancelled.wait())
        assert await queue.get_job(first.id) is None
        waiting = "waiting" if limit == "queue" else "key-waiting"
        assert await counts(queue) == {waiting: 1}
        handler.go_on.set()
        assert (await soon(handler.started.get())).id == second.id
        await ended(second)
    assert handler.most == 1


@pytest.mark.everywhere
@pytest.mark.parametrize("limit", ["key", "queue"])
async def test_the_slot_of_a_removed_thread_is_free_when_it_is_abandoned(queue: AnyQueue, limit: str) -> None:
    """The run is over as soon as it is abandoned. Its leases are renewed until the function returns."""
    started, go_on = threading.Event(), threading.Event()
    others: list[bool] = []

    def ignore_abort(job: AnyJob) -> None:
        if job.name == "a":
            started.set()
            go_on.wait(20)
        else:
            others.append(go_on.is_set())

    async with worker_of(queue, ignore_abort, concurrency=4, lock_duration=1) as worker:
        lost = Heard(worker, "lease_lost")
        first, second = await added(queue, limit)
        await soon(asyncio.to_thread(started.wait, 10))
        await first.remove()
        await lost.next()
        assert worker.running == 0
        await asyncio.sleep(2.5)  # longer than the lease, with sweeps in between
        assert await second.get_state() in ("waiting", "key-waiting")
        go_on.set()
        await ended(second)
    assert others == [True]


async def test_a_batch_in_a_thread(queue: AnyQueue) -> None:
    """A removed job leaves its batch. The slot of its key stays used until the processor has returned."""
    started, go_on = threading.Event(), threading.Event()
    calls: list[list[str]] = []

    def process(jobs: Any) -> None:
        calls.append([job.name for job in jobs])
        if len(calls) == 1:
            started.set()
            go_on.wait(20)

    await queue.add_bulk([(name, None, JobOptions(key=key)) for name, key in (("a", "k"), ("b", "k"), ("c", "m"))])
    async with worker_of(queue, process, batch=BatchOptions(size=2)) as worker:
        lost = Heard(worker, "lease_lost")
        await soon(asyncio.to_thread(started.wait, 10))
        [first] = [job for job in await queue.get_jobs("active") if job.name == "a"]
        [second] = await queue.get_jobs("key-waiting")
        await first.remove()
        await lost.next()
        await idle(worker)
        assert (await second.get_state(), calls) == ("key-waiting", [["a", "c"]])
        go_on.set()
        await ended(second)
    assert calls == [["a", "c"], ["b"]]


@pytest.mark.parametrize("limit", ["key", "queue"])
async def test_the_slot_of_a_removed_subprocess_run_is_free_when_the_process_ends(
    queue: AnyQueue, limit: str, tmp_path: Path
) -> None:
    """The next job finds the file unlocked."""
    path = str(tmp_path / "lock")
    if limit == "queue":
        await queue.set_global_concurrency(1)
    key = None if limit == "queue" else "k"
    async with worker_of(queue, hold_lock, concurrency=4, executor=SubprocessExecutor(2, grace=0.3)):
        first = await queue.add("a", path, key=key)
        second = await queue.add("b", path, key=key)
        await until(lambda: Path(path + ".held").exists())
        await first.remove()
        assert await second.result(20) == "free"


async def test_the_same_id_again_while_the_removed_run_executes(queue: AnyQueue) -> None:
    handler = SlowToStop()
    async with worker_of(queue, handler, concurrency=4):
        first = await queue.add("a", job_id="mine", key="k")
        await soon(handler.started.get())
        await first.remove()
        await soon(handler.cancelled.wait())
        again = await queue.add("b", job_id="mine", key="k")
        assert await again.get_state() == "key-waiting"
        handler.go_on.set()
        await ended(again)
        assert (await soon(handler.started.get())).name == "b"
    assert handler.most == 1


async def test_a_stop_reports_the_runs_that_have_ended(queue: AnyQueue) -> None:
    """A worker that starts afterwards need not wait for their leases."""
    handler = SlowToStop()
    async with worker_of(queue, handler, concurrency=4):
        first, second = await added(queue, "key")
        await soon(handler.started.get())
        await first.remove()
        await soon(handler.cancelled.wait())
        await queue.pause()
        handler.go_on.set()
    await queue.resume()
    async with worker_of(queue, handler):
        await ended(second)
    assert await second.get_state() == "completed"
    assert handler.most == 1


async def test_obliteration_with_a_run_that_ends_late(queue: AnyQueue) -> None:
    """The old run uses no slot of the new queue, and its end changes nothing there."""
    handler = SlowToStop()
    async with worker_of(queue, handler, concurrency=4):
        await added(queue, "key")
        await soon(handler.started.get())
        await queue.obliterate(force=True)
        await soon(handler.cancelled.wait())
        jobs = await queue.add_bulk([("b", None, JobOptions(key="k")) for _ in range(2)])
        for job in jobs:
            await ended(job)
        handler.go_on.set()
        await queue.add_and_wait("b", key="k", wait_timeout=10)
    counts = await queue.get_job_counts()
    assert (counts["completed"], counts["failed"], counts["active"]) == (3, 0, 0)
