"""The list of scenarios. Rows that are compared run next to each other, so that changes of the machine's speed
cancel out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from . import adding, blocking, clearing, deep, draining, kinds, naive, processes, raw, services, typed, waiting
from .lean import idle, loop
from .meter import Rows
from .sizes import Sizes

RUNS: Final[dict[str, Callable[..., Awaitable[Rows]]]] = {
    run.__name__: run
    for run in (
        adding.add_one_by_one,
        adding.add_with_callers,
        adding.add_bulk,
        blocking.add_sync,
        draining.drain_1,
        draining.drain_10,
        draining.drain_100,
        draining.whole_life,
        typed.drain_tasks,
        typed.drain_laden_tasks,
        raw.raw,
        raw.raw_batched,
        raw.raw_bare,
        naive.naive,
        waiting.idle_start,
        waiting.idle_kinds,
        waiting.delayed_start,
        waiting.request_reply,
        waiting.idle_crowd,
        processes.subprocess_trip,
        processes.subprocess_start,
        clearing.drain_steps,
        clearing.clean_steps,
        services.fastapi_service,
        loop.loop,
        loop.loop_awaited,
        idle.idle_and_loop,
        idle.reply_and_loop,
    )
} | {**kinds.LIFE_RUNS, **deep.DEEP_RUNS}

SizesOf: TypeAlias = Callable[[Sizes], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One measurement: the name of its run, its size, and its server by its name in the suite.

    `suffix` distinguishes rows of the same run. `python` is the interpreter, if it is not the one that runs the suite.
    `rounds` bounds the number of rounds.
    """

    run: str
    sizes: SizesOf
    server: str = "embedded"
    suffix: str = ""
    python: str = ""
    rounds: int = field(default=1_000)


SCENARIOS: Final = (
    Scenario("add_one_by_one", lambda s: (s.add_one,)),
    Scenario("add_with_callers", lambda s: (s.add_callers,)),
    Scenario("add_bulk", lambda s: (s.bulk,)),
    Scenario("add_sync", lambda s: (max(s.add_one, 100),)),
    Scenario("drain_1", lambda s: (s.drain_1,)),
    Scenario("drain_10", lambda s: (s.drain_10,)),
    Scenario("drain_100", lambda s: (s.many,)),
    Scenario("drain_tasks", lambda s: (s.many,)),
    Scenario("drain_laden_tasks", lambda s: (s.many,)),
    Scenario("raw", lambda s: (s.many,)),
    Scenario("raw_batched", lambda s: (s.many,)),
    Scenario("raw_bare", lambda s: (s.many,)),
    Scenario("whole_life", lambda s: (s.many,)),
    Scenario("naive", lambda s: (s.many,)),
    *(Scenario(run, lambda s: (s.kinds,)) for run in kinds.LIFE_RUNS),
    Scenario("whole_life", lambda s: (s.many,), server="persistent", suffix=", AOF everysec"),
    Scenario("idle_start", lambda s: (s.idle,)),
    Scenario("idle_kinds", lambda s: (s.idle_kinds,)),
    Scenario("delayed_start", lambda s: (s.delayed,)),
    Scenario("request_reply", lambda s: (s.requests,)),
    Scenario("idle_crowd", lambda s: (s.crowd, s.crowd_jobs), rounds=2),
    Scenario("subprocess_trip", lambda s: (s.requests,)),
    Scenario("subprocess_start", lambda s: (s.starts,), rounds=2),
    *(Scenario(run, lambda s: (s.deep, s.changes), rounds=1) for run in deep.DEEP_RUNS),
    Scenario("drain_steps", lambda s: (s.clear,), rounds=1),
    Scenario("clean_steps", lambda s: (s.clear,), rounds=1),
    Scenario("fastapi_service", lambda s: (s.drain_10,), rounds=2),
)
