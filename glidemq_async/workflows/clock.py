"""The clock of a run, by which a workflow measures its waits."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class RunClock:
    """The server's time in a run: when the job was claimed, and the time that has passed since the run began.

    So the waits of all runs of a job follow one clock, on whichever host they are, and in tests the clock of the test.
    `claimed` is in ms since the epoch, None for the clock of the host.
    """

    __slots__ = ("_origin",)

    def __init__(self, claimed: int | None = None) -> None:
        self._origin = (time.time() * 1000 if claimed is None else claimed) - time.monotonic() * 1000

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return round(self._origin + time.monotonic() * 1000)

    def now(self) -> datetime:
        """Return the time, in UTC and with microseconds."""
        return datetime.fromtimestamp((self._origin + time.monotonic() * 1000) / 1000, UTC)
