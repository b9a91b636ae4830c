"""The modules of `GlideMQ(include=...)` are imported for workers and commands, and not before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from glidemq_async import GlideMQ
from glidemq_async.cli.apps import app_of, load, runnable_of
from glidemq_async.cli.exits import USAGE, CommandError
from glidemq_async.storage import Storage

TASKS = """
from {package}.app import mq

@mq.task(queue="{queue}")
async def double(number: int) -> int:
    return 2 * number
"""
APP = """
from glidemq_async import GlideMQ

mq = GlideMQ("memory://", include=["{package}.{included}"])
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return an empty package that can be imported."""
    name = f"included_{uuid4().hex[:8]}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield name
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def write(directory: Path, package: str, included: str, tasks: str = TASKS) -> str:
    """Write an app and a module of tasks. Return the spec of the app."""
    (directory / package / "app.py").write_text(APP.format(package=package, included=included))
    (directory / package / "tasks.py").write_text(tasks.format(package=package, queue="numbers"))
    return f"{package}.app:mq"


async def test_a_worker_imports_the_modules_and_runs_their_tasks(
    tmp_path: Path, package: str, storage: Storage, name: str
) -> None:
    mq = GlideMQ(storage, include=[f"{package}.tasks"])
    (tmp_path / package / "app.py").write_text("mq = None")
    (tmp_path / package / "tasks.py").write_text(TASKS.format(package=package, queue=name))
    app: Any = __import__(f"{package}.app", fromlist=["mq"])
    app.mq = mq
    async with mq:
        job = await mq.queue(name).add("double", {"a": [4], "k": {}})
        assert not mq.tasks
        assert f"{package}.tasks" not in sys.modules
        async with mq.worker() as worker:
            assert [one.queue for one in worker.workers] == [name]
            assert await job.result(10) == 8
        mq.worker()  # a second worker does not declare the tasks again


async def test_a_worker_command_imports_the_modules(tmp_path: Path, package: str) -> None:
    spec = write(tmp_path, package, "tasks")
    found = await runnable_of(spec, load(spec, tmp_path), queues=())
    assert repr(found) == "<AppWorker of numbers>"


async def test_another_command_imports_the_modules(tmp_path: Path, package: str) -> None:
    spec = write(tmp_path, package, "tasks")
    loaded = cast("GlideMQ", load(spec, tmp_path))
    assert not loaded.tasks
    assert list((await app_of(spec, loaded)).tasks) == ["double"]


@pytest.mark.parametrize(
    ("included", "tasks", "reason"),
    [
        ("taks", TASKS, r"but there is no module '{package}\.taks': did you mean '{package}\.tasks'\?"),
        ("tasks", "import no_such_thing", "which imports 'no_such_thing', but there is no such module"),
        ("tasks", "raise OSError('no disk')", "whose import raised OSError: no disk"),
        ("tasks", "from {package}.app import qm", "whose import raised ImportError: cannot import name 'qm'"),
    ],
)
async def test_a_module_that_cannot_be_imported_is_refused(
    tmp_path: Path, package: str, included: str, tasks: str, reason: str
) -> None:
    spec = write(tmp_path, package, included, tasks)
    loaded = cast("GlideMQ", load(spec, tmp_path))
    wanted = f"include= names module '{package}.{included}', {reason.format(package=package)}"
    for _ in range(2):  # the second worker does not start without the module either
        with pytest.raises(ImportError, match=wanted):
            loaded.worker()
    with pytest.raises(CommandError, match=wanted) as caught:
        await app_of(spec, loaded)
    assert caught.value.code == USAGE
    with pytest.raises(CommandError, match=wanted):
        await runnable_of(spec, loaded, queues=())


def test_a_missing_top_level_module_has_a_suggestion(package: str) -> None:
    with pytest.raises(ImportError, match=f"no module '{package}s': did you mean '{package}'"):
        GlideMQ("memory://", include=[f"{package}s.tasks"]).worker()


@pytest.mark.parametrize("names", ["app.tasks", [3], ["app/tasks.py"], [".tasks"], [""], None])
def test_bad_names_are_refused_at_once(names: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="include must be a list of module names"):
        GlideMQ("memory://", include=names)
