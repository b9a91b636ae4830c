"""What worker processes and their supervisor print: one line per event, for people or for machines."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Final

from typing_extensions import override

from glidemq_async._internal.control_characters import escape
from glidemq_async.cli.worker.settings import LogFormat
from glidemq_async.telemetry.logs import JobFilter, JsonFormatter

_LIBRARY: Final = "glidemq_async."


class TextFormatter(logging.Formatter):
    """`12:00:00.123 INFO [2] worker.worker: …`, in local time; [2] is the number of a supervised process."""

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._who = f" [{number}]" if number is not None else ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback below it where there is one."""
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix(_LIBRARY)
        line = f"{at}.{int(record.msecs):03d} {record.levelname}{self._who} {name}: {record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        elif record.exc_text:  # it was raised in another process
            line += f"\n{record.exc_text}"
        return escape(line, keep="\n\t")


class JsonLines(JsonFormatter):
    """The lines of JsonFormatter, with the process: its `pid`, and `worker`, its number under a supervisor."""

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._number = number

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        record.pid, record.worker = os.getpid(), getattr(record, "worker", self._number)
        return super().format(record)


def say_error(error: Exception, form: LogFormat, number: int | None = None) -> None:
    """Print the one line that a user needs to mend an error; whatever logging is set up to, or before it is."""
    if form == "json":
        record = logging.LogRecord("glidemq_async.cli", logging.ERROR, __file__, 0, str(error), None, None)
        sys.stderr.write(f"{JsonLines(number).format(record)}\n")
    else:
        who = f" [{number}]" if number is not None else ""
        sys.stderr.write(f"glidemq{who}: {escape(str(error), keep=chr(10))}\n")


def set_up_logging(level: str, form: LogFormat, number: int | None = None) -> None:
    """Print what is logged to standard error; an application that set up logging by itself is left alone."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.addFilter(JobFilter())
    handler.setFormatter(JsonLines(number) if form == "json" else TextFormatter(number))
    root.addHandler(handler)
    root.setLevel(level.upper())
