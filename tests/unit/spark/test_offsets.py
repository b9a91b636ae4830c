"""Offsets under any order of steps: every event is read once or reported as lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from glidemq_async.spark.read.event_partition import EventsLostError
from glidemq_async.spark.read.event_stream_limited import LimitedEventStream
from glidemq_async.spark.read.offsets import Position, Span, cut, share, to_offset
from tests.unit.spark.simulated import Query, Row, World

NAMES = ("a", "b", "c")
POINTS = ("", "", "planned", "read", "written", "committed")


@dataclass(frozen=True)
class Add:
    queue: str
    n: int


@dataclass(frozen=True)
class Trim:
    queue: str
    entries: int


@dataclass(frozen=True)
class Obliterate:
    queue: str


@dataclass(frozen=True)
class Step:
    limit: int | None
    crash: str


Action = Add | Trim | Obliterate | Step

names = st.sampled_from(NAMES)
adds = st.builds(Add, names, st.integers(1, 6))
trims = st.builds(Trim, names, st.integers(1, 3))
steps = st.builds(Step, st.none() | st.integers(1, 7), st.sampled_from(POINTS))
ways = st.lists(st.one_of(adds, adds, trims, steps, steps), max_size=25)
rough_ways = st.lists(st.one_of(adds, adds, trims, steps, steps, st.builds(Obliterate, names)), max_size=25)


def options(**more: str) -> dict[str, str]:
    return {
        "url": "redis://nowhere",
        "subscribe": "a,b,c",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    } | more


def act(world: World, query: Query, action: Action) -> None:
    match action:
        case Add(queue, n):
            world.add(queue, n)
        case Trim(queue, entries):
            world.trim(queue, entries)
        case Obliterate(queue):
            world.obliterate(queue)
        case Step(limit, crash):
            query.step(None if query.old else limit, crash)


def run(actions: list[Action], query: Query) -> None:
    for action in actions:
        act(query.world, query, action)
    query.drain()


def lost_rows(query: Query) -> tuple[list[Row], set[tuple[str, str]]]:
    """Return the events that were reported as lost, including repetitions, and the incarnations with unknown losses."""
    reported: list[Row] = []
    unknown: set[tuple[str, str]] = set()
    for (queue, incarnation, first), upto in query.losses.items():
        if upto is None:
            unknown.add((queue, incarnation))
        else:
            reported += [(queue, incarnation, number) for number in range(first, upto)]
    return reported, unknown


def nothing_twice(rows: list[Row]) -> None:
    assert [row for row, times in Counter(rows).items() if times > 1] == []


@settings(max_examples=200)
@given(ways, st.sampled_from(["1", "3"]))
def test_every_event_is_read_once_or_reported_as_lost(actions: list[Action], parts: str) -> None:
    world = World()
    query = Query(world, options(minPartitions=parts))
    query.step()  # the query exists before the first event
    run(actions, query)
    reported, unknown = lost_rows(query)
    assert unknown == set()
    nothing_twice(query.rows() + reported)
    assert set(query.rows()) | set(reported) == world.written


@settings(max_examples=200)
@given(rough_ways)
def test_losses_by_an_obliteration_are_reported(actions: list[Action]) -> None:
    world = World()
    query = Query(world, options())
    query.step()
    run(actions, query)
    reported, unknown = lost_rows(query)
    nothing_twice(query.rows())
    missed = world.written - set(query.rows()) - set(reported)
    now = {(queue, one.incarnation) for queue, one in world.queues.items()}
    gone = {(queue, incarnation) for queue, incarnation, _ in missed}
    assert not gone & now, "every event of an existing queue is read or reported"
    # A queue without reads has no losses. A missing queue is reported when it is created again.
    known = {(queue, incarnation) for queue, incarnation, _ in query.rows()}
    assert {one for one in gone & known if one[0] in world.queues} <= unknown


@settings(max_examples=150)
@given(st.lists(adds, min_size=1), ways, st.sampled_from(POINTS), st.booleans())
def test_a_query_from_now_reads_all_events_of_its_failed_first_batch(
    first: list[Action], actions: list[Action], crash: str, old: bool
) -> None:
    actions = [action for action in actions if not (old and isinstance(action, Trim))]
    world = World()
    world.add("a", 5)
    world.add("b", 2)
    before = set(world.written)
    query = Query(world, options(startingOffsets="latest"), old=old)
    query.stream().initialOffset()
    for action in first:
        act(world, query, action)
    query.step(None, crash)
    run(actions, query)
    reported, _ = lost_rows(query)
    nothing_twice(query.rows() + reported)
    assert set(query.rows()) | set(reported) == world.written - before


@settings(max_examples=150)
@given(ways, st.booleans())
def test_older_versions_of_spark_miss_and_repeat_nothing(actions: list[Action], learns: bool) -> None:
    actions = [action for action in actions if not isinstance(action, Trim)]
    world = World()
    query = Query(world, options(), old=True, learns=learns)
    query.step()
    run(actions, query)
    nothing_twice(query.rows())
    assert set(query.rows()) == world.written
    assert query.losses == {}


def test_a_loss_ends_the_query_unless_it_is_permitted() -> None:
    world = World()
    query = Query(world, options(failOnDataLoss="true"))
    world.add("a", 2)
    query.drain()
    world.add("a", 3)
    world.add("a", 1)
    world.trim("a", 2)
    with pytest.raises(
        EventsLostError, match=r"exactly 3 events of queue 'a' are lost, from number 2 on.*failOnDataLoss=false"
    ):
        query.step()
    query.restart(failOnDataLoss="false")
    query.drain()
    assert query.rows() == [("a", "i1", 0), ("a", "i1", 1), ("a", "i1", 5)]
    assert query.losses == {("a", "i1", 2): 5}


def test_a_recreated_queue_is_reported() -> None:
    world = World()
    query = Query(world, options(failOnDataLoss="true"))
    world.add("a", 2)
    query.drain()
    world.obliterate("a")
    with pytest.raises(
        EventsLostError, match="an unknown number of events of queue 'a' are lost, from number 2 on: the queue was"
    ):
        query.step()
    world.add("a", 1)
    with pytest.raises(EventsLostError, match="recreated under the same name"):
        query.step()
    query.restart(failOnDataLoss="false")
    query.drain()
    assert query.rows() == [("a", "i1", 0), ("a", "i1", 1), ("a", "i2", 0)]
    assert query.losses == {("a", "i1", 2): None}


def test_lost_newest_events_are_reported_and_no_number_is_read_again() -> None:
    world = World()
    query = Query(world, options(subscribe="a"))
    for _ in range(3):
        world.add("a", 2)
    query.drain()
    one = world.queues["a"]
    one.total, one.entries = 4, one.entries[:2]  # a failover to a replica without the last entry
    world.clock += 1
    query.drain()
    assert query.losses == {("a", "i1", 6): None}
    world.add("a", 5)
    query.drain()
    assert [number for _, _, number in query.rows()][6:] == [4, 5, 6, 7, 8]


def test_a_new_queue_of_a_pattern_is_read_from_its_start() -> None:
    world = World()
    given = options(startingOffsets="latest") | {"subscribePattern": "*"}
    del given["subscribe"]
    query = Query(world, given)
    world.add("b", 3)
    query.drain()
    world.add("b", 1)
    query.drain()
    world.add("a", 2)
    world.trim("a", 1)
    query.drain()
    assert query.rows() == [("b", "i1", 3), ("a", "i2", 0), ("a", "i2", 1)]


def test_a_run_with_available_now_ends_although_events_are_added() -> None:
    world = World()
    query = Query(world, options(maxOffsetsPerTrigger="3", minOffsetsPerTrigger="100"))
    world.add("a", 5)
    world.add("b", 2)
    stream = query.stream()
    assert isinstance(stream, LimitedEventStream)
    stream.prepareForTriggerAvailableNow()
    batches = 0
    while query.step(limit=3):
        batches += 1
        world.add("a", 4)
        world.add("c", 1)
    assert batches == 3
    assert sorted(query.rows()) == [("a", "i1", number) for number in range(5)] + [("b", "i2", 0), ("b", "i2", 1)]


def test_a_batch_waits_for_enough_events_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [5.0]
    monkeypatch.setattr("glidemq_async.spark.read.event_stream.monotonic", lambda: clock[0])
    world = World()
    query = Query(world, options(minOffsetsPerTrigger="3", maxTriggerDelay="1h"))
    world.add("a", 1)
    assert query.step(), "the first one waits for nothing"
    world.add("a", 2)
    assert not query.step()
    world.add("b", 1)
    assert query.step()
    world.add("a", 1)
    assert not query.step()
    clock[0] += 3_601
    assert query.step()
    assert len(query.rows()) == 5


@given(st.integers(1, 50), st.dictionaries(names, st.integers(0, 40), min_size=1))
def test_a_limit_is_shared_in_proportion_and_used_up(limit: int, lags: dict[str, int]) -> None:
    parts = share(limit, lags)
    assert sum(parts.values()) == min(limit, sum(lags.values()))
    for queue, lag in lags.items():
        assert 0 <= parts[queue] <= lag
        if sum(lags.values()) > limit:
            assert abs(parts[queue] - lag * limit / sum(lags.values())) < 1


@given(st.integers(0, 100), st.integers(1, 60), st.integers(1, 70))
def test_a_span_is_cut_without_gaps_and_without_empty_parts(first: int, size: int, parts: int) -> None:
    ranges = cut(Span("q", Position("i", "1-0", first), Position("i", "2-0", first + size)), parts)
    assert [number for low, high in ranges for number in range(low, high)] == list(range(first, first + size))
    assert all(low < high for low, high in ranges)
    assert len(ranges) == min(parts, size)


def test_an_offset_is_the_same_text_whatever_the_order_of_queues() -> None:
    positions = [("b", Position("i", "1-0", 1)), ("a", Position("j", "2-0", 2))]
    texts = {json.dumps(to_offset(dict(order), dict(order))) for order in (positions, positions[::-1])}
    assert len(texts) == 1
