"""The outcome of each input of an `add_bulk` that failed halfway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """The outcome of each input of an `add_bulk` that raised: `error.bulk`. Each input is in one of the three fields.

    - `stored`: position of the input -> id of its job (or of the one that is in its way, as after any add).
    - `refused`: positions of inputs that are not stored.
    - `unknown`: positions of inputs that were sent and whose answer was lost. Adding one again makes a second job,
      unless it has a `job_id`.
    """

    stored: Mapping[int, str]
    refused: tuple[int, ...]
    unknown: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"add_bulk: {len(self.stored)} inputs stored, {len(self.refused)} not stored, {len(self.unknown)} unknown"
        )
