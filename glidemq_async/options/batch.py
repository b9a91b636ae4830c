"""The options of batches: the jobs that a worker passes to its processor in one call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from glidemq_async.durations import to_ms
from glidemq_async.options.validation import whole_number

__all__ = ["BatchOptions"]

MAX_SIZE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The size of the batches for a processor that takes a list of jobs, and the time to fill them.

    - `size`: the maximum number of jobs in one call of the processor, 1 to 1,000.
    - `wait`: the time in seconds that a batch waits to fill, from its first job on. With 0 a batch contains the jobs of
      one claim.

    Raises TypeError or ValueError for a bad value.
    """

    size: int = 100
    wait: float | timedelta = 0.0

    def __post_init__(self) -> None:
        if whole_number("batch size", self.size, least=1) > MAX_SIZE:
            raise ValueError(f"batch size must be from 1 to {MAX_SIZE}, got {self.size!r}")
        object.__setattr__(self, "wait", to_ms("batch wait", self.wait) / 1000)
