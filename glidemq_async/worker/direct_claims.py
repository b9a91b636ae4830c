"""Decides which calls of a worker claim directly."""

from __future__ import annotations

from typing import Final

FEWEST: Final = 8
"""If the last claim had this number of jobs or more, the next one is direct.

A transaction costs the server as much as it saves for some four jobs."""
REFUSED_CALLS: Final = 32
"""The number of calls after a refused direct claim that do not try another one."""


# The server refuses direct claims while a queue has jobs of other kinds, a pause or limits. It then claims in the same
# call, so a refusal costs only the transaction.
class DirectClaims:
    """Remembers if the last claims were large, and if the server refused a direct one."""

    def __init__(self, *, are_possible: bool) -> None:
        self._are_possible = are_possible
        self._claimed = 0
        self._refused_calls = 0

    def begin(self) -> bool:
        """Return True if the next call, which is about to be made, should claim directly."""
        if self._refused_calls:
            self._refused_calls -= 1
            return False
        return self._are_possible and self._claimed >= FEWEST

    def note_reply(self, claimed: int, *, was_refused: bool) -> None:
        """Note the number of claimed jobs of a call, and if the server has refused a direct claim."""
        self._claimed = claimed
        if was_refused:
            self._refused_calls = REFUSED_CALLS
