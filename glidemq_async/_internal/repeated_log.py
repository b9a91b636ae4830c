"""Log lines that may repeat without end, such as those of a server that refuses every call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Final

PERIOD_SECONDS: Final = 60.0
"""A message that goes on is logged once in this time."""
MAX_KEYS: Final = 100
"""Messages that are remembered; the one that was logged first is forgotten first."""


class RepeatedLog:
    """Logs a message the first time, and then once a minute with the number of repetitions.

    `key` says which messages are the same, so that a text with changing details can be one message:

        log.write(type(error), "worker %s: %s", name, error)

    For one thread. `clock` returns seconds.
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
