"""Retention: how many ended jobs are kept, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from glidemq_async.durations import to_ms
from glidemq_async.options import validation as checks

__all__ = ["KeepJobs", "age_ms", "checked_keep"]


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


def age_ms(keep: KeepJobs) -> int | None:
    """Return the maximum age in milliseconds."""
    return None if keep.age is None else to_ms("age", keep.age)


def checked_keep(name: str, value: object) -> KeepJobs | None:
    """Accept a bool, a number of jobs, KeepJobs or None."""
    if value is None or isinstance(value, KeepJobs):
        return value
    # Before the check for int, because bool is a subclass of it: True keeps all jobs and not one.
    if isinstance(value, bool):
        return KeepJobs() if value else KeepJobs(count=0)
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a bool, a number of jobs or KeepJobs, not {value!r}")
    return KeepJobs(count=checks.whole_number(name, value, least=0))
