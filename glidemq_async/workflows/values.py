"""Values that a workflow must not compute again: the time, random numbers and ids. Each is recorded like a step.

A workflow has no arguments to distinguish two of these calls. So a call is identified by the step before it in its
task. Concurrent tasks that have called different steps get their own values again.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar, cast
from uuid import UUID
from uuid import uuid4 as _uuid4

from glidemq_async.jobs.journal import last_step
from glidemq_async.workflows.run import required_run

T = TypeVar("T")


async def now(*, key: str | None = None) -> datetime:
    """Return the time at which the workflow made this call first, in UTC. `key` identifies the call."""
    run = required_run("workflow.now")
    return await _recorded("workflow.now", run.clock.now, key)


async def random(*, key: str | None = None) -> float:
    """Return a random number from 0 up to 1, the same in each run of the job. `key` identifies the call."""
    return await _recorded("workflow.random", _random.random, key)


async def uuid4(*, key: str | None = None) -> UUID:
    """Return a random UUID, the same in each run of the job. `key` identifies the call."""
    return UUID(await _recorded("workflow.uuid4", lambda: str(_uuid4()), key))


async def _recorded(name: str, make: Callable[[], T], key: str | None) -> T:
    async def value() -> T:
        return make()

    return cast("T", await required_run(name).ask(name, last_step(), value, key=key))
