"""No call of a server function blocks the server's other clients for longer than 5 ms, for any input."""

from __future__ import annotations

import re
from typing import Final

import pytest

from glidemq_async.functions import loader
from tests.server_time import changing, moving, reading, scheduling, upkeep
from tests.server_time.bench import CASES, Case, bench
from tests.support.stores import Place

LONGEST_MS: Final = 5.0
TRIES: Final = 6
"""A slow call is slow in each try. Delays by a busy host or by a shared cache are not."""

NOT_MEASURED: Final = {
    "settleAndClaim": "a claim ends by its slots and bytes, not by time: 500 keyed jobs with limits take up to 60 ms",
}
"""Functions whose calls may take longer, with the reason. `addJob` is measured with 100 jobs: 500 keyed ones take
longer.
"""

STAMP: Final = "storageStamp"
"""A function that the storage adds to the library. It returns a constant."""
MODULES: Final = (changing, moving, reading, scheduling, upkeep)
SCALES: Final = [1, pytest.param(50, marks=pytest.mark.slow)]


def registered() -> set[str]:
    """Return the name of every function of the library."""
    return set(re.findall(r"register\('(\w+)'", loader.source()))


def test_each_function_has_a_case() -> None:
    assert all(MODULES)
    measured = {case.function for case in CASES}
    assert not measured & set(NOT_MEASURED)
    assert measured | set(NOT_MEASURED) == registered()


async def test_the_server_has_no_other_function(place: Place) -> None:
    async with bench(place, "version", 1) as opened:
        (library,) = await opened.command("FUNCTION", "LIST", "LIBRARYNAME", loader.LIBRARY)
        functions = dict(zip(library[::2], library[1::2], strict=True))[b"functions"]
    assert {row[1].decode().removeprefix(f"{loader.LIBRARY}_") for row in functions} == registered() | {STAMP}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("case", CASES, ids=[" ".join(filter(None, one[:2])) for one in CASES])
async def test_no_step_takes_longer_than_5_ms(place: Place, case: Case, scale: int) -> None:
    tries: list[float] = []
    for _ in range(TRIES):
        async with bench(place, case.function, scale) as opened:
            await case.work(opened)
            assert opened.spent, "the case must call its function"
            tries.append(max(opened.spent))
        if tries[-1] < LONGEST_MS:
            return
    raise AssertionError(
        f"{case.function} took {min(tries):.1f} ms at best, all tries: {[round(one, 1) for one in tries]}"
    )
