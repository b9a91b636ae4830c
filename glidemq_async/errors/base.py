"""The base class of the exceptions, and the outcome of a failed bulk add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """The outcome of each input of an `add_bulk` that raised: `error.bulk`. Each input is in exactly one field.

    - `stored`: the position of the input and the id of its job, or of the existing job that it duplicates.
    - `refused`: the positions of inputs that are not stored.
    - `unknown`: the positions of inputs that were sent but not confirmed. Adding such an input again creates a second
    job unless it has a `job_id`.
    """

    stored: Mapping[int, str]
    refused: tuple[int, ...]
    unknown: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"add_bulk: {len(self.stored)} inputs stored, {len(self.refused)} not stored, {len(self.unknown)} unknown"
        )


class GlideMQError(Exception):
    """Base class of every exception that this library raises on purpose."""

    bulk: BulkOutcome | None = None
    """After a failed `add_bulk`: the inputs that are stored, that are not stored, and whose outcome is unknown."""
