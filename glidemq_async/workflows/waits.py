"""The waits of workflows. All of them end up in `wait_until`."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import cast

from glidemq_async.durations import to_ms
from glidemq_async.workflows.run import required_run


async def sleep(delay: float | timedelta, *, key: str | None = None) -> None:
    """Wait for `delay` seconds, counted from the first run that made this call. `key` identifies the call.

    The end of the wait is recorded, so a later run waits only for the rest. Raises TypeError or ValueError.
    """
    milliseconds = to_ms("delay", delay)

    async def deadline() -> int:
        return round(time.time() * 1000) + milliseconds

    run = required_run("workflow.sleep")
    await wait_until(cast("int", await run.ask("workflow.sleep", [milliseconds], deadline, key=key)))


async def wait_until(instant: int) -> None:
    """Wait until an instant (ms since the epoch, by the clock of the worker's host). The run keeps its slot."""
    while (left := instant / 1000 - time.time()) > 0:  # noqa: ASYNC110 - a clock that was set back
        await asyncio.sleep(left)
