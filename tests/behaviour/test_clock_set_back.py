"""The server's clock is set back, by NTP or by a failover to a server that is behind. Nothing waits for long."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from glidemq_async import Deduplication, JobOptions, KeepJobs, RateLimit, TokenBucket
from glidemq_async.client import result_listener
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.inbox import Delivery
from tests.support.bulk_rows import rows
from tests.support.clocked_queue import DAY, HOUR, SECOND, Timed
from tests.support.fake_worker import NOTHING, FakeWorker
from tests.support.helpers import NO_POLLING, AnyQueue, Heard, echo, soon, worker_of
from tests.support.stores import RunningStore

GAP = 15 * SECOND


@pytest.fixture
async def ahead(timed: Timed) -> Timed:
    """A queue that has had workers, on a server whose clock is an hour ahead."""
    await timed.clock.advance(HOUR)
    await timed.fake_worker.first_sweep(GAP)
    return timed


async def set_back(timed: Timed, ms: int = HOUR) -> None:
    """Set the clock back, and let workers sweep every second."""
    await timed.clock.advance(-ms)
    await timed.fake_worker.first_sweep(GAP)


async def later(timed: Timed, ms: int) -> None:
    """Let time pass, and let workers sweep."""
    await timed.clock.advance(ms)
    await timed.fake_worker.first_sweep(10**9)


# -- leases -----------------------------------------------------------------------------------------------------------


def _crc64(data: bytes) -> int:
    """The checksum of DUMP: CRC-64 of Jones."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x95AC9329AC4BC9B5 if crc & 1 else crc >> 1
    return crc


async def deliver_at(store: RunningStore, stream: str, raw: str, shift_ms: int) -> None:
    """Move the delivery time of a pending entry, as a clock that was ahead would have written it."""
    number, milliseconds = map(int, raw.split("-"))
    dump = await store.ask("DUMP", stream)
    assert isinstance(dump, bytes)
    body, entry = bytearray(dump[:-8]), struct.pack(">QQ", number, milliseconds)
    at = body.rindex(entry, 0, body.rindex(entry)) if body.count(entry) > 1 else body.rindex(entry)
    [delivered] = struct.unpack_from("<Q", body, at + 16)
    assert 0 <= delivered - milliseconds < 60_000, "the text must be a delivery time"
    struct.pack_into("<Q", body, at + 16, delivered + shift_ms)
    await store.ask("RESTORE", stream, 0, bytes(body) + struct.pack("<Q", _crc64(bytes(body))), "REPLACE")


@pytest.mark.untidy
async def test_a_job_claimed_in_the_future_is_reclaimed_within_its_lease(queue: AnyQueue, store: RunningStore) -> None:
    job = await queue.add("n", 1)
    dead = FakeWorker(queue, store)
    [lease] = await dead.claim(lock_ms=1500)
    await deliver_at(store, f"{dead.base}:fifo", lease.entry[1:], HOUR)
    async with worker_of(queue, echo, lock_duration=1):
        assert await job.result(8) == 1
    await job.refresh()
    assert job.stalled_count == 1


@pytest.mark.untidy
@pytest.mark.parametrize("is_renewed", [False, True])
@pytest.mark.parametrize("options", [JobOptions(lifo=True), JobOptions(key="k")], ids=["LIFO", "keyed"])
async def test_a_run_outside_of_fifo_is_reclaimed_within_its_lease(
    ahead: Timed, options: JobOptions, *, is_renewed: bool
) -> None:
    [job] = await ahead.queue.add_bulk([("n", 1, options)])
    dead = FakeWorker(ahead.queue, ahead.store)
    [lease] = await dead.claim(lock_ms=2 * SECOND)
    if is_renewed:
        await dead.renew(lease)
    await set_back(ahead)
    assert await job.get_state() == "active"
    await later(ahead, 3 * SECOND)
    assert await job.get_state() in ("waiting", "key-waiting")
    await job.refresh()
    assert job.stalled_count == 1


@pytest.mark.untidy
async def test_sweeps_continue_after_the_clock_was_set_back(ahead: Timed) -> None:
    await ahead.clock.advance(-HOUR)
    job = await ahead.queue.add("n", 1)
    short = await ahead.queue.add("n", 2, delay=60, ttl=0.5)
    dead = FakeWorker(ahead.queue, ahead.store)
    [lease] = await dead.claim(lock_ms=SECOND)
    await dead.vanish(lease, for_ms=2 * SECOND)
    functions = Functions(ahead.queue.storage, dead.base)
    first = await functions.stalled.sweep(3, SECOND, GAP, resume=False)
    assert first is not None, "the server must not refuse the sweep"
    await ahead.clock.advance(2 * SECOND)
    await ahead.fake_worker.sweep()
    assert (await job.get_state(), await short.get_state()) == ("waiting", "failed")


