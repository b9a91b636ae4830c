"""Clients of layout 1 cannot change a queue of layout 2."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from glidemq_async import Queue
from glidemq_async.functions.calling import Arg
from glidemq_async.storage import Storage
from glidemq_async.storage.redis.wire import ReplyError
from tests.migration.old_queue import LIBRARY, OldJob, OldQueue, layout1, old_queue, options, snapshot
from tests.support.stores import RunningStore

_CALL: Final = ("channel", 1)
_DATA: Final = b"\xc0"
_JOB: Final = ("", "n", _DATA, "", "")

# The arguments with which each function of layout 1 writes. A test fills in the names in braces.
WRITES: Final[dict[str, tuple[Arg, ...]]] = {
    "addJob": (*_CALL, 1, *_JOB, "{incarnation}"),
    "changePriority": (*_CALL, "{id}", 1),
    "changeDelay": (*_CALL, "{late}", 5),
    "drainJobs": (*_CALL, "", 1, 100),
    "cleanJobs": (*_CALL, "", "completed", 0, 100, 100),
    "cleanUnstarted": (*_CALL, "", "waiting", 0, 100, 100),
    "promoteJobs": (*_CALL, "", -1, 100),
    "retryJobs": (*_CALL, "", "completed", -1, 100),
    "setDeadLetter": ("dead",),
    "noteReader": ("reader", "{incarnation}", 1, 1),
    "noteLoss": ("reader", "why", "{incarnation}", 1, 2),
    "deliverJobs": (*_CALL, 1, "token", *_JOB, ""),
    "awaitJob": ("{id}", "reply"),
    "forgetReply": ("{id}", "reply"),
    "confirmReplies": ("reply", "{done}"),
    "removeJob": (*_CALL, "{id}"),
    "retryJob": (*_CALL, "{done}"),
    "revokeJob": (*_CALL, "{id}", "why"),
    "promoteJob": (*_CALL, "{late}"),
    "setLimits": (*_CALL, "concurrency", 1),
    "setKeyLimits": (*_CALL, "k", "concurrency", 1),
    "pauseKey": (*_CALL, "k", 1000),
    "reviewKeys": (*_CALL, "0"),
    "renewLeases": ("old", b"\x80", 0, 0, "{running}", "{token}"),
    "endRuns": ("old", "{token}"),
    "obliterateQueue": (*_CALL, "", "1", 100, "id", "meta", "meta2", "fifo"),
    "sweepRemains": ("job:{id}", "fifo", "call:x"),
    "relayOutbox": ("holder", "", 0),
    "openQueue": ("", "another", "dead", 1),
    "setPaused": (*_CALL, 1),
    "replayFailed": (*_CALL, 0, "", 100, ""),
    "reviveJobs": (*_CALL, 1, "token", "new", 1, "n", _DATA, "", ""),
    "dropMoved": (*_CALL, "{id}"),
    "setResultTtl": (*_CALL, "{done}", 1000),
    "takeSchedules": ("process", "", "", ""),
    "leaveSchedules": ("process",),
    "upsertScheduler": (*_CALL, "process", "new", "", "", b"\x80", "", "", "n", _DATA, "", "", "default", 1),
    "removeScheduler": (*_CALL, "scheduler"),
    "pauseScheduler": (*_CALL, "scheduler"),
    "resumeScheduler": (*_CALL, "process", "scheduler", "", 1),
    "fireSchedulers": (*_CALL, 1, "scheduler", "{rev}", 1000, 2000, 0, 1, 1000),
    "triggerScheduler": (*_CALL, "scheduler"),
    "settleAndClaim": (*_CALL, "old", 5, 1000, "u", "0 0", 1, "c", "{running}", "{token}", _DATA, "", "{incarnation}"),
    "sweep": (*_CALL, 3, 0, 1000, 0),
    "closeWorker": (*_CALL, "old"),
    "releaseDeduplication": (*_CALL, "d"),
    "updateJob": (*_CALL, "{id}", "", "progress", _DATA),
    "planWrite": (*_CALL,),
    "openWrite": (*_CALL, "another", "token", 1000, "", "", "", 0),
    "addToWrite": (*_CALL, "write", "token", 0, 0, b"\x90", 1, *_JOB, "{incarnation}"),
    "probeWrite": (*_CALL, "write", "token", 0, 1, "{id}", "{incarnation}"),
    "endWrite": (*_CALL, "write", "token", "committed", 1),
}
# The structures that a function still changes. All of them have the same form in both layouts, and most of these calls
# raise an error.
# `sweepRemains` is only called after an obliteration, and that is refused.
ALLOWED: Final = {
    "noteLoss": {":losses"},
    "renewLeases": {":alive"},
    "setKeyLimits": {":key:k", ":limited"},
    "sweepRemains": {":job:waiting"},
    "setResultTtl": {":completed", ":job:done"},
    "takeSchedules": {":schedules_timer"},
    "leaveSchedules": set[str](),
    "removeScheduler": {":schedules", ":scheduler:scheduler"},
    "pauseScheduler": {":schedules", ":scheduler:scheduler"},
    "endWrite": {":write:write"},
}
READS: Final = re.compile(r"^(get|list|check|count|search|read|version|isPaused|lastEvent|locateEvents)")


def test_every_writing_function_of_layout_1_is_tried() -> None:
    registered = set(re.findall(r"^\s*(?:request\.)?register\('(\w+)'", layout1(), re.MULTILINE))
    assert {name for name in registered if not READS.match(name)} == WRITES.keys()


async def _fill(old: OldQueue) -> dict[str, str]:
    """Store a job or a structure for each function, and return the words for its arguments."""
    await old.add([OldJob(0, id="running"), OldJob(1, id="done"), OldJob(2, id="failed")])
    running, done, failed = await old.claim("old", 3)
    await old.settle("old", [done])
    await old.settle("old", [failed], "f", option=";unrecoverable;why")
    dedup = options(dedup={"id": "d", "ttl": 60_000, "mode": "simple"})
    await old.add([
        OldJob(3, id="waiting"), OldJob(4, id="late", extra=options(delay=60_000)), OldJob(5, id="single", extra=dedup),
        OldJob(6, id="keyed", extra=b"kk"),
    ])  # fmt: skip
    template: list[Arg] = [b"\x80", "", "", "n", _DATA, "", "", "default", 1000]
    await old.call("upsertScheduler", "process", "scheduler", "", "", *template)
    rev = await old.store.ask("HGET", f"{old.base}:scheduler:scheduler", "rev")
    await old.call("openWrite", "write", "token", 100_000, "", "", "", 0)
    assert isinstance(rev, bytes)
    return {
        "id": "waiting", "late": "late", "done": "done", "running": "running", "token": running.token,
        "incarnation": old.functions.caller.incarnation, "rev": rev.decode(),
    }  # fmt: skip


async def _try(old: OldQueue, function: str, words: dict[str, str]) -> Exception | None:
    args = [arg.format(**words) if isinstance(arg, str) else arg for arg in WRITES[function]]
    try:
        await old.store.ask("FCALL", f"{LIBRARY}_{function}", 1, old.base, *args)
    except ReplyError as error:
        return error
    return None


async def _changed_by(store: RunningStore, old: OldQueue, function: str, words: dict[str, str]) -> set[str]:
    """Call a function. Return the store keys that it has changed, and its error as `!<error>`."""
    before = await snapshot(store, old)
    error = await _try(old, function, words)
    after = await snapshot(store, old)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return {key for key in changed if not key.startswith(":call:")} | ({f"!{error}"} if error else set())


async def test_no_function_of_layout_1_changes_a_migrated_queue(own: tuple[Storage, RunningStore]) -> None:
    for function in WRITES:
        await _compare(*own, function)


async def _compare(storage: Storage, store: RunningStore, function: str) -> None:
    name = function
    async with old_queue(store, f"{name}-old") as unchanged, old_queue(store, name) as old:
        # The same call works as long as the queue has layout 1, so its arguments are not the reason for a refusal.
        written = await _changed_by(store, unchanged, function, await _fill(unchanged))
        assert not any(one.startswith("!") for one in written), written
        words = await _fill(old)
        # An open queue would change its data too, because it takes a role for the job scheduler.
        async with Queue[Any, Any](name, storage):
            pass
        changed = await _changed_by(store, old, function, words)
        error = next((one for one in changed if one.startswith("!")), "")
        assert changed - {error} == ALLOWED.get(function, set()), (function, changed)
        if written and function not in ALLOWED:
            refusal = "!GLIDEMQ INCOMPATIBLE" if function == "openQueue" else "!WRONGTYPE"
            assert error.startswith(refusal), (function, changed)
        if function != "sweepRemains":
            async with Queue[Any, Any](name, storage) as queue:
                assert await queue.check() == []


@pytest.mark.everywhere
@pytest.mark.usefixtures("layout1")
async def test_a_client_of_layout_1_cannot_open_a_new_queue(storage: Storage, store: RunningStore, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await queue.add("n")
        with pytest.raises(ReplyError, match=r"INCOMPATIBLE .* found a string"):
            async with old_queue(store, name):
                raise AssertionError("it was opened")
        assert await queue.check() == []


@pytest.mark.everywhere
@pytest.mark.usefixtures("layout1")
async def test_a_queue_of_layout_1_next_to_a_migrated_one_stays_in_use(
    storage: Storage, store: RunningStore, name: str
) -> None:
    async with old_queue(store, name) as old, Queue[Any, Any](f"{name}-new", storage) as new:
        await new.add("n")
        await old.add([OldJob(1)])
        [lease] = await old.claim("old", 1)
        await old.settle("old", [lease])
        assert await old.store.ask("ZCARD", f"{old.base}:completed") == 1
        assert await new.count() == 1
