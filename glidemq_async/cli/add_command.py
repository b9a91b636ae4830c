"""Adding a job from a shell. If the app has a task of this name, its signature checks the arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from glidemq_async.cli.exits import USAGE, CommandError
from glidemq_async.cli.memory_stores import refuse_memory_store
from glidemq_async.errors import SerializationError
from glidemq_async.options.job_options import merge

if TYPE_CHECKING:
    from glidemq_async.cli.targets import Store
    from glidemq_async.jobs.job import Job
    from glidemq_async.tasks.app import GlideMQ
    from glidemq_async.tasks.arguments import Arguments
    from glidemq_async.tasks.definition import TaskDefinition
    from glidemq_async.tasks.task import AnyTask


def planned_add(
    store: Store, queue: str, name: str, payload: object, options: Mapping[str, Any]
) -> Callable[[], Awaitable[Job[Any, Any]]]:
    """Return the add of a job. Nothing is sent before it is called.

    Raises CommandError if the arguments do not fit the task, or if the store would end with this command.
    """
    refuse_memory_store(store.storage, "and the job would be lost at the end of this command")
    task = None if store.app is None else _task(store.app, queue, name)
    if store.app is None or task is None:
        return lambda: _add(store, queue, name, payload, options)
    from glidemq_async.tasks.app import core_of
    from glidemq_async.tasks.task import definition_of

    definition = definition_of(task)
    call = _call(definition, payload)
    core, merged = core_of(store.app), merge(definition.options, options)
    return lambda: core.add_call(definition, call, merged)


async def _add(store: Store, queue: str, name: str, payload: object, options: Mapping[str, Any]) -> Job[Any, Any]:
    async with store.queue(queue) as opened:
        return await opened.add(name, payload, **options)


def _task(app: GlideMQ[Any], queue: str, name: str) -> AnyTask | None:
    """Return the task that a job of this name runs, or None if the app declares no tasks."""
    if queue not in app.queues:
        return None
    here = {known: task for known, task in app.tasks.items() if task.queue == queue}
    if name in here:
        return here[name]
    near = get_close_matches(name, here, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"its tasks are {', '.join(sorted(here))}"
    raise CommandError(f"the app has no task {name!r} in queue {queue!r}: {hint}", USAGE)


def _call(task: TaskDefinition, payload: object) -> dict[str, Any]:
    """Return the stored form of a call with arguments in JSON."""
    arguments = task.arguments
    if isinstance(payload, dict) and not payload.keys() <= {"a", "k"}:  # pyright: ignore[reportUnknownMemberType]
        payload = {"a": list[object](), "k": cast("object", payload)}  # the arguments by name
    try:
        _check_new(arguments, payload)
        positional, keywords = cast("tuple[object, object]", arguments.split(payload))
        if not isinstance(positional, list) or not isinstance(keywords, dict):
            raise SerializationError(f"{payload!r} does not contain the arguments of task {task.name!r}")
        # Read as a worker reads a call, and stored again: JSON has no dates or UUIDs, so the texts of the command line
        # become the typed values of the task's annotations first. A wrong value is refused here and not by the handler.
        values, named = arguments.read(payload)
        return arguments.stored(tuple(values), named)
    except (SerializationError, TypeError) as error:
        raise CommandError(f"{error} (give its arguments with --args and --kwargs)", USAGE) from error


def _check_new(arguments: Arguments, payload: Any) -> None:  # isinstance makes an object a dict of unknown types
    """Raise TypeError if the arguments do not fit. The errors of `split` are about jobs whose signature has changed."""
    if not isinstance(payload, dict):
        return
    call = cast("dict[str, object]", payload)
    positional, keywords = call.get("a", []), call.get("k", {})
    if isinstance(positional, list) and isinstance(keywords, dict):
        arguments.check(cast("list[object]", positional), cast("dict[str, object]", keywords))