async def test_workers_that_died_before_are_forgotten_in_time(ahead: Timed) -> None:
    await ahead.queue.add("n", 1)
    [lease] = await ahead.fake_worker.claim()
    await ahead.fake_worker.renew(lease)
    await ahead.fake_worker.settle(lease)
    other = FakeWorker(ahead.queue, ahead.store)
    await ahead.clock.advance(-HOUR)
    await other.first_sweep(GAP)
    for _ in range(7):
        await ahead.clock.advance(60 * SECOND)
        await other.first_sweep(10**9)
    assert await other.consumers() == []
    assert await ahead.queue.get_workers() == []


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_the_rate_of_the_queue_recovers(ahead: Timed) -> None:
    await ahead.queue.set_global_rate_limit(RateLimit(5, 1))
    await ahead.queue.add_bulk([("n", number) for number in range(20)])
    assert len(await ahead.run()) == 5
    await ahead.clock.advance(-HOUR)
    assert len(await ahead.run()) == 5
    assert await ahead.run() == []
    await ahead.clock.advance(SECOND)
    assert len(await ahead.run()) == 5


@pytest.mark.parametrize("limit", [{"rate_limit": RateLimit(2, 1)}, {"token_bucket": TokenBucket(2, 2)}])
async def test_the_limits_of_a_key_recover(ahead: Timed, limit: dict[str, Any]) -> None:
    await ahead.queue.set_key_limits("k", concurrency=10, **limit)
    await ahead.queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(8)])
    assert len(await ahead.run()) == 2
    await set_back(ahead)
    assert len(await ahead.run()) == 2
    assert await ahead.run() == []
    await ahead.clock.advance(SECOND)
    assert len(await ahead.run()) == 2


async def test_a_bucket_recovers_without_a_sweep(ahead: Timed) -> None:
    await ahead.queue.set_key_limits("k", token_bucket=TokenBucket(1, 1))
    await ahead.queue.add("n", 1, key="k")
    assert len(await ahead.run()) == 1
    await ahead.clock.advance(-HOUR)
    await ahead.queue.add("n", 2, key="k")
    assert len(await ahead.run()) == 1


async def test_the_pause_of_a_key_ends(ahead: Timed) -> None:
    await ahead.queue.pause_key("k", 10)
    await ahead.queue.add("n", 1, key="k")
    await set_back(ahead)
    assert await ahead.run() == []
    await later(ahead, 12 * SECOND)
    assert await ahead.run() == ["n"]


async def test_the_gate_of_the_queue_opens(ahead: Timed) -> None:
    await ahead.queue.add("n", 1)
    [lease] = await ahead.fake_worker.claim()
    assert await ahead.fake_worker.settle(lease, "l", "10000") is None
    await set_back(ahead)
    assert await ahead.run() == []
    await later(ahead, 12 * SECOND)
    assert await ahead.run() == ["n"]


async def test_the_rate_of_a_write_recovers(ahead: Timed) -> None:
    functions = Functions(ahead.queue.storage, ahead.fake_worker.base)
    await functions.writes.open("w", "t", DAY)
    assert (await functions.writes.add("w", "t", rows("a", "b"), rate=1000)).wait == 2000
    assert (await functions.writes.add("w", "t", rows("c"), rate=1000)).wait > 2000
    await ahead.clock.advance(-HOUR)
    assert (await functions.writes.add("w", "t", rows("d"), rate=1000)).wait == 1000


# -- data with an end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["simple", "throttle"])
async def test_the_time_of_a_deduplication_ends(ahead: Timed, mode: Any) -> None:
    one = Deduplication("d", ttl=10, mode=mode)
    first = await ahead.queue.add("n", 1, deduplication=one)
    assert (await ahead.queue.add("n", 2, deduplication=one)).id == first.id
    await ahead.clock.advance(-HOUR)
    second = await ahead.queue.add("n", 3, deduplication=one)
    assert second.id != first.id
    assert (await ahead.queue.add("n", 4, deduplication=one)).id == second.id
    await ahead.clock.advance(11 * SECOND)
    assert (await ahead.queue.add("n", 5, deduplication=one)).id not in {first.id, second.id}


async def test_a_time_to_live_ends(ahead: Timed) -> None:
    job = await ahead.queue.add("n", 1, ttl=10)
    await set_back(ahead)
    assert await job.get_state() == "waiting"
    await later(ahead, 12 * SECOND)
    assert await job.get_state() == "failed"


