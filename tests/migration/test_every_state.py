"""A queue of layout 1 with jobs in every state is migrated, also by clients that are killed half way."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import GlideMQError, Queue
from glidemq_async.functions import loader
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg, RequestChannel, Wait
from glidemq_async.functions.inbox import Delivery
from glidemq_async.storage import RedisStorage, Storage
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.storage.redis.library import Library
from glidemq_async.storage.redis.wire import ReplyError
from tests.migration import every_state
from tests.migration.every_state import Built
from tests.migration.old_queue import OldJob, OldQueue, old_queue
from tests.support.stores import RunningStore

Own = tuple[Storage, RunningStore]
SIZES = [5_000, pytest.param(100_000, marks=pytest.mark.slow)]


async def _verify(own: Own, made: Built, seconds: float = 200) -> None:
    """Open the queue, compare it with the one of layout 1, and run its jobs."""
    storage, store = own
    async with Queue[Any, Any]("q", storage) as queue:
        await every_state.compare(queue, made)
        await every_state.run_all(queue, store, made, seconds)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("size", SIZES)
async def test_each_job_keeps_its_state_and_starts_once_in_its_order(own: Own, size: int) -> None:
    async with old_queue(own[1], "q") as old:
        made = await every_state.build(old, size)
        await _verify(own, made)


async def _position(old: OldQueue) -> str:
    """Return the phase of the migration, "" before its first step and after its last one."""
    found = await old.store.ask("HGET", f"{old.base}:meta2", "migrating")
    return found.decode() if isinstance(found, bytes) else ""


async def _kill_a_client(store: RunningStore, step: int) -> None:
    command = (sys.executable, "-m", "tests.migration.killed_client", store.url, "q", str(step))
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == -signal.SIGKILL


@pytest.mark.timeout(400)
@pytest.mark.parametrize("size", SIZES)
async def test_the_next_client_continues_after_one_that_was_killed(own: Own, size: int) -> None:
    _, store = own
    async with old_queue(store, "q") as old:
        made = await every_state.build(old, size)
        await _kill_a_client(store, 0)
        assert await _position(old) == ""
        for _ in range(2):
            await _kill_a_client(store, 1 + size // 5_000)
            assert await _position(old), "the migration must go on"
            # Half way, no client can use the queue.
            await _is_closed(own, old)
        await _verify(own, made)


async def _is_closed(own: Own, old: OldQueue) -> None:
    before = await old.store.ask("DBSIZE")
    functions = Functions(own[0], old.base)
    claim = functions.settle.request(RequestChannel("w"), "w", 1, 1000, subscribed=False)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: functions.queue.open(None),
        lambda: functions.settle.send(claim),
        lambda: functions.stalled.sweep(3, 0, 1000, resume=False),
        lambda: functions.jobs.revoke("own"),
        lambda: functions.inbox.deliver([Delivery("token", b"", b"n", b"x", b"", b"", b"")]),
    ]
    for call in calls:
        with pytest.raises(FunctionError, match="has layout 1, or its migration"):
            await call()
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        await old.add([OldJob("too late")])
    assert await old.store.ask("DBSIZE") == before


async def test_two_clients_can_migrate_a_queue_together(own: Own) -> None:
    _, store = own
    library = _library(*UNCHANGED)
    async with (
        old_queue(store, "q") as old,
        RedisStorage(store.primaries[0], library=library) as first,
        RedisStorage(store.primaries[0], library=library) as second,
    ):
        made = await every_state.build(old, 400)
        steps = [Steps(first), Steps(second)]
        clients = [Functions(each, old.base).migration for each in steps]
        while not all(step.is_done for step in await asyncio.gather(*[client.step() for client in clients])):
            pass
        assert min(each.count for each in steps) > 3
        await _verify(own, made)


class Steps:
    """A storage that sends each call twice, as after a lost reply, and counts the calls."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.count = 0

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,
        wait: Wait = "default",
        messages_first: bool = False,
    ) -> object:
        """Call a function twice and return the second reply."""
        self.count += 1
        await self._storage.call(function, key, args, readonly=readonly, timeout=timeout, wait=wait)
        return await self._storage.call(function, key, args, readonly=readonly, timeout=timeout, wait=wait)


