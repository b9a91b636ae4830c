"""The numbers by which a journal distinguishes equal calls of steps."""

from __future__ import annotations

from heapq import heappop, heappush


class Numbers:
    """The numbers of equal calls. A call without a result gives its number to the next equal call."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._free: dict[str, list[int]] = {}

    def take(self, call: str) -> int:
        """Return the lowest number that no call of this run has."""
        free = self._free.get(call)
        if free:
            return heappop(free)
        number = self._next.get(call, 0)
        self._next[call] = number + 1
        return number

    def release(self, call: str, number: int) -> None:
        """Return a number whose call has not received a result."""
        heappush(self._free.setdefault(call, []), number)
