"""The tasks of an app by name, old names and versions included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from glidemq_async.options.validation import positive_number
from glidemq_async.stored.names import check_id
from glidemq_async.tasks.task import AnyTask


class Tasks(Mapping[str, AnyTask]):
    """What each job name runs: every task by its name and by its aliases."""

    def __init__(self) -> None:
        self._found: dict[str, AnyTask] = {}

    def add(self, task: AnyTask) -> None:
        """Enter a task. Raises ValueError when one of its names is taken."""
        names = [task.name, *task.aliases]
        for name in names:
            if name in self._found or names.count(name) > 1:
                other = self._found.get(name, task)
                raise ValueError(
                    f"two tasks would run jobs called {name!r}: {_place(other)} and {_place(task)}; "
                    "give one of them another name= or version="
                )
        self._found.update(dict.fromkeys(names, task))

    def queues(self) -> frozenset[str]:
        """The queues of all tasks."""
        return frozenset(task.queue for task in self._found.values())

    def __getitem__(self, name: str) -> AnyTask:
        return self._found[name]

    def get(self, name: str, default: AnyTask | None = None) -> AnyTask | None:  # type: ignore[override]
        """Return the task of a name. On the path of every job."""
        return self._found.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def job_name(name: str, version: int | None) -> str:
    """Return the name of a task's jobs. Raises TypeError or ValueError for a bad one."""
    check_id("task name", name)
    if version is None:
        return name
    return f"{name}@{positive_number('version', version)}"


def _place(task: AnyTask) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"
