"""How a handler's exception is stored with its job, and comes back as JobFailed."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, cast

import msgpack

from glidemq_async.errors import GlideMQError, JobFailed

TRACEBACK_LIMIT: Final = 16_384
MESSAGE_LIMIT: Final = 4_096
REASON_LIMIT: Final = 500

_LIBRARY: Final = __name__.partition(".")[0]
_CAUSED: Final = "The above exception was the direct cause of the following exception:"
_DURING: Final = "During handling of the above exception, another exception occurred:"
_CONTROL: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")


class Failure(NamedTuple):
    """What is stored of an exception; "" where nothing is known."""

    error_type: str
    message: str
    traceback: str

    def packed(self) -> bytes:
        """Return the stored form."""
        return msgpack.packb(self)

    def reason(self) -> str:
        """Return one line for lists and events, at most 500 characters."""
        return one_line(f"{self.error_type}: {self.message}" if self.message else self.error_type)


def one_line(text: str) -> str:
    """Return a text as one line of at most 500 characters."""
    return text[:REASON_LIMIT].translate(_CONTROL)


def failure_of(error: BaseException) -> Failure:
    """Describe an exception. Never raises: an exception whose text cannot be had is described by its type."""
    remote = getattr(error, "remote_failure", None)
    if isinstance(remote, Failure):  # it was raised in another process, and described there
        return remote
    name = type(error).__name__
    message = trace = ""
    # Apart from each other: what formats a traceback reads more than the text, and may fail where that does not.
    with suppress(Exception):
        message = str(error)[:MESSAGE_LIMIT]
    with suppress(Exception):
        trace = _formatted(error)
    if len(trace) > TRACEBACK_LIMIT:
        trace = trace[: TRACEBACK_LIMIT // 2] + "\n[…]\n" + trace[-TRACEBACK_LIMIT // 2 :]
    encodable = [text.encode("utf-8", "replace").decode() for text in (name, message, trace)]
    return Failure(*encodable)


def _formatted(error: BaseException) -> str:
    """Return the traceback, without the frames by which the library came to the user's function.

    An error of the library in which no function of the user had a part is its message: frames of the library would help
    nobody. The error before it is shown if a function of the user had a part in that.
    """
    trace = _from_the_users_first(error.__traceback__)
    if trace is None and isinstance(error, GlideMQError):
        before, how = error.__cause__, _CAUSED
        if before is None and not error.__suppress_context__:
            before, how = error.__context__, _DURING
        is_users = before is not None and _from_the_users_first(before.__traceback__) is not None
        about = f"{_formatted(before)}\n{how}\n\n" if before is not None and is_users else ""
        return about + "".join(traceback.format_exception_only(error))
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))


def _from_the_users_first(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first function of the user on; None where none had a part."""
    at = trace
    while at is not None:
        module = str(at.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if module != _LIBRARY and module not in sys.stdlib_module_names:
            return at
        at = at.tb_next
    return None


def stored_failure(packed: bytes | None, reason: str) -> JobFailed:
    """Return the exception for whoever awaits a failed job: the handler's, or the server's reason."""
    if packed:
        return JobFailed(*cast("list[str]", msgpack.unpackb(packed)))
    cause, _, said = reason.partition(": ")
    return JobFailed(cause or "failed", said)
