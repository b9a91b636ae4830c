"""Tasks on executors of other packages: their inputs, and how permissions reach them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import EntryPoint
from typing import Any, cast

import msgpack
import pytest

from glidemq_async import Depends, ExecutorError, GlideMQ, Job, JobFailed, WorkerOptions
from glidemq_async.executors import InlineExecutor, Permissions, SubprocessExecutor, ThreadExecutor, registry
from glidemq_async.executors.calls import FunctionCall
from glidemq_async.executors.protocol import Handler
from glidemq_async.storage import Storage
from glidemq_async.tasks.task import definition_of

PATIENCE = 10


@dataclass
class Price:
    amount: Decimal


class Elsewhere:
    """Calls functions as another process would: found by reference, with values converted to bytes and back."""

    made: list[Elsewhere] = []  # noqa: RUF012

    def __init__(self, concurrency: int, permissions: object = None) -> None:
        self.concurrency = concurrency
        self.permissions = permissions
        self.calls: list[tuple[str, Any]] = []
        self.states: list[str] = []
        Elsewhere.made.append(self)

    @property
    def occupied(self) -> int:
        return 0

    async def start(self, freed: Callable[[], None]) -> None:
        self.states.append("started")

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        assert isinstance(handler, FunctionCall)
        reference = f"{handler.function.__module__}:{handler.function.__qualname__}"
        sent = cast("tuple[list[Any], dict[str, Any]]", _through_bytes((handler.args, dict(handler.kwargs))))
        args, kwargs = sent
        self.calls.append((reference, args))
        value = _found(reference)(*args, **kwargs)
        value = await value if inspect.isawaitable(value) else value
        return _through_bytes(value)

    async def stop(self, grace: float) -> None:
        self.states.append("stopped")


def _through_bytes(value: object) -> object:
    return msgpack.unpackb(msgpack.packb(value))


def _found(reference: str) -> Callable[..., Any]:
    module, _, path = reference.partition(":")
    found: Any = importlib.import_module(module)
    for step in path.split("."):
        found = getattr(found, step)
    return cast("Callable[..., Any]", getattr(found, "__wrapped__", found))


mq = GlideMQ("memory://")


@mq.task(executor="elsewhere", permissions=Permissions())
def double(price: Price) -> Price:
    return Price(price.amount * 2)


@mq.task(executor="elsewhere", permissions=Permissions())
async def triple(price: Price) -> Price:
    return Price(price.amount * 3)


@mq.task(executor="elsewhere")
def plain(n: int) -> int:
    return n + 1


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("elsewhere", f"{__name__}:Elsewhere", registry.GROUP)

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [point]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    Elsewhere.made.clear()


async def test_other_processes_get_references_and_stored_values(
    storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = GlideMQ(storage, queue=name)
    made = [
        app.task(executor="elsewhere", permissions=Permissions())(double.function),
        app.task(executor="elsewhere", permissions=Permissions())(triple.function),
    ]
    increment = app.task(executor="elsewhere")(plain.function)
    async with app, app.worker(concurrency=7):
        for task, amount in zip(made, ("3.00", "4.50"), strict=True):
            job = await task.add(Price(Decimal("1.50")))
            assert await job.result(PATIENCE) == Price(Decimal(amount))
        assert await (await increment.add(1)).result(PATIENCE) == 2
    limited, free = Elsewhere.made
    assert (limited.concurrency, limited.permissions, free.permissions) == (7, Permissions(), None)
    assert limited.calls == [
        (f"{__name__}:double._definition.stored", [{"amount": "1.50"}]),
        (f"{__name__}:triple._definition.stored", [{"amount": "1.50"}]),
    ]
    assert free.calls == [(f"{__name__}:plain", [1])]
    assert limited.states == free.states == ["started", "stopped"]


async def test_an_executor_that_does_not_start_leaves_none_started(
    storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(executor: Elsewhere, freed: Callable[[], None]) -> None:
        if executor.permissions is None:
            raise ExecutorError("not here")
        executor.states.append("started")

    monkeypatch.setattr(Elsewhere, "start", start)
    app = GlideMQ(storage, queue=name)
    app.task(executor="elsewhere", permissions=Permissions())(double.function)
    app.task(executor="elsewhere")(plain.function)
    async with app:
        with pytest.raises(ExecutorError, match="not here"):
            async with app.worker():
                pass
    assert [executor.states for executor in Elsewhere.made] == [["started", "stopped"], []]


async def test_no_run_begins_before_the_start_of_its_executor(
    storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = 0

    async def start(executor: Elsewhere, freed: Callable[[], None]) -> None:
        nonlocal starts
        starts += 1
        if starts == 1:
            await asyncio.sleep(0.1)
            raise ExecutorError("not yet")
        executor.states.append("started")

    async def run(executor: Elsewhere, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        return executor.states == ["started"]

    monkeypatch.setattr(Elsewhere, "start", start)
    monkeypatch.setattr(Elsewhere, "run", run)
    app = GlideMQ(storage, queue=name)
    app.task(name="elsewhere", executor="elsewhere", queue=f"{name}-other")(plain.function)

    @app.task
    async def here() -> None: ...

    async with app, app.worker([name], concurrency=2):
        # Jobs that were added to a queue to which their task does not belong.
        jobs = await app.queue(name).add_bulk([("elsewhere", {"a": [1]})] * 3)
        with pytest.raises(JobFailed, match="not yet"):
            await jobs[0].result(PATIENCE)
        assert [await job.result(PATIENCE) for job in jobs[1:]] == [True, True]


@pytest.mark.parametrize(
    ("name", "near"),
    [("subproces", "subprocess"), ("process", "subprocess"), ("thred", "thread"), ("elsewher", "elsewhere")],
)
def test_a_mistyped_executor_is_refused_where_it_is_given(name: str, near: str) -> None:
    app = GlideMQ("memory://")
    refused = (
        f"unknown executor '{name}'; did you mean '{near}'\\? The known ones are inline, thread, subprocess, elsewhere"
    )
    with pytest.raises(ValueError, match=refused):
        app.task(executor=name)(plain.function)
    with pytest.raises(ValueError, match=refused):
        WorkerOptions(executor=name)
    # A process that only adds jobs need not have the package of the executor.
    app.task(executor="gpu")(plain.function)


async def test_permissions_alone_select_the_subprocess_executor(storage: Storage, name: str) -> None:
    app = GlideMQ(storage, queue=name)
    task = app.task(permissions=Permissions())(plain.function)
    assert task.executor == "subprocess"
    assert not definition_of(task).runs_here


def test_executors_of_this_process_accept_no_permissions() -> None:
    for spec in ("inline", "thread", None, ThreadExecutor(1), InlineExecutor()):
        with pytest.raises(TypeError, match=r"cannot enforce permissions; use executor='subprocess'"):
            registry.open_executor(spec, plain.function, 1, Permissions())


def test_an_executor_object_has_its_own_permissions(storage: Storage, name: str) -> None:
    advice = r"pass them to the executor.*SubprocessExecutor\(n, permissions=\.\.\.\)"
    for spec in (SubprocessExecutor(1), Elsewhere(1)):
        with pytest.raises(TypeError, match=advice):
            registry.open_executor(spec, plain.function, 1, Permissions())
        # A task reports it at its declaration.
        with pytest.raises(TypeError, match=advice):
            GlideMQ(storage, queue=name).task(executor=spec, permissions=Permissions())(plain.function)
    with pytest.raises(TypeError, match="cannot enforce permissions"):
        GlideMQ(storage, queue=name).task(executor=ThreadExecutor(1), permissions=Permissions())(plain.function)


async def test_the_executor_of_a_worker_runs_tasks_without_one(storage: Storage, name: str) -> None:
    app = GlideMQ(storage, queue=name)
    doubled = app.task(double.function)
    own = app.task(executor="thread")(plain.function)
    limited = app.task(permissions=Permissions(), executor="elsewhere")(triple.function)
    async with app, app.worker(executor="elsewhere", concurrency=3):
        assert await (await doubled.add(Price(Decimal("1.50")))).result(PATIENCE) == Price(Decimal("3.00"))
        assert await (await limited.add(Price(Decimal(1)))).result(PATIENCE) == Price(Decimal(3))
        assert await (await own.add(1)).result(PATIENCE) == 2
    found = {executor.permissions: executor for executor in Elsewhere.made}
    assert found[None].calls == [(f"{__name__}:double._definition.stored", [{"amount": "1.50"}])]
    assert found[None].concurrency == 3
    assert len(found[Permissions()].calls) == 1
    async with app, app.worker():
        assert await (await doubled.add(Price(Decimal("1.50")))).result(PATIENCE) == Price(Decimal("3.00"))
    assert len(Elsewhere.made) == 3, "without one, only the task that names it"


async def test_an_executor_of_a_worker_that_cannot_run_a_task_is_refused(storage: Storage, name: str) -> None:
    app = GlideMQ(storage, queue=name)

    @app.task
    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="threads run plain ones"):
        app.worker(executor="thread")
    with pytest.raises(TypeError, match="a name or an Executor"):
        app.worker(executor=cast("Any", 3))

    @app.task
    async def provided(number: int = Depends(lambda: 1)) -> None: ...

    with pytest.raises(TypeError, match=r"number would be created .*the worker's executor='elsewhere'"):
        app.worker(executor="elsewhere")
    await app.close()
