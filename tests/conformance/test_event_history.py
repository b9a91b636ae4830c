"""Positions of events, progress of readers, and reported losses: the base of readers of whole ranges."""

from __future__ import annotations

import random

import pytest

from glidemq_async import Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.history import ByEntry, ByNumber, ByTime, Located
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue, history, listening
from tests.support.stores import RunningStore


async def write_entries(queue: AnyQueue, store: RunningStore, entries: list[tuple[str, int]]) -> None:
    """Write an event stream whose entries have these ids and numbers of events."""
    total = 0
    for entry, n in entries:
        text = "\x1f".join(["active", *map(str, range(n))])
        await store.ask("XADD", key_of(queue), entry, "seq", total, "n", n, "t", 1, "e", text)
        total += n
    await store.ask("HSET", f"glide:{{{queue.name}}}:meta2", "events", total)


def functions_of(queue: AnyQueue) -> Functions:
    return Functions(queue.storage, f"glide:{{{queue.name}}}")


async def incarnation_of(queue: AnyQueue) -> str:
    bounds, _ = await functions_of(queue).history.locate()
    return bounds.incarnation


def key_of(queue: AnyQueue) -> str:
    return f"glide:{{{queue.name}}}:events"


def some_entries(seed: int) -> list[tuple[str, int]]:
    """Return entries of which some share a millisecond and some are far apart."""
    choose = random.Random(seed)
    ms, number, found = choose.randrange(1, 10), 0, list[tuple[str, int]]()
    for _ in range(choose.randrange(1, 40)):
        found.append((f"{ms}-{number}", choose.choice([1, 1, 1, 2, 7])))
        if choose.random() < 0.5:
            number += choose.choice([1, 1, 2, 50])
        else:
            ms, number = ms + choose.choice([1, 1, 2, 1000, 10**8]), choose.choice([0, 0, 3])
    return found


@pytest.mark.parametrize("seed", range(12))
async def test_every_event_is_found_in_its_entry(queue: AnyQueue, store: RunningStore, seed: int) -> None:
    entries = some_entries(seed)
    await write_entries(queue, store, entries)
    trimmed = min(seed, len(entries) - 1)
    await store.ask("XTRIM", key_of(queue), "MINID", entries[trimmed][0])
    holders = [Located(entry, sum(n for _, n in entries[:i])) for i, (entry, n) in enumerate(entries) for _ in range(n)]
    first = sum(n for _, n in entries[:trimmed])
    numbers = range(len(holders) + 2)
    bounds, found = await functions_of(queue).history.locate([ByNumber(n) for n in numbers])
    assert (bounds.total, bounds.first, bounds.first_seq, bounds.last) == (
        len(holders), entries[trimmed][0], first, entries[-1][0],
    )  # fmt: skip
    nothing = Located("", len(holders))
    assert found == [holders[max(n, first)] if n < len(holders) else nothing for n in numbers]
    times = sorted({int(entry.partition("-")[0]) + more for entry, _ in entries for more in (0, 1)})
    _, found = await functions_of(queue).history.locate([ByTime(ms) for ms in times])
    kept = list(dict.fromkeys(holders[first:]))
    assert found == [next((one for one in kept if int(one.entry.partition("-")[0]) >= ms), nothing) for ms in times]


async def test_a_queue_without_events_stores_no_reader(storage: Storage, name: str) -> None:
    async with Queue[object, object](name, storage) as queue:
        bounds, found = await functions_of(queue).history.locate([ByNumber(0), ByTime(5), ByEntry("1-1")])
    assert (bounds.total, bounds.first, bounds.first_seq, bounds.last) == (0, "", 0, "0-0")
    assert bounds.incarnation
    assert found == [Located("", 0)] * 3


