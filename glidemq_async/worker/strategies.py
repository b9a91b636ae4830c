"""Custom backoff strategies: checked when the worker is created, called when a run has failed."""

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
    """Return the strategies by name. Raises TypeError unless all values are plain functions."""
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
                f"backoff_strategies[{name!r}] is a coroutine function, but a strategy cannot await; pass a plain "
                "function that returns seconds"
            )
    return dict(cast("Mapping[str, BackoffStrategy]", given))


def ask(strategies: Mapping[str, BackoffStrategy], name: str, made: int, error: BaseException) -> int | None:
    """Return the wait in milliseconds, or None if the strategy ends the retries.

    Raises UnrecoverableError if the worker does not have the strategy or if the strategy does not return seconds.
    Raises the exceptions of the strategy.
    """
    strategy = strategies.get(name)
    if strategy is None:
        known = ", ".join(sorted(strategies)) or "none"
        raise UnrecoverableError(
            f"the job uses backoff strategy {name!r}, but this worker has {known}; pass it in backoff_strategies"
        )
    answer: Any = strategy(made, error)
    if not isinstance(answer, int | float) or isinstance(answer, bool) or math.isnan(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise UnrecoverableError(
            f"backoff strategy {name!r} returned {answer!r}; it must return seconds, or a negative number to "
            "end the retries"
        )
    if answer < 0:
        return None
    # A delay above the maximum would overflow in the store, and the job would start immediately.
    return round(min(answer * 1000, MAX_MS))
