"""Callers of `add_and_wait` that leave: cancelled, out of time or dead, at each moment in the life of their job."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from glidemq_async import JobFailed, Queue, QueueClosed, ResultTimeout
from glidemq_async.queues import awaited_add
from glidemq_async.storage import Storage
from glidemq_async.storage.redis.wire import LinkLost, Wire
from tests.support.clocked_queue import Timed
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Gate, echo, soon, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import waits_for_results

PING = b"*1\r\n$4\r\nPING\r\n"
REASON = "revoked: its caller stopped waiting"


class Calls:
    """The calls of a storage, and a gate for one function."""

    def __init__(self, queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, function: str = "", *, after: bool = True):
        self.made: list[str] = []
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        original = type(queue.storage).call

        async def call(storage: Any, name: str, key: str, args: Sequence[Any], **options: Any) -> object:
            self.made.append(name)
            if name == function and not after:
                self.reached.set()
                await self.go_on.wait()
            reply = await original(storage, name, key, args, **options)
            if name == function and after:
                self.reached.set()
                await self.go_on.wait()
            return reply

        monkeypatch.setattr(type(queue.storage), "call", call)


async def ended(queue: AnyQueue, job_id: str) -> str:
    """Wait until a job has failed, and return its reason."""
    async with asyncio.timeout(PATIENCE):
        while (job := await queue.get_job(job_id)) is None or job.state != "failed":  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return job.failed_reason or ""


async def left(task: asyncio.Task[Any]) -> None:
    """Cancel a caller."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def waiting(queue: AnyQueue, store: RunningStore, job_id: str = "mine", *, clients: int = 1) -> None:
    """Wait until this many clients wait for the job."""
    async with asyncio.timeout(PATIENCE):
        while len(await _channels(queue, store, job_id)) < clients:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def _channels(queue: AnyQueue, store: RunningStore, job_id: str) -> list[bytes]:
    channels = await store.ask("HGET", f"glide:{{{queue.name}}}:waiters", job_id)
    return channels.split() if isinstance(channels, bytes) else []


