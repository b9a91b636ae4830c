"""Ranges of events as record batches: each event has the values of its entry, and gaps are reported exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glidemq_async import Queue
from glidemq_async.functions.callers import Functions
from glidemq_async.queues.events import KEY_SEP, SEP, WITH_DETAIL
from glidemq_async.spark import connection as connections
from glidemq_async.spark.connection import connection_to
from glidemq_async.spark.read import event_partition
from glidemq_async.spark.read.event_columns import EventColumns
from glidemq_async.spark.read.event_partition import EventPartition, EventsLostError, read_events
from glidemq_async.spark.read.options import ReadOptions, read_options
from glidemq_async.spark.read.schemas import arrow_schema, schema_of
from tests.support.stores import RunningStore

Event = tuple[str, str, str | None]
"""Kind, job and detail."""

SCHEMA = schema_of("events")
WORDS = st.text("ab :é\U0001f600 0", max_size=4)


def event_of(kind: str) -> st.SearchStrategy[Event]:
    """Return an event of this kind, with a detail if the kind has one."""
    return st.tuples(st.just(kind), WORDS, WORDS if kind in WITH_DETAIL else st.none())


KINDS = ["added", "active", "paused", "failed", "completed", "dead-lettered", "removed"]
ENTRIES = st.lists(st.lists(st.sampled_from(KINDS).flatmap(event_of), min_size=1, max_size=5), min_size=1, max_size=8)


def text_of(entry: list[Event]) -> str:
    """Return the text of an entry: one line for consecutive events of one kind."""
    lines: list[str] = []
    former = ""
    for kind, job, detail in entry:
        if kind != former:
            lines.append(kind)
        lines[-1] += SEP + job if detail is None else SEP + job + SEP + detail
        former = kind
    return "\n".join(lines)


@given(ENTRIES, st.data())
def test_any_range_of_events_has_the_values_of_its_entries(entries: list[list[Event]], data: st.DataObject) -> None:
    columns = EventColumns("q", "i", (), arrow_schema(SCHEMA))
    begin = total = data.draw(st.integers(0, 10**12))
    expected: list[tuple[object, ...]] = []
    for at, entry in enumerate(entries):
        fields = {"seq": total, "n": len(entry), "t": 1000 + at, "e": text_of(entry)}
        columns.add(f"7-{at}".encode(), {name.encode(): str(value).encode() for name, value in fields.items()})
        when = datetime.fromtimestamp(1 + at / 1000, UTC)
        expected += [(f"7-{at}/{i}", total + i, *event, when) for i, event in enumerate(entry)]
        total += len(entry)
    low = data.draw(st.integers(0, len(entries[0]) - 1))
    high = data.draw(st.integers(low + 1, len(expected)))
    rows = columns.take(begin + low, begin + high).to_pylist()
    names = ("offset", "seq", "event", "job_id", "detail", "ts")
    assert [tuple(row[name] for name in names) for row in rows] == expected[low:high]
    assert {(row["queue"], row["incarnation"], row["v"]) for row in rows} == {("q", "i", 1)}


def test_a_detail_fills_the_columns_of_its_kind() -> None:
    entry: list[Event] = [
        ("added", "1", f"mail{KEY_SEP}k"), ("added", "2", "mail"), ("retrying", "3", "250 ValueError: no: 1"),
        ("limited", "4", "40"), ("failed", "5", "KeyError: 'a'"), ("removed", "6", "completed"),
    ]  # fmt: skip
    columns = EventColumns("q", "i", ("added", "failed", "limited", "retrying"), arrow_schema(SCHEMA))
    columns.add(b"7-0", {b"seq": b"0", b"n": b"6", b"t": b"0", b"e": text_of(entry).encode()})
    names = ("job_id", "name", "key", "detail", "delay_ms", "reason", "error_class")
    assert [tuple(row[name] for name in names) for row in columns.take(0, 6).to_pylist()] == [
        ("1", "mail", "k", "mail", None, None, None),
        ("2", "mail", None, "mail", None, None, None),
        ("3", None, None, "250 ValueError: no: 1", 250, "ValueError: no: 1", "ValueError"),
        ("4", None, None, "40", 40, None, None),
        ("5", None, None, "KeyError: 'a'", None, "KeyError: 'a'", "KeyError"),
    ]


def test_contents_fill_the_name_the_key_the_size_and_the_value() -> None:
    contents = {"1": ("mail", "k", 3, msgpack.packb([1, "a"])), "2": ("mail", "", 2_000), "3": ("", "", None)}
    done: list[Event] = [("completed", "1", None), ("completed", "2", None), ("failed", "3", "KeyError: 'a'")]
    progress = {
        b"e": text_of([("progress", "4", None)]).encode(),
        b"name": b"send",
        b"key": b"t",
        b"v": msgpack.packb(50),
    }
    sealed = {b"e": text_of([("progress", "5", None)]).encode(), b"name": b"send", b"v": b"\xc1"}
    columns = EventColumns("q", "i", (), arrow_schema(SCHEMA))
    columns.add(
        b"7-0", {b"seq": b"0", b"n": b"3", b"t": b"0", b"e": text_of(done).encode(), b"c": msgpack.packb(contents)}
    )
    columns.add(b"7-1", {b"seq": b"3", b"n": b"1", b"t": b"0", **progress})
    columns.add(b"7-2", {b"seq": b"4", b"n": b"1", b"t": b"0", **sealed})
    names = ("job_id", "name", "key", "size", "value")
    assert [tuple(row[name] for name in names) for row in columns.take(0, 5).to_pylist()] == [
        ("1", "mail", "k", 3, '[1, "a"]'),
        ("2", "mail", None, 2_000, None),
        ("3", None, None, None, None),
        ("4", "send", "t", None, "50"),
        ("5", "send", None, None, None),
    ]


@pytest.fixture
def url(store: RunningStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server. Its data is removed and all connections are closed afterwards."""
    monkeypatch.setattr(connections, "_connections", {})
    monkeypatch.setattr(event_partition, "ROWS", 4)
    yield store.url
    connection_to(store.url).close()
    asyncio.run(flush(store))


