"""The forms of `module:name`, and the one-line error for each invalid one."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import pytest

from glidemq_async import GlideMQ, Worker, WorkerPool
from glidemq_async.cli.apps import Runnable, load, runnable_of
from glidemq_async.cli.exits import RELEASED, USAGE, CommandError
from glidemq_async.cli.worker.process import WorkerRun
from glidemq_async.cli.worker.settings import WorkerSettings
from tests.support.helpers import AnyJob, AnyQueue, Gate, echo, worker_of

_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    """Return the name of a module that does not exist yet."""
    name = f"app_of_test_{next(_numbers)}"
    yield name
    sys.modules.pop(name, None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def why(spec: str, directory: Path) -> str:
    """Load an invalid spec, and return the reason."""
    with pytest.raises(CommandError) as caught:
        load(spec, directory)
    assert caught.value.code == USAGE
    prefix = f"cannot load {spec!r}: "
    assert str(caught.value).startswith(prefix)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(prefix)


def test_a_module_alone_means_one_of_the_usual_names(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("worker = 'the worker'\nclass jobs:\n    inner = 'nested'\n")
    assert load(module, tmp_path) == "the worker"
    assert load(f"{module}:jobs.inner", tmp_path) == "nested"


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("x = 1", "", "has none of mq, app, worker"),
        ("emails = 1", ":email", "did you mean 'emails'?"),
        ("x = 1", ":y.z", "has no 'y.z'"),
        ("import no_such_thing", ":x", "it imports 'no_such_thing', which is not installed"),
        ("def f(:", ":x", "line 1: invalid syntax"),
        ("\n\nraise OSError('no disk')", ":x", "its import raised OSError: no disk"),
    ],
)
def test_the_reason_is_stated_when_an_app_cannot_be_loaded(
    tmp_path: Path, module: str, text: str, name: str, reason: str
) -> None:
    (tmp_path / f"{module}.py").write_text(text)
    answer = why(f"{module}{name}", tmp_path)
    assert reason in answer
    if "raised" in answer:
        assert answer.endswith(f"({tmp_path / module}.py, line 3)")


@pytest.mark.parametrize("spec", ["jobs.py:mq", "app/jobs:mq", ":mq", ""])
def test_a_spec_without_a_colon_is_refused(tmp_path: Path, spec: str) -> None:
    assert "write it as module:name" in why(spec, tmp_path)


def test_a_missing_module_is_reported(tmp_path: Path) -> None:
    assert "module 'nowhere_at_all' was not found" in why("nowhere_at_all.jobs:mq", tmp_path)


async def make(found: object, **options: Any) -> Runnable:
    """Return the runnable of a spec."""
    given: dict[str, Any] = {"queues": (), "concurrency": None, "shutdown_timeout": None, **options}
    return await runnable_of("m:x", found, **given)


class Inner:
    """A minimal form of an application's `worker` result."""

    def __init__(self, queues: Sequence[str] | None, options: dict[str, Any]) -> None:
        self.queues, self.options = queues, options
        self.stopped: list[bool] = []
        self.on_start: Callable[[], None] = lambda: None
        self.on_run: Callable[[], None] = lambda: None

    async def run(self, *, until_empty: bool = False) -> None:
        self.on_run()

    def stop(self, *, immediately: bool = False) -> None:
        self.stopped.append(immediately)

    async def __aenter__(self) -> Self:
        self.on_start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class App:
    """A minimal application."""

    def worker(self, queues: Sequence[str] | None = None, *, concurrency: int = 100, **options: Any) -> Inner:
        if queues and "no" in queues:
            raise ValueError("this app has no queue 'no'")
        return Inner(queues, {"concurrency": concurrency, **options})


async def test_the_worker_of_an_application_is_used() -> None:
    plain = await make(App())
    assert isinstance(plain, Inner)
    assert (plain.queues, plain.options) == (None, {"concurrency": 100})
    answer = await make(App(), queues=("a", "b"), concurrency=7, shutdown_timeout=2.5)
    assert isinstance(answer, Inner)
    assert (answer.queues, answer.options) == (["a", "b"], {"concurrency": 7, "shutdown_timeout": 2.5})
    with pytest.raises(CommandError, match="this app has no queue 'no'"):
        await make(App(), queues=("no",))


async def test_a_function_may_return_the_worker() -> None:
    worker = Worker[Any, Any]("q", echo, "memory://")
    pool = WorkerPool([worker])

    async def later() -> WorkerPool:
        return pool

    assert await make(worker) is worker
    assert await make(lambda: pool) is pool
    assert await make(later) is pool


@pytest.mark.parametrize("found", [1, Worker, None, sys, lambda: 3])
async def test_an_object_that_cannot_run_is_refused(found: object) -> None:
    with pytest.raises(CommandError, match="use a GlideMQ, a Worker") as caught:
        await make(found)
    assert caught.value.code == USAGE


async def test_a_task_that_is_given_instead_of_its_app_is_not_called() -> None:
    called: list[str] = []

    @GlideMQ("memory://").task
    def nightly() -> None:
        called.append("nightly")

    with pytest.raises(CommandError, match="it is of type PlainTask; use a GlideMQ, a Worker"):
        await make(nightly)
    assert called == []


async def test_options_of_an_existing_worker_cannot_be_set() -> None:
    worker = Worker[Any, Any]("q", echo, "memory://")
    for options in ({"queues": ("a",)}, {"concurrency": 3}, {"shutdown_timeout": 1.0}, {"health_port": 1}):
        with pytest.raises(CommandError, match=r"use a GlideMQ app, or set it where this Worker is created$"):
            await make(worker, **options)
    with pytest.raises(CommandError, match="missing a required argument: 'job'"):
        await make(needs_a_job)


async def needs_a_job(job: AnyJob) -> None: ...


async def test_a_process_reports_the_jobs_that_it_has_to_release(tmp_path: Path) -> None:
    inner = Inner(None, {})

    process = WorkerRun(WorkerSettings(app="m:x", directory=str(tmp_path)))
    inner.on_run = process.release_jobs
    with patch("glidemq_async.cli.worker.process.load", return_value=lambda: inner):
        assert await asyncio.to_thread(process.run) == RELEASED
    assert inner.stopped == [True]


async def test_a_stop_in_the_last_moment_of_the_start_is_not_lost(tmp_path: Path) -> None:
    inner, ran = Inner(None, {}), list[bool]()
    process = WorkerRun(WorkerSettings(app="m:x", directory=str(tmp_path)))
    # The start ends in the turn of the loop in which the stop is requested.
    inner.on_start = process.stop
    inner.on_run = lambda: ran.append(True)
    with patch("glidemq_async.cli.worker.process.load", return_value=lambda: inner):
        assert await asyncio.to_thread(process.run) == 0
    assert not ran


@pytest.mark.only_on("memory")
async def test_an_immediate_stop_during_a_shutdown(queue: AnyQueue) -> None:
    gate = Gate()
    worker = worker_of(queue, gate, shutdown_timeout=600)
    job = await queue.add("n")
    running = asyncio.create_task(worker.run())
    await gate.running()
    worker.stop()
    await asyncio.sleep(0)
    assert not running.done()
    WorkerPool([worker], handle_signals=False).stop(immediately=True)
    await asyncio.wait_for(running, 10)
    await gate.stopped()
    await job.refresh()
    assert (job.state, job.attempts_made, job.stalled_count) == ("waiting", 0, 0)
