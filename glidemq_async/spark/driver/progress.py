"""How far a run is: the tasks of its stages, folded into numbers that never fall."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypedDict


class StageCount(NamedTuple):
    """The tasks of one stage: `done` of `known` have ended well, `active` run now."""

    stage: int | str
    done: int
    known: int
    active: int


class Progress(TypedDict):
    """What `job.progress` shows of a run."""

    done: int
    known: int
    stages: int
    percent: int


def rate(value: float | None) -> float | None:
    """A rate as Spark tells it, None where it is no number: that of a batch which took no time."""
    return value if value is not None and math.isfinite(value) else None


class StageProgress:
    """Folds counts of stages into progress.

    Spark forgets old stages, repeats lost ones, and learns of later ones as it goes (adaptive execution), so the share
    may fall back: what was once told stays the least.
    """

    def __init__(self) -> None:
        self._stages: dict[int | str, tuple[int, int]] = {}
        self._percent = 0
        self._told: Progress | None = None

    def fold(self, counts: Iterable[StageCount]) -> Progress | None:
        """Return the progress now, None if nothing has changed since the last answer."""
        for count in counts:
            done, known = self._stages.get(count.stage, (0, 0))
            self._stages[count.stage] = (max(done, count.done), max(known, count.known))
        done = sum(done for done, _ in self._stages.values())
        known = sum(known for _, known in self._stages.values())
        if not known:
            return None
        self._percent = max(self._percent, 100 * done // known)
        found = Progress(done=done, known=known, stages=len(self._stages), percent=self._percent)
        if found == self._told:
            return None
        self._told = found
        return found
