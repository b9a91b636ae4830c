"""The amount of work in one round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sizes:
    """Jobs per sample of each scenario, and the number of idle workers."""

    add_one: int
    add_callers: int
    bulk: int
    drain_1: int
    drain_10: int
    many: int
    idle: int
    delayed: int
    requests: int
    crowd: int
    crowd_jobs: int
    clear: int
    kinds: int
    idle_kinds: int
    deep: int
    changes: int
    starts: int
    turns: int


FULL: Final = Sizes(
    2_000,
    10_000,
    20_000,
    2_000,
    8_000,
    20_000,
    250,
    100,
    300,
    200,
    100,
    1_000_000,
    10_000,
    150,
    1_000_000,
    200,
    10,
    500,
)
QUICK: Final = Sizes(
    1_000, 5_000, 10_000, 1_000, 3_000, 10_000, 100, 50, 100, 200, 50, 20_000, 3_000, 50, 20_000, 50, 5, 100
)
TINY: Final = Sizes(50, 200, 300, 50, 100, 300, 10, 5, 10, 10, 10, 1_200, 300, 5, 3_000, 10, 2, 10)