async def flush(store: RunningStore) -> None:
    await store.command("FLUSHALL")


async def fill(store: RunningStore, name: str, *entries: tuple[int, int]) -> list[tuple[int, int | None]]:
    """Add entries of (number of the first event, number of events) to a queue, and return its recorded losses."""
    async with Queue[Any, Any](name, store.url) as queue:
        for at, (seq, n) in enumerate(entries):
            text = SEP.join(["active", *(str(seq + i) for i in range(n))])
            key = f"glide:{{{name}}}:events"
            await store.ask("XADD", key, f"1-{at + 1}", "seq", seq, "n", n, "t", 1, "e", text)
        rows = await Functions(queue.storage, f"glide:{{{name}}}").history.list_losses()
    # Losses of one millisecond have no defined order.
    return sorted((row.first, row.stop) for row in rows)


def read(url: str, name: str, first: int, upto: int, last: str, **more: str) -> list[list[str]]:
    """Return the jobs of each record batch of a range, and check the number of each row."""
    options: ReadOptions = read_options({"url": url, "subscribe": name, "fetchsize": "3", **more}, streaming=False)
    batches = [
        batch.to_pydict() for batch in read_events(EventPartition(name, "i", "0-0", first, upto, last), options, SCHEMA)
    ]
    assert all(batch["job_id"] == [str(seq) for seq in batch["seq"]] for batch in batches)
    return [batch["job_id"] for batch in batches]


@pytest.mark.only_on("unix")
def test_a_range_is_read_to_the_event_and_no_further_than_its_last_entry(
    url: str, store: RunningStore, name: str
) -> None:
    asyncio.run(fill(store, name, (0, 1), (1, 1), (2, 3), (5, 1), (6, 2), (8, 2)))
    assert read(url, name, 0, 10, "1-6") == [["0", "1", "2", "3", "4"], ["5", "6", "7", "8", "9"]]
    assert read(url, name, 3, 7, "1-5") == [["3", "4", "5", "6"]]
    assert read(url, name, 0, 4, "1-6") == [["0", "1", "2", "3"]], "the other events of the entry are not read"
    with pytest.raises(EventsLostError, match=r"exactly 2 events .* from number 8 on"):
        read(url, name, 6, 10, "1-5")


@pytest.mark.only_on("unix")
def test_a_gap_is_recorded_exactly_and_separates_two_batches(url: str, store: RunningStore, name: str) -> None:
    asyncio.run(fill(store, name, (2, 1), (3, 2), (8, 1), (9, 1), (0, 4), (12, 3)))
    assert read(url, name, 0, 20, "1-6", failondataloss="false") == [["2", "3", "4"], ["8", "9"], ["12", "13", "14"]]
    assert asyncio.run(fill(store, name)) == [(0, 2), (5, 8), (10, 12), (15, 20)]
