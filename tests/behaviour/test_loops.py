"""Other event loops and the default storage: uvloop, a second loop, and no URL."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Queue, QueueEvents, Topic, Worker
from glidemq_async.storage import MemoryStorage, open_storage
from tests.support import servers


async def scenario(storage: MemoryStorage) -> list[Any]:
    async with storage, Queue[Any, Any]("q", storage) as queue:
        async with Worker[Any, Any]("q", handler, storage, concurrency=10, handle_signals=False, poll_interval=60):
            values = await asyncio.gather(*(queue.add_and_wait("n", n, wait_timeout=10) for n in range(50)))
            delayed = await queue.add("n", "late", delay=0.05)
            values.append(await delayed.result(10))
        async with QueueEvents("q", storage, after="0") as events:
            async for event in events:
                values.append(getattr(event, "kind", "gap"))
                break
        assert await queue.check() == []
        return values


async def handler(job: Any) -> Any:
    return job.data


@pytest.mark.smoke
@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not exist there")
def test_everything_works_on_uvloop() -> None:
    import uvloop

    assert uvloop.run(scenario(MemoryStorage())) == [*range(50), "late", "added"]


async def test_a_storage_of_another_loop_is_refused_with_the_remedy() -> None:
    async with MemoryStorage() as storage:

        async def use(opened: MemoryStorage) -> str:
            async with Queue[Any, Any]("q", opened) as queue:
                return (await queue.add("n")).outcome

        with pytest.raises(RuntimeError, match="clone"):
            await asyncio.to_thread(asyncio.run, use(storage))

        async def use_clone() -> str:
            async with storage.clone() as twin:
                return await use(twin)

        assert await asyncio.to_thread(asyncio.run, use_clone()) == "added"


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_an_add_of_another_loop_is_refused_while_adds_of_this_one_are_sent(is_bulk: bool) -> None:
    """The other add must not wait among the adds of this loop, which would send it."""
    async with (
        servers.standalone() as server,
        open_storage(server.url) as storage,
        Queue[Any, Any]("q", storage) as queue,
    ):

        async def add_there() -> object:
            return await (queue.add_bulk([("n", 1)]) if is_bulk else queue.add("n"))

        await server.command("CLIENT", "PAUSE", "10000", "WRITE")
        sent = asyncio.create_task(queue.add("n"))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="queue 'q' was opened in another event loop"):
            await asyncio.wait_for(asyncio.to_thread(asyncio.run, asyncio.wait_for(add_there(), 5)), 10)
        await server.command("CLIENT", "UNPAUSE")
        await sent
        assert await queue.count() == 1


async def test_a_queue_and_a_topic_refuse_another_loop_before_they_send() -> None:
    async with MemoryStorage() as storage, Queue[Any, Any]("q", storage) as queue, Topic("t", storage) as topic:
        await topic.publish("s", 1)

        async def add_there() -> None:
            with pytest.raises(RuntimeError, match="queue 'q' was opened in another event loop"):
                await queue.add("n")
            with pytest.raises(RuntimeError, match="topic 't' was opened in another event loop"):
                await topic.publish("s", 2)

        await asyncio.to_thread(asyncio.run, add_there())
        assert (await queue.add("n")).outcome == "added"


async def test_the_default_storage_is_in_the_users_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLIDEMQ_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("GLIDEMQ_LINGER", "0.1")
    async with Queue[Any, Any]("q") as web:
        job = await web.add("n", 1)
        async with Worker[Any, Any]("q", handler, handle_signals=False):
            assert await job.result(20) == 1
        assert await web.check() == []
    assert (tmp_path / "glidemq").is_dir()


async def test_the_environment_sets_the_default_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryStorage("named-by-the-environment"):
        monkeypatch.setenv("GLIDEMQ_URL", "memory://named-by-the-environment")
        async with Queue[Any, Any]("q") as one, Queue[Any, Any]("q") as two:
            await one.add("n")
            assert await two.count() == 1
