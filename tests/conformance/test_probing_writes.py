"""Writes that first ask by id: the rows that a probe counts, the rows that it leaves to the add, and one count per
row.
"""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg
from glidemq_async.functions.writes import ProbeReply
from glidemq_async.storage import Storage
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.stored.names import QueueKeys
from tests.support.bulk_rows import rows
from tests.support.clocked_queue import Timed
from tests.support.helpers import AnyQueue, echo, history, worker_of
from tests.support.stores import RunningStore

HOUR = 3_600_000


async def counters(functions: Functions, write_id: str) -> tuple[int, int, int]:
    (found,) = await functions.writes.get([write_id])
    return int(found[b"inserted"]), int(found[b"replayed"]), int(found[b"duplicate"])


@pytest.mark.everywhere
async def test_known_ids_are_counted_and_unknown_ones_are_returned(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="foreign")
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.add("w", "t", rows("mine"))
    probed = await functions.writes.probe("w", "t", ["new", "mine", "foreign", "other"])
    assert probed == ProbeReply(replayed=1, duplicate=1, missing=[0, 3])
    assert await counters(functions, "w") == (1, 1, 1)
    assert (await functions.writes.add("w", "t", rows("new", "other"))).inserted == 2
    assert await counters(functions, "w") == (3, 1, 1)
    assert [event.kind for event in await history(queue)].count("duplicate") == 0


async def test_a_duplicate_is_remembered_as_if_it_had_been_sent(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="a")
    await functions.writes.open("w", "t", HOUR)
    assert (await functions.writes.probe("w", "t", ["a"])).duplicate == 1
    await queue.remove("a")
    assert (await functions.writes.add("w", "t", rows("a"))).replayed == 1
    assert (await functions.writes.probe("w", "t", ["a"])) == ProbeReply(1, 0, [])


async def test_rows_of_removed_jobs_count_as_replayed(queue: AnyQueue, functions: Functions) -> None:
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.add("w", "t", rows("a"))
    await queue.remove("a")
    assert await functions.writes.probe("w", "t", ["a", "b"]) == ProbeReply(1, 0, [1])


async def test_an_id_that_occurs_twice_counts_as_in_an_add(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="a")
    await functions.writes.open("w", "t", HOUR)
    assert await functions.writes.probe("w", "t", ["a", "b", "a", "b"]) == ProbeReply(1, 1, [1, 3])
    assert (await functions.writes.add("w", "t", rows("b", "b"))).replayed == 1
    assert await counters(functions, "w") == (1, 2, 1)


@pytest.mark.parametrize("ttl", [0, HOUR])
async def test_duplicates_that_must_be_reported_are_left_to_the_add(
    queue: AnyQueue, functions: Functions, ttl: int
) -> None:
    await queue.add("n", 1, job_id="a")
    await functions.writes.open("w", "t", ttl)
    await functions.writes.add("w", "t", rows("b"))
    probed = await functions.writes.probe("w", "t", ["a", "b"], duplicates="report")
    assert probed.missing == ([0] if ttl else [0, 1])
    assert (await functions.writes.add("w", "t", rows("a"), duplicates="report")).first_duplicate == "a"


async def test_without_a_ledger_only_the_records_are_checked(
    queue: AnyQueue, functions: Functions, store: RunningStore
) -> None:
    await functions.writes.open("w", "t", 0)
    await functions.writes.add("w", "t", rows("a"))
    assert await functions.writes.probe("w", "t", ["a", "b"]) == ProbeReply(0, 1, [1])
    await queue.remove("a")
    assert await functions.writes.probe("w", "t", ["a", "b"]) == ProbeReply(0, 0, [0, 1])
    assert not [key for key in await store.keys() if ":written:" in key]


async def test_an_expired_job_is_left_to_the_add(timed: Timed) -> None:
    queue = timed.queue
    await queue.add("n", 1, job_id="a", result_ttl=60)
    await worker_of(queue, echo).run(until_empty=True)
    functions = Functions(queue.storage, QueueKeys("glide", queue.name).base)
    await functions.queue.open(None)
    await functions.writes.open("w", "t", HOUR)
    await functions.writes.open("early", "t", HOUR)
    assert await functions.writes.probe("early", "t", ["a", "b"]) == ProbeReply(0, 1, [1])
    await timed.clock.advance(61_000)
    assert await functions.writes.probe("w", "t", ["a", "b"]) == ProbeReply(0, 0, [0, 1])
    assert (await functions.writes.add("w", "t", rows("a"))).inserted == 1


