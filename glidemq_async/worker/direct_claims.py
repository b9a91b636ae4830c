"""Decides which calls of a worker claim directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glidemq_async.functions.claimed_jobs import ClaimedJob

FEWEST: Final = 8
"""If the last claim had this number of plain jobs or more, the next one is direct.

A transaction costs the server as much as it saves for some four jobs."""
REFUSED_CALLS: Final = 32
"""The number of calls after a refused direct claim that do not try another one."""


# The server refuses every direct claim while a queue is paused, has limits, or has jobs of other kinds. It then claims
# in the same call, so a refusal costs only the transaction.
class DirectClaims:
    """Remembers if the last claims were large, and if the server refused a direct one."""

    def __init__(self, *, are_possible: bool) -> None:
        self._are_possible = are_possible
        self._is_next = False
        self._refused_calls = 0

    def begin(self) -> bool:
        """Return True if the next call should claim directly.

        Each call of this method counts as one call of the worker.
        """
        if self._refused_calls:
            self._refused_calls -= 1
            return False
        return self._is_next and self._are_possible

    def note_reply(self, jobs: Sequence[ClaimedJob], *, was_refused: bool) -> None:
        """Note the jobs of a call, and if the server has refused a direct claim."""
        self._is_next = len(jobs) >= FEWEST and jobs[-1].is_plain
        if was_refused:
            self._refused_calls = REFUSED_CALLS
