"""Exceptions that end a write."""

from __future__ import annotations

from glidemq_async.errors import GlideMQError
from glidemq_async.storage.protocol import FunctionError

__all__ = ["Backpressure", "DuplicateJob", "RowRefused", "WriteFenced", "write_error"]


class WriteFenced(GlideMQError):
    """The write was aborted or committed, or another run of it took over. The task must not add more jobs."""


class Backpressure(GlideMQError):
    """The queue was above `maxQueueDepth`, or its server out of memory, for longer than `backpressureTimeout`."""


class RowRefused(GlideMQError, ValueError):
    """A row is not a valid job, and `onInvalid` is "fail"."""


class DuplicateJob(GlideMQError):
    """A job with the id of a row exists already, and `onDuplicate` is "fail"."""


def write_error(error: FunctionError, queue: str) -> Exception:
    """Return the exception that a write raises for an error of a server function."""
    if error.code == "WRITEFENCED":
        return WriteFenced(f"queue {queue!r}: {error.message}")
    # For a worker this code means "declare the queue again". A write must not continue in the new queue: the jobs that
    # it has added so far are gone, and its ledger with them.
    if error.code == "UNDECLARED":
        return WriteFenced(f"queue {queue!r} was obliterated during this write; start the write again")
    return error
