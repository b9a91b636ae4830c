"""Exceptions of queues, their schedulers, filters and flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.errors.base import GlideMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class QueueFull(GlideMQError):
    """Raised when the server refuses new jobs because a limit is reached or its memory is full."""


class QueueBusy(GlideMQError):
    """Raised when a queue cannot be removed: `running` of its jobs are running, or clients add jobs too fast.

    In the second case `running` is 0, and `added` is the number of jobs that were added and removed during the call.
    """

    def __init__(self, queue: str, running: int, added: int = 0) -> None:
        if running:
            why = (
                f"while {running} of its jobs are running; pause the queue or stop its workers and wait for the jobs "
                "to end, or pass force=True to take the jobs from their workers"
            )
        else:
            why = (
                f"because clients add jobs as fast as they are removed ({added:,} during this call); stop these "
                "clients and call obliterate again. Until then the queue is paused"
            )
        super().__init__(f"queue {queue!r} cannot be removed {why}")
        self.queue = queue
        self.running = running
        self.added = added

    def __reduce__(self) -> tuple[Callable[..., QueueBusy], tuple[object, ...]]:
        return type(self), (self.queue, self.running, self.added)


class QueueClosed(GlideMQError):
    """Raised when a queue, worker or app is used after it was closed."""


class SchedulerNotFound(GlideMQError, LookupError):
    """Raised when no job scheduler has the requested id."""


class FilterError(GlideMQError, ValueError):
    """Raised for a filter of jobs that cannot be understood. `position` is the place of the mistake, from 1."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"the filter is wrong at character {position}: {problem}")
        self.problem = problem
        self.position = position

    def __reduce__(self) -> tuple[Callable[..., FilterError], tuple[object, ...]]:
        return type(self), (self.problem, self.position)


class CycleError(GlideMQError, ValueError):
    """Raised when the jobs of a flow depend on each other in a cycle.

    `cycle` has the names of these jobs. Each one depends on the next, and the last one is the first one again.
    """

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(
            f"the jobs of the flow depend on each other in a cycle: {' -> '.join(cycle)}; "
            "remove one of these dependencies"
        )
        self.cycle = tuple(cycle)

    def __reduce__(self) -> tuple[Callable[..., CycleError], tuple[object, ...]]:
        return type(self), (self.cycle,)
