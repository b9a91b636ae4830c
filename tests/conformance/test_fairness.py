"""Fairness: plain, LIFO and keyed jobs take turns, and so do keys. No waiting job starves."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from glidemq_async import JobOptions
from tests.support.clocked_queue import Timed
from tests.support.helpers import AnyQueue

KINDS: dict[str, dict[str, Any]] = {"plain": {}, "lifo": {"lifo": True}, "keyed": {"key": "k"}}


async def add(queue: AnyQueue, kind: str, count: int = 1) -> None:
    """Add jobs of a kind, with the kind as their name."""
    for number in range(count):
        options: dict[str, Any] = {"key": f"{number}"} if kind == "keyed" else KINDS[kind]
        await queue.add(kind, **options)


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "kinds", [("plain", "lifo"), ("plain", "keyed"), ("lifo", "keyed"), ("plain", "lifo", "keyed")]
)
async def test_sources_take_turns(timed: Timed, kinds: tuple[str, ...], slots: int) -> None:
    """For any number of slots in a claim, every source with jobs gets about its share."""
    for kind in kinds:
        await add(timed.queue, kind, 60)
    started: Counter[str] = Counter()
    claims = 42 // slots
    for _ in range(claims):
        started.update(await timed.run(slots))
    fair = claims * slots / len(kinds)
    for kind in kinds:
        assert started[kind] >= fair * 0.7, started


@pytest.mark.parametrize("newcomer", ["lifo", "keyed", "plain"])
@pytest.mark.parametrize("adds", [1, 2, 3])
async def test_a_source_that_is_always_refilled_starves_no_other(timed: Timed, newcomer: str, adds: int) -> None:
    """A fixed rhythm of calls (a number of adds, one claim) must not always meet the same turn."""
    for kind in KINDS:
        await add(timed.queue, kind, 8)
    started: Counter[str] = Counter()
    for _ in range(30):
        await add(timed.queue, newcomer, adds)
        started.update(await timed.run(1))
    for kind in KINDS:
        assert started[kind] >= 6, started


async def test_keys_take_turns_with_one_slot(timed: Timed) -> None:
    """A key with a long line waits for each other key between two of its jobs."""
    await timed.queue.add_bulk([("long", None, JobOptions(key="long")) for _ in range(20)])
    for number in range(5):
        await timed.queue.add_bulk([(f"k{number}", None, JobOptions(key=f"k{number}")) for _ in range(4)])
    started: list[str] = []
    for _ in range(24):
        started += await timed.run(1)
    assert Counter(started) == {"long": 4, **{f"k{number}": 4 for number in range(5)}}
    for first, second in pairwise(position for position, name in enumerate(started) if name == "long"):
        assert second - first == 6


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("concurrency", [1, 2, 100])
async def test_no_key_starves(timed: Timed, slots: int, concurrency: int) -> None:
    """Eight keys with endless lines: after any number of claims they have about the same number of starts."""
    await timed.queue.set_key_limits(None, concurrency=concurrency)
    keys = [f"k{number}" for number in range(8)]
    await timed.queue.add_bulk([(key, None, JobOptions(key=key)) for key in keys for _ in range(60)])
    started: Counter[str] = Counter()
    for _ in range(120 // slots):
        started.update(await timed.run(slots))
    each = sum(started.values()) / len(keys)
    for key in keys:
        assert abs(started[key] - each) <= max(2, slots / 4), started


async def test_every_key_starts_although_a_claim_visits_only_some_keys(timed: Timed) -> None:
    await timed.queue.set_key_limits(None, concurrency=10)
    keys = [f"k{number}" for number in range(150)]
    await timed.queue.add_bulk([(key, None, JobOptions(key=key)) for key in keys for _ in range(4)])
    started: Counter[str] = Counter()
    for _ in range(4):
        started.update(await timed.run(100))
    assert set(started) == set(keys)
    await timed.run(1_000)


async def test_a_blocked_key_takes_no_turn_from_the_others(timed: Timed) -> None:
    for key in ("a", "b", "c"):
        await timed.queue.add_bulk([(key, None, JobOptions(key=key)) for _ in range(5)])
    await timed.queue.pause_key("b", 3_600)
    started: list[str] = []
    for _ in range(10):
        started += await timed.run(1)
    assert Counter(started) == {"a": 5, "c": 5}
    await timed.queue.pause_key("b", 0)
    assert await timed.run() == ["b"]
    assert [await timed.run(1) for _ in range(4)] == [["b"]] * 4


async def test_a_new_key_is_served_in_its_turn(timed: Timed) -> None:
    await timed.queue.add_bulk([(key, None, JobOptions(key=key)) for key in "abc" for _ in range(10)])
    await timed.run(1)
    await timed.queue.add("new", key="new")
    started = [(await timed.run(1))[0] for _ in range(4)]
    assert "new" in started
