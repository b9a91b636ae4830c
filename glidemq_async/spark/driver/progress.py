"""Progress of a run: the counts of its stages, combined into numbers that never decrease."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypedDict


class StageCount(NamedTuple):
    """The tasks of one stage: `done` of `known` tasks have succeeded, and `active` tasks run now."""

    stage: int | str
    done: int
    known: int
    active: int


class Progress(TypedDict):
    """The value of `job.progress` for a Spark run."""

    done: int
    known: int
    stages: int
    percent: int


def rate(value: float | None) -> float | None:
    """Return a rate that Spark reports, or None if it is not finite, as for a batch that took no time."""
    return value if value is not None and math.isfinite(value) else None


class StageProgress:
    """Combines counts of stages into the progress of a run.

    Spark forgets old stages, repeats lost ones, and discovers later ones during the run (adaptive execution), so the
    percentage could decrease. This class never returns less than before.
    """

    def __init__(self) -> None:
        self._stages: dict[int | str, tuple[int, int]] = {}
        self._percent = 0
        self._last: Progress | None = None

    def fold(self, counts: Iterable[StageCount]) -> Progress | None:
        """Return the current progress, or None if it has not changed since the last call."""
        for count in counts:
            done, known = self._stages.get(count.stage, (0, 0))
            self._stages[count.stage] = (max(done, count.done), max(known, count.known))
        done = sum(done for done, _ in self._stages.values())
        known = sum(known for _, known in self._stages.values())
        if not known:
            return None
        self._percent = max(self._percent, 100 * done // known)
        found = Progress(done=done, known=known, stages=len(self._stages), percent=self._percent)
        if found == self._last:
            return None
        self._last = found
        return found
