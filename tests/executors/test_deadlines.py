"""The timeout of a task with middleware counts its run, but not its wait for a thread or process."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import GlideMQ, Job, JobFailed, Middleware
from glidemq_async.executors import SubprocessExecutor, ThreadExecutor
from glidemq_async.storage import Storage
from glidemq_async.tasks.task import AnyTask
from tests.executors import handlers
from tests.executors.elsewhere import time_out_elsewhere
from tests.support.helpers import AnyQueue, soon

pytestmark = pytest.mark.only_on("memory")

TIMEOUT = 1.5


class Around(Middleware):
    """Reports the start of a run, and may be slow afterwards."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[Job[Any, Any]] = asyncio.Queue()
        self.slow_after = False

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        self.begun.put_nowait(job)

    async def after_run(self, task: AnyTask, job: Job[Any, Any], result: Any) -> None:
        if self.slow_after:
            await asyncio.Event().wait()


async def test_the_wait_for_a_thread_does_not_count(storage: Storage, queue: AnyQueue, name: str) -> None:
    around, resume = Around(), threading.Event()
    mq = GlideMQ(storage, queue=f"{name}-app", middleware=[around])

    @mq.task(executor=ThreadExecutor(1))
    def work(kind: str) -> str:
        resume.wait(20)
        return kind

    async with mq, mq.worker(concurrency=2):
        first = await work.add("first")
        await soon(around.begun.get())
        second = await work.options(timeout=TIMEOUT).add("second")
        await soon(around.begun.get())
        await time_out_elsewhere(queue, TIMEOUT)
        resume.set()
        assert [await first.result(10), await second.result(10)] == ["first", "second"]


async def test_a_timeout_counts_everything_except_the_wait_for_a_process(
    storage: Storage, queue: AnyQueue, name: str, tmp_path: Path
) -> None:
    around, pipe = Around(), tmp_path / "pipe"
    os.mkfifo(pipe)
    mq = GlideMQ(storage, queue=f"{name}-app", middleware=[around])
    work = mq.task(executor=SubprocessExecutor(1, grace=0))(handlers.read_pipe)
    async with mq, mq.worker(concurrency=2):
        first = await work.add(str(pipe))
        await soon(around.begun.get())
        second = await work.options(timeout=TIMEOUT).add("")
        await soon(around.begun.get())
        await time_out_elsewhere(queue, TIMEOUT)
        await asyncio.to_thread(pipe.write_text, "written")
        assert [await first.result(10), await second.result(10)] == ["written", "nothing"]

        # The run in the process counts,
        hanging = await work.options(timeout=TIMEOUT).add(str(pipe))
        with pytest.raises(JobFailed, match="longer than its timeout of"):
            await hanging.result(10)
        # and so does the time after it.
        around.slow_after = True
        slow = await work.options(timeout=TIMEOUT).add("")
        with pytest.raises(JobFailed, match="longer than its timeout of"):
            await slow.result(10)
