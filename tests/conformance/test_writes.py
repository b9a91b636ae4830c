"""Bulk writes: repeated tasks, duplicates, fencing, and how long a write is remembered."""

from __future__ import annotations

import asyncio

import msgpack
import pytest

from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg
from glidemq_async.storage import Storage
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.stored.names import QueueKeys
from tests.support.bulk_rows import rows
from tests.support.helpers import AnyQueue, echo, history, worker_of
from tests.support.stores import RunningStore

HOUR = 3_600_000


async def counters(functions: Functions, write_id: str) -> dict[str, int]:
    (found,) = await functions.writes.get([write_id])
    return {name: int(found[name.encode()]) for name in ("inserted", "replayed", "duplicate", "rejected")}


@pytest.mark.everywhere
async def test_a_repeated_task_adds_nothing_twice(queue: AnyQueue, functions: Functions) -> None:
    assert await functions.writes.open("w", "t", HOUR)
    first = await functions.writes.add("w", "t", rows("a", "b"))
    again = await functions.writes.add("w", "t", rows("a", "b", "c"))
    assert (first.inserted, first.replayed, first.depth) == (2, 0, 2)
    assert (again.inserted, again.replayed, again.depth) == (1, 2, 3)
    assert await functions.writes.end("w", "t", "committed", 1) == ("ok", "committed")
    assert await counters(functions, "w") == {"inserted": 3, "replayed": 2, "duplicate": 0, "rejected": 0}
    assert {job.id for job in await queue.get_jobs("waiting")} == {"a", "b", "c"}


