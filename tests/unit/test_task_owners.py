"""Every task has an owner: a task group, `BackgroundTasks`, or a component in this list that awaits it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_layers import ROOT, sources

GROUPS = {"group", "_group", "task_group", "_task_group", "tasks", "_tasks"}
"""Names of task groups."""

OWNERS = {
    "_internal/background_tasks.py": "the owner of the tasks of components with `open` and `close`",
    "_internal/continued_work.py": "its caller awaits it, or receives it when it leaves; it ends by itself",
    "_internal/task_scope.py": "a task group whose `cancel` reaches each task once",
    "_internal/portal.py": "the calling thread waits for the task, and cancels it when it stops waiting",
    "client/end_collector.py": "one for each queue of a batch; leaving the collector cancels and awaits them",
    "client/scheduler_runner.py": "one round at a time, which `close` cancels or awaits; a timer starts the next one",
    "client/warm_runs.py": "`close` awaits the functions that are left",
    "executors/subprocess/child.py": "the loop of a child process runs until this task has ended",
    "executors/subprocess/executor.py": "the run that starts it waits for it, and needs its outcome after a timeout",
    "executors/subprocess/guard_client.py": "`stop` awaits it",
    "executors/subprocess/output.py": "one at a time, which ends when no line is left; the end of the run awaits it",
    "executors/subprocess/pool.py": "`close` cancels and awaits the starts; each end of a start begins the next",
    "integrations/aiohttp.py": "the handler awaits it before it returns",
    "integrations/sse.py": "one read at a time, which survives heartbeats; the end of the iteration awaits it",
    "integrations/starlette.py": "the response cancels and awaits both before it returns",
    "options/budget.py": "one delayed write at a time, which ends by itself; the end of the run writes the last value",
    "queues/add_buffer.py": "at most two senders, which only new jobs start; `close` waits until everything is sent",
    "queues/events.py": "the iteration that starts the read awaits it; `close` cancels it from another task",
    "storage/redis/attempt.py": "the waiting callers share it; a cancelled caller leaves it to the others",
    "tasks/open_context.py": "a context manager must be left in the task that entered it; `close` awaits that task",
    "tasks/mapping.py": "the iteration of a map cancels and awaits its tasks; an add in flight ends by itself",
    "web/event_endpoints.py": "the response cancels and awaits its tasks before it returns",
    "workflows/replaying.py": "the function of one replay, which cancels it and waits for its end",
    "workflows/child_waits.py": "a run that is suspended or has ended cancels them; see the essay",
    "workflows/task_calls.py": "it ends by itself, because the addition of children must not end half-way",
    "workflows/waiting.py": "the run of the workflow awaits it, and cancels it when it is suspended",
    "spark/driver/progress_reporter.py": "`finish` cancels and awaits it",
    "spark/write/task_writer.py": "the writer awaits all deliveries when it commits",
    "demo/jobs/worker_processes.py": "`stop` awaits the watches, which start watches of replacements",
}
"""Files that may create a task outside of a task group, and why."""


def created_tasks(path: Path) -> Iterator[int]:
    """Yield the lines that create a task outside of a task group."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = node.func.value
            name = receiver.attr if isinstance(receiver, ast.Attribute) else getattr(receiver, "id", "")
            if node.func.attr in {"create_task", "ensure_future", "Task"} and name not in GROUPS:
                yield node.lineno
        elif isinstance(node, ast.Name) and node.id in {"create_task", "ensure_future"}:
            yield node.lineno


def test_tasks_are_created_by_their_owners_only() -> None:
    sites = {str(path.relative_to(ROOT)) for path in sources().values() if any(created_tasks(path))}
    assert not sites - set(OWNERS), "use a task group, BackgroundTasks, or give the component a reason in OWNERS"
    assert not set(OWNERS) - sites, "these files create no task any more; remove them from OWNERS"


def test_the_search_finds_every_way_to_create_a_task(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "asyncio.create_task(x)\nasyncio.ensure_future(x)\nasyncio.get_running_loop().create_task(x)\n"
        "self._loop.create_task(x)\nasyncio.Task(x)\n"
        "create_task(x)\nself._tasks.create_task(x)\ngroup.create_task(x)\n"
    )
    assert sorted(created_tasks(file)) == [1, 2, 3, 4, 5, 6]


def unguarded_gathers(text: str) -> list[int]:
    """Return the lines with an `asyncio.gather` that would leave tasks running after the first error."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "gather"
        and not any(keyword.arg == "return_exceptions" for keyword in node.keywords)
    ]


def test_no_gather_leaves_tasks_running_after_an_error() -> None:
    found = {name: lines for name, path in sources().items() if (lines := unguarded_gathers(path.read_text("utf-8")))}
    assert found == {}, "use together or finish_all of glidemq_async._internal.waits"
    assert unguarded_gathers("asyncio.gather(a, b)\nasyncio.gather(a, return_exceptions=True)\n") == [1]
