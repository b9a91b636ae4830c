"""The scenarios of the lean path. The bare loop runs next to the scenario that is compared with it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Final

from benchmarks import kinds
from benchmarks.scenarios import Scenario
from benchmarks.shapes import COMPARED

VALKEY: Final = ", Valkey"
TURNS: Final = tuple(f"deep, {shape}" for shape in COMPARED)
SERVICE_RUNS: Final = 3


def on(version: str) -> str:
    """Return the suffix of the rows that a version of Python measures."""
    return f", Python {version}"


def lean_scenarios(pythons: Mapping[str, str]) -> list[Scenario]:
    """Return the scenarios; `pythons` are the interpreters by version, and the first one runs most of them."""
    own = next(iter(pythons))
    drains = [
        Scenario(run, lambda s: (s.many,), "redis", on(version), "" if version == own else python)
        for version, python in pythons.items()
        for run in ("loop", "drain_100")
    ]
    valkey = [
        Scenario("loop", lambda s: (s.many,), "valkey", VALKEY),
        Scenario("add_bulk", lambda s: (s.bulk,), "valkey", VALKEY),
        Scenario("drain_100", lambda s: (s.many,), "valkey", VALKEY),
    ]
    return [
        *drains,
        Scenario("drain_tasks", lambda s: (s.many,), "redis"),
        Scenario("add_bulk", lambda s: (s.bulk,), "redis"),
        Scenario("loop_awaited", lambda s: (s.add_one,), "redis"),
        Scenario("add_with_callers", lambda s: (s.add_callers,), "redis"),
        Scenario("whole_life", lambda s: (s.kinds,), "redis"),
        *(Scenario(run, lambda s: (s.kinds,), "redis") for run in kinds.LIFE_RUNS),
        Scenario("idle_and_loop", lambda s: (s.turns,), "redis"),
        Scenario("reply_and_loop", lambda s: (s.requests,), "redis"),
        *valkey,
        *(Scenario(run, lambda s: (s.deep, s.changes), "redis", rounds=1) for run in TURNS),
        Scenario("fastapi_service", lambda s: (s.drain_10,), "redis", rounds=SERVICE_RUNS),
    ]


def lacking() -> str:
    """Return why the lean path cannot be measured here, or "" if it can."""
    return "" if shutil.which("redis-server") else "there is no redis-server on the PATH"
