"""Handles the log records of a child in the worker, as if they had been made there."""

from __future__ import annotations

import contextvars
import logging
import time
import traceback
from typing import Any, Final

from glidemq_async.executors.subprocess.frames import Frame
from glidemq_async.executors.subprocess.records import (
    MOST_A_SECOND,
    MOST_BYTES_A_SECOND,
    Allowance,
    Levels,
    own_levels,
    record_from_values,
)
from glidemq_async.jobs.job import Job

_FRESH_SECONDS: Final = 0.5
"""Time for which the levels of the loggers are cached, so that a run does not walk over all loggers."""


_log = logging.getLogger(__name__)


class Receiver:
    """The records of one child. Records of its run are handled in the context of the run, others in an empty one."""

    def __init__(self) -> None:
        self._context = contextvars.Context()
        self._job_id = ""
        self.pid = 0
        """The process of the records. The process id inside a record is ignored."""
        # A child may have spent the allowance of one second at its end, and of the next second at its beginning.
        self._allowance = Allowance(2 * MOST_A_SECOND, 2 * MOST_BYTES_A_SECOND)

    def begin(self, job: Job[Any, Any]) -> None:
        """Begin a run in the context of the caller."""
        self._job_id, self._context = job.id, contextvars.copy_context()

    def end(self) -> None:
        """End the run. An honest process has already reported the records that it dropped itself."""
        if self._allowance.dropped:
            number, self._allowance.dropped = self._allowance.dropped, 0
            _log.warning(
                "job %s: %d log records of its process were dropped here, because it sent too many",
                self._job_id,
                number,
            )
        self._job_id, self._context = "", contextvars.Context()

    def take(self, frame: Frame, size: int) -> bool:
        """Handle a frame of `size` bytes if it is a record. Return True then."""
        if frame[0] != "record":
            return False
        # Honest children stay within their own allowance, and report the records that they drop.
        if len(frame) == 3 and self._allowance.passes(size):
            context = self._context if self._job_id and frame[1] == self._job_id else contextvars.Context()
            try:
                context.run(_handle, frame[2], self.pid)
            except Exception:  # noqa: BLE001 - the handlers and filters of the program
                if logging.raiseExceptions:
                    traceback.print_exc()
        return True


class OwnLevels:
    """The levels of the worker, looked up periodically because logging has no notification of changes."""

    def __init__(self) -> None:
        self._found = own_levels()
        self._looked = time.monotonic()

    def now(self) -> Levels:
        """Return the levels, at most half a second old. It is the same object until they change."""
        now = time.monotonic()
        if now - self._looked > _FRESH_SECONDS:
            self._looked = now
            found = own_levels()
            if found != self._found:
                self._found = found
        return self._found


def _handle(values: object, pid: int) -> None:
    record = record_from_values(values)
    if record is None:
        return
    record.process = pid
    logger = _logger_of(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _logger_of(name: str) -> logging.Logger:
    """Return the logger of a name. For an unknown name, return a temporary one: a child may invent endless names."""
    # `logging.getLogger` keeps every logger for ever. A temporary logger has the same parent, so levels and handlers
    # are the same.
    root = logging.getLogger()
    loggers = root.manager.loggerDict
    found = root if name == root.name else loggers.get(name)
    if isinstance(found, logging.Logger):
        return found
    logger = logging.Logger(name)  # noqa: LOG001 - see above
    while name and not isinstance(loggers.get(name), logging.Logger):
        name = name.rpartition(".")[0]
    above = loggers.get(name)
    logger.parent = above if isinstance(above, logging.Logger) else root
    return logger
