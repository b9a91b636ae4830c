"""Workers are paused, resumed, stopped and resized while they run, here and by operators."""

from __future__ import annotations

import pytest

from glidemq_async.ops import Ops, WorkerNotReached
from tests.support.helpers import AnyQueue, AnyWorker, Gate, Heard, echo, ended, idle, until, worker_of


async def described(queue: AnyQueue, worker: AnyWorker, state: str) -> None:
    """Wait until the list of workers shows this state."""
    while (await queue.get_workers())[0].state != state:
        pass
    assert (await queue.get_workers())[0].name == worker.name


async def test_a_paused_worker_claims_nothing_until_it_is_resumed(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=2) as worker:
        await idle(worker)
        worker.pause()
        assert worker.is_paused
        await described(queue, worker, "paused")
        job = await queue.add("job")
        found = (await queue.explain(job.id)).gates[0]
        assert (found.kind, found.text) == ("no-worker", "waits for a worker: 1 is paused or stopping")
        assert await job.get_state() == "waiting"
        worker.resume()
        await ended(job)
        await described(queue, worker, "running")


async def test_a_pause_does_not_stop_running_jobs(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate) as worker:
        job = await queue.add("job")
        await gate.running()
        worker.pause()
        gate.release()
        assert (await ended(job)).state == "completed"


async def test_the_concurrency_changes_while_the_worker_runs(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate, concurrency=1) as worker:
        jobs = [await queue.add("job") for _ in range(3)]
        await gate.running()
        assert worker.running == 1
        worker.set_concurrency(3)
        await gate.running()
        await gate.running()
        while (await queue.get_workers())[0].slots != 3:
            pass
        worker.set_concurrency(1)
        gate.release()
        for job in jobs:
            await ended(job)
        with pytest.raises(ValueError, match="concurrency"):
            worker.set_concurrency(0)


async def test_threads_are_not_exceeded(queue: AnyQueue) -> None:
    def work(_: object) -> None: ...

    async with worker_of(queue, work, concurrency=2) as worker:
        worker.set_concurrency(1)
        worker.set_concurrency(2)
        with pytest.raises(ValueError, match="must be at most 2, got 3"):
            worker.set_concurrency(3)


async def test_operators_control_a_worker(queue: AnyQueue) -> None:
    async with Ops(queue.storage) as ops, worker_of(queue, echo, concurrency=2) as worker:
        closed = Heard(worker, "closed")
        await idle(worker)
        await ops.pause_worker(queue.name, worker.name)
        await until(lambda: worker.is_paused)
        await ops.resume_worker(queue.name, worker.name)
        await until(lambda: not worker.is_paused)
        await ops.set_worker_concurrency(queue.name, worker.name, 7)
        while (await queue.get_workers())[0].concurrency != 7:
            pass
        await ops.stop_worker(queue.name, worker.name, reason="deploy")
        await closed.next()
        with pytest.raises(WorkerNotReached, match="does not listen"):
            await ops.pause_worker(queue.name, worker.name)
        lines = (await ops.audit.read()).lines
        assert [line.action for line in reversed(lines)][-2:] == ["stop worker", "pause worker"]
        assert lines[1].reason == "deploy"


async def test_a_running_worker_tells_that_it_is_drained(queue: AnyQueue) -> None:
    async with worker_of(queue, echo, concurrency=2) as worker:
        drained = Heard(worker, "drained")
        await queue.add_bulk([("job", number) for number in range(20)])
        await drained.next()
        assert worker.running == 0
        await queue.add("job")
        await drained.next()
        assert drained.count == 0


@pytest.mark.only_on("memory")
async def test_a_lost_link_is_told(queue: AnyQueue) -> None:
    async with worker_of(queue, echo) as worker:
        lost, back = Heard(worker, "disconnected"), Heard(worker, "reconnected")
        await idle(worker)
        session = worker._session  # pyright: ignore[reportPrivateUsage]
        assert session is not None
        session.reset_subscription()
        await lost.next()
        await back.next()
