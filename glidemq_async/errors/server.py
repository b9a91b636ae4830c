"""Exceptions of connections to a server, and of the data and functions that it stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.errors.base import GlideMQError

if TYPE_CHECKING:
    from collections.abc import Callable


class StorageUnavailable(GlideMQError, ConnectionError):
    """Raised when the server cannot be reached, or does not reply within the timeout.

    An operation that changes something may or may not have happened.
    """

    caller_advice: str = ""
    """The end of the message, if it only concerns the caller of a method. Workers leave it out of their logs."""


class EmbeddedServerMissing(StorageUnavailable):
    """Raised when a memory:// or file:// URL is opened and no embedded server binary is installed."""


class IncompatibleQueueError(GlideMQError):
    """Raised on connect when the stored queue has another layout, owner or mode. Nothing is written in this case."""


class OldWorkersRunning(IncompatibleQueueError):
    """Raised on connect when a queue has to be migrated and workers of an older version are running.

    `workers` are their names, at most ten. `seconds_ago` is the time since the last sign of life of any of them.
    Nothing is written in this case.
    """

    def __init__(self, queue: str, workers: tuple[str, ...], seconds_ago: float) -> None:
        super().__init__(
            f"queue {queue!r} has the stored data of an older version (layout 1), and workers of that version are "
            f"running: {', '.join(workers)} (last sign of life {seconds_ago:.0f} s ago). Stop them and connect again; "
            "the data are then migrated. Workers that were killed count as running for a minute."
        )
        self.queue = queue
        self.workers = workers
        self.seconds_ago = seconds_ago

    def __reduce__(self) -> tuple[Callable[..., OldWorkersRunning], tuple[object, ...]]:
        return type(self), (self.queue, self.workers, self.seconds_ago)


class LibraryVersionError(GlideMQError):
    """Raised when the function library on the server is not compatible with this client."""


class UnsupportedDurability(GlideMQError):
    """Raised when the server does not support the requested durability, for example "fsync" before version 7.2."""
