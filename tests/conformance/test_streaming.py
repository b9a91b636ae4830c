"""Chunks that handlers stream: readers get each position once, and an end, however the job ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from typing_extensions import override

from glidemq_async import (
    Chunk,
    ChunkGap,
    Encryption,
    JobFailed,
    JobNotFound,
    JobStateError,
    LeaseLost,
    PayloadTooLarge,
    Queue,
    Restarted,
    SerializationError,
    StreamForgotten,
    StreamLimits,
    UnrecoverableError,
    generate_key,
)
from glidemq_async.storage import Storage
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyJob, AnyQueue, Gate, soon, until, worker_of
from tests.support.hooked_storage import HookedStorage
from tests.support.stores import RunningStore


async def values(items: AsyncIterator[Any]) -> list[Any]:
    """Return the values of all chunks, and all other items, until the end."""
    return [item.value if isinstance(item, Chunk) else item async for item in items]


async def read(items: AsyncIterator[Any]) -> list[Any]:
    return await soon(values(items))


async def count(job: AnyJob) -> str:
    for number in range(job.data):
        await job.stream(number)
    return "done"


@pytest.mark.everywhere
async def test_readers_get_all_chunks_and_the_end(queue: AnyQueue) -> None:
    """One reader begins before the job runs, one while it runs, and one after its end."""
    half, go_on = asyncio.Event(), asyncio.Event()

    async def handler(job: AnyJob) -> str:
        await job.stream({"token": "a"})
        half.set()
        await go_on.wait()
        for token in ("b", None, b"c"):
            await job.stream(token)
        return "done"

    job = await queue.add("n")
    early = asyncio.create_task(read(job.chunks()))
    async with worker_of(queue, handler):
        await soon(half.wait())
        during = asyncio.create_task(read(queue.chunks(job.id)))
        go_on.set()
        assert await job.result(10) == "done"
    expected = [{"token": "a"}, "b", None, b"c"]
    assert [await early, await during, await read(job.chunks())] == [expected] * 3


@pytest.mark.everywhere
async def test_a_reader_resumes_after_a_position(queue: AnyQueue) -> None:
    job = await queue.add("n", 5)
    async with worker_of(queue, count):
        await job.result(10)
    items = [item async for item in job.chunks()]
    assert all(isinstance(item, Chunk) for item in items)
    for number, item in enumerate(items):
        assert await read(job.chunks(item.position)) == list(range(number + 1, 5))


async def test_a_job_without_chunks_ends_its_readers(queue: AnyQueue) -> None:
    job = await queue.add("n", 0)
    early = asyncio.create_task(read(job.chunks()))
    async with worker_of(queue, count):
        await job.result(10)
    assert await early == []
    assert await read(job.chunks()) == []
    plain = await queue.add("n", 0)
    async with worker_of(queue, count):
        await plain.result(10)
    assert await read(plain.chunks()) == []


async def test_a_plain_job_without_readers_has_no_stream(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 0)
    async with worker_of(queue, count):
        await job.result(10)
    assert not [key for key in await store.keys() if ":chunks:" in key or key.endswith(":streamed")]


async def test_the_failure_of_the_job_is_raised_after_its_chunks(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await job.stream("partial")
        raise UnrecoverableError("no more")

    job = await queue.add("n")
    got: list[Any] = []
    async with worker_of(queue, handler):
        with pytest.raises(JobFailed, match="no more"):
            await soon(append_all(got, job.chunks()))
    assert got == ["partial"]
    with pytest.raises(JobFailed, match="no more"):
        await read(job.chunks())


async def append_all(got: list[Any], items: AsyncIterator[Any]) -> None:
    async for item in items:
        got += [item.value if isinstance(item, Chunk) else item]


async def test_another_run_is_announced(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await job.stream(f"run {job.fence}")
        if job.fence < 3:
            raise ValueError("again")

    job = await queue.add("n", attempts=3)
    async with worker_of(queue, handler):
        items = [item async for item in job.chunks()]
    assert [getattr(item, "value", item) for item in items] == [
        "run 1", Restarted(2, "1-1"), "run 2", Restarted(3, "2-2"), "run 3",
    ]  # fmt: skip
    assert await read(job.chunks(items[1].position)) == [getattr(item, "value", item) for item in items[1:]]


async def test_a_last_run_without_chunks_is_announced_too(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        if job.fence == 1:
            await job.stream("partial")
            raise ValueError("again")

    job = await queue.add("n", attempts=2)
    async with worker_of(queue, handler):
        assert await read(job.chunks()) == ["partial", Restarted(2, "1-1")]


async def test_trimmed_chunks_are_counted(queue: AnyQueue) -> None:
    job = await queue.add("n", 25)
    async with worker_of(queue, count, stream_limits=StreamLimits(max_chunks=10)):
        await job.result(10)
    assert await read(job.chunks()) == [ChunkGap(15, "15-0"), *range(15, 25)]
    assert await read(job.chunks("3-1")) == [ChunkGap(12, "15-1"), *range(15, 25)]
    assert await read(job.chunks("15-1")) == [*range(15, 25)]
    assert await read(job.chunks("20-1")) == [*range(20, 25)]


async def test_the_size_of_a_stream_is_limited(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        for number in range(40):
            await job.stream(bytes([number]) * 98)  # 100 bytes in stored form
        await job.stream(bytes([40]) * 398)

    job = await queue.add("n")
    async with worker_of(queue, handler, stream_limits=StreamLimits(max_bytes=1_000)):
        await job.result(10)
    gap, *kept = await read(job.chunks())
    assert gap == ChunkGap(35, "35-0")
    assert [value[0] for value in kept] == [35, 36, 37, 38, 39, 40]


async def test_a_chunk_larger_than_the_limit_is_kept_alone(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await job.stream("small")
        await job.stream("large" * 100)

    job = await queue.add("n")
    async with worker_of(queue, handler, stream_limits=StreamLimits(max_bytes=10)):
        await job.result(10)
    assert await read(job.chunks()) == [ChunkGap(1, "1-0"), "large" * 100]


@pytest.mark.everywhere
async def test_the_chunks_of_a_run_that_lost_its_job_are_refused(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n")
    zombie, other = FakeWorker(queue, store), FakeWorker(queue, store)
    [old] = await zombie.claim()
    assert await zombie.stream(old, b"\x01") == "ok"
    await zombie.vanish(old)
    await other.sweep()
    [new] = await other.claim()
    assert await zombie.stream(old, b"\x02") == "stale"
    assert await other.stream(new, b"\x03", b"\x04") == "ok"
    assert await other.settle(new) is None
    assert await other.stream(new, b"\x05") == "stale"
    assert await read(job.chunks()) == [1, Restarted(2, "1-1"), 3, 4]


async def test_a_run_without_its_lease_gets_an_error(queue: AnyQueue) -> None:
    refused: list[Exception] = []

    async def handler(job: AnyJob) -> None:
        await job.stream("first")
        with suppress(asyncio.CancelledError):  # the removal stops the run
            await asyncio.Event().wait()
        try:
            await job.stream("late")
        except (JobNotFound, LeaseLost) as error:
            refused.append(error)
            raise

    job = await queue.add("n")
    async with worker_of(queue, handler):
        chunks = job.chunks()
        assert await anext(chunks) == Chunk("first", "1-1")
        await job.remove()
        with pytest.raises(JobNotFound):
            await anext(chunks)
        await until(lambda: bool(refused))


async def test_only_a_handler_can_stream(queue: AnyQueue) -> None:
    job = await queue.add("n")
    with pytest.raises(JobStateError, match="in its handler"):
        await job.stream("x")


async def test_a_chunk_is_checked_before_it_is_sent(queue: AnyQueue, store: RunningStore) -> None:
    async def handler(job: AnyJob) -> None:
        with pytest.raises(SerializationError):
            await job.stream({1})
        with pytest.raises(PayloadTooLarge):
            await job.stream("x" * 2_000_000)

    job = await queue.add("n")
    async with worker_of(queue, handler):
        await job.result(10)
    assert not [key for key in await store.keys() if ":chunks:" in key]


async def test_chunks_use_the_codecs_of_the_queue(storage: Storage, name: str, store: RunningStore) -> None:
    codecs = [Encryption({"a": generate_key()})]
    async with Queue[Any, Any](name, storage, codecs=codecs) as queue:
        job = await queue.add("n", 0)

        async def handler(job: AnyJob) -> None:
            await job.stream("secret words")

        async with worker_of(queue, handler, codecs=codecs):
            await job.result(10)
        assert await read(job.chunks()) == ["secret words"]
        assert "secret words" not in str(await store.ask("XRANGE", f"glide:{{{name}}}:chunks:{job.id}", "-", "+"))


@pytest.mark.parametrize("after", ["", "1", "x-1", "1-", "-1", "1-1-1", "1-1\n"])
async def test_a_position_is_checked(queue: AnyQueue, after: str) -> None:
    job = await queue.add("n")
    with pytest.raises(ValueError, match="after must be the position"):
        await anext(job.chunks(after))


@pytest.mark.everywhere
@pytest.mark.parametrize("how", ["remove", "drain", "obliterate"])
async def test_the_stream_of_a_waiting_job_ends_when_it_is_removed(queue: AnyQueue, how: str) -> None:
    job = await queue.add("n")
    reader = asyncio.create_task(read(job.chunks()))
    await opened(queue, job)
    removals: dict[str, Callable[[], Awaitable[object]]] = {
        "remove": job.remove,
        "drain": queue.drain,
        "obliterate": queue.obliterate,
    }
    await removals[how]()
    with pytest.raises((JobNotFound, StreamForgotten)):
        await reader


async def opened(queue: AnyQueue, job: AnyJob) -> None:
    """Wait until a reader has opened the stream of a job."""
    await soon(_opened(queue, job))


async def _opened(queue: AnyQueue, job: AnyJob) -> None:
    functions = queue._client.functions  # pyright: ignore[reportPrivateUsage]
    while (await functions.streaming.read([(job.id, "0-0")]))[0].status != "open":  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_the_stream_of_a_running_job_ends_when_it_is_removed(queue: AnyQueue) -> None:
    gate = Gate()
    job = await queue.add("n")
    async with worker_of(queue, gate):
        await gate.running()
        reader = asyncio.create_task(read(job.chunks()))
        await opened(queue, job)
        await job.remove()
        with pytest.raises(JobNotFound):
            await reader


async def test_a_revoked_job_ends_its_stream(queue: AnyQueue) -> None:
    waiting = await queue.add("n")
    reader = asyncio.create_task(read(waiting.chunks()))
    await opened(queue, waiting)
    await waiting.revoke("the user pressed stop")
    with pytest.raises(JobFailed, match="the user pressed stop"):
        await reader
    gate = Gate()
    running = await queue.add("n")
    async with worker_of(queue, gate):
        await gate.running()
        reader = asyncio.create_task(read(running.chunks()))
        await opened(queue, running)
        await running.revoke()
        with pytest.raises(JobFailed, match="revoked"):
            await reader


async def test_a_job_that_stalls_too_often_ends_its_stream(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n")
    worker = FakeWorker(queue, store)
    [lease] = await worker.claim()
    await worker.stream(lease, b"\x01")
    await worker.vanish(lease)
    await worker.sweep(max_stalled=0)
    got: list[Any] = []
    with pytest.raises(JobFailed, match="stalled"):
        await append_all(got, job.chunks())
    assert got == [1]


async def test_a_job_that_expires_ends_its_stream(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", ttl=0.05)
    reader = asyncio.create_task(read(job.chunks()))
    await opened(queue, job)
    await asyncio.sleep(0.06)
    await FakeWorker(queue, store).sweep()
    with pytest.raises(JobFailed, match="expired"):
        await reader


async def test_removing_an_ended_job_removes_its_chunks(queue: AnyQueue, store: RunningStore) -> None:
    jobs = [await queue.add("n", 2) for _ in range(3)]
    async with worker_of(queue, count):
        for job in jobs:
            await job.result(10)
    assert len([key for key in await store.keys() if ":chunks:" in key]) == 3
    await jobs[0].remove()
    await queue.clean(0, 10)
    assert not [key for key in await store.keys() if ":chunks:" in key]
    for job in jobs:
        with pytest.raises(StreamForgotten, match="forgotten"):
            await read(job.chunks())


async def test_a_stream_outlives_the_record_of_its_job_by_its_ttl(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 2, keep_completed=False)
    async with worker_of(queue, count):
        assert await read(job.chunks()) == [0, 1]
    assert await queue.get_job(job.id) is None
    assert await read(queue.chunks(job.id)) == [0, 1]
    ttl = await store.ask("PTTL", f"glide:{{{queue.name}}}:chunks:{job.id}")
    assert isinstance(ttl, int)
    assert 3_500_000 < ttl <= 3_600_000
    await store.ask("DEL", f"glide:{{{queue.name}}}:chunks:{job.id}")
    with pytest.raises(StreamForgotten):
        await read(queue.chunks(job.id))


async def test_a_forgotten_stream_of_a_kept_job_is_reported(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 2)
    async with worker_of(queue, count, stream_limits=StreamLimits(ttl=0.001)):
        await job.result(10)
    await asyncio.sleep(0.01)
    with pytest.raises(StreamForgotten, match="StreamLimits"):
        await read(job.chunks())
    assert not [key for key in await store.keys() if ":chunks:" in key]


async def test_an_unknown_job_has_no_stream(queue: AnyQueue) -> None:
    with pytest.raises(StreamForgotten, match="nobody"):
        await read(queue.chunks("nobody"))


async def test_a_retried_job_continues_its_stream(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await job.stream(job.fence)
        if job.fence == 1:
            raise UnrecoverableError("once")

    job = await queue.add("n")
    async with worker_of(queue, handler):
        with pytest.raises(JobFailed):
            await read(job.chunks())
        await job.retry()
        assert await read(job.chunks()) == [1, Restarted(2, "1-1"), 2]
    await job.refresh()
    assert job.state == "completed"


async def test_a_new_job_with_a_used_id_has_its_own_stream(queue: AnyQueue) -> None:
    async with worker_of(queue, count):
        job = await queue.add("n", 7, job_id="a", keep_completed=False)
        assert await read(job.chunks()) == [*range(7)]
        again = await queue.add("n", 3, job_id="a")
        assert await read(again.chunks()) == [0, 1, 2]
        assert await read(again.chunks("5-1")) == [ChunkGap(None, "0-0"), 0, 1, 2]


async def test_a_retry_leaves_the_stream_of_an_earlier_job_with_its_id(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        if job.data == "first":
            await job.stream("of the first job")
        else:
            raise UnrecoverableError("no")

    async with worker_of(queue, handler):
        first = await queue.add("n", "first", job_id="x", keep_completed=False)
        assert await read(first.chunks()) == ["of the first job"]
        second = await queue.add("n", "second", job_id="x")
        with pytest.raises(JobFailed):
            await second.result(10)
    await second.retry()
    async with worker_of(queue, handler):
        with pytest.raises(JobFailed):
            await anext(second.chunks())  # a chunk would raise nothing
    assert await queue.check() == []


async def test_a_slow_reader_does_not_hold_up_others(queue: AnyQueue) -> None:
    job = await queue.add("n", 1_500)
    slow = job.chunks()
    async with worker_of(queue, count):
        first = await anext(slow)
        assert await read(job.chunks()) == [*range(1_500)]
        assert await read(slow) == [*range(1, 1_500)]
    assert first == Chunk(0, "1-1")


async def test_concurrent_chunks_of_one_run_keep_their_order(queue: AnyQueue) -> None:
    async def handler(job: AnyJob) -> None:
        await asyncio.gather(*(job.stream(number) for number in range(600)))

    job = await queue.add("n")
    async with worker_of(queue, handler):
        assert await read(job.chunks()) == [*range(600)]


class _Counting(HookedStorage):
    def __init__(self) -> None:
        super().__init__("shared-chunk-calls")
        self.runs: list[int] = []
        """The number of runs in each call that appended chunks."""

    @override
    async def after_call(self, function: str, reply: object) -> None:
        if function == "addChunks":
            self.runs.append(len(cast("list[bytes]", reply)))


async def test_chunks_of_many_runs_share_calls() -> None:
    async with _Counting() as storage, Queue[Any, Any]("shared", storage) as queue:
        jobs = [await queue.add("n", 20) for _ in range(50)]
        async with worker_of(queue, count, concurrency=50):
            for job in jobs:
                assert await read(job.chunks()) == [*range(20)]
    assert sum(storage.runs) == 1_000
    assert len(storage.runs) < 200


async def test_a_handler_in_a_thread_streams(queue: AnyQueue) -> None:
    def handler(job: AnyJob) -> None:
        for number in range(3):
            job.sync.stream(number)

    job = await queue.add("n")
    async with worker_of(queue, handler):
        assert await read(job.chunks()) == [0, 1, 2]


async def test_chunks_are_read_without_an_event_loop(queue: AnyQueue) -> None:
    job = await queue.add("n", 3)
    async with worker_of(queue, count):
        found = await asyncio.to_thread(lambda: list(job.sync.chunks()))
    assert found == [Chunk(0, "1-1"), Chunk(1, "2-1"), Chunk(2, "3-1")]
