"""The sender of a write: probes, batches, and retries while the server is unreachable."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgpack
import pytest

from glidemq_async import Queue, StorageUnavailable
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.write.commit_protocol import end_write, open_write, order_run
from glidemq_async.spark.write.errors import DuplicateJob, WriteFenced
from glidemq_async.spark.write.job_sender import JobBuffer, JobSender
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.task_writer import TaskWriter
from glidemq_async.spark.write.write_plan import WritePlan, functions_of
from glidemq_async.storage import Arg, Storage
from tests.support.helpers import AnyQueue
from tests.support.recording_storage import Relay

pytestmark = pytest.mark.only_on("memory")


class Here(Connection):
    """A connection in the event loop of the test."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage


class Write:
    """A write to one queue that records its calls and their ids."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.relay = Relay(storage)
        self.connection = Here(self.relay)
        self.name = name
        self.sent: list[tuple[str, int]] = []
        self.relay.before_call = self._note
        self.plan = WritePlan(self.options(), "", "")

    def options(self, **more: str) -> WriteOptions:
        return WriteOptions.parse({"url": "redis://nowhere", "queue": self.name, "batchSize": "10", **more})

    async def _note(self, function: str, args: Sequence[Arg]) -> None:
        if function in ("addToWrite", "probeWrite"):
            self.sent.append((function, cast("int", args[7 if function == "addToWrite" else 5])))

    async def open(self, write_id: str = "w", token: str = "t", **more: str) -> JobSender:
        """Open the write and return its sender."""
        self.plan = await open_write(self.connection, self.options(**more), write_id, token)
        return JobSender(self.connection, self.plan, self.name)

    async def counters(self) -> dict[str, int]:
        """Return the counts of the server."""
        (found,) = await functions_of(self.connection, self.plan.options, self.name).writes.get([self.plan.write_id])
        names = ("inserted", "replayed", "duplicate", "rejected")
        return {name: int(found[name.encode()]) for name in names if found[name.encode()] != b"0"}


@pytest.fixture
async def write(storage: Storage, name: str) -> Write:
    return Write(storage, name)


@pytest.fixture
async def queue(storage: Storage, name: str) -> AsyncIterator[AnyQueue]:
    async with Queue[Any, Any](name, storage) as opened:
        yield opened


def buffer(*numbers: int, extra: bytes = b"", marks: int = 0) -> JobBuffer:
    made = JobBuffer()
    for number in numbers:
        made.flat += [f"j{number}", "n", msgpack.packb(number), b"", extra]
    made.marks = [b"\x1f%d" % mark for mark in range(marks)]
    made.rows = len(numbers) + marks
    return made


async def send(sender: JobSender, numbers: Sequence[int]) -> Counter[str]:
    """Send rows in buffers of the size that the sender requests."""
    counts, left = Counter[str](), list(numbers)
    while left:
        size = sender.most_rows
        counts += await sender.send(buffer(*left[:size]))
        left = left[size:]
    return counts


async def test_new_rows_are_sent_without_a_probe(write: Write) -> None:
    counts = await send(await write.open(), range(30))
    assert counts == {"inserted": 30}
    assert write.sent == [("addToWrite", 10)] * 3


@pytest.mark.parametrize(("write_id", "word"), [("w", "replayed"), ("another", "duplicate")])
async def test_a_rerun_probes_after_its_first_duplicates(write: Write, write_id: str, word: str) -> None:
    await send(await write.open(), range(110))
    write.sent.clear()
    assert await send(await write.open(write_id, "u"), range(110)) == {word: 110}
    assert write.sent == [("addToWrite", 10), ("probeWrite", 50), ("probeWrite", 50)]
    assert (await write.counters())[word] == 110


async def test_only_missing_rows_are_sent_and_in_order(write: Write, queue: AnyQueue) -> None:
    await send(await write.open(), range(40))
    write.sent.clear()
    counts = await send(await write.open("again", "u"), [*range(40), *range(100, 170)])
    assert counts == {"duplicate": 40, "inserted": 70}
    # The first probe of 50 found 30 jobs. The second one found none, and probing ended.
    assert write.sent == [
        ("addToWrite", 10),
        ("probeWrite", 50),
        ("addToWrite", 10),
        ("addToWrite", 10),
        ("probeWrite", 50),
        *[("addToWrite", 10)] * 5,
    ]
    jobs = await queue.get_jobs("waiting", 0, 200)
    assert sorted(job.data for job in jobs) == [*range(40), *range(100, 170)]
    assert await write.counters() == {"duplicate": 40, "inserted": 70}


async def test_each_row_counts_once_when_another_writer_is_faster(write: Write, storage: Storage, name: str) -> None:
    await send(await write.open(), range(40))
    sender = await write.open("again", "u")
    await send(sender, range(10))
    other = Write(storage, name)
    rival = await other.open("rival", "v")

    async def rush(function: str, args: Sequence[Arg], reply: object) -> None:
        if function == "probeWrite":
            await rival.send(buffer(*range(40, 45)))

    write.relay.after_call = rush
    counts = await sender.send(buffer(*range(10, 60)))
    assert counts == {"duplicate": 35, "inserted": 15, "replayed": 0, "rejected": 0}
    assert await write.counters() == {"duplicate": 45, "inserted": 15}
    assert await other.counters() == {"inserted": 5}


async def test_a_row_that_may_replace_a_job_is_never_probed(write: Write, queue: AnyQueue) -> None:
    extra = msgpack.packb({"dedup": {"id": "d", "mode": "debounce", "ttl": 60_000}, "delay": 60_000})
    for write_id in ("w", "x", "y"):
        sender = await write.open(write_id)
        await sender.send(buffer(1, 1, 1, extra=extra))
        await sender.send(buffer(2, extra=extra))
    assert {function for function, _ in write.sent} == {"addToWrite"}


async def test_invalid_rows_count_without_valid_rows(write: Write) -> None:
    await send(await write.open(), range(20))
    sender = await write.open("again", "u")
    await sender.send(buffer(*range(10)))
    assert (await sender.send(buffer(*range(10, 20), marks=2)))["rejected"] == 2
    assert await write.counters() == {"duplicate": 20, "rejected": 2}


async def test_a_duplicate_ends_the_write_with_on_duplicate_fail(write: Write, queue: AnyQueue) -> None:
    sender = await write.open(onDuplicate="fail")
    await send(sender, range(20))
    await queue.add("n", 1, job_id="j30")
    again = await write.open(token="u", onDuplicate="fail")
    assert await send(again, range(20)) == {"replayed": 20}
    with pytest.raises(DuplicateJob, match="j30"):
        await again.send(buffer(30))


async def test_duplicates_can_be_counted_without_being_remembered(write: Write, storage: Storage, name: str) -> None:
    await send(await write.open(), range(40))
    sender = await write.open("again", "u", onDuplicate="count-only")
    assert await send(sender, range(40)) == {"duplicate": 40}
    assert await send(sender, range(40)) == {"duplicate": 40}


async def test_a_task_of_an_older_run_cannot_open_the_write(write: Write) -> None:
    options = write.options()
    older, newer = [await order_run(write.connection, options) for _ in range(2)]
    await open_write(write.connection, options, "w", "new", orders=newer)
    with pytest.raises(WriteFenced, match="newer run"):
        await open_write(write.connection, options, "w", "old", orders=older)


async def test_invalid_rows_of_a_write_with_a_long_name_have_valid_ids(
    write: Write, storage: Storage, name: str, queue: AnyQueue
) -> None:
    await queue.set_dead_letter_queue(f"{name}-dead")
    rows: dict[str, Sequence[Any]] = {"id": ["a", None, None], "name": ["n", "n", "m"], "data": ["1", "2", "3"]}
    for write_id in ("w", "x" * 512, "x" * 511 + "y", "ü" * 256):
        await write.open(write_id, onInvalid="dlq")
        for _ in range(2):
            await TaskWriter(write.connection, write.plan, 0).write([(rows, 3)])
    async with Queue[Any, Any](f"{name}-dead", storage) as dead:
        ids = [job.id for job in await dead.get_jobs("waiting", 0, 100)]
        assert len(ids) == 8
        assert sum(id_.startswith("w/0/") for id_ in ids) == 2
        for id_ in ids:
            assert await dead.get_job(id_) is not None


async def test_a_call_is_full_by_rows_or_by_the_row_that_makes_it_too_large(write: Write, queue: AnyQueue) -> None:
    await write.open(batchSize="4", maxBatchBytes="100")
    lengths = [1] * 5 + [49, 47, 49, 48] + [120] * 2 + [1] * 300
    rows = {"id": [f"{n:03}" for n in range(len(lengths))], "data": [f'"{"x" * length}"' for length in lengths]}
    columns = {**rows, "name": ["n"] * len(lengths)}
    await TaskWriter(write.connection, write.plan, 0).write([(columns, len(lengths))])
    calls = [n for _, n in write.sent]
    # An id and a name take 4 bytes, and the prefix of a MessagePack text 1 or, for long texts, 2. The second call is
    # full with 6 + 55 + 53 bytes, the third with 55 + 54, and a text of 120 bytes alone.
    assert calls == [4, 3, 2, 1, 1, *[4] * 75]
    assert [job.id for job in await queue.get_jobs("waiting", 0, 400)] == rows["id"]


class Away:
    """A relay that makes calls fail before or after the server has executed them."""

    def __init__(self, write: Write, times: int) -> None:
        self.left: Counter[tuple[str, str]] = Counter()
        self.times, self.failed = times, Counter[str]()
        write.relay.before_call, write.relay.after_call = self.before, self.after

    async def before(self, function: str, args: Sequence[Arg]) -> None:
        await self._fail(function, "unheard")

    async def after(self, function: str, args: Sequence[Arg], reply: object) -> None:
        await self._fail(function, "unanswered")

    async def _fail(self, function: str, when: str) -> None:
        if self.left[function, when] < self.times:
            self.left[function, when] += 1
            self.failed[function] += 1
            raise StorageUnavailable(f"{function} {when}")


async def test_each_call_is_retried_and_takes_effect_once(write: Write, queue: AnyQueue) -> None:
    away = Away(write, 2)
    sender = await write.open(maxRetries="4", maxQueueDepth="15", resumeQueueDepth="15")
    await sender.send(buffer(*range(10)))
    await sender.send(buffer(*range(10)))
    await sender.send(buffer(*range(10)))
    await end_write(write.connection, write.plan, "committed", 1)
    assert away.failed == dict.fromkeys(("openQueue", "openWrite", "addToWrite", "probeWrite", "endWrite"), 4)
    assert await write.counters() == {"inserted": 10, "replayed": 20}


async def test_waiting_for_space_in_the_queue_survives_an_outage(write: Write, queue: AnyQueue) -> None:
    sender = await write.open(maxRetries="2", maxQueueDepth="5", resumeQueueDepth="5", backpressureTimeout="10")
    away = Away(write, 1)

    async def empty(function: str, args: Sequence[Arg], reply: object) -> None:
        await away.after(function, args, reply)
        if function == "getWrites":
            await queue.drain()

    write.relay.after_call = empty
    await sender.send(buffer(*range(10)))
    assert away.failed["getDepth"] == away.failed["getWrites"] == 2


async def test_rows_without_ids_are_added_once_when_a_call_is_retried(write: Write, queue: AnyQueue) -> None:
    sender = await write.open(idMode="none")
    Away(write, 2)
    made = buffer(1, 2, 3)
    made.flat[0::5] = ["", "", ""]
    assert (await sender.send(made))["inserted"] == 3
    assert await queue.count() == 3


async def test_an_open_ends_after_its_last_retry(write: Write) -> None:
    Away(write, 3)
    with pytest.raises(StorageUnavailable, match="openQueue"):
        await write.open(maxRetries="2")


async def test_each_call_has_the_timeout_of_the_options(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[float | None] = set()
    call = write.relay.call

    async def timed(*args: Any, timeout: float | None = None, **kwargs: Any) -> object:
        seen.add(timeout)
        return await call(*args, timeout=timeout, **kwargs)

    monkeypatch.setattr(write.relay, "call", timed)
    sender = await write.open(requestTimeout="7s")
    await sender.send(buffer(1))
    await end_write(write.connection, write.plan, "aborted", 0)
    assert seen == {7.0}
