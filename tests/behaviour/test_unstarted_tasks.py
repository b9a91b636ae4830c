"""A task that is cancelled before its first step runs none of its code. Nobody waits for its effects for ever.

A program cancels all tasks when its event loop ends, and `close` cancels the tasks of its object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async._internal import portal
from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async._internal.http_endpoint import HttpEndpoint
from glidemq_async.client import result_listener
from glidemq_async.client.shared_reads import SharedReads
from glidemq_async.errors import QueueClosed
from glidemq_async.storage import Storage, Subscription
from glidemq_async.tasks.open_context import OpenContext
from tests.support.helpers import AnyQueue, echo, soon, worker_of
from tests.support.recording_storage import Relay

SECONDS = 5.0
AGAIN: dict[str, Any] = {"job_id": "a", "keep_completed": False, "wait_timeout": SECONDS}


@contextmanager
def new_tasks_cancelled() -> Generator[None]:
    """Cancel the tasks that begin in the block, at its end."""
    before = asyncio.all_tasks()
    yield
    for task in asyncio.all_tasks() - before:
        task.cancel()


async def test_the_owner_of_tasks_lets_each_task_begin_before_it_cancels_it() -> None:
    ended: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    tasks = BackgroundTasks()
    tasks.start(work())
    await tasks.close()
    assert ended


# -- the results of jobs ----------------------------------------------------------------------------------------------


async def test_an_id_is_used_again_after_its_receipt_was_cancelled(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_listener, "CONFIRM_MAX", 1)  # so the receipt is sent in the turn of the reply
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", 0, wait_timeout=SECONDS) == 0
        with new_tasks_cancelled():
            assert await queue.add_and_wait("n", 1, **AGAIN) == 1
        assert await soon(queue.add_and_wait("n", 2, **AGAIN), SECONDS) == 2


async def test_an_id_is_used_again_while_the_queue_closes(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as worked, worker_of(worked, echo):
        queue = Queue[Any, Any](name, storage)
        assert await queue.add_and_wait("n", 1, **AGAIN) == 1
        closing = asyncio.create_task(queue.close())
        again = asyncio.create_task(queue.add_and_wait("n", 2, **AGAIN))
        done, _ = await asyncio.wait([closing, again], timeout=SECONDS)
        assert done == {closing, again}
        assert isinstance(again.exception(), QueueClosed) or again.result() == 2


class NeverConfirmed(Relay):
    """The server never confirms a subscription."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.subscribing = asyncio.Event()

    async def subscribe(
        self, key: str, channel: str, on_message: Callable[[bytes], None], on_change: Callable[[bool], None]
    ) -> Subscription:
        self.subscribing.set()
        return await super().subscribe(key, channel, on_message, lambda up: None)


async def test_closing_ends_a_wait_for_the_subscription(storage: Storage, name: str) -> None:
    never_confirmed = NeverConfirmed(storage)
    queue = Queue[Any, Any](name, never_confirmed)
    await queue.connect()
    waiting = asyncio.create_task(queue.add_and_wait("n", 1))
    await soon(never_confirmed.subscribing.wait())
    await queue.close()
    with pytest.raises(QueueClosed):
        await soon(waiting, SECONDS)


# -- calls that several callers share ---------------------------------------------------------------------------------


async def never(wanted: Sequence[int]) -> Sequence[int]:
    del wanted
    await asyncio.Event().wait()
    return ()


async def same(wanted: Sequence[int]) -> Sequence[int]:
    return wanted


async def test_closing_ends_a_read_of_the_same_turn() -> None:
    reads = SharedReads[int, int](never, lambda: QueueClosed("closed"))
    reading = asyncio.create_task(reads.read(1))
    await asyncio.sleep(0)  # it has started the task of the call, which has not begun
    await reads.close()
    with pytest.raises(QueueClosed):
        await soon(reading, SECONDS)


async def test_a_read_is_possible_after_the_task_of_another_one_was_cancelled() -> None:
    reads = SharedReads[int, int](same, lambda: QueueClosed("closed"))
    before = asyncio.all_tasks()
    reading = asyncio.create_task(reads.read(1))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before - {reading}:
        task.cancel()
    with pytest.raises(QueueClosed):
        await soon(reading, SECONDS)
    assert await soon(reads.read(2), SECONDS) == 2
    await reads.close()


@pytest.mark.parametrize("signal", [b"", b"s"])
@pytest.mark.parametrize("by_close", [False, True])
async def test_a_step_of_the_same_turn_ends_with_the_writer(queue: AnyQueue, signal: bytes, *, by_close: bool) -> None:
    client = queue._client  # pyright: ignore[reportPrivateUsage]
    await queue.connect()
    with new_tasks_cancelled():
        status = client.record_step("job", "p1-1", "step", b"packed", signal)
        if by_close:
            await client.step_writer.close()
    with pytest.raises(QueueClosed):
        await soon(status, SECONDS)
    if not by_close:
        assert await soon(client.record_step("job", "p1-1", "step", b"packed", signal), SECONDS) == "missing"


async def test_adds_continue_after_their_sender_was_cancelled(queue: AnyQueue) -> None:
    await queue.connect()
    before = asyncio.all_tasks()
    adding = asyncio.create_task(queue.add_bulk([("n", 1), ("n", 2)]))
    await asyncio.sleep(0)  # it has started the sender, which has not begun
    for task in asyncio.all_tasks() - before - {adding}:
        task.cancel()
    assert len(await soon(adding, SECONDS)) == 2
    await soon(queue.add("n"), SECONDS)
    await soon(queue.close(), SECONDS)


# -- resources --------------------------------------------------------------------------------------------------------


async def test_closing_an_endpoint_closes_a_connection_of_the_same_turn() -> None:
    endpoint = HttpEndpoint({}, port=0)
    accepted: list[asyncio.StreamWriter] = []
    accept = endpoint._accept  # pyright: ignore[reportPrivateUsage]
    closing: list[asyncio.Task[None]] = []

    def accept_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        closing.append(asyncio.create_task(endpoint.close()))
        accept(reader, writer)

    endpoint._accept = accept_and_close  # type: ignore[method-assign]  # pyright: ignore[reportPrivateUsage]
    await endpoint.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
    assert await soon(reader.read(), SECONDS) == b""
    await soon(closing[0], SECONDS)
    assert accepted[0].transport.is_closing()
    writer.close()


async def test_closing_a_context_ends_the_waits_of_the_same_turn() -> None:
    @asynccontextmanager
    async def opening() -> AsyncGenerator[int]:
        yield 1

    context = OpenContext(opening())
    waiting = asyncio.create_task(context.value())
    await context.close()
    await asyncio.wait([waiting], timeout=SECONDS)
    assert waiting.cancelled()


async def test_a_thread_does_not_wait_for_a_call_that_was_cancelled() -> None:
    loop = asyncio.get_running_loop()

    async def work() -> int:
        return 1

    def start(call: Any) -> None:
        with new_tasks_cancelled():
            begin(call)

    begin: Any = portal._Call[Any]._start  # pyright: ignore[reportPrivateUsage]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(portal._Call, "_start", start)  # pyright: ignore[reportPrivateUsage]
        waiting = loop.run_in_executor(pool, portal.call, loop, work(), lambda: True)
        with pytest.raises(asyncio.CancelledError):
            await soon(waiting, SECONDS)
