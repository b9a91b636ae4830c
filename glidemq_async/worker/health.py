"""Health of a worker: what it is judged by. What is asked for over HTTP is told in health_server.py."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from glidemq_async.worker.claim_loop import ClaimLoop

STUCK_SECONDS: Final = 60.0
"""How long, beyond its poll interval, the claim loop may call nobody although it could take jobs. A call of its own
ends after 30 seconds, and is sent again."""
ANSWER_SECONDS: Final = 5.0
"""How long a call may stay without an answer before the storage counts as out of reach."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker is. `problems` says in words why it is not alive or not ready.

    - `alive`: its loop turns, and its claim loop called the storage as it should. An answer is not asked for: a
      worker whose storage is away waits for it, and starting it anew would help nobody.
    - `ready`: it takes jobs: started, its calls answered, its wake-up link subscribed, not stopping, and no lease in
      doubt. A paused queue and a full worker are ready.
    """

    alive: bool
    ready: bool
    problems: tuple[str, ...]
    running: int


def unstarted(running: int) -> Health:
    """Return the health of a worker that has not started."""
    return Health(alive=True, ready=False, problems=("it has not started",), running=running)


def judge(loop: ClaimLoop, work: asyncio.Task[None], *, poll_interval: float, free: int, running: int) -> Health:
    """Judge a started worker by its claim loop and the task that runs it."""
    now = asyncio.get_running_loop().time()
    fatal = _stuck(loop, work, now, poll_interval, free)
    problems = [*fatal, *_hindrances(loop, now)]
    return Health(alive=not fatal, ready=not problems, problems=tuple(problems), running=running)


def _stuck(loop: ClaimLoop, work: asyncio.Task[None], now: float, poll_interval: float, free: int) -> list[str]:
    if loop.stopping:
        return []
    if work.done():
        return ["its claim loop has ended"]
    # What is in hand may take for ever; only one that could take jobs has a reason to call.
    must_call = loop.waiting_since > 0 or (free > 0 and loop.healthy)
    silent = now - (loop.last_try or now)
    if must_call and silent > poll_interval + STUCK_SECONDS:
        return [f"its claim loop called the storage {silent:.0f} s ago"]
    return []


def _hindrances(loop: ClaimLoop, now: float) -> list[str]:
    found: list[str] = []
    if loop.stopping:
        found.append("it is stopping")
    if not loop.last_call:
        found.append("the storage has not answered yet")
    elif loop.waiting_since and now - loop.waiting_since > ANSWER_SECONDS:
        found.append(f"the storage has not answered for {now - loop.waiting_since:.0f} s")
    if not loop.subscribed:
        found.append("its wake-up link is not subscribed")
    if not loop.healthy:
        found.append("its leases could not be renewed in time: it claims nothing")
    return found
