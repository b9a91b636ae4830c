"""A name that belongs to data of another program is refused, and nothing is written."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import IncompatibleQueueError, Queue, QueueEvents, Worker
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue, echo, worker_of
from tests.support.stores import RunningStore

FOREIGN: list[tuple[str, list[tuple[str | int, ...]], str]] = [
    (
        "a hash of another library",
        [("HSET", "{base}:meta", "version", "4", "opts.maxLenEvents", 10000)],
        "another library",
    ),
    ("an owner", [("HSET", "{base}:meta", "owner", "somebody", "layout", "1")], "somebody"),
    ("a later layout", [("HSET", "{base}:meta", "owner", "glidemq_async", "layout", "3")], "layout 3"),
    (
        "a later layout without the notice",
        [("HSET", "{base}:meta2", "owner", "glidemq_async", "layout", "3")],
        "layout 3",
    ),
    ("a text", [("SET", "{base}:meta", "x")], "string"),
    ("a list instead of the stream", [("RPUSH", "{base}:fifo", "x")], "foreign"),
]


@pytest.mark.everywhere
@pytest.mark.parametrize(("keys", "words"), [case[1:] for case in FOREIGN], ids=[case[0] for case in FOREIGN])
async def test_foreign_data_is_refused_and_left_unchanged(
    storage: Storage, store: RunningStore, name: str, keys: list[tuple[str | int, ...]], words: str
) -> None:
    base = f"glide:{{{name}}}"
    written = [str(command[1]).format(base=base) for command in keys]
    for command in keys:
        await store.ask(*(str(word).format(base=base) for word in command))
    try:
        before = [await store.ask("DUMP", key) for key in written]
        queue: AnyQueue = Queue(name, storage)
        for call in (queue.connect(), queue.add("n"), queue.pause()):
            with pytest.raises(IncompatibleQueueError, match=words) as caught:
                await call
            assert "another queue name or prefix" in str(caught.value)
        with pytest.raises(IncompatibleQueueError):
            await Worker[Any, Any](name, echo, storage).start()
        with pytest.raises(IncompatibleQueueError):
            await QueueEvents(name, storage).connect()
        await queue.close()
        assert [await store.ask("DUMP", key) for key in written] == before
        assert sorted(key for key in await store.keys() if key.startswith(base)) == sorted(set(written))
    finally:
        for key in written:
            await store.ask("DEL", key)


@pytest.mark.everywhere
async def test_a_mode_cannot_be_changed(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage, mode="global") as queue:
        await queue.add("n")
    async with Queue[Any, Any](name, storage) as either:
        assert await either.count() == 1
    async with Queue[Any, Any](name, storage, mode="global") as again:
        assert await again.count() == 1


async def test_foreign_keys_next_to_the_queue_are_ignored(storage: Storage, store: RunningStore, name: str) -> None:
    await store.ask("SET", "unrelated", 1)
    try:
        async with Queue[Any, Any](name, storage) as queue, worker_of(queue, echo):
            assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
            assert await queue.check() == []
    finally:
        await store.ask("DEL", "unrelated")


async def test_a_stray_key_is_found(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add("n")
    stray = f"glide:{{{queue.name}}}:stray"
    await store.ask("SET", stray, 1)
    findings = await queue.check()
    assert [(finding.invariant, finding.subject) for finding in findings] == [("I12", stray)]
    await store.ask("DEL", stray)


async def test_a_check_ends_although_the_horizon_is_damaged(queue: AnyQueue, store: RunningStore) -> None:
    await queue.add("n")
    await store.ask("HSET", f"glide:{{{queue.name}}}:meta2", "horizon", "damaged")
    assert await queue.check() == []


@pytest.mark.parametrize(
    ("commands", "invariant"),
    [
        ([("HSET", "{base}:job:own", "place", "completed p1-1")], "I1"),
        ([("DEL", "{base}:job:own")], "I2"),
        ([("ZADD", "{base}:completed", "1", "own")], "I3"),
        ([("ZADD", "{base}:completed", "1", "1")], "I2"),
        ([("HSET", "{base}:job:1", "name", "n", "data", "x", "place", "completed p1-1")], "I16"),
        ([("SADD", "{base}:recorded", "1")], "I13"),
        ([("HSET", "{base}:results", "1", "2 1 x")], "I14"),
        ([("HSET", "{base}:results", "9", "2 1 x")], "I14"),
        ([("HSET", "{base}:results", "9", "2 1 x"), ("HSET", "{base}:meta2", "horizon", "10")], "I15"),
        ([("SET", "{base}:id", "0")], "I17"),
        ([("ZADD", "{base}:scheduled", "1", "ghost")], "I2"),
        ([("HSET", "{base}:job:ghost", "result", "x")], "I2"),
        ([("ZADD", "{base}:runs", "1", "1-1000l own")], "I4"),
        ([("HSET", "{base}:renewed", "l1-1000", "1")], "I4"),
        ([("SADD", "{base}:revoking", "1")], "I9"),
        ([("ZADD", "{base}:held", "1", "ghost")], "I9"),
        ([("RPUSH", "{base}:logs:ghost", "x")], "I12"),
        ([("XADD", "{base}:chunks:ghost", "1-1", "1", "x")], "I18"),
        ([("XADD", "{base}:chunks:own", "1-1", "1", "x")], "I18"),
        ([("HSET", "{base}:streamed", "ghost", "1 1 60000 ")], "I18"),
        ([("HSET", "{base}:steps:ghost", "a", "x")], "I21"),
        ([("HSET", "{base}:steps:own", "a", "x")], "I21"),
        ([("HSET", "{base}:stepped", "ghost", "1 1 0")], "I21"),
        ([("HSET", "{base}:stepped", "own", "2 2 0"), ("HSET", "{base}:steps:own", "a", "x")], "I21"),
        (
            [
                ("HSET", "{base}:streamed", "own", "1 1 60000 "),
                ("XADD", "{base}:chunks:own", "1-1", "1", "x"),
                ("PEXPIRE", "{base}:chunks:own", "60000"),
            ],
            "I18",
        ),
    ],
)
async def test_a_check_finds_damaged_stored_data(
    queue: AnyQueue, store: RunningStore, commands: list[tuple[str, ...]], invariant: str
) -> None:
    await queue.add("n")
    await queue.add("n", job_id="own")
    assert await queue.check() == []
    base = f"glide:{{{queue.name}}}"
    for command in commands:
        await store.ask(*(word.format(base=base) for word in command))
    assert invariant in {finding.invariant for finding in await queue.check()}
    await store.command("FLUSHALL")