async def test_an_added_event_names_only_the_key_of_a_keyed_job(queue: AnyQueue) -> None:
    async with listening(queue) as events:
        await queue.add("plain")
        await queue.add("kept back", delay=60)
        await queue.add("keyed", key="k 1")
        await queue.add("later", key="k 2", delay=60)
        seen = [await events.next() for _ in range(6)]
    assert [(event.detail, event.key) for event in seen if event.kind == "added"] == [
        ("plain", None), ("kept back", None), ("keyed", "k 1"), ("later", "k 2"),
    ]  # fmt: skip
    assert [event.key for event in seen if event.kind == "delayed"] == [None, None]


async def test_a_reader_with_a_hold_gets_its_events_although_others_are_trimmed(
    queue: AnyQueue, store: RunningStore
) -> None:
    functions = functions_of(queue)
    incarnation = await incarnation_of(queue)
    await queue.add_bulk([("n", None)] * 2_048)
    await functions.history.note_reader("slow", incarnation, 1_500, hold=True)
    await functions.history.note_reader("quick", incarnation, 2_000, hold=True)
    await functions.history.note_reader("watcher", incarnation, 3, hold=False)
    # Pretend that earlier events exist, so that all of these are over the cap.
    await shift(queue, store, 150_000)
    await queue.add_bulk([("n", None)] * 1_024)
    bounds, _ = await functions.history.locate()
    assert 1_000 <= bounds.first_seq <= 1_500
    readers = {row.name: row.n for row in await functions.history.list_readers()}
    assert readers == {"slow": 1_500, "quick": 2_000, "watcher": 3}
    assert await queue.check() == []


@pytest.mark.parametrize(("written", "kept"), [(390_000, True), (450_000, False)])
async def test_a_reader_with_a_hold_extends_the_limit_of_events_by_a_factor_of_four(
    queue: AnyQueue, store: RunningStore, written: int, kept: bool
) -> None:
    functions = functions_of(queue)
    await queue.add_bulk([("n", None)] * 2_048)
    await functions.history.note_reader("gone for ever", await incarnation_of(queue), 0, hold=True)
    await shift(queue, store, written)
    await queue.add_bulk([("n", None)] * 1_024)
    bounds, _ = await functions.history.locate()
    # Otherwise all events are removed except the entry before the gap.
    assert bounds.first_seq == 0 if kept else 1_500 < bounds.first_seq < 2_048


async def shift(queue: AnyQueue, store: RunningStore, events: int) -> None:
    """Pretend that this many events were written since the first kept ones."""
    await store.ask("HSET", f"glide:{{{queue.name}}}:meta2", "events", events)


async def test_readers_of_another_incarnation_are_ignored(queue: AnyQueue) -> None:
    functions = functions_of(queue)
    await functions.history.note_reader("r", "another", 5, hold=True)
    assert await functions.history.list_readers() == []


async def test_a_repeated_loss_is_stored_once_and_a_larger_one_replaces_it(queue: AnyQueue) -> None:
    functions = functions_of(queue)
    for _ in range(2):
        await functions.history.note_loss("r", "trimmed", await incarnation_of(queue), 3, 9)
        await functions.history.note_loss("", "obliterated", "former", 7, None)
    await functions.history.note_loss("r", "trimmed later", await incarnation_of(queue), 3, 11)
    await functions.history.note_loss("r", "trimmed", await incarnation_of(queue), 3, 9)
    rows = await functions.history.list_losses()
    assert {row[1:] for row in rows} == {
        ("r", "trimmed later", await incarnation_of(queue), 3, 11), ("", "obliterated", "former", 7, None),
    }  # fmt: skip
    assert len(rows) == 2
    assert len(await history(queue)) == 0
    assert await queue.check() == []


async def test_stored_losses_are_removed_with_their_queue(queue: AnyQueue, store: RunningStore) -> None:
    functions = functions_of(queue)
    await functions.history.note_reader("r", await incarnation_of(queue), 0, hold=True)
    await functions.history.note_loss("r", "trimmed", await incarnation_of(queue), 0, 1)
    await queue.obliterate()
    assert await store.keys() == []
    await functions.history.note_reader("r", await incarnation_of(queue), 0, hold=True)
    await functions.history.note_loss("r", "trimmed", await incarnation_of(queue), 0, 1)
    assert await store.keys() == []
