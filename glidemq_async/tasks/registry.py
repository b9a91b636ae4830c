"""The tasks of an app by job name, including aliases and versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import Parameter

from glidemq_async.options.validation import positive_number
from glidemq_async.stored.names import check_id
from glidemq_async.tasks.task import AnyTask


class Tasks(Mapping[str, AnyTask]):
    """A mapping from job names to tasks: every task by its name and by its aliases."""

    def __init__(self) -> None:
        self._found: dict[str, AnyTask] = {}

    def add(self, task: AnyTask) -> None:
        """Add a task. Raises ValueError if one of its names is already used."""
        # All names are checked before the first one is stored, so a refused task leaves nothing behind.
        names = [task.name, *task.aliases]
        for name in names:
            if name in self._found or names.count(name) > 1:
                other = self._found.get(name, task)
                raise ValueError(
                    f"the job name {name!r} is used by two tasks: {_path_of(other)} and {_path_of(task)}; "
                    "give one of them another name= or version="
                )
        self._found.update(dict.fromkeys(names, task))

    def queues(self) -> frozenset[str]:
        """The queues of all tasks."""
        return frozenset(task.queue for task in self._found.values())

    def parameters(self, queue: str) -> dict[str, list[str]]:
        """Return the names of the positional parameters of each task of a queue, by job name."""
        return {name: _positions(task) for name, task in self._found.items() if task.queue == queue}

    def __getitem__(self, name: str) -> AnyTask:
        return self._found[name]

    def get(self, name: str, default: AnyTask | None = None) -> AnyTask | None:  # type: ignore[override]
        """Return the task for a job name. Called for every job."""
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


def _positions(task: AnyTask) -> list[str]:
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in task.signature.parameters.values() if each.kind in kinds]


def _path_of(task: AnyTask) -> str:
    return f"{task.function.__module__}.{task.function.__qualname__}"
