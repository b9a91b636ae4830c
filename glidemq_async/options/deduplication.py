"""Deduplication: of several adds that mean the same work, one job. The server's side is functions/dedup.lua."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

from glidemq_async.durations import to_ms
from glidemq_async.stored.names import check_id

__all__ = ["Deduplication"]

Mode: TypeAlias = Literal["simple", "throttle", "debounce", "keep_last"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Which adds mean the same work (`id`), and which of them makes a job (`mode`). `ttl` is in seconds.

    - "simple": while the job has not ended, an add is a duplicate of it; at most for `ttl`, if one is given.
    - "throttle": for `ttl` after an add that made a job, every further add is a duplicate, even if the job has ended.
    - "debounce": an add replaces the job of the last one while that has never started, so the last of a burst runs,
      with its data. The job is delayed by `ttl` unless the add says `delay` or `at`. If the last one has started or
      ended, the add makes a new job. Whoever waits for the result of a replaced job gets JobNotFound.
    - "keep_last": at most one job runs and one waits, and the last data are always run. While the job has not started,
      an add replaces its name and data and is a duplicate of it; its other options stay. Once it has started, the first
      add makes a second job, which is delayed until the first one has ended for good (after its last attempt, or when
      it is removed), and then for the `delay` or `at` of that add. Further adds replace the data of the second job. It
      takes no `ttl`.

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
            raise ValueError("throttle needs a ttl: for how long further adds are duplicates")
        if self.mode == "keep_last" and self.ttl is not None:
            raise ValueError(f"keep_last lasts until the job has ended; leave out ttl={self.ttl!r}")

    @property
    def ttl_ms(self) -> int | None:
        """The ttl in milliseconds."""
        return None if self.ttl is None else to_ms("ttl", self.ttl)

    def to_wire(self) -> dict[str, str | int]:
        """Return the form that the functions read."""
        wire: dict[str, str | int] = {"id": self.id, "mode": self.mode}
        if self.ttl_ms is not None:
            wire["ttl"] = self.ttl_ms
        return wire