async def test_awaited_records_and_results_with_a_time_to_live_end(
    ahead: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The confirmation of the reply would remove the record.
    monkeypatch.setattr(result_listener, "CONFIRM_SECONDS", NO_POLLING)
    async with worker_of(ahead.queue, echo):
        assert await ahead.queue.add_and_wait("n", 1, job_id="asked", keep_completed=False, wait_timeout=10) == 1
        assert await (await ahead.queue.add("n", 2, job_id="ttl", result_ttl=60)).result(10) == 2
        await set_back(ahead)
        assert await ahead.queue.get_job("asked") is not None
        await later(ahead, 61 * SECOND)
        assert await ahead.queue.get_job("asked") is None
        assert await ahead.queue.get_job("ttl") is None


async def test_the_newest_results_are_kept(ahead: Timed) -> None:
    keep = KeepJobs(count=3)
    async with worker_of(ahead.queue, echo) as worker:
        completed = Heard(worker, "completed")
        for number in range(5):
            if number == 3:
                await set_back(ahead)
                await ahead.clock.advance(SECOND)
            await ahead.queue.add("n", number, keep_completed=keep)
            await completed.next()
    assert {job.data for job in await ahead.queue.get_jobs("completed")} == {2, 3, 4}


# -- other queues -----------------------------------------------------------------------------------------------------


async def test_the_turn_of_a_dead_relayer_ends(ahead: Timed) -> None:
    await ahead.queue.set_dead_letter_queue("dead")
    await ahead.queue.add("n", 1)
    [lease] = await ahead.fake_worker.claim()
    await ahead.fake_worker.settle(lease, "f")
    functions = Functions(ahead.queue.storage, ahead.fake_worker.base)
    assert len((await functions.outbox.relay("dies", "", []))[1]) == 1
    assert (await functions.outbox.relay("waits", "", []))[1] == []
    await ahead.clock.advance(-HOUR)
    last, posted, *_ = await functions.outbox.relay("waits", "", [])
    assert len(posted) == 1
    await functions.outbox.relay("waits", last, [posted[0].entry])


async def test_a_delivery_is_known_after_10_000_others_of_the_same_hour(ahead: Timed) -> None:
    """A user repeats an interrupted replay after he has examined the jobs."""
    functions = Functions(ahead.queue.storage, ahead.fake_worker.base)

    def delivery(token: str) -> Delivery:
        return Delivery(token, b"", b"n", NOTHING, b"", b"", b"")

    async def deliver(tokens: list[str]) -> dict[int, str]:
        return await functions.inbox.deliver([delivery(token) for token in tokens])

    assert await deliver(["first"]) == {}
    for step in range(50):
        await deliver([f"{step}/{number}" for number in range(100)])
    await ahead.clock.advance(-HOUR)
    assert await deliver(["second"]) == {}
    for step in range(50, 120):
        await deliver([f"{step}/{number}" for number in range(100)])
    assert await deliver(["first", "second"]) == {0: "seen", 1: "seen"}
    await ahead.clock.advance(HOUR + HOUR + SECOND)
    await deliver(["third"])
    key = f"{ahead.fake_worker.base}:inbox"
    assert 10_000 <= int(str(await ahead.store.ask("ZCARD", key))) < 12_003
    await ahead.queue.drain()


# -- workers ----------------------------------------------------------------------------------------------------------


async def test_idle_workers_wake_at_due_times(ahead: Timed) -> None:
    async with worker_of(ahead.queue, echo):
        await ahead.queue.add("n", 0, delay=5)
        await ahead.clock.advance(-HOUR)
        assert await soon((await ahead.queue.add("n", 1, delay=0.1)).result()) == 1
        assert await soon((await ahead.queue.add("n", 2, key="k", delay=0.1)).result()) == 2
        await ahead.clock.advance(HOUR)


@pytest.mark.untidy
async def test_a_clock_that_jumps_forward_and_back_ends_no_lease(timed: Timed) -> None:
    await timed.queue.add("n", 1)
    await timed.fake_worker.first_sweep(GAP)
    [lease] = await timed.fake_worker.claim()
    for jump in (HOUR, -HOUR, DAY, -2 * DAY, HOUR):
        # The age of the lease that the server reports jumps too, but never below zero.
        await timed.fake_worker.vanish(lease, for_ms=max(0, jump))
        await timed.clock.advance(jump)
        assert await timed.fake_worker.first_sweep(GAP) == []
        assert await timed.fake_worker.renew(lease) == []
    assert await timed.fake_worker.settle(lease) is None
