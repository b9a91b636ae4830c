"""WorkerOptions: one statement of the options for Worker, for the worker of an app, and for the command line."""

from __future__ import annotations

import inspect
import re
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from glidemq_async import BatchOptions, GlideMQ, Job, Worker, WorkerOptions, WorkerPool
from glidemq_async.cli.worker.command import worker as command
from glidemq_async.worker.options import OPTIONS, WorkerKeywords, WorkerOptionsDict, worker_options

AnyJob = Job[Any, Any]


async def handler(job: AnyJob) -> None: ...


def concurrency_of(worker: Worker[Any, Any]) -> str:
    """The concurrency, which only the repr of a worker shows."""
    found = re.search(r"0/(\d+) running", repr(worker))
    assert found
    return found[1]


def test_the_fields_the_table_and_the_keywords_agree() -> None:
    names = [each.name for each in fields(WorkerOptions)]
    assert names == list(OPTIONS) == list(WorkerOptionsDict.__annotations__)
    described = inspect.getdoc(WorkerOptions) or ""
    assert [name for name in names if f"`{name}`:" not in described] == []


def test_defaults_are_in_seconds() -> None:
    options = WorkerOptions()
    assert (options.lock_duration, options.poll_interval, options.shutdown_timeout) == (30.0, 5.0, 30.0)
    assert (options.concurrency, options.max_stalled, options.handle_signals) == (None, 3, True)
    assert WorkerOptions(lock_duration=timedelta(minutes=2)).lock_duration == 120.0


def test_options_compare_by_value() -> None:
    options = WorkerOptions(concurrency=3, retry_on=ValueError, backoff_strategies={"a": lambda made, error: 1.0})
    assert replace(options, name="w") == WorkerOptions(
        concurrency=3, retry_on=ValueError, backoff_strategies=options.backoff_strategies, name="w"
    )
    assert hash(replace(options)) == hash(options)
    with pytest.raises(FrozenInstanceError):
        options.concurrency = 4  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="concurrency must be from 1"):
        replace(options, concurrency=0)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"concurency": 3}, TypeError, "unknown worker option 'concurency': did you mean 'concurrency'"),
        ({"health_port": 70_000}, ValueError, "health_port must be from 0 to 65535, got 70000"),
        ({"payload_limit": 0}, ValueError, "payload_limit must be from 1"),
        ({"handle_signals": 1}, TypeError, "handle_signals must be True or False"),
        ({"dead_letter_queue": "a:b"}, ValueError, "dead_letter_queue 'a:b' contains ':'"),
        ({"after_execution": 7}, TypeError, "after_execution must be a function"),
        ({"budget": 7}, TypeError, "budget must be a JobBudget, got 7"),
        ({"executor": 7}, TypeError, "executor must be a name or an Executor"),
        ({"give_up_on": "ValueError"}, TypeError, "give_up_on must be an exception type"),
    ],
)
def test_bad_options_are_refused(wrong: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        WorkerOptions(**wrong)


def test_a_keyword_of_a_worker_overrides_its_options() -> None:
    options = WorkerOptions(concurrency=5, name="first")
    assert concurrency_of(Worker("q", handler, "memory://", options=options)) == "5"
    changed = Worker("q", handler, "memory://", options=options, concurrency=7, prefix="p")
    assert concurrency_of(changed) == "7"
    assert changed.name.startswith("first-")
    assert concurrency_of(Worker("q", handler, "memory://")) == "1"


def test_an_unknown_keyword_of_a_worker_names_the_nearest() -> None:
    wrong: Any = {"instrumentatoin": ()}
    with pytest.raises(TypeError, match="unknown worker option 'instrumentatoin': did you mean 'instrumentation'"):
        Worker("q", handler, "memory://", **wrong)
    not_options: Any = {"concurrency": 3}
    with pytest.raises(TypeError, match=r"options must be WorkerOptions, got .'concurrency': 3"):
        Worker("q", handler, "memory://", options=not_options)


def test_only_a_worker_has_a_batch_and_a_connection() -> None:
    own = WorkerKeywords.__annotations__.keys() - WorkerOptionsDict.__annotations__.keys()
    assert own == {"batch", "prefix", "mode", "serializer", "codecs", "timeout", "instrumentation"}
    _, rest = worker_options(None, {"batch": BatchOptions(size=3), "concurrency": 2}, WorkerKeywords)
    assert rest == {"batch": BatchOptions(size=3)}
    app = GlideMQ("memory://")
    app.task(handler)
    wrong: Any = {"batch": BatchOptions()}
    with pytest.raises(TypeError, match="unknown worker option 'batch'"):
        app.worker(**wrong)


def test_the_workers_of_an_app_share_its_options() -> None:
    app = GlideMQ("memory://")
    app.task(queue="a")(handler)

    @app.task(queue="b")
    async def other() -> None: ...

    workers = app.worker(options=WorkerOptions(lock_duration=60), max_stalled=1).workers
    assert [concurrency_of(each) for each in workers] == ["100", "100"]
    workers = app.worker(["b"], options=WorkerOptions(concurrency=3)).workers
    assert [(each.queue, concurrency_of(each)) for each in workers] == [("b", "3")]


def test_each_flag_of_the_command_is_an_option() -> None:
    process = {"app", "queue", "processes", "until_empty", "reload", "reload_dir", "app_dir", "max_restarts"}
    process |= {"loop", "log_level", "log_format", "server_timeout"}
    flags = inspect.signature(command).parameters.keys() - process
    assert flags == {name for name, option in OPTIONS.items() if option.flag is not None}
    assert {"concurrency", "shutdown_timeout", "health_port", "lock_duration"} <= flags
    for name in flags:
        option = OPTIONS[name]
        kind = cast("Any", option.flag).kind
        assert option.default is None or type(option.default) is kind


def test_a_pool_takes_its_two_options_like_a_worker() -> None:
    workers = [Worker("q", handler, "redis://127.0.0.1:1")]
    options = WorkerOptions(handle_signals=False, health_port=8080, concurrency=3)
    for pool, signals, port in (
        (WorkerPool(workers), True, None),
        (WorkerPool(workers, options=options), False, 8080),
        (WorkerPool(workers, options=options, handle_signals=True, health_port=None), True, None),
    ):
        server = pool._health_server  # pyright: ignore[reportPrivateUsage]
        assert pool._handle_signals is signals  # pyright: ignore[reportPrivateUsage]
        assert (server is not None) == (port is not None)
    with pytest.raises(TypeError, match=r"unknown pool option 'concurrency'.*handle_signals, health_port"):
        WorkerPool(workers, concurrency=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="handle_signals must be"):
        WorkerPool(workers, handle_signals="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="health_port must be"):
        WorkerPool(workers, health_port=70_000)
    with pytest.raises(TypeError, match="options must be WorkerOptions"):
        WorkerPool(workers, options={"health_port": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