@pytest.mark.parametrize("stream", ["stream", "lane"])
async def test_a_destroyed_group_loses_no_job(own: Own, stream: str) -> None:
    storage, store = own
    async with old_queue(store, "q") as old:
        ids = await old.add([OldJob(number) for number in range(20)])
        await old.settle("old", await old.claim("old", 10), "b")
        await old.age("old", await old.claim("old", 15), every_state.LONG_AGO_MS)  # ten of them from `returned`
        assert await old.store.ask("XGROUP", "DESTROY", f"{old.base}:{stream}", "workers") == 1
        async with Queue[Any, Any]("q", storage) as queue:
            made = Built(unordered=ids)
            await every_state.run_all(queue, store, made, 20)


async def test_entries_without_a_record_are_dropped(own: Own) -> None:
    storage, store = own
    async with old_queue(store, "q") as old:
        lost, running, *rest = await old.add([OldJob(number) for number in range(20)])
        await old.claim("old", 2)
        await old.store.ask("DEL", f"{old.base}:job:{lost}", f"{old.base}:job:{running}", f"{old.base}:job:{rest[3]}")
        # The same id was added again, so an old entry names a job that waits under another one.
        await old.add([OldJob("again", rest[3])])
        async with Queue[Any, Any]("q", storage) as queue:
            await every_state.run_all(queue, store, Built(fifo=[*rest[:3], *rest[4:], rest[3]]), 20)
            assert await queue.check() == []


# Each of these loses, repeats, reorders or changes jobs, or lets other clients in.
MUTANTS = {
    "returned jobs are reversed": ("digits(rows[i + 1] - OLDER)", "digits(-rows[i + 1])"),
    "a run loses its order": ("order < 0 and order or order - OLDER", "order + OLDER"),
    "a run keeps no age": ("local call = {now = clock.now() - row[3]}", "local call = {now = clock.now()}"),
    "a run of the stream is dropped": ("    move_run(base, row, nil, id)\n  elseif", "  elseif"),
    "the time of creation is forgotten": ("    keep_added(base, id, raw)\n    move_run", "    move_run"),
    "the time of creation of ended jobs is forgotten": ("      if raw then keep_added(base, id, raw) end\n", ""),
    "a step deletes one entry more": ("ms .. '-' .. digits(seq + 1))", "ms .. '-' .. digits(seq + 2))"),
    "failed jobs are left out": ("completed = 'failed 0',", "completed = 'end -',"),
    "the location of a waiting job is not written": ("if job.has_record then", "if false then"),
    "the settings are lost": ("  redis.call('HSET', key, unpack(redis.call('HGETALL', base .. ':meta')))\n", ""),
    "older clients are not kept out": ("  layout.write_notice(base)\n", ""),
    "the queue is open during the migration": ("'features', queue_flags.MIGRATING)", "'features', '')"),
    "a live worker is ignored": ("if names[1] then return", "if false then return"),
}
UNCHANGED = ("", "")


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_mutant_is_noticed(own: Own, name: str) -> None:
    with pytest.raises((AssertionError, TimeoutError, GlideMQError, pytest.fail.Exception)):
        async with asyncio.timeout(15):
            await _scenario(own[1], _library(*MUTANTS[name]))


async def test_the_scenario_of_the_mutants_passes_without_one(own: Own) -> None:
    await _scenario(own[1], _library(*UNCHANGED))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_text_of_a_mutant_occurs_once(name: str) -> None:
    assert _migration().count(MUTANTS[name][0]) == 1


def _migration() -> str:
    return Path(loader.__file__).with_name("migration.lua").read_text(encoding="utf-8")


def _library(old: str, new: str) -> Library:
    """Return the library with a mutant, and with calls of `migrateQueue` that make one step each."""
    source, text, until = loader.source(), _migration(), "until budget.is_spent(call_budget)"
    assert (source.count(text), text.count(until)) == (1, 1)
    return Library(source.replace(text, text.replace(old, new).replace(until, "until true")), "2.999.0")


async def _scenario(store: RunningStore, library: Library) -> None:
    async with old_queue(store, "q") as old, RedisStorage(store.primaries[0], library=library) as storage:
        made = await every_state.build(old, 400)
        await old.functions.leases.renew("alive", b"\x80", [], 0)
        migration = Functions(storage, old.base).migration
        assert (await migration.step()).workers == ("alive",)
        await old.call("closeWorker", "alive")
        await migration.step()
        await _is_closed((storage, store), old)
        await _verify((storage, store), made, seconds=8)
