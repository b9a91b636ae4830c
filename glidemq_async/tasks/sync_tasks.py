"""The types of `mq.sync` and `task.sync`: the methods of an app and its tasks as blocking functions."""

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
    """`task.options(...).sync`: blocking adds for code without an event loop, in any thread and in forked children."""

    def add(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any, R]:
        """Add a call as a job. When this returns, it is stored. Raises the errors of `Task.add`."""
        ...

    def add_many(self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[Job[Any, R]]:
        """Add many calls, one job per call, in order. Raises the errors of `Task.add_many`."""
        ...


class SyncTask(SyncAdds[P, R], Protocol[P, R]):
    """`task.sync`: blocking methods for code without an event loop, in any thread and in forked children."""

    def result(self, job_id: str, timeout: float | timedelta | None = None) -> R:
        """Wait until a job of this task has ended, and return its result. Raises the errors of `Task.result`."""
        ...


class SyncApp(Protocol):
    """`mq.sync`: blocking `connect` and `close` for code without an event loop; also a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def connect(self) -> None:
        """Connect, open the queues of all tasks, and upsert the crons. Idempotent."""
        ...

    def close(self) -> None:
        """Send the waiting adds and close the connections. Idempotent."""
        ...
