"""Jobs in separate processes: their environment, their calls, and their results."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import (
    Chunk,
    Codec,
    Encryption,
    ExecutorError,
    Queue,
    RateLimited,
    RetryLater,
    UnrecoverableError,
    Worker,
    generate_key,
)
from glidemq_async.executors import FunctionCall, Permissions, SubprocessExecutor
from glidemq_async.payloads.codecs import Compression
from glidemq_async.storage import Storage
from tests.executors import handlers
from tests.support.helpers import AnyJob, AnyQueue, Heard, ended, worker_of

pytestmark = pytest.mark.only_on("memory")


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
async def test_a_child_sees_its_job_and_a_clean_environment(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, method: Any
) -> None:
    monkeypatch.setenv("GLIDEMQ_URL", "redis://:secret@example.org")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    executor = SubprocessExecutor(1, start_method=method, setup=handlers.prepare)
    async with worker_of(queue, handlers.describe, executor=executor):
        job = await queue.add("look", headers={"tenant": "acme"}, key="ada")
        found = await job.result(20)
    assert os.getpid() not in (found["pid"], found["guard"])
    assert found["job"] == [job.id, "look", queue.name, "ada", 0, 1, {"tenant": "acme"}]
    assert found["current"]
    assert found["prepared"]
    # stdin, stdout, stderr, and the channel.
    assert list(found["descriptors"]) == [0, 1, 2, 3]
    assert found["descriptors"][0] == "/dev/null"
    assert found["inheritable"] == []
    assert "secret" not in str(found["environment"])
    assert {"PATH", "LC_ALL"} <= found["environment"].keys()


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
async def test_a_path_object_in_the_module_search_path_is_ignored(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: Any
) -> None:
    # Many programs add it, and imports ignore it.
    search_path: list[Any] = [*sys.path, tmp_path]
    monkeypatch.setattr(sys, "path", search_path)
    executor = SubprocessExecutor(1, start_method=method)
    async with worker_of(queue, handlers.by_name, executor=executor):
        assert await queue.add_and_wait("echo", 7, wait_timeout=20) == 7


@pytest.mark.parametrize("permissions", [None, Permissions(network=True)])
async def test_a_child_without_the_default_storage_of_its_worker_refuses_to_connect(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, permissions: Permissions | None
) -> None:
    monkeypatch.setenv("GLIDEMQ_URL", queue.storage.url)
    monkeypatch.setenv("HOME", str(tmp_path))
    executor = SubprocessExecutor(1, permissions=permissions)
    async with worker_of(queue, handlers.add_to_the_default, executor=executor):
        job = await ended(await queue.add("n"))
    assert (job.failed_reason or "").startswith("StorageUnavailable: $GLIDEMQ_URL")
    assert list(tmp_path.iterdir()) == []


async def test_the_embedded_default_of_a_child_is_the_default_of_its_worker(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with worker_of(queue, handlers.state_home, executor="subprocess"):
        assert await queue.add_and_wait("n", wait_timeout=20) == str(tmp_path)


async def test_values_and_results_pass_for_both_kinds_of_functions(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.by_name, executor="subprocess", concurrency=2):
        for name in ("echo", "echo_later"):
            for value in (None, {"a": [1, 2.5, b"\x00", "ü"]}, "x" * 500_000):
                assert await queue.add_and_wait(name, value, wait_timeout=20) == value


@pytest.mark.smoke
async def test_calls_of_the_job_reach_the_store(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.by_name, executor="subprocess"):
        jobs = [await ended(await queue.add(name, "data")) for name in ("report", "report_plainly")]
    for job in jobs:
        assert job.return_value == ["data", "changed"]
        assert job.progress == {"done": 50}
        assert job.data == ["data", "changed"]
        assert await queue.get_job_logs(job.id) == ["one"]
        assert [item async for item in job.chunks()] == [Chunk("a", "1-1"), Chunk({"b": 2}, "2-1")]


async def test_calls_that_cannot_be_made_raise(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.misuse, executor="subprocess"):
        first, *others = await queue.add_and_wait("n", wait_timeout=20)
    assert first == "TypeError: a log line must be a str, not 7"
    assert len(others) == 4
    assert all("no connection to the store" in message for message in others[:3])
    assert "make the handler a coroutine function" in others[3]


async def test_steps_of_a_coroutine_function_are_recorded_in_the_store(storage: Storage, name: str) -> None:
    codecs: list[Codec] = [Compression(), Encryption({"a": generate_key()})]
    async with (
        Queue[Any, Any](name, storage, codecs=codecs) as queue,
        worker_of(queue, handlers.by_name, executor="subprocess", codecs=codecs),
    ):
        job = await ended(await queue.add("steps", attempts=2))
        assert job.return_value == [[1], [2]]
        assert sorted(await queue.get_job_logs(job.id)) == ["step 1", "step 2"]
        assert sorted((step.run, step.result) for step in await job.get_steps()) == [(1, [1]), (1, [2])]


async def test_a_thread_left_behind_by_a_run_affects_no_other_job(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.by_name, executor=SubprocessExecutor(1)):
        await queue.add_and_wait("leave_a_thread", "data", wait_timeout=20)
        job = await ended(await queue.add("meet_the_thread", "data"))
    assert job.return_value is not None
    [failure] = job.return_value
    assert failure.startswith("LeaseLost: ")
    assert job.data == "data"


async def test_exceptions_of_a_handler_keep_their_type_and_text(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.fail, executor="subprocess") as worker:
        failed = Heard(worker, "failed")
        job = await ended(await queue.add("n", "value", attempts=2))
        assert (job.failed_reason, job.attempts_made) == ("ValueError: not a number", 2)
        assert "raise kinds[job.data]" in (job.stacktrace or "")
        assert isinstance((await failed.next())[1], ValueError)
        for data, reason in (("odd", "OddError: odd"), ("exit", "SystemExit: 3")):
            assert (await ended(await queue.add("n", data))).failed_reason == reason
        job = await ended(await queue.add("n", "unicode"))
        assert (job.failed_reason or "").startswith("UnicodeDecodeError: 'utf-8' codec can't decode")


async def test_control_exceptions_work_in_a_process(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.fail, executor="subprocess") as worker:
        failed = Heard(worker, "failed")
        job = await ended(await queue.add("n", "never", attempts=5))
        assert (job.failed_reason, job.failure_cause, job.attempts_made) == (
            "NeverAgain: no such page",
            "unrecoverable",
            1,
        )
        assert isinstance((await failed.next())[1], UnrecoverableError)
        executor, some = SubprocessExecutor(1), await queue.add("n", delay=600)
        await executor.start(lambda: None)
        for data, kind in (("later", RetryLater), ("limited", RateLimited)):
            await some.update_data(data)
            with pytest.raises(kind) as caught:
                await executor.run(handlers.fail, some, None)
            assert caught.value.delay == 30
        await executor.stop(0)


async def test_a_process_suspends_and_delays_its_job(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.converse, executor="subprocess"):
        job = await queue.add("n")
        async with asyncio.timeout(20):
            async for update in job.watch():
                if update.state == "suspended":
                    break
        await job.refresh()
        assert job.suspension is not None
        assert (job.suspension.reason, job.suspension.signals) == ("waits for a", ("a",))
        assert await job.signal("a", {"by": "ada"})
        assert await job.result(20) == ["signal", "three", [["a", {"by": "ada"}]]]
    assert (await ended(job)).attempts_made == 1


async def test_retry_rules_match_types_that_only_the_job_imports(queue: AnyQueue) -> None:
    rules: dict[str, Any] = {"retry_on": (handlers.OddError, ValueError), "give_up_on": UnicodeError}
    async with worker_of(queue, handlers.fail, executor="subprocess", **rules):
        for data, attempts in (("odd", 3), ("value", 3), ("unicode", 1), ("exit", 1)):
            assert (await ended(await queue.add("n", data, attempts=3))).attempts_made == attempts, data


async def test_retry_later_counts_the_attempt_in_a_process_too(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.fail, executor="subprocess"):
        job = await ended(await queue.add("n", "counted", attempts=2, backoff=60))
    assert (job.attempts_made, job.failed_reason, job.failure_cause) == (2, "OddError: odd", "retries_exhausted")


async def test_a_result_that_cannot_be_sent_is_a_failure(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.by_name, executor="subprocess"):
        job = await ended(await queue.add("huge", 3_000_000, attempts=3))
        assert (job.failure_cause, job.attempts_made) == ("oversize", 1)
        assert "3000005 bytes" in (job.failed_reason or "")
        job = await ended(await queue.add("unsendable", attempts=3))
        assert (job.failure_cause, job.attempts_made) == ("unrecoverable", 1)
        assert "cannot be encoded" in (job.failed_reason or "")


async def test_the_payload_limit_applies_to_stored_bytes(queue: AnyQueue) -> None:
    codecs = [Compression()]
    async with (
        AnyQueue(f"{queue.name}-small", queue.storage, codecs=codecs) as small,
        worker_of(small, handlers.huge, executor="subprocess", codecs=codecs),
    ):
        assert await small.add_and_wait("n", 3_000_000, wait_timeout=20) == bytes(3_000_000)
        job = await ended(await small.add("n", 65 * 2**20))
    assert job.failure_cause == "oversize"


async def test_a_function_can_be_called_with_values(queue: AnyQueue) -> None:
    executor = SubprocessExecutor(1)
    await executor.start(lambda: None)
    job = await queue.add("n", delay=600)
    assert await executor.run(FunctionCall(handlers.add, (1,), {"second": 2}), job, None) == 3
    await executor.stop(0)


async def test_output_becomes_log_lines(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.print_lines, executor=SubprocessExecutor(1, capture_output=True)):
        jobs = [await ended(await queue.add("n", data)) for data in ("live", "die")]
        for job in jobs:
            logs = await queue.get_job_logs(job.id)
            # Python's own stdout is flushed at the end, and stderr immediately.
            assert sorted(logs) == sorted(
                ["to stderr", "to the descriptor", "by another process", "to stdout", "without an end"]
            )
        assert jobs[0].state == "completed"
        assert (jobs[1].failed_reason or "").endswith("ended with exit status 9 before the job had ended")


def inner() -> Any:
    def nested(job: AnyJob) -> None: ...

    return nested


LAMBDA: Callable[[AnyJob], None] = lambda job: None  # noqa: E731
UNNAMED: list[Any] = [LAMBDA, inner(), handlers.kept.append, FunctionCall(handlers.add, (), {})]


@pytest.mark.parametrize("handler", UNNAMED)
async def test_a_function_without_a_name_is_refused(queue: AnyQueue, handler: Any) -> None:
    with pytest.raises(TypeError, match="top level of a module"):
        Worker(queue.name, handler, queue.storage, executor="subprocess")


async def test_a_child_that_cannot_be_prepared_prevents_the_start_of_the_worker(queue: AnyQueue) -> None:
    worker = worker_of(queue, handlers.echo, executor=SubprocessExecutor(1, setup=handlers.broken_setup))
    with pytest.raises(ExecutorError, match="RuntimeError: no licence"):
        await worker.start()
    await worker.close()
    assert await queue.get_workers() == []


async def test_a_failed_start_of_the_guard_leaves_nothing_open(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    executor = SubprocessExecutor(1)
    for _ in range(3):
        with pytest.raises(ExecutorError, match="Cannot allocate memory"):
            await executor.start(lambda: None)
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"processes": 0}, ValueError, "processes"),
        ({"start_method": "fork"}, ValueError, "start_method"),
        ({"max_jobs": 0}, ValueError, "max_jobs"),
        ({"max_memory": "lots"}, TypeError, "max_memory"),
        ({"grace": -1}, ValueError, "grace"),
        ({"heartbeat_timeout": 0}, ValueError, "heartbeat_timeout"),
        ({"setup": lambda: None}, TypeError, "top level"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    some: dict[str, Any] = {"processes": 1}
    with pytest.raises(error, match=words):
        SubprocessExecutor(**(some | options))


async def test_batches_are_refused(queue: AnyQueue) -> None:
    from glidemq_async import BatchOptions

    with pytest.raises(TypeError, match="leave out batch"):
        Worker(queue.name, handlers.echo, queue.storage, executor="subprocess", batch=BatchOptions())


async def test_hundreds_of_jobs_share_a_few_processes(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.pid, executor=SubprocessExecutor(4), concurrency=300):
        jobs = await queue.add_bulk([("n", number) for number in range(400)])
        pids = {await job.result(30) for job in jobs}
    assert 1 <= len(pids) <= 4


async def test_an_executor_that_was_not_started_raises(queue: AnyQueue) -> None:
    job = await queue.add("n", delay=600)
    with pytest.raises(ExecutorError, match="not started"):
        await SubprocessExecutor(1).run(handlers.echo, job, None)
