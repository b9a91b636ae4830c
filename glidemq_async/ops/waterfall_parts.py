"""The parts of the waterfall of a run: its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

RowKind: TypeAlias = Literal["job", "attempt", "step", "wait", "signal", "child"]


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """A bar of a waterfall.

    - `kind` is "job" for the whole job, "attempt" for one run of its handler, "step", "wait", "signal" or "child".
    - `outcome` is "completed" or "failed", "received" or "timeout" for a wait, and the state of a job while it lasts.
    - `ended_at` is None while it lasts. A signal has the time at which it was sent as both times.
    - `attempt` is the fencing token of the run that recorded the row, None for the job and for children.
    - `detail` is the error of a failed step, or the id of a child.
    """

    kind: RowKind
    name: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    attempt: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WaterfallParts:
    """The runs, steps and waits of a job with their times. `rows` begin with the job itself. All times are in UTC."""

    queue: str
    id: str
    name: str
    state: str
    rows: tuple[WaterfallRow, ...]
    as_of: datetime

    @property
    def began_at(self) -> datetime:
        """The time at which the first row begins."""
        return min(row.started_at for row in self.rows)

    @property
    def ended_at(self) -> datetime:
        """The time at which the last row ends, `as_of` if one of them has not ended."""
        return max(row.ended_at or self.as_of for row in self.rows)