async def test_duplicates_that_are_only_counted_are_not_stored(queue: AnyQueue, functions: Functions) -> None:
    await queue.add("n", 1, job_id="a")
    await functions.writes.open("w", "t", HOUR)
    assert await functions.writes.probe("w", "t", ["a", "a"], duplicates="count") == ProbeReply(1, 1, [])
    assert (await functions.writes.add("w", "t", rows("a"), duplicates="count")).duplicate == 1
    await queue.remove("a")
    assert await functions.writes.probe("w", "t", ["a"], duplicates="count") == ProbeReply(0, 0, [0])
    assert (await functions.writes.add("w", "t", rows("a"), duplicates="count")).inserted == 1
    assert (await functions.writes.add("w", "t", rows("a"), duplicates="count")).replayed == 1
    assert "duplicate" not in {event.kind for event in await history(queue)}


@pytest.mark.everywhere
@pytest.mark.parametrize("state", ["aborted", "committed", "taken over"])
async def test_a_write_that_is_not_open_is_not_counted(functions: Functions, state: str) -> None:
    await functions.writes.open("w", "t", HOUR)
    if state == "taken over":
        await functions.writes.open("w", "another", HOUR)
    else:
        await functions.writes.end("w", "t", "aborted" if state == "aborted" else "committed")
    with pytest.raises(FunctionError, match=state) as refused:
        await functions.writes.probe("w", "t", ["a"])
    assert refused.value.code == "WRITEFENCED"


async def test_a_probe_of_another_incarnation_is_refused(queue: AnyQueue, functions: Functions) -> None:
    await queue.obliterate()
    await queue.add("n", 1)
    other = Functions(queue.storage, functions.caller.base)
    await other.writes.open("w", "t", HOUR)
    with pytest.raises(FunctionError, match="UNDECLARED"):
        await functions.writes.probe("w", "t", ["a"])


async def test_a_repeated_call_counts_once(queue: AnyQueue, functions: Functions, storage: Storage) -> None:
    await queue.add("n", 1, job_id="a")
    await functions.writes.open("w", "t", HOUR)
    call: list[Arg] = ["lane", 1, "w", "t", 1, 2, "a", "b", functions.caller.incarnation]
    replies = [await storage.call("probeWrite", functions.caller.base, call) for _ in range(2)]
    assert replies == [[0, 1, b"01"]] * 2
    assert await counters(functions, "w") == (0, 0, 1)


async def test_each_row_counts_once_next_to_another_writer(queue: AnyQueue, functions: Functions) -> None:
    """Another writer takes ids between a probe and its add."""
    for name in ("w1", "w2"):
        await functions.writes.open(name, "t", HOUR)
    ids = [f"j{n}" for n in range(400)]

    async def write(write_id: str, mine: list[str]) -> None:
        for at in range(0, len(mine), 20):
            some = mine[at : at + 20]
            missing = [some[k] for k in (await functions.writes.probe(write_id, "t", some)).missing]
            if missing:
                await functions.writes.add(write_id, "t", rows(*missing))

    await asyncio.gather(write("w1", ids), write("w2", ids), write("w2", ids[200:]))
    one, two = await counters(functions, "w1"), await counters(functions, "w2")
    assert one[0] + two[0] == 400 == await queue.count()
    assert one[0] + one[2] == 400
    assert two[0] + two[2] == 400
    assert (one[1], two[1]) == (0, 200)


@pytest.mark.parametrize(
    "args",
    [
        ["lane", 1, "w", "t", 1, 0, ""],
        ["lane", 1, "w", "t", 1, 2, "a", ""],
        ["lane", 1, "w", "t", 1, 2, "a", "", ""],
        ["lane", 1, "w", "t", 1, "x", "a", ""],
        ["lane", 1, "w", "t", 1, 501, *map(str, range(501)), ""],
    ],
)
async def test_a_malformed_probe_is_refused(functions: Functions, storage: Storage, args: list[Arg]) -> None:
    await functions.writes.open("w", "t", HOUR)
    with pytest.raises(FunctionError, match="ARGUMENT"):
        await storage.call("probeWrite", functions.caller.base, args)
