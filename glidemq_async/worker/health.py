"""The health of a worker and its rules. health_server.py serves it over HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from glidemq_async.worker.claim_loop import ClaimLoop

STUCK_SECONDS: Final = 60.0
"""Time in addition to the poll interval for which the claim loop may make no call although it could take jobs. A call
ends after 30 seconds and is repeated."""
ANSWER_SECONDS: Final = 5.0
"""Time without a reply after which the storage counts as unreachable."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a worker. `problems` are texts that explain why it is not alive or not ready.

    `running` is the number of its current runs.

    - `alive`: the event loop responds, and the claim loop has called the storage recently. A reply is not required,
      because restarting a worker does not help while its storage is down.
    - `ready`: the worker takes jobs. It has started, the storage replies, the wake-up channel is subscribed, leases are
      renewed in time, and it is not stopping. A worker with a paused queue or without free slots is ready.
    """

    alive: bool
    ready: bool
    problems: tuple[str, ...]
    running: int


def unstarted(running: int) -> Health:
    """Return the health of a worker that has not started."""
    return Health(alive=True, ready=False, problems=("it has not started",), running=running)


def health_of(loop: ClaimLoop, *, poll_interval: float, free: int, running: int) -> Health:
    """Return the health of a started worker, from its claim loop."""
    now = asyncio.get_running_loop().time()
    fatal = _stuck(loop, now, poll_interval, free)
    problems = [*fatal, *_readiness_problems(loop, now)]
    return Health(alive=not fatal, ready=not problems, problems=tuple(problems), running=running)


def _stuck(loop: ClaimLoop, now: float, poll_interval: float, free: int) -> list[str]:
    if loop.stopping:
        return []
    if loop.ended:
        return ["its claim loop has ended"]
    # A worker without free slots need not call, because its jobs may take any time.
    must_call = loop.calls.waiting_since > 0 or (free > 0 and loop.has_safe_leases)
    silent = now - (loop.calls.last_attempt or now)
    if must_call and silent > poll_interval + STUCK_SECONDS:
        return [f"its claim loop last called the storage {silent:.0f} s ago"]
    return []


def _readiness_problems(loop: ClaimLoop, now: float) -> list[str]:
    found: list[str] = []
    if loop.stopping:
        found.append("it is stopping")
    if not loop.calls.last_reply:
        found.append("the storage has not answered yet")
    elif loop.calls.waiting_since and now - loop.calls.waiting_since > ANSWER_SECONDS:
        found.append(f"the storage has not answered for {now - loop.calls.waiting_since:.0f} s")
    if not loop.subscribed:
        found.append("it is not subscribed to its wake-up channel")
    if not loop.has_safe_leases:
        found.append("its leases could not be renewed in time, so it claims no jobs")
    return found
