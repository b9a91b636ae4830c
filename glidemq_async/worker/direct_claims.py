"""Decides which calls of a worker claim directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.settle import ACTIVE_STREAM, PLAIN_JOBS, DirectRead

FEWEST: Final = 8
"""If the last claim had this number of jobs or more, the next one is direct.

A transaction costs the server as much as it saves for some four jobs."""
REFUSED_CALLS: Final = 32
"""The number of calls after a refused direct claim that do not try another one."""


# The server refuses every direct claim while a queue is paused or has limits. It refuses direct claims of plain jobs
# while the queue has jobs of other kinds. It then claims in the same call, so a refusal costs only the transaction.
class DirectClaims:
    """Remembers if the last claims were large, and if the server refused a direct one."""

    def __init__(self, *, are_possible: bool) -> None:
        self._are_possible = are_possible
        self._next: DirectRead | None = None
        self._refused_calls = 0

    def begin(self) -> DirectRead | None:
        """Return the jobs that the next call should claim directly, None for an ordinary claim.

        Each call of this method counts as one call of the worker.
        """
        if self._refused_calls:
            self._refused_calls -= 1
            return None
        return self._next if self._are_possible else None

    def note_reply(self, jobs: Sequence[ClaimedJob], *, was_refused: bool) -> None:
        """Note the jobs of a call, and if the server has refused a direct claim."""
        self._next = None
        if len(jobs) >= FEWEST:
            # A call claims its prioritized jobs last, and most queues have jobs of one kind.
            self._next = PLAIN_JOBS if jobs[-1].is_plain else ACTIVE_STREAM
        if was_refused:
            self._refused_calls = REFUSED_CALLS
