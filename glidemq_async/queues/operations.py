"""Bulk operations on the jobs of one queue: a short form of the operations core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, cast

from glidemq_async._internal import late
from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.generics import Data, Result
from glidemq_async.filters.filter import Filter
from glidemq_async.queues.base import QueuePart
from glidemq_async.stored.record import State

OperationState: TypeAlias = Literal["previewed", "running", "done", "cancelled", "stopped"]
PART = "operations"
"""The name of the part of a higher layer that runs operations."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a list. Times are measured by the server's clock."""

    queue: str
    id: str
    name: str
    state: State
    key: str | None
    priority: int
    attempts_made: int
    created_at: datetime | None
    due_at: datetime | None
    finished_at: datetime | None
    failed_reason: str | None
    failure_group: str | None = None
    """The fingerprint of the group of failures, None if it is not known."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The jobs that an operation would handle, as they were when they were counted.

    `count` is the number of jobs that match the filter and were added up to `cutoff`, and `sample` has the first ones.
    `refused` counts the jobs that the action cannot change, by the reason. Pass `operation_id` and `ticket` to
    `Ops.start` within 15 minutes. Only these jobs are changed, whatever is added later.
    """

    operation_id: str
    ticket: str
    action: str
    filter: str
    count: int
    sample: list[JobRow]
    cutoff: datetime
    refused: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Operation:
    """A bulk operation: `done` jobs are changed, and `refused` counts the others by the reason.

    At the end, `done` and all of `refused` add up to `count`. `rate` is in jobs per second, None for the fastest.
    """

    id: str
    action: str
    filter: str
    arguments: Mapping[str, Any]
    state: OperationState
    count: int
    done: int
    refused: Mapping[str, int]
    rate: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    actor: str
    reason: str
    stop_reason: str
    cutoff: datetime


class OperationCore(Protocol):
    """The methods of the operations core that an operation of a queue needs."""

    async def preview(self, action: str, wanted: str | Filter, *, reason: str = "", **arguments: Any) -> Preview: ...

    async def start(
        self, operation_id: str, ticket: str, *, rate: float | None = None, stop_if_failing: float | None = 0.5
    ) -> Operation: ...

    async def operation(self, operation_id: str) -> Operation: ...

    async def run_operation(self, operation_id: str) -> Operation: ...

    async def wait_operation(self, operation_id: str, timeout: float | None = None) -> Operation: ...

    async def cancel_operation(self, operation_id: str, *, reason: str = "") -> Operation: ...


OpenCore: TypeAlias = "Callable[[QueuePart[Any, Any]], AbstractAsyncContextManager[OperationCore]]"


class QueueOperation:
    """One change of all jobs of a queue that match a filter. `Queue.operation` makes it.

    Call `preview` first, then `start` with its ticket. `run` or a process with `Ops.worker` then changes the jobs.
    """

    def __init__(self, queue: QueuePart[Any, Any], action: str, wanted: Filter, reason: str, arguments: Any) -> None:
        self._queue = queue
        self._action = action
        self._wanted = wanted
        self._reason = reason
        self._arguments: Mapping[str, Any] = arguments
        self._id = ""

    def __repr__(self) -> str:
        return f"<QueueOperation {self._action} of {str(self._wanted)!r}>"

    @property
    def id(self) -> str:
        """The id of the operation, "" before its preview."""
        return self._id

    async def preview(self) -> Preview:
        """Count the matching jobs, and store their ids. Changes no job.

        A second preview begins another operation. Raises the errors of `Ops.preview`.
        """
        async with self._core() as core:
            found = await core.preview(self._action, self._wanted, reason=self._reason, **self._arguments)
        self._id = found.operation_id
        return found

    async def start(self, ticket: str, *, rate: float | None = None, stop_if_failing: float | None = 0.5) -> Operation:
        """Start the operation with the ticket of its preview. Raises the errors of `Ops.start`."""
        async with self._core() as core:
            return await core.start(self._previewed(), ticket, rate=rate, stop_if_failing=stop_if_failing)

    async def run(self) -> Operation:
        """Run the started operation in this process, unless another one runs it, and return it at its end."""
        async with self._core() as core:
            return await core.run_operation(self._previewed())

    async def wait(self, timeout: float | None = None) -> Operation:
        """Wait until another process has run the operation, and return it.

        Raises TimeoutError after `timeout` seconds.
        """
        async with self._core() as core:
            return await core.wait_operation(self._previewed(), timeout)

    async def progress(self) -> Operation:
        """Return the operation as it is now."""
        async with self._core() as core:
            return await core.operation(self._previewed())

    async def cancel(self, *, reason: str = "") -> Operation:
        """Cancel the operation. Raises the errors of `Ops.cancel_operation`."""
        async with self._core() as core:
            return await core.cancel_operation(self._previewed(), reason=reason)

    def _core(self) -> AbstractAsyncContextManager[OperationCore]:
        return cast("OpenCore", late.load(PART))(self._queue)

    def _previewed(self) -> str:
        if not self._id:
            raise RuntimeError("the operation has no preview; call preview() first, and pass its ticket to start()")
        return self._id


class SyncQueueOperation(Blocking[QueueOperation]):
    """The blocking methods of a bulk operation. `queue.sync.operation` makes it.

    Parameters, results and errors are the same as in QueueOperation.
    """

    preview = blocking(QueueOperation.preview)
    start = blocking(QueueOperation.start)
    run = blocking(QueueOperation.run)
    wait = blocking(QueueOperation.wait)
    progress = blocking(QueueOperation.progress)
    cancel = blocking(QueueOperation.cancel)

    @property
    def id(self) -> str:
        """The id of the operation, "" before its preview."""
        return self._owner.id


class Operations(QueuePart[Data, Result]):
    """The method of Queue for bulk operations."""

    def operation(self, action: str, wanted: str | Filter, *, reason: str = "", **arguments: Any) -> QueueOperation:
        """Return one change of all jobs of this queue that match a filter. Sends nothing before its `preview`.

        `action` is "retry", "cancel", "promote", "delay", "move", "delete" or "edit"; docs/operations.md has the
        arguments of each. `reason` becomes a part of the audit line and of the histories of the jobs.

        Raises FilterError for a bad filter.
        """
        return QueueOperation(self, action, Filter.of_queue(self.name, wanted), reason, arguments)
