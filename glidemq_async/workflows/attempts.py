"""The attempts of one step: repeats a call until it returns, with a backoff and a timeout for each attempt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from glidemq_async.errors import ControlFlow, LeaseLost
from glidemq_async.options.backoff import Backoff

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """The options of a step. `attempts` is None if a failure is not recorded. `timeout` is in seconds."""

    attempts: int | None = None
    backoff: Backoff | None = None
    timeout: float | None = None


async def attempt(options: StepOptions, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the first attempt that succeeds. Raises the exception of the last one."""
    made = 0
    while True:
        try:
            async with asyncio.timeout(options.timeout):
                return await work()
        except (ControlFlow, LeaseLost):
            raise
        except Exception:
            made += 1
            if made >= (options.attempts or 1):
                raise
        if options.backoff is not None:
            await asyncio.sleep(options.backoff.delay(made, random.random))