async def test_jobs_that_ran_and_were_removed_are_not_added_again(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    ids = [f"j{n}" for n in range(5)]
    await functions.writes.add("w", "t", rows(*ids))
    async with worker_of(queue, echo):
        for job in await queue.get_jobs("waiting"):
            await job.result(10)
    for id_ in ids:
        await queue.remove(id_)
    again = await functions.writes.add("w", "t", rows(*ids, "new"))
    assert (again.inserted, again.replayed) == (1, 5)


async def test_without_a_ledger_only_the_records_are_checked(
    queue: AnyQueue, functions: Functions, store: RunningStore
) -> None:
    await functions.writes.open("w", "t", 0)
    await functions.writes.add("w", "t", rows("a"))
    assert (await functions.writes.add("w", "t", rows("a"))).duplicate == 1
    await queue.remove("a")
    assert (await functions.writes.add("w", "t", rows("a"))).inserted == 1
    assert not [key for key in await store.keys() if ":written:" in key]


async def test_an_id_of_another_client_is_a_duplicate_and_counts_once(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="a")
    await functions.writes.open("w", "t", HOUR)
    reply = await functions.writes.add("w", "t", rows("a", "b"))
    assert (reply.inserted, reply.duplicate, reply.first_duplicate) == (1, 1, "a")
    await functions.writes.add("w", "t", rows("a", "b"))
    assert await counters(functions, "w") == {"inserted": 1, "replayed": 2, "duplicate": 1, "rejected": 0}
    assert "duplicate" not in {event.kind for event in await history(queue)}


async def test_an_existing_job_among_new_ones_is_not_changed(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="b")
    await functions.writes.open("w", "t", HOUR)
    reply = await functions.writes.add("w", "t", rows("a", "b", "c"))
    assert (reply.inserted, reply.duplicate, reply.first_duplicate) == (2, 1, "b")
    assert {job.id: job.data for job in await queue.get_jobs("waiting")} == {"a": "a", "b": 1, "c": "c"}


async def test_a_call_that_ends_early_counts_each_job_once(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="j450")
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.add("w", "t", rows("j5", "j499"))
    extra = msgpack.packb({"key": "k", "priority": 5})
    left: list[Arg] = [word for n in range(499) for word in (f"j{n}", "n", b"\xc0", b"", extra)]
    left += rows("j499")
    calls = 0
    while left:
        reply = await functions.writes.add("w", "t", left, may_end_early=True)
        assert reply.considered == reply.inserted + reply.replayed + reply.duplicate
        left, calls = left[5 * reply.considered :], calls + 1
    assert calls > 1
    assert await counters(functions, "w") == {"inserted": 499, "replayed": 2, "duplicate": 1, "rejected": 0}
    assert await queue.count() == 500


async def test_each_repeated_duplicate_has_an_event(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="a")
    await functions.writes.open("w", "t", HOUR)
    for _ in range(2):
        assert (await functions.writes.add("w", "t", rows("a"), duplicates="report")).duplicate == 1
    assert [event.kind for event in await history(queue)].count("duplicate") == 2


async def test_two_rows_with_one_id_are_one_job(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    reply = await functions.writes.add("w", "t", rows("a", "a", "b"))
    assert (reply.inserted, reply.replayed, reply.duplicate) == (2, 1, 0)
    assert await queue.count() == 2


async def test_rows_without_an_id_are_always_new(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.add("w", "t", rows("", "", "7"))
    await functions.writes.add("w", "t", rows(""))
    assert await queue.count() == 4


async def test_a_refused_row_is_counted_once(functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    for _ in range(2):
        await functions.writes.add("w", "t", [], marks=[b"\x1f1", b"\x1f2"])
    assert (await counters(functions, "w"))["rejected"] == 2


@pytest.mark.everywhere
@pytest.mark.parametrize("state", ["aborted", "committed"])
async def test_nothing_is_added_once_a_write_has_ended(queue: AnyQueue, functions: Functions, state: str) -> None:
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.end("w", "t", "aborted" if state == "aborted" else "committed")
    with pytest.raises(FunctionError, match=f"write w is {state}") as refused:
        await functions.writes.add("w", "t", rows("a"))
    assert refused.value.code == "WRITEFENCED"
    assert await queue.count() == 0


async def test_an_ended_write_stays_ended(functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    assert await functions.writes.end("w", "other", "aborted") == ("fenced", "open")
    assert await functions.writes.end("w", "t", "committed") == ("ok", "committed")
    assert await functions.writes.end("w", "t", "committed") == ("ok", "committed")
    assert await functions.writes.end("w", "t", "aborted") == ("state", "committed")
    assert await functions.writes.end("none", "t", "aborted") == ("missing", "")
    assert not await functions.writes.open("w", "another", HOUR)


async def test_a_client_that_opens_a_write_again_takes_it_over(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "first", HOUR)
    await functions.writes.add("w", "first", rows("a"))
    assert await functions.writes.open("w", "second", HOUR)
    with pytest.raises(FunctionError, match="taken over"):
        await functions.writes.add("w", "first", rows("b"))
    assert (await functions.writes.add("w", "second", rows("a", "b"))).replayed == 1
    assert await queue.count() == 2


@pytest.mark.everywhere
async def test_an_older_run_cannot_open_a_write_that_a_newer_run_has_opened(
    queue: AnyQueue, functions: Functions
) -> None:
    older, newer = await functions.writes.plan(), await functions.writes.plan()
    assert older < newer
    await functions.writes.open("w", "old", HOUR, order=older)
    await functions.writes.open("w", "new", HOUR, order=newer)
    with pytest.raises(FunctionError, match="newer run") as refused:
        await functions.writes.open("w", "old", HOUR, order=older)
    assert refused.value.code == "WRITEFENCED"
    assert (await functions.writes.add("w", "new", rows("a"))).inserted == 1
    # Other tasks of the newer run may begin at any time.
    assert await functions.writes.open("w", "new", HOUR, order=newer)
    await functions.writes.end("w", "new", "aborted")
    with pytest.raises(FunctionError, match="newer run"):
        await functions.writes.open("w", "old", HOUR, order=older)
    assert await queue.count() == 1


async def test_an_open_without_an_order_counts_as_the_newest(functions: Functions) -> None:
    order = await functions.writes.plan()
    await functions.writes.open("w", "first", HOUR)
    with pytest.raises(FunctionError, match="newer run"):
        await functions.writes.open("w", "planned before", HOUR, order=order)
    assert await functions.writes.open("w", "planned after", HOUR, order=await functions.writes.plan())
    assert await functions.writes.open("w", "last", HOUR)


async def test_a_recreated_queue_orders_its_runs_anew(queue: AnyQueue, functions: Functions) -> None:
    before = await functions.writes.plan()
    await queue.obliterate()
    await functions.queue.open(None)
    # An order is at least the server's time, and all of this may happen within one millisecond.
    assert await functions.writes.plan() >= before


@pytest.mark.parametrize("call", ["plan", "open"])
async def test_a_write_call_to_an_obliterated_queue_does_not_prevent_its_recreation(
    queue: AnyQueue, functions: Functions, call: str
) -> None:
    await queue.obliterate()
    await (functions.writes.plan() if call == "plan" else functions.writes.open("w", "t", HOUR))
    assert (await functions.queue.open(None)).incarnation


async def test_only_another_run_can_open_an_aborted_write(functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.end("w", "t", "aborted")
    with pytest.raises(FunctionError, match="was aborted"):
        await functions.writes.open("w", "t", HOUR)
    assert await functions.writes.open("w", "u", HOUR)
    assert (await functions.writes.add("w", "u", rows("a"))).inserted == 1


async def test_a_version_is_written_once(functions: Functions) -> None:
    assert await functions.writes.open("w1", "t", HOUR, "app", 3)
    await functions.writes.add("w1", "t", rows("a"))
    assert await functions.writes.get_transaction("app") is None
    await functions.writes.end("w1", "t", "committed")
    assert await functions.writes.get_transaction("app") == (3, "w1")
    assert not await functions.writes.open("w2", "t", HOUR, "app", 3)
    assert not await functions.writes.open("w3", "t", HOUR, "app", 2)
    assert await functions.writes.open("w4", "t", HOUR, "app", 4)
    assert await functions.writes.open("w5", "t", HOUR, "other", 1)


async def test_an_unknown_write_is_refused(functions: Functions) -> None:
    with pytest.raises(FunctionError, match="not known"):
        await functions.writes.add("w", "t", rows("a"))


async def test_every_key_of_a_write_expires(functions: Functions, store: RunningStore) -> None:
    await functions.writes.open("w", "t", HOUR, "app", 1)
    await functions.writes.add("w", "t", rows("a"))
    await functions.writes.end("w", "t", "committed")
    names = {name: f"{functions.caller.base}:{name}" for name in ("write:w", "written:w", "writes", "transaction:app")}
    left = await store.lifetimes(list(names.values()))
    assert 0 < left[names["written:w"]] <= HOUR
    assert all(left[key] > 0 for key in names.values())


async def test_an_obliterated_queue_leaves_no_write(queue: AnyQueue, functions: Functions, store: RunningStore) -> None:
    await functions.writes.open("w", "t", HOUR, "app", 1)
    await functions.writes.add("w", "t", rows("a"))
    await functions.writes.end("w", "t", "committed")
    await queue.obliterate()
    assert not [key for key in await store.keys() if "writ" in key or "transaction" in key]


async def test_a_write_ends_with_its_queue(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    await queue.obliterate()
    await queue.add("n", 1)
    with pytest.raises(FunctionError, match="WRITEFENCED"):
        await functions.writes.add("w", "t", rows("a"))
    other = Functions(queue.storage, functions.caller.base)
    await other.writes.open("w", "t", HOUR)
    with pytest.raises(FunctionError, match="UNDECLARED"):
        await functions.writes.add("w", "t", rows("a"))


async def test_a_repeated_call_counts_once(functions: Functions, storage: Storage) -> None:
    await functions.writes.open("w", "t", HOUR)
    call: list[Arg] = ["lane", 1, "w", "t", 0, 1, b"", 2, *rows("a", ""), functions.caller.incarnation]
    replies = [await storage.call("addToWrite", functions.caller.base, call) for _ in range(2)]
    assert replies[0] == replies[1]
    assert await counters(functions, "w") == {"inserted": 2, "replayed": 0, "duplicate": 0, "rejected": 0}


async def test_two_concurrent_writers_with_the_same_ids_add_each_job_once(
    queue: AnyQueue, functions: Functions
) -> None:
    await functions.writes.open("w1", "t", HOUR)
    await functions.writes.open("w2", "t", HOUR)
    ids = [f"j{n}" for n in range(300)]

    async def write(write_id: str, mine: list[str]) -> None:
        for at in range(0, len(mine), 20):
            await functions.writes.add(write_id, "t", rows(*mine[at : at + 20]))

    await asyncio.gather(write("w1", ids), write("w1", ids[100:]), write("w2", list(reversed(ids))))
    one, two = await counters(functions, "w1"), await counters(functions, "w2")
    assert one["inserted"] + two["inserted"] == 300 == await queue.count()
    assert one["inserted"] + one["duplicate"] == 300
    assert one["replayed"] == 200
    assert two["inserted"] + two["duplicate"] == 300


async def test_options_work_as_in_an_add(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    delayed, keyed = msgpack.packb({"delay": 60_000}), msgpack.packb({"key": "k", "cost": 1000})
    await functions.writes.add("w", "t", [*rows("d", extra=delayed), *rows("k1", "k2", extra=keyed), *rows("p")])
    found = await queue.get_job_counts()
    assert (found["delayed"], found["key-waiting"], found["waiting"]) == (1, 2, 1)
    assert await functions.writes.get_depth() == 3


async def test_the_mode_applies_and_a_refused_call_counts_nothing(storage: Storage, name: str) -> None:
    functions = Functions(storage, QueueKeys("glide", name).base)
    await functions.queue.open("keyed")
    await functions.writes.open("w", "t", HOUR)
    with pytest.raises(FunctionError, match="INCOMPATIBLE"):
        await functions.writes.add("w", "t", rows("a"))
    assert await counters(functions, "w") == {"inserted": 0, "replayed": 0, "duplicate": 0, "rejected": 0}


async def test_a_rate_applies_to_the_whole_write(functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    waits = [
        (await functions.writes.add("w", "t", rows(*(f"{call}-{n}" for n in range(10))), rate=10_000)).wait
        for call in range(3)
    ]
    assert 900 <= waits[0] <= 1000
    assert 1800 <= waits[1] <= 2000
    assert 2700 <= waits[2] <= 3000


async def test_writes_are_listed_newest_first(functions: Functions) -> None:
    for number in range(3):
        await functions.writes.open(f"w{number}", "t", HOUR)
        await asyncio.sleep(0.002)
    assert await functions.writes.list_ids("", 2) == ("2", ["w2", "w1"])
    assert await functions.writes.list_ids("2", 2) == ("", ["w0"])


async def test_the_end_of_a_write_has_an_event(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.add("w", "t", rows("a", "b"))
    await functions.writes.end("w", "t", "committed")
    assert [event.detail for event in await history(queue) if event.kind == "written"] == ["committed 2 w"]


@pytest.mark.parametrize(
    "args",
    [
        ["lane", 1, "w", "t", 0, 1, b"", "x"],
        ["lane", 1, "w", "t", "fast", 1, b"", 0],
        ["lane", 1, "w", "t", 0, 1, b"", 2, *rows("a")],
        ["lane", 1, "w", "t", 0, 1, b"", 501, *rows(*map(str, range(501)))],
    ],
)
async def test_a_malformed_call_changes_nothing(functions: Functions, storage: Storage, args: list[Arg]) -> None:
    await functions.writes.open("w", "t", HOUR)
    with pytest.raises(FunctionError, match="ARGUMENT"):
        await storage.call("addToWrite", functions.caller.base, args)
    assert await functions.writes.get_depth() == 0
