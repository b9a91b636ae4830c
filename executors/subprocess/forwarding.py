"""Forwards the log records of a child to the worker."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

from typing_extensions import override

from glidemq_async.executors.subprocess.link import WorkerSocket
from glidemq_async.executors.subprocess.records import (
    MOST_A_SECOND,
    MOST_BYTES_A_SECOND,
    Allowance,
    Levels,
    Values,
    record_to_values,
)

_SEND_SECONDS: Final = 0.1
"""Seconds for which a send may block the logging thread. After a failed send, sends do not block until one succeeds."""

_log = logging.getLogger("glidemq_async.executors.subprocess")
_run: ContextVar[str] = ContextVar("glidemq_run", default="")


class Forwarding(logging.Handler):
    """The only handler of a child. The worker's logging decides where records go.

    It sends at most 1,000 records a second. It drops and counts further records, and records that the worker does not
    accept in time.
    """

    def __init__(self, link: WorkerSocket, levels: Levels) -> None:
        super().__init__()
        self.link = link
        self._levels: Levels = [0, {}]
        self._latest = levels
        self._pid = os.getpid()
        self._allowance = Allowance(MOST_A_SECOND, MOST_BYTES_A_SECOND)
        self._is_accepted = True

    def take_over(self) -> None:
        """Remove the handlers and levels that imported code has set. The worker runs the same code and applies them."""
        root = logging.getLogger()
        for one in list(root.manager.loggerDict.values()):
            if isinstance(one, logging.Logger):
                one.handlers, one.propagate, one.disabled = [], True, False
        root.handlers = [self]
        self._levels = [None, {}]
        self.follow(self._latest)

    def follow(self, levels: Levels) -> None:
        """Apply changed levels of the worker. Called in the thread that receives them."""
        (disabled, known), self._latest = self._levels, levels
        if levels[0] != disabled:
            logging.disable(levels[0])
        for name, level in levels[1].items():
            if known.get(name) != level:
                logging.getLogger(name or None).setLevel(level)
        for name in known.keys() - levels[1].keys():
            logging.getLogger(name or None).setLevel(logging.NOTSET)
        self._levels = levels

    def begin(self, job_id: str) -> None:
        """Assign the records of this context to the run of a job from now on."""
        _run.set(job_id)

    def end(self, job_id: str) -> None:
        """End the run, and report its dropped records."""
        self._is_accepted = True
        self._report_dropped(job_id)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, or drop and count it."""
        # Logging must not block a job, and must not raise in it. So this handler limits the records per second, and
        # drops records that a slow worker does not accept. The worker applies the same limits again, because a hostile
        # job can bypass this handler.
        if os.getpid() != self._pid:  # a fork shares the channel with its parent and must not write to it
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        if not self._allowance.passes():
            return
        try:
            values = record_to_values(record)
            values["extra"].update(_span_ids())
            run = _run.get()
            if self._allowance.dropped:
                self._report_dropped(run)
            if not self._offer(run, values):
                self._allowance.dropped += 1
        except OSError:  # the worker is gone, and this process will end soon
            pass
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)

    def _report_dropped(self, run: str) -> None:
        number = self._allowance.dropped
        if not number:
            return
        text = (
            f"{number} log records were dropped: the job logged more than {MOST_A_SECOND} records or "
            f"{MOST_BYTES_A_SECOND} bytes a second, or the worker was too busy"
        )
        record = _log.makeRecord(_log.name, logging.WARNING, __file__, 0, text, (), None)
        with suppress(OSError):
            if self._offer(run, record_to_values(record)):
                self._allowance.dropped -= number

    def _offer(self, run: str, values: Values) -> bool:
        sent = self.link.offer(_SEND_SECONDS if self._is_accepted else 0.0, "record", run, values)
        self._allowance.spend(sent)
        self._is_accepted = sent > 0
        return self._is_accepted


def _span_ids() -> dict[str, str]:
    # A program that has not imported OpenTelemetry has no current span.
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}
