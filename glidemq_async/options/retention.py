"""Retention: how many ended jobs are kept, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from glidemq_async.durations import to_ms
from glidemq_async.options import validation as checks

__all__ = ["DEFAULT_KEEP_COMPLETED", "DEFAULT_KEEP_FAILED", "KeepJobs"]


@dataclass(frozen=True, slots=True)
class KeepJobs:
    """The maximum number of ended jobs to keep (`count`) and their maximum age in seconds (`age`); None means no limit.

    Raises ValueError or TypeError for a bad limit.
    """

    age: float | timedelta | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if self.age is not None:
            object.__setattr__(self, "age", to_ms("age", self.age) / 1000)
        if self.count is not None:
            checks.whole_number("count", self.count, least=0)

    @property
    def age_ms(self) -> int | None:
        """The age in milliseconds."""
        return None if self.age is None else to_ms("age", self.age)


#: The retention of jobs whose options do not set one.
DEFAULT_KEEP_COMPLETED: Final = KeepJobs(age=timedelta(hours=24), count=1_000)
DEFAULT_KEEP_FAILED: Final = KeepJobs(age=timedelta(days=30), count=10_000)


def checked_keep(name: str, value: object) -> KeepJobs | None:
    """Accept a bool, a number of jobs, KeepJobs or None."""
    if value is None or isinstance(value, KeepJobs):
        return value
    if isinstance(value, bool):
        return KeepJobs() if value else KeepJobs(count=0)
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a bool, a number of jobs or KeepJobs, not {value!r}")
    return KeepJobs(count=checks.whole_number(name, value, least=0))


def keep_to_wire(keep: KeepJobs) -> list[int]:
    """Return [count, age in milliseconds]; -1 means no limit."""
    age = keep.age_ms
    return [-1 if keep.count is None else keep.count, -1 if age is None else age]


def keep_from_wire(wire: list[int]) -> KeepJobs:
    """Decode the result of `keep_to_wire`."""
    count, age = wire
    return KeepJobs(age=None if age == -1 else age / 1000, count=None if count == -1 else count)
