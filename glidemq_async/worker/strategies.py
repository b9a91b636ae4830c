"""Custom backoff strategies of a worker: checked when the worker is created, called when a run has failed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from glidemq_async.durations import MAX_MS
from glidemq_async.errors import UnrecoverableError

BackoffStrategy: TypeAlias = Callable[[int, BaseException], float]
"""A plain function of (attempts made, error) that returns seconds; a negative number ends the retries."""


def checked_strategies(found: Mapping[str, BackoffStrategy] | None) -> dict[str, BackoffStrategy]:
    """Return the strategies by name. Raises TypeError for anything else than plain functions by name."""
    given: Any = found
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"backoff_strategies must be a dict of functions by name, got {given!r}")
    for name, strategy in cast("Mapping[object, object]", given).items():
        if not isinstance(name, str):
            raise TypeError(f"backoff_strategies must have names as keys, got {name!r}")
        if not callable(strategy):
            raise TypeError(
                f"backoff_strategies[{name!r}] must be a function of (attempts made, error), got {strategy!r}"
            )
        if inspect.iscoroutinefunction(strategy) or inspect.iscoroutinefunction(getattr(strategy, "__call__", None)):  # noqa: B004
            raise TypeError(
                f"backoff_strategies[{name!r}] is a coroutine function, and a strategy cannot wait: pass a plain "
                "function that returns seconds"
            )
    return dict(cast("Mapping[str, BackoffStrategy]", given))


def ask(strategies: Mapping[str, BackoffStrategy], name: str, made: int, error: BaseException) -> int | None:
    """Return the wait in milliseconds, None when the strategy ends the retries.

    Raises UnrecoverableError for a strategy that the worker does not have or that does not return seconds, and what
    the strategy raises.
    """
    strategy = strategies.get(name)
    if strategy is None:
        known = ", ".join(sorted(strategies)) or "none"
        raise UnrecoverableError(
            f"the job asks for backoff strategy {name!r}, this worker has {known}: pass it in backoff_strategies"
        )
    answer: Any = strategy(made, error)
    if not isinstance(answer, int | float) or isinstance(answer, bool) or math.isnan(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise UnrecoverableError(
            f"backoff strategy {name!r} returned {answer!r}: return seconds, or a negative number to end the retries"
        )
    if answer < 0:
        return None
    # The store would overflow with more than the longest delay, and start the job immediately.
    return round(min(answer * 1000, MAX_MS))
