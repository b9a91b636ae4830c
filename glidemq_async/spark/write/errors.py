"""What a write ends with when it cannot go on."""

from __future__ import annotations

from glidemq_async.errors import GlideMQError
from glidemq_async.storage.protocol import FunctionError

__all__ = ["Backpressure", "DuplicateJob", "RowRefused", "WriteFenced", "told"]


class WriteFenced(GlideMQError):
    """The write was aborted, committed or taken over by another run of it; this task must not write any more."""


class Backpressure(GlideMQError):
    """The queue stayed above `maxQueueDepth`, or its server out of memory, for longer than `backpressureTimeout`."""


class RowRefused(GlideMQError, ValueError):
    """A row is no valid job, and `onInvalid` is "fail"."""


class DuplicateJob(GlideMQError):
    """A job with this id exists already, and `onDuplicate` is "fail"."""


def told(error: FunctionError, queue: str) -> Exception:
    """Return what a refusal by the server means to the write."""
    if error.code == "WRITEFENCED":
        return WriteFenced(f"queue {queue!r}: {error.message}")
    if error.code == "UNDECLARED":
        return WriteFenced(f"queue {queue!r} was obliterated while this write went on: start it again")
    return error
