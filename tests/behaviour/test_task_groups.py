"""All tasks of a worker belong to one group, which the shutdown ends in order."""

from __future__ import annotations

import ast
import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest

import glidemq_async.worker
from glidemq_async import GlideMQ, Queue
from glidemq_async.worker.claim_loop import ClaimLoop
from glidemq_async.worker.sweeper import Sweeper
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, soon, until, worker_of
from tests.support.stores import RunningStore


async def test_a_cancelled_scope_waits_until_the_jobs_have_ended(queue: AnyQueue) -> None:
    """A scope cancels each await of its tasks again, unless a shield protects it."""
    gate = Gate()
    worker = worker_of(queue, gate, shutdown_timeout=30)
    job = await queue.add("n")
    with anyio.CancelScope() as scope:
        async with asyncio.TaskGroup() as others:

            async def cancel() -> None:
                await gate.running()
                scope.cancel()
                await until(lambda: worker.health().problems != ())
                gate.release()

            others.create_task(cancel())
            await worker.run()
    assert scope.cancelled_caught
    assert worker.running == 0
    await job.refresh()
    assert job.state == "completed"
    assert await queue.get_workers() == []


async def test_a_cancelled_block_waits_until_the_jobs_have_ended(queue: AnyQueue) -> None:
    gate = Gate()
    job = await queue.add("n")
    with anyio.CancelScope() as scope:
        async with worker_of(queue, gate, shutdown_timeout=0):
            await gate.running()
            scope.cancel()
            await anyio.sleep_forever()
    await job.refresh()
    assert job.state == "waiting", "the job was released"
    assert await queue.get_workers() == []


@pytest.mark.parametrize("service", [ClaimLoop, Sweeper])
async def test_an_error_of_a_background_service_closes_the_worker(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, service: type
) -> None:
    async def broken(_self: object) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr(service, "run", broken)
    worker = worker_of(queue, echo)
    with pytest.raises(AssertionError, match="a defect"):
        await soon(worker.run())
    assert await queue.get_workers() == []


@pytest.mark.only_on("memory")
@pytest.mark.parametrize("how", ["the loop shuts down", "all tasks are cancelled"])
@pytest.mark.parametrize("part", ["worker", "worker of an app"])
def test_a_worker_whose_tasks_were_all_cancelled_closes(store: RunningStore, name: str, part: str, how: str) -> None:
    """The cancellation reaches the tasks of the worker before its close begins."""
    reports: list[dict[str, Any]] = []
    ended: list[str] = []

    async def serve(running: asyncio.Event) -> None:
        async with GlideMQ(store.url) as app, app.queue(name) as queue:

            @app.task(name="hold", queue=name)
            async def hold(_data: int) -> None:
                running.set()
                await asyncio.Event().wait()

            async def handle(job: AnyJob) -> None:
                await hold(job.data)

            await hold.add(1)
            worker = app.worker(lock_duration=1) if "app" in part else worker_of(queue, handle, lock_duration=1)
            try:
                async with worker:
                    await running.wait()  # not `soon`: on Python 3.11, `wait_for` can lose a cancellation
                    if how == "all tasks are cancelled":
                        for task in asyncio.all_tasks():
                            task.cancel()
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("worker")
                raise

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reports.append(context))
        running = asyncio.Event()
        serving = asyncio.create_task(serve(running))
        await running.wait()
        if how == "all tasks are cancelled":
            await serving

    async def run_again() -> None:
        async with Queue[Any, Any](name, store.url) as queue:
            gate = Gate()
            async with worker_of(queue, gate, lock_duration=1):
                await gate.running()
                gate.release()

    with nullcontext() if how == "the loop shuts down" else pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert ended == ["worker"]
    assert reports == []
    asyncio.run(run_again())


async def test_a_listener_that_fails_later_stops_nothing(queue: AnyQueue) -> None:
    async def broken(_job: AnyJob) -> None:
        raise ValueError("a broken listener")

    worker = worker_of(queue, echo)
    worker.on("active", broken)
    async with worker:
        assert await queue.add_and_wait("n", 1, wait_timeout=5) == 1
        assert await queue.add_and_wait("n", 2, wait_timeout=5) == 2


def test_no_task_of_the_worker_is_outside_of_its_group() -> None:
    assert [
        f"{path.name}:{node.lineno}"
        for path in sorted(Path(glidemq_async.worker.__file__).parent.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"create_task", "ensure_future"}
    ] == []
