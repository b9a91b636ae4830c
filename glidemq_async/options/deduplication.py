"""Deduplication: one job for several adds with the same id. The server side is functions/dedup.lua."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

from glidemq_async.durations import to_ms
from glidemq_async.stored.names import check_id

__all__ = ["Deduplication", "ttl_ms"]

Mode: TypeAlias = Literal["simple", "throttle", "debounce", "keep_last"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Deduplication:
    """A deduplication id (`id`) and the rule by which adds with this id create jobs (`mode`). `ttl` is in seconds.

    - "simple": an add is a duplicate while the job has not ended, but at most for `ttl` if one is given.
    - "throttle": for `ttl` after an add that created a job, every further add is a duplicate, even if the job has
      ended.
    - "debounce": an add replaces the job of the previous add if that has never started, so the last add of a burst runs
      with its data. The job is delayed by `ttl` unless the add has `delay` or `at`. If the previous job has started or
      ended, the add creates a new job. Callers that wait for the result of a replaced job get JobNotFound.
    - "keep_last": at most one job runs and one waits, and the most recent data are always processed. While the job has
      not started, an add is a duplicate that replaces its name and data; its other options stay. After the job has
      started, the first add creates a second job. The second job waits until the first one has ended (after its last
      attempt, or by removal), and then for the `delay` or `at` of its add. Further adds replace the data of the second
      job. This mode does not accept a `ttl`.

    Raises TypeError or ValueError for a bad id, ttl or mode.
    """

    id: str
    ttl: float | timedelta | None = None
    mode: Mode = "simple"

    def __post_init__(self) -> None:
        check_id("deduplication id", self.id)
        if self.ttl is not None:
            object.__setattr__(self, "ttl", to_ms("ttl", self.ttl, allow_zero=False) / 1000)
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.mode == "throttle" and self.ttl is None:
            raise ValueError("mode 'throttle' needs ttl=, the time for which further adds are duplicates")
        if self.mode == "keep_last" and self.ttl is not None:
            raise ValueError(f"mode 'keep_last' does not accept a ttl; leave out ttl={self.ttl!r}")


def ttl_ms(deduplication: Deduplication) -> int | None:
    """Return the ttl in milliseconds."""
    return None if deduplication.ttl is None else to_ms("ttl", deduplication.ttl)
