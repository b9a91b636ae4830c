"""No call of a server function blocks the server's other clients for longer than 5 ms, for any input."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import pytest

from glidemq_async.functions import loader
from tests.server_time import (
    adding,
    changing,
    flowing,
    migrating,
    moving,
    operating,
    publishing,
    reading,
    scheduling,
    signalling,
    stepping,
    streaming,
    upkeep,
    working,
)
from tests.server_time.bench import CASES, Case, bench
from tests.support.stores import RunningStore

LONGEST_MS: Final = 5.0
"""Processor time of the server on the reference machine; see Bench.slowness."""
TRIES: Final = 10
"""A slow call is slow in each try. Delays by a busy host or by a shared cache are not."""

STAMP: Final = "storageStamp"
"""A function that the storage adds to the library. It returns a constant."""
MODULES: Final = (
    *(adding, changing, flowing, migrating, moving, publishing, reading, scheduling, signalling, stepping),
    *(operating, streaming, upkeep, working),
)
DAILY_SHARE: Final = 2
"""One of this many cases of a function runs by day, with its first case. The others run at night, and all of them 50
times as large."""


def registered() -> set[str]:
    """Return the name of every function of the library."""
    return set(re.findall(r"register\('(\w+)'", loader.source()))


def cases() -> list[object]:
    """Return each case with scale 1 and scale 50. Cases for the nightly run are marked as slow."""
    found: list[object] = []
    seen: Counter[str] = Counter()
    for case in CASES:
        name = " ".join(filter(None, case[:2]))
        marks = [pytest.mark.slow] if seen[case.function] % DAILY_SHARE else []
        seen[case.function] += 1
        found += [
            pytest.param(case, 1, id=f"{name}-1", marks=marks),
            pytest.param(case, 50, id=f"{name}-50", marks=pytest.mark.slow),
        ]
    return found


def test_each_function_has_a_case() -> None:
    assert all(MODULES)
    assert {case.function for case in CASES} == registered()


async def test_the_server_has_no_other_function(store: RunningStore) -> None:
    async with bench(store, "version", 1) as opened:
        (library,) = await opened.command("FUNCTION", "LIST", "LIBRARYNAME", loader.LIBRARY)
        functions = dict(zip(library[::2], library[1::2], strict=True))[b"functions"]
    assert {row[1].decode().removeprefix(f"{loader.LIBRARY}_") for row in functions} == registered() | {STAMP}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("case", "scale"), cases())
async def test_no_step_takes_longer_than_5_ms(store: RunningStore, case: Case, scale: int) -> None:
    tries: list[list[float]] = []
    slow: list[int] = []
    for _ in range(TRIES):
        async with bench(store, case.function, scale) as opened:
            await case.work(opened)
            assert opened.spent, "the case must call its function"
            # Only a try that seems slow needs the present speed of the processor.
            speed = await opened.slowness() if max(opened.spent) >= LONGEST_MS else 1.0
            tries.append([spent / speed for spent in opened.spent])
        slow = slow_steps(tries)
        if not slow:
            return
    times = {step: [round(max(near(one, step, tries)), 1) for one in tries] for step in slow}
    raise AssertionError(f"{case.function} took too long in these steps, ms in each try: {times}")


def near(spent: list[float], step: int, tries: list[list[float]]) -> list[float]:
    """Return the times around a step. A budget of time can move the same work by some steps between two tries."""
    shift = max(map(len, tries)) - min(map(len, tries)) + 1
    return spent[max(0, step - shift) : step + shift + 1] or [0.0]


def slow_steps(tries: list[list[float]]) -> list[int]:
    """Return the steps that took too long in every try.

    A night case has hundreds of steps, and a busy host delays one of them in most tries, but rarely the same one.
    """
    return [
        step
        for step, spent in enumerate(tries[0])
        if spent >= LONGEST_MS and all(max(near(one, step, tries)) >= LONGEST_MS for one in tries)
    ]


def test_an_outlier_is_not_slow_and_a_step_that_is_always_long_is() -> None:
    outliers = [[1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 1.0]]
    assert slow_steps(outliers) == []
    assert slow_steps([[1.0, 9.0, 1.0], [1.0, 6.0, 1.0]]) == [1]
    # One step more in the second try moved the long one.
    assert slow_steps([[1.0, 9.0, 1.0], [1.0, 1.0, 1.0, 7.0]]) == [1]
