"""What is logged in a child, on its way to the worker."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

from typing_extensions import override

from glidemq_async.executors.subprocess.link import Link
from glidemq_async.executors.subprocess.records import (
    MOST_A_SECOND,
    MOST_BYTES_A_SECOND,
    Allowance,
    Levels,
    Values,
    carried_record,
)

_PATIENCE: Final = 0.1
"""Seconds for which a record may hold up who logs it; none may after it, until the worker takes one again."""

_log = logging.getLogger("glidemq_async.executors.subprocess")
_run: ContextVar[str] = ContextVar("glidemq_run", default="")


class Forwarding(logging.Handler):
    """The one handler of a child: the worker's logging decides where records go.

    At most 1,000 records a second are sent, and none that the worker does not take in time; others are counted.
    """

    def __init__(self, link: Link, levels: Levels) -> None:
        super().__init__()
        self.link = link
        self._levels: Levels = [0, {}]
        self._told = levels
        self._pid = os.getpid()
        self._allowance = Allowance(MOST_A_SECOND, MOST_BYTES_A_SECOND)
        self._is_heard = True

    def take_over(self) -> None:
        """Undo what imported code has set up: in the worker it has done the same, and there it holds."""
        root = logging.getLogger()
        for one in list(root.manager.loggerDict.values()):
            if isinstance(one, logging.Logger):
                one.handlers, one.propagate, one.disabled = [], True, False
        root.handlers = [self]
        self._levels = [None, {}]
        self.follow(self._told)

    def follow(self, levels: Levels) -> None:
        """Take the levels of the worker where they have changed. In whatever thread hears of them."""
        (disabled, known), self._told = self._levels, levels
        if levels[0] != disabled:
            logging.disable(levels[0])
        for name, level in levels[1].items():
            if known.get(name) != level:
                logging.getLogger(name or None).setLevel(level)
        for name in known.keys() - levels[1].keys():
            logging.getLogger(name or None).setLevel(logging.NOTSET)
        self._levels = levels

    def begin(self, job_id: str) -> None:
        """What is logged in this context from now on belongs to the run of a job."""
        _run.set(job_id)

    def end(self, job_id: str) -> None:
        """The run has ended: say what was left out of it."""
        self._is_heard = True
        self._confess(job_id)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, or leave it out."""
        if os.getpid() != self._pid:  # a fork shares the channel with its parent, and may not speak there
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        if not self._allowance.passes():
            return
        try:
            values = carried_record(record)
            values["extra"].update(_span_ids())
            run = _run.get()
            if self._allowance.left_out:
                self._confess(run)
            if not self._offer(run, values):
                self._allowance.left_out += 1
        except OSError:  # the worker is gone, and this process will be
            pass
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)

    def _confess(self, run: str) -> None:
        number = self._allowance.left_out
        if not number:
            return
        text = (
            f"{number} log records were left out: more than {MOST_A_SECOND} or {MOST_BYTES_A_SECOND} bytes a second, "
            "or the worker was too busy"
        )
        record = _log.makeRecord(_log.name, logging.WARNING, __file__, 0, text, (), None)
        with suppress(OSError):
            if self._offer(run, carried_record(record)):
                self._allowance.left_out -= number

    def _offer(self, run: str, values: Values) -> bool:
        sent = self.link.offer(_PATIENCE if self._is_heard else 0.0, "record", run, values)
        self._allowance.spend(sent)
        self._is_heard = sent > 0
        return self._is_heard


def _span_ids() -> dict[str, str]:
    # A child that has not imported it has no span.
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}
