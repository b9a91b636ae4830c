"""Log records of a child, handled in the worker as if they had been made there."""

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
    rebuilt_record,
)
from glidemq_async.jobs.job import Job

_FRESH_SECONDS: Final = 0.5
"""For so long the levels of the loggers are not looked at again: a run costs no walk over all loggers."""


_log = logging.getLogger(__name__)


class Receiver:
    """The records of one child. Those of its run are handled in the context of the run, all others in none."""

    def __init__(self) -> None:
        self._context = contextvars.Context()
        self._job_id = ""
        self.pid = 0
        """The process that records are from, whatever they say."""
        # A child may have spent the allowance of one second at its end, and that of the next one at its beginning.
        self._allowance = Allowance(2 * MOST_A_SECOND, 2 * MOST_BYTES_A_SECOND)

    def begin(self, job: Job[Any, Any]) -> None:
        """A run begins, in the context of the caller."""
        self._job_id, self._context = job.id, contextvars.copy_context()

    def end(self) -> None:
        """The run has ended. An honest process says by itself what was left out of it, before that."""
        if self._allowance.left_out:
            number, self._allowance.left_out = self._allowance.left_out, 0
            _log.warning(
                "job %s: %d log records of its process were dropped here, it sent too many", self._job_id, number
            )
        self._job_id, self._context = "", contextvars.Context()

    def take(self, frame: Frame, size: int) -> bool:
        """Take a frame of `size` bytes if it is a record."""
        if frame[0] != "record":
            return False
        # Honest children keep to their own allowance, and tell what they left out.
        if len(frame) == 3 and self._allowance.passes(size):
            context = self._context if self._job_id and frame[1] == self._job_id else contextvars.Context()
            try:
                context.run(_handle, frame[2], self.pid)
            except Exception:  # noqa: BLE001 - the handlers and filters of the program
                if logging.raiseExceptions:
                    traceback.print_exc()
        return True


class OwnLevels:
    """The levels of the worker, looked up now and then: nothing tells when they change."""

    def __init__(self) -> None:
        self._found = own_levels()
        self._looked = time.monotonic()

    def now(self) -> Levels:
        """Return the levels, at most half a second old; the same object as long as they are the same."""
        now = time.monotonic()
        if now - self._looked > _FRESH_SECONDS:
            self._looked = now
            found = own_levels()
            if found != self._found:
                self._found = found
        return self._found


def _handle(values: object, pid: int) -> None:
    record = rebuilt_record(values)
    if record is None:
        return
    record.process = pid
    logger = _logger_of(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _logger_of(name: str) -> logging.Logger:
    """Return the logger of a name; one that is not kept where there is none: names come from others, without end."""
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
