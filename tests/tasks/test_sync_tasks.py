"""Tasks without an event loop: `mq.sync` and `task.sync`, from any thread and after a fork."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator

import pytest

from glidemq_async import GlideMQ, Job

PATIENCE = 10


@pytest.fixture
def app() -> Iterator[GlideMQ]:
    """An app of this test, closed without a loop."""
    made = GlideMQ(f"memory://{uuid.uuid4().hex}")
    yield made
    made.sync.close()


def _double(number: int) -> int:
    return number * 2


def test_a_script_adds_and_waits(app: GlideMQ) -> None:
    double = app.task(_double)
    with app.sync:
        job = double.sync.add(4)
        jobs = double.sync.add_many([(1,), {"number": 2}])
        later = double.options(delay=60).sync.add(5)
        with pytest.raises(TypeError, match="number"):
            double.sync.add("four")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        worked = threading.Thread(target=lambda: job.sync.refresh())
        worked.start()
        worked.join()
        assert [one.state for one in (job, *jobs, later)] == ["waiting", "waiting", "waiting", "delayed"]


async def test_a_notebook_can_move_an_app_from_one_loop_to_another(app: GlideMQ) -> None:
    double = app.task(_double)
    job = double.sync.add(1)
    for use in (double.add(2), app.connect(), app.close(), app.__aenter__()):
        with pytest.raises(RuntimeError, match=r"opened in another event loop.*sync"):
            await use
    assert job.sync.get_state() == double.sync.add(2).sync.get_state() == "waiting"
    app.sync.close()
    async with app:
        assert (await double.add(3)).state == "waiting"
        with pytest.raises(RuntimeError, match="await the method itself"):
            double.sync.add(4)
    assert double.sync.add(5).state == "waiting"


def test_threads_share_one_app(app: GlideMQ) -> None:
    double = app.task(_double)
    added: list[Job[object, int]] = []

    def add(number: int) -> None:
        added.append(double.sync.add(number))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job.id for job in added}) == 20


async def test_a_thread_next_to_the_loop_waits_for_a_job_that_the_loop_runs() -> None:
    app = GlideMQ("memory://")
    double = app.task(_double)
    async with app, app.worker(concurrency=2, handle_signals=False):
        job = await asyncio.to_thread(double.sync.add, 21)
        assert await asyncio.to_thread(double.sync.result, job.id, PATIENCE) == 42
        with pytest.raises(RuntimeError, match="in the thread of the event loop"):
            double.sync.add(1)
