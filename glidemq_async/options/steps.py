"""The limits of the journals that the runs of a worker write."""

from __future__ import annotations

from dataclasses import dataclass

from glidemq_async.options.validation import positive_number


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """Limits on the recorded steps of one job. An option of Worker.

    - `max_steps`: the number of steps that a job may record (10,000).
    - `max_bytes`: the total size of its recorded steps in bytes (16 MiB).

    A step beyond a limit raises JournalFull. Raises TypeError or ValueError for a bad value.
    """

    max_steps: int = 10_000
    max_bytes: int = 16 * 2**20

    def __post_init__(self) -> None:
        positive_number("max_steps", self.max_steps)
        positive_number("max_bytes", self.max_bytes)
