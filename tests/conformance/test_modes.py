"""The mode of a queue: "keyed", where every job has a key, "global", where no job has one, or open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from glidemq_async import IncompatibleQueueError, JobOptions, Queue, UnrecoverableError, Worker
from glidemq_async.storage import Storage
from tests.support.helpers import AnyJob, AnyQueue, counts, echo, worker_of


@pytest.mark.everywhere
async def test_a_declared_mode_is_stored_and_compared(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, mode="keyed") as queue:
        await queue.add("n", 1, key="k")
    async with Queue[Any, Any](name, storage, mode="keyed") as again:
        assert await counts(again) == {"key-waiting": 1}
    other = Queue[Any, Any](name, storage, mode="global")
    with pytest.raises(IncompatibleQueueError, match=r"mode global.*mode keyed"):
        await other.connect()
    with pytest.raises(IncompatibleQueueError):
        await other.add("n", 1)
    worker = Worker(name, echo, storage, mode="global", handle_signals=False)
    with pytest.raises(IncompatibleQueueError, match="mode"):
        await worker.start()
    await worker.close()
    async with Worker(name, echo, storage, mode="keyed", handle_signals=False), Queue[Any, Any](name, storage) as open_:
        assert await open_.add_and_wait("n", 2, key="k", wait_timeout=10) == 2
    await other.close()


async def test_a_queue_without_a_declaration_uses_the_stored_mode(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, mode="keyed"):
        pass
    async with Queue[Any, Any](name, storage) as follower:
        with pytest.raises(ValueError, match=r"keyed.*key="):
            await follower.add("n", 1)
        with pytest.raises(ValueError, match="keyed"):
            await follower.add_bulk([("n", 1, JobOptions(key="k")), ("n", 2)])
        with pytest.raises(ValueError, match="keyed"):
            await follower.add_and_wait("n", 1, wait_timeout=5)
        assert await counts(follower) == {}
        assert (await follower.add("n", 1, key="k")).state == "key-waiting"


async def test_a_global_queue_refuses_keys(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, mode="global") as queue:
        with pytest.raises(ValueError, match=r"global.*'k'"):
            await queue.add("n", 1, key="k")
        kinds: list[dict[str, Any]] = [{}, {"priority": 2}, {"lifo": True}, {"delay": 60}]
        for options in kinds:
            await queue.add("n", 1, **options)
        assert await queue.count() == 4


async def test_a_queue_without_a_mode_accepts_jobs_with_and_without_keys(queue: AnyQueue) -> None:
    await queue.add("n", 1)
    await queue.add("n", 2, key="k")
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", 3, key="k", wait_timeout=10) == 3


async def test_the_server_checks_a_mode_that_was_set_after_the_client_opened(storage: Storage, name: str) -> None:
    """A client that opened the queue before does not know the mode. The server must still write nothing."""
    async with Queue[Any, Any](name, storage) as early:
        async with Queue[Any, Any](name, storage, mode="keyed"):
            pass
        with pytest.raises(IncompatibleQueueError, match="keyed"):
            await early.add("n", 1)
        with pytest.raises(IncompatibleQueueError, match="keyed"):
            await early.add_bulk([("n", 1), ("n", 2)])
        assert await counts(early) == {}
        jobs = await early.add_bulk([("n", number, JobOptions(key="k")) for number in range(3)])
        assert [job.state for job in jobs] == ["key-waiting"] * 3


async def test_a_refused_job_does_not_affect_others_of_its_call(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as early:
        async with Queue[Any, Any](name, storage, mode="keyed"):
            pass
        adds = [early.add("n", number, key="k" if number % 2 else None) for number in range(10)]
        outcomes = await asyncio.gather(*adds, return_exceptions=True)
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, BaseException) == (number % 2 == 0), outcome
        assert await counts(early) == {"key-waiting": 5}


@pytest.mark.parametrize("mode", ["keyd", "", 7, True])
def test_a_bad_mode_is_refused(storage: Storage, mode: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="mode"):
        Queue[Any, Any]("q", storage, mode=mode)
    with pytest.raises((ValueError, TypeError), match="mode"):
        Worker("q", echo, storage, mode=mode)


async def test_dead_letters_reach_a_keyed_queue_with_a_key(queue: AnyQueue, storage: Storage) -> None:
    async def give_up(job: AnyJob) -> None:
        raise UnrecoverableError(str(job.data))

    async with Queue[Any, Any](f"{queue.name}-dead", storage, mode="keyed") as dead:
        await queue.add_bulk([("n", "keyed", JobOptions(key="k")), ("n", "plain")])
        async with worker_of(queue, give_up, dead_letter_queue=dead.name):
            async with asyncio.timeout(10):
                while await dead.count() < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        found = {job.data: job.key for job in await dead.get_dead_letter_jobs()}
        assert found == {"keyed": "k", "plain": queue.name}
