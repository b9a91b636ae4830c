"""The kinds of jobs: the options of each one, and the cost of its whole life relative to a plain job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from glidemq_async import Queue, RateLimit, TokenBucket
from glidemq_async.options.job_options import JobOptionsDict

from .bench import Bench
from .draining import live
from .meter import Rows

LEVELS: Final = 5
MANY_KEYS: Final = 10_000
FEW_KEYS: Final = 100
# So high that they never delay a job. The benchmark measures the cost of checking them.
AMPLE: Final = 1_000_000


def plain(_number: int) -> JobOptionsDict:
    """Return no option."""
    return {}


def prioritized(number: int) -> JobOptionsDict:
    """Return one of a few priorities."""
    return {"priority": 1 + number % LEVELS}


def lifo(_number: int) -> JobOptionsDict:
    """Put the job ahead of all others."""
    return {"lifo": True}


def keyed(number: int) -> JobOptionsDict:
    """Return one of many keys."""
    return {"key": f"k{number % MANY_KEYS}"}


def few_keys(number: int) -> JobOptionsDict:
    """Return one of a few keys, as many as jobs run concurrently."""
    return {"key": f"k{number % FEW_KEYS}"}


async def _concurrency(queue: Queue[Any, Any]) -> None:
    await queue.set_key_limits(None, concurrency=5)


async def _window(queue: Queue[Any, Any]) -> None:
    await queue.set_key_limits(None, rate_limit=RateLimit(AMPLE, 1))


async def _bucket(queue: Queue[Any, Any]) -> None:
    await queue.set_key_limits(None, token_bucket=TokenBucket(AMPLE, AMPLE))


async def _life(kind: str, bench: Bench, jobs: int) -> Rows:
    return await live(bench, jobs, f", {kind}", *LIVES[kind])


LIVES: Final = {
    "prioritized": (prioritized, None),
    "LIFO": (lifo, None),
    "keyed (many keys)": (keyed, None),
    "keyed (few keys)": (few_keys, None),
    "keyed with a concurrency limit": (few_keys, _concurrency),
    "keyed with a window": (few_keys, _window),
    "keyed with a token bucket": (few_keys, _bucket),
}
"""Options and preparation of each kind whose life is measured."""

LIFE_RUNS: Final[dict[str, Callable[[Bench, int], Awaitable[Rows]]]] = {
    f"life, {kind}": partial(_life, kind) for kind in LIVES
}
