"""The stored form of a handler's exception, from which JobFailed is created."""

from __future__ import annotations

import traceback
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgpack

from glidemq_async.errors import GlideMQError, JobFailed
from glidemq_async.stored.failure_places import is_users, place_of

if TYPE_CHECKING:
    from types import TracebackType

TRACEBACK_LIMIT: Final = 16_384
MESSAGE_LIMIT: Final = 4_096
REASON_LIMIT: Final = 500

_CAUSED: Final = "The above exception was the direct cause of the following exception:"
_DURING: Final = "During handling of the above exception, another exception occurred:"
_CONTROL: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")


class Failure(NamedTuple):
    """The stored parts of an exception; "" for unknown parts."""

    error_type: str
    message: str
    traceback: str
    place: str = ""
    """The innermost frame of the user's code, "<file>:<function>:<line>"."""

    def packed(self, name: str, version: str = "") -> bytes:
        """Return the stored form, for a job with this name that a worker of this version has run."""
        return msgpack.packb([*self, self.fingerprint(name), version])

    def fingerprint(self, name: str) -> str:
        """Return the fingerprint of the group of a failure.

        It leaves out the line and the message, so that another deploy of the same code and another id in the message
        belong to the same group.
        """
        where, _, _ = self.place.rpartition(":")
        return sha256("\x1f".join((name, self.error_type, where)).encode("utf-8", "replace")).hexdigest()[:16]

    def reason(self) -> str:
        """Return one line of at most 500 characters, for lists and events."""
        return one_line(f"{self.error_type}: {self.message}" if self.message else self.error_type)


def one_line(text: str) -> str:
    """Return a text as one line of at most 500 characters."""
    return text[:REASON_LIMIT].translate(_CONTROL)


def failure_of(error: BaseException) -> Failure:
    """Describe an exception. Never raises: if the text of an exception cannot be read, only its type is used."""
    remote = getattr(error, "remote_failure", None)
    if isinstance(remote, Failure):  # it was raised and described in another process
        return remote
    name = type(error).__name__
    message = trace = ""
    # Done separately, because formatting a traceback reads more than the text and may fail when the text does not.
    with suppress(Exception):
        message = str(error)[:MESSAGE_LIMIT]
    with suppress(Exception):
        trace = _formatted(error)
    # Both ends are kept: the beginning has the user's function, and the end has the error. A recursion repeats its
    # frames in the middle.
    if len(trace) > TRACEBACK_LIMIT:
        trace = trace[: TRACEBACK_LIMIT // 2] + "\n[…]\n" + trace[-TRACEBACK_LIMIT // 2 :]
    # An exception may contain lone surrogates, for example from a file name. They cannot be encoded, and the settle
    # call that stores the failure must not fail.
    texts = (name, message, trace, place_of(error))
    encodable = [text.encode("utf-8", "replace").decode() for text in texts]
    return Failure(*encodable)


def _formatted(error: BaseException) -> str:
    """Return the traceback without the library's frames above the user's function.

    If an error of the library involves no function of the user, only its message is returned, because frames of the
    library would not help. Its cause is shown if that involves code of the user, and not only installed packages.
    """
    trace = _from_the_users_first(error.__traceback__)
    # The TimeoutError of a run in another process is raised here, where no frame of the user is.
    if trace is None and isinstance(error, (GlideMQError, TimeoutError)):
        before, how = error.__cause__, _CAUSED
        if before is None and not error.__suppress_context__:
            before, how = error.__context__, _DURING
        shows = before is not None and place_of(before)
        about = f"{_formatted(before)}\n{how}\n\n" if before is not None and shows else ""
        return about + "".join(traceback.format_exception_only(error))
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))


def _from_the_users_first(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback starting at the user's first function, None if there is none."""
    at = trace
    while at is not None:
        if is_users(at.tb_frame):
            return at
        at = at.tb_next
    return None


def stored_failure(packed: bytes | None, reason: str) -> JobFailed:
    """Return the exception for callers that await a failed job, from the handler's error or the server's reason."""
    if packed:
        return JobFailed(*cast("list[str]", msgpack.unpackb(packed))[:3])
    # Without a stored failure the server ended the job (expired, stalled, revoked), and only its reason exists.
    cause, _, said = reason.partition(": ")
    return JobFailed(cause or "failed", said)
