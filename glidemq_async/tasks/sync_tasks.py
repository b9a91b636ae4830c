"""`mq.sync` and `task.sync`: the types of what an app and its tasks await, for code without an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from glidemq_async.jobs.job import Job

__all__ = ["SyncAdds", "SyncApp", "SyncTask"]

P = ParamSpec("P")
R = TypeVar("R")


class SyncAdds(Protocol[P, R]):
    """`task.options(...).sync`: adding, for code without an event loop; from any thread, and in forked children."""

    def add(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any, R]:
        """Add a call as a job; once this returns it is stored. Raises what `Task.add` raises."""
        ...

    def add_many(self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[Job[Any, R]]:
        """Add many calls, one job per call, in order. Raises what `Task.add_many` raises."""
        ...


class SyncTask(SyncAdds[P, R], Protocol[P, R]):
    """`task.sync`: adding and waiting, for code without an event loop; from any thread, and in forked children."""

    def result(self, job_id: str, timeout: float | timedelta | None = None) -> R:
        """Wait until a job of this task has ended and return its result. Raises what `Task.result` raises."""
        ...


class SyncApp(Protocol):
    """`mq.sync`: opening and closing the app for code without an event loop. As a context manager it does both."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def connect(self) -> None:
        """Connect, open the queues of all tasks and upsert the crons; idempotent."""
        ...

    def close(self) -> None:
        """Send the adds that wait in line and let go of the connections; idempotent."""
        ...
