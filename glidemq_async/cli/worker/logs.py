"""The log lines of worker processes and their supervisor, as text or JSON."""

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
    """Formats `12:00:00.123 INFO [2] worker.worker: …` in local time; [2] is the number of a supervised process."""

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._who = f" [{number}]" if number is not None else ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback if there is one."""
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = record.name.removeprefix(_LIBRARY)
        line = f"{at}.{int(record.msecs):03d} {record.levelname}{self._who} {name}: {record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        elif record.exc_text:  # the exception was raised in another process
            line += f"\n{record.exc_text}"
        return escape(line, keep="\n\t")


class JsonLines(JsonFormatter):
    """Formats the lines of JsonFormatter with the `pid` of the process and its number under a supervisor, `worker`."""

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._number = number

    @override
    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        record.pid, record.worker = os.getpid(), getattr(record, "worker", self._number)
        return super().format(record)


def say_error(error: Exception, form: LogFormat, number: int | None = None) -> None:
    """Print the one line that a user needs to fix an error, even if logging is not set up."""
    if form == "json":
        record = logging.LogRecord("glidemq_async.cli", logging.ERROR, __file__, 0, str(error), None, None)
        sys.stderr.write(f"{JsonLines(number).format(record)}\n")
    else:
        who = f" [{number}]" if number is not None else ""
        sys.stderr.write(f"glidemq{who}: {escape(str(error), keep=chr(10))}\n")


def set_up_logging(level: str, form: LogFormat, number: int | None = None) -> None:
    """Send log records to standard error, unless the application has configured logging itself."""
    root = logging.getLogger()
    # The import of the app may have configured logging. It comes before this call for that reason.
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.addFilter(JobFilter())
    handler.setFormatter(JsonLines(number) if form == "json" else TextFormatter(number))
    root.addHandler(handler)
    root.setLevel(level.upper())