async def test_a_caller_that_leaves_before_the_add_stores_nothing(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()

    async def subscribe(*_: object) -> Any:
        await never.wait()

    monkeypatch.setattr(type(queue.storage), "subscribe", subscribe)
    calls = Calls(queue, monkeypatch)
    with pytest.raises(ResultTimeout):
        await queue.add_and_wait("n", 1, wait_timeout=0.05)
    with pytest.raises(ResultTimeout):
        await queue.add_and_wait("n", 1, wait_timeout=0)
    assert not calls.made
    assert await queue.count() == 0


@pytest.mark.parametrize("after", [True, False], ids=["executed", "not executed"])
async def test_a_caller_that_leaves_during_the_add_has_the_job_revoked(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    calls = Calls(queue, monkeypatch, "addJob", after=after)
    asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine"))
    await soon(calls.reached.wait())
    await left(asked)
    calls.go_on.set()
    assert await ended(queue, "mine") == REASON


@pytest.mark.everywhere
async def test_a_caller_that_leaves_in_any_turn_of_the_loop_leaves_no_job(queue: AnyQueue) -> None:
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", 1) == 1  # from now on an add is sent at once
    for turns in range(12):
        asked = asyncio.create_task(queue.add_and_wait("n", turns))
        for _ in range(turns):
            await asyncio.sleep(0)
        await left(asked)
    async with asyncio.timeout(PATIENCE):
        while await queue.count():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert {job.failed_reason for job in await queue.get_jobs("failed")} == {REASON}
    assert await queue.check() == []


class Losing:
    """Lets the replies to the next adds be lost, after they were executed or before they are sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_sent: bool) -> None:
        self.left = 0
        self.kept = asyncio.Queue[bytes]()
        """The adds whose replies are not lost."""
        original = Wire.send

        def send(wire: Wire, packed: bytes, *args: Any, **options: Any) -> asyncio.Future[Any]:
            if not self.left or b"_addJob" not in packed:
                if b"_addJob" in packed:
                    self.kept.put_nowait(packed)
                return original(wire, packed, *args, **options)
            self.left -= 1
            if is_sent:
                original(wire, packed, *args, **options)
            elif packed.startswith(PING):
                wire.write(PING)  # its reply is expected
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.02, future.set_result, LinkLost("lost by the test"))
            return future

        monkeypatch.setattr(Wire, "send", send)


@pytest.mark.parametrize("is_sent", [True, False], ids=["executed", "not executed"])
async def test_an_add_whose_reply_is_lost_has_one_effect(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    async with worker_of(queue, echo):
        assert await queue.add_and_wait("n", 1) == 1
        losing = Losing(monkeypatch, is_sent=is_sent)
        losing.left = 2
        assert await queue.add_and_wait("n", 2, wait_timeout=PATIENCE) == 2
        assert losing.left == 0
    losing.left, losing.kept = 1, asyncio.Queue[bytes]()
    asked = asyncio.create_task(queue.add_and_wait("n", 3))
    await asyncio.sleep(0)
    await left(asked)
    asked = asyncio.create_task(queue.add_and_wait("n", 4))
    for _ in range(2):  # the repeated add of the first caller, and the add of this one
        await soon(losing.kept.get())
    await left(asked)
    async with asyncio.timeout(PATIENCE):
        while (await queue.get_job_counts())["failed"] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert await queue.get_job_counts() == {
        **dict.fromkeys(await queue.get_job_counts(), 0),
        "completed": 2,
        "failed": 2,
    }
    assert await queue.check() == []


@pytest.mark.everywhere
async def test_a_waiting_job_is_revoked(queue: AnyQueue, store: RunningStore) -> None:
    asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine"))
    await waiting(queue, store)
    await left(asked)
    assert await ended(queue, "mine") == REASON
    with pytest.raises(ResultTimeout, match=r" 1\.0 s; .* is revoked; pass revoke_if_abandoned=False"):
        await queue.add_and_wait("n", 2, job_id="other", wait_timeout=1)
    assert await ended(queue, "other") in {REASON, "expired"}


@pytest.mark.everywhere
async def test_a_running_job_is_stopped(queue: AnyQueue) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine"))
        await gate.running()
        await left(asked)
        await gate.stopped()
        assert await ended(queue, "mine") == REASON
        # On a busy machine, the job may not have started when the time of its caller is over.
        for seconds in (0.3, 1, 3):
            with pytest.raises(ResultTimeout):
                await queue.add_and_wait("n", 1, job_id=f"after {seconds}", wait_timeout=seconds)
            if not gate.started.empty():
                break
        await gate.stopped()


async def test_a_job_that_has_completed_is_left_alone(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(queue, monkeypatch, "abandonJob", after=False)
    gate = Gate()
    async with worker_of(queue, gate):
        asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine", keep_completed=False))
        await gate.running()
        await left(asked)
        await soon(calls.reached.wait())
        gate.release()
        async with asyncio.timeout(PATIENCE):
            while (job := await queue.get_job("mine")) is None or job.state == "active":  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert job.state == "completed"
        calls.go_on.set()
        async with asyncio.timeout(PATIENCE):  # its record was held for the caller only
            while await queue.get_job("mine") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("first", ["message", "timeout"])
async def test_a_result_that_arrives_with_the_timeout_is_returned(
    queue: AnyQueue, store: RunningStore, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The loop handles both in the same turn."""
    asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine", wait_timeout=PATIENCE))
    await waits_for_results(queue)
    calls = Calls(queue, monkeypatch)
    results = queue._client.results  # pyright: ignore[reportPrivateUsage]
    on_message = results._on_message  # pyright: ignore[reportPrivateUsage]
    loop = asyncio.get_running_loop()
    loop.call_later(0.0 if first == "message" else PATIENCE, on_message, b"completed 4 mine\x07")
    with monkeypatch.context() as later:
        later.setattr(loop, "time", lambda: time.monotonic() + 2 * PATIENCE)
        assert await asked == 7
    assert "abandonJob" not in calls.made
    await queue.remove("mine")


async def test_a_result_that_arrives_with_a_cancellation_revokes_nothing(
    queue: AnyQueue, store: RunningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine"))
    await waits_for_results(queue)
    calls = Calls(queue, monkeypatch)
    results = queue._client.results  # pyright: ignore[reportPrivateUsage]
    # The message comes after the cancellation, and before the caller continues with it.
    asyncio.get_running_loop().call_soon(results._on_message, b"completed 4 mine\x07")  # pyright: ignore[reportPrivateUsage]
    await left(asked)
    await asyncio.sleep(0.1)
    assert "abandonJob" not in calls.made
    await queue.remove("mine")


async def test_a_job_that_another_caller_waits_for_continues(
    queue: AnyQueue, storage: Storage, store: RunningStore
) -> None:
    gate = Gate()
    async with Queue[Any, Any](queue.name, storage) as other, worker_of(queue, gate):
        first = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine"))
        await gate.running()
        second = asyncio.create_task(other.add_and_wait("n", 2, job_id="mine", wait_timeout=PATIENCE))
        await waiting(queue, store, clients=2)
        third = asyncio.create_task(queue.add_and_wait("n", 3, job_id="mine", wait_timeout=PATIENCE))
        await waits_for_results(queue, 2)
        await left(first)
        await asyncio.sleep(0.1)
        await left(third)
        await asyncio.sleep(0.1)
        gate.release()
        assert await second == 1


async def test_the_caller_of_a_duplicate_never_revokes_the_job(queue: AnyQueue) -> None:
    gate = Gate()
    job = await queue.add("n", 1, job_id="mine")
    async with worker_of(queue, gate):
        await gate.running()
        with pytest.raises(ResultTimeout):
            await queue.add_and_wait("n", 2, job_id="mine", wait_timeout=0.1)
        await asyncio.sleep(0.1)
        gate.release()
        assert await job.result(PATIENCE) == 1


async def test_an_abandoned_job_may_continue(queue: AnyQueue, store: RunningStore) -> None:
    with pytest.raises(ResultTimeout, match="If the job was stored, it continues"):
        await queue.add_and_wait("n", 1, job_id="mine", wait_timeout=1, revoke_if_abandoned=False)
    asked = asyncio.create_task(queue.add_and_wait("n", 2, job_id="other", revoke_if_abandoned=False))
    await waiting(queue, store, "other")
    await left(asked)
    async with worker_of(queue, echo):
        jobs = [await queue.get_job(job_id) for job_id in ("mine", "other")]
        assert [await job.result(PATIENCE) for job in jobs if job] == [1, 2]


async def test_only_a_caller_with_a_time_limit_limits_the_start(queue: AnyQueue, store: RunningStore) -> None:
    expiry = f"glide:{{{queue.name}}}:expiry"
    asked = [
        asyncio.create_task(queue.add_and_wait("n", 1, job_id="a")),
        asyncio.create_task(queue.add_and_wait("n", 1, job_id="b", wait_timeout=60, revoke_if_abandoned=False)),
        asyncio.create_task(queue.add_and_wait("n", 1, job_id="c", wait_timeout=60)),
    ]
    for job_id in ("a", "b", "c"):
        await waiting(queue, store, job_id)
    assert await store.ask("ZRANGE", expiry, 0, -1) == [b"c"]
    found = await queue.get_job("c")
    assert found is not None
    assert found.options.ttl is None
    async with worker_of(queue, echo):
        assert await asyncio.gather(*asked) == [1, 1, 1]


LATE_CALLER = """
import asyncio, sys
from glidemq_async import Queue

async def main():
    async with Queue(sys.argv[2], sys.argv[1]) as queue:
        await queue.add("n", "by hand")
        asked = asyncio.create_task(queue.add_and_wait("n", "asked", job_id="mine", wait_timeout=60))
        while await queue.get_job("mine") is None:
            await asyncio.sleep(0.01)
        print("added", flush=True)
        await asked

asyncio.run(main())
"""


async def test_a_job_does_not_start_after_the_deadline_of_a_dead_caller(timed: Timed) -> None:
    queue = timed.queue
    command = [sys.executable, "-c", LATE_CALLER, f"unix://{timed.store.primaries[0].path}", queue.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:  # noqa: ASYNC220
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"added\n"
        child.kill()
    await timed.clock.advance(60_000)
    ran: list[Any] = []

    async def note(job: AnyJob) -> None:
        ran.append(job.data)

    await worker_of(queue, note).run(until_empty=True)
    assert ran == ["by hand"]
    assert await ended(queue, "mine") == "expired"
    await queue.obliterate()  # the server keeps the record for the dead caller for a minute


async def test_a_lost_connection_does_not_prevent_the_revocation(queue: AnyQueue, store: RunningStore) -> None:
    gate = Gate()
    async with worker_of(queue, gate):
        asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine"))
        await gate.running()
        asked.cancel()
        for kind in ("normal", "pubsub"):
            await store.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        with pytest.raises(asyncio.CancelledError):
            await asked
        await gate.stopped()
        assert await ended(queue, "mine") == REASON


async def test_a_job_that_expires_at_the_deadline_is_a_timeout_of_the_caller(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited_add, "LATE_MS", 60_000)
    queue = timed.queue
    await queue.pause()
    asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine", wait_timeout=30))
    await waiting(queue, timed.store)
    await timed.clock.advance(31_000)
    await queue.resume()
    async with worker_of(queue, echo):
        with pytest.raises(ResultTimeout):
            await soon(asked)


async def test_the_end_of_a_users_ttl_is_a_failure(timed: Timed) -> None:
    queue = timed.queue
    await queue.pause()
    asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine", ttl=2, wait_timeout=30))
    await waiting(queue, timed.store)
    await timed.clock.advance(3_000)
    await queue.resume()
    async with worker_of(queue, echo):
        with pytest.raises(JobFailed, match="expired"):
            await soon(asked)


async def test_closing_the_queue_revokes_the_jobs_of_its_callers(
    storage: Storage, store: RunningStore, name: str
) -> None:
    queue = Queue[Any, Any](name, storage)
    asked = asyncio.create_task(queue.add_and_wait("n", 1, job_id="mine"))
    await waiting(queue, store)
    await queue.close()
    with pytest.raises(QueueClosed):
        await asked
    async with Queue[Any, Any](name, storage) as other:
        assert await ended(other, "mine") == REASON
