"""Limits the rate of repeated log lines, for example of a server that refuses every call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Final

PERIOD_SECONDS: Final = 60.0
"""Interval at which a repeated message is logged."""
MAX_KEYS: Final = 100
"""Maximum number of remembered messages. The oldest one is dropped first."""


class RepeatedLog:
    """Logs a message the first time, and then once a minute with the number of repetitions.

    Messages with the same `key` count as the same message, even if their details differ:

        log.write(type(error), "worker %s: %s", name, error)

    For use in one thread. `clock` returns seconds.
    """

    def __init__(
        self,
        logger: logging.Logger,
        level: int = logging.WARNING,
        period: float = PERIOD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._level = level
        self._period = period
        self._clock = clock
        self._written: dict[Hashable, tuple[float, int]] = {}

    def write(self, key: Hashable, text: str, *details: object) -> None:
        """Log the message, or count it if one with the same key was logged within the period."""
        now = self._clock()
        known = self._written.pop(key, None)
        if known is not None and now - known[0] < self._period:
            self._written[key] = (known[0], known[1] + 1)
            return
        if len(self._written) >= MAX_KEYS:
            del self._written[next(iter(self._written))]
        self._written[key] = (now, 0)
        if known is not None and known[1]:
            text += " (and %d more times in the last %.0f s)"
            details += (known[1], now - known[0])
        self._logger.log(self._level, text, *details, stacklevel=2)
