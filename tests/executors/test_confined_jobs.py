"""Jobs with permissions on a worker: the error of a refusal, and outcomes that the handler chose itself."""

from __future__ import annotations

import logging
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from glidemq_async import ExecutorError, GlideMQ, JobFailed
from glidemq_async.executors import Permissions, SubprocessExecutor
from glidemq_async.executors.sandbox import landlock
from tests.executors import handlers, speakers
from tests.support.helpers import AnyQueue, ended, worker_of

pytestmark = [
    pytest.mark.only_on("memory"),
    pytest.mark.skipif(sys.platform != "linux" or landlock.version() < 1, reason="Landlock is not here"),
]


mq = GlideMQ("memory://")


@mq.task(permissions=Permissions())
def price_in(path: str, price: Decimal) -> Decimal:
    return price * bool(Path(path).read_bytes())


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text("not for jobs")
    return str(path)


async def test_an_outcome_chosen_by_the_handler_overrides_a_refusal(queue: AnyQueue, secret: str) -> None:
    executor = SubprocessExecutor(1, permissions=Permissions())
    async with worker_of(queue, handlers.refused_and, executor=executor):
        later = await queue.add("n", [secret, "later"])
        job = await ended(await queue.add("n", [secret, "never"], attempts=5))
        assert (job.failed_reason, job.failure_cause) == ("UnrecoverableError: not for us", "unrecoverable")
        job = await ended(await queue.add("n", [secret, "other"]))
        assert job.failed_reason == "ValueError: another matter"
        assert await later.get_state() == "delayed"
        job = await ended(await queue.add("n", [secret, "as it is"]))
        assert (job.failed_reason or "").startswith("PermissionDenied: PermissionError")


async def test_the_permissions_of_a_task_apply_to_its_runs(secret: str) -> None:
    async with mq, mq.worker():
        # A job may read the code of the program, and its values have the types of the annotations.
        assert await (await price_in.add(__file__, Decimal("1.50"))).result(20) == Decimal("1.50")
        refused = await price_in.add(secret, Decimal(1))
        with pytest.raises(JobFailed, match=r"grant Permissions\(read=") as failure:
            await refused.result(20)
    assert failure.value.error_type == "PermissionDenied"


async def test_a_refused_set_up_names_the_missing_permission(queue: AnyQueue) -> None:
    executor = SubprocessExecutor(1, permissions=Permissions(), setup=handlers.read_a_closed_file)
    worker = worker_of(queue, handlers.echo, executor=executor)
    with pytest.raises(ExecutorError, match=r"grant Permissions\(read=\['/etc/fstab'\]\)"):
        await worker.start()
    await worker.close()


async def test_processor_time_before_the_job_does_not_count(queue: AnyQueue) -> None:
    executor = SubprocessExecutor(1, permissions=Permissions(cpu=1), max_jobs=None, setup=handlers.spin_first)
    async with worker_of(queue, handlers.spin_and_measure, executor=executor):
        # Every job has the complete limit, in another process if necessary. The kernel measures by samples, so a little
        # time is not counted. With many processes per processor it may also count too much, so no job comes close to
        # its limit.
        used = [(await queue.add_and_wait("n", 0.4, wait_timeout=20))[1] for _ in range(2)]
        assert min(used) > 1.4
        few = [(await queue.add_and_wait("n", 0.001, wait_timeout=20))[0] for _ in range(3)]
        assert len(set(few)) <= 2
        job = await ended(await queue.add("n", 4.0))
    assert "was killed by SIGXCPU" in (job.failed_reason or "")
    assert "Permissions(cpu=1)" in (job.failed_reason or "")


async def test_log_records_of_confined_jobs_arrive(queue: AnyQueue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with worker_of(queue, speakers.speak_later, executor=SubprocessExecutor(1, permissions=Permissions())):
        await queue.add_and_wait("n", wait_timeout=20)
    assert "from a coroutine" in caplog.messages
