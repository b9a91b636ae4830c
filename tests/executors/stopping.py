"""Stops workers with processes at random times, several concurrently: `python -m tests.executors.stopping`.

It is a separate program because every child imports the started script again, and pytest is a large one.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time
import warnings
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from glidemq_async import Queue
from glidemq_async.executors import SubprocessExecutor
from glidemq_async.storage import MemoryStorage, Storage
from tests.executors import handlers
from tests.executors.processes import gone
from tests.support.helpers import AnyQueue, worker_of


class StoppedQueue:
    """One queue whose workers are stopped one after the other, each at a random time of its life."""

    def __init__(self, queue: AnyQueue, note: Path, seed: int) -> None:
        self.queue = queue
        self.note = note
        self.seed = seed
        self.jobs = 0
        self._chance = random.Random(seed)
        self._life = 0.0
        note.touch()

    async def stop_repeatedly(self, rounds: int) -> None:
        """Start a worker and stop it after a moment, repeatedly. No process of a job may be left."""
        await self._measure_start()
        for number in range(rounds):
            await self._round(20.0 if number % 4 == 0 else 0.1)
        await gone(*self._pids())

    async def _measure_start(self) -> None:
        """Measure the start of a worker on this machine. The random times depend on it."""
        began = time.monotonic()
        worker = worker_of(self.queue, handlers.work_for, executor=SubprocessExecutor(2, warm=0))
        await self._add(0.0)
        async with worker:
            while not self._pids():
                assert time.monotonic() - began < 60
                await asyncio.sleep(0.01)
        self._life = time.monotonic() - began

    async def _round(self, long: float) -> None:
        chance = self._chance
        await self._add(chance.choice([0.0, 0.05, 0.3, long]))
        executor = SubprocessExecutor(
            2,
            grace=chance.choice([0.0, 0.1]),
            warm=chance.choice([0, 1, 2]),
            max_jobs=chance.choice([1, None]),
            start_method="forkserver",
        )
        worker = worker_of(
            self.queue, handlers.work_for, executor=executor, concurrency=3, shutdown_timeout=chance.choice([0, 0.1])
        )
        starting = asyncio.create_task(worker.start())
        await asyncio.sleep(self._life * chance.choice([0.0, chance.uniform(0, 1), chance.uniform(0.8, 1.6)]))
        if starting.done() or chance.random() < 0.8:
            await starting
        else:
            starting.cancel()
            await asyncio.wait([starting])
        await worker.close()

    async def _add(self, seconds: float) -> None:
        self.jobs += 3
        await self.queue.add_bulk([("n", [seconds, str(self.note)])] * 3)

    async def finish(self) -> None:
        """Shorten the endless jobs, and let the remaining ones end."""
        async for job in self.queue.iter_jobs("waiting"):
            await job.update_data([0.0, str(self.note)])
        worker = worker_of(self.queue, handlers.work_for, executor="subprocess", concurrency=4)
        await worker.run(until_empty=True)
        counts = await self.queue.get_job_counts()
        assert (counts["completed"], counts["failed"]) == (self.jobs, 0), f"seed {self.seed}: {counts}"
        await gone(*self._pids())
        findings = await self.queue.check()
        assert not findings, f"seed {self.seed}: {findings}"

    def _pids(self) -> list[int]:
        return [int(word) for word in self.note.read_text().split()]


async def stop_concurrently(storage: Storage, folder: Path, name: str, *, queues: int, rounds: int) -> None:
    """Stop `rounds` workers in each of several queues. They run concurrently, because workers mostly wait for
    processes.
    """
    seed = random.SystemRandom().randrange(2**32)
    async with AsyncExitStack() as stack:
        made: list[StoppedQueue] = []
        for number in range(queues):
            queue = await stack.enter_async_context(Queue[Any, Any](f"{name}-{number}", storage))
            made.append(StoppedQueue(queue, folder / f"{name}-{number}", seed + number))
        async with asyncio.TaskGroup() as group:
            for stopped in made:
                group.create_task(stopped.stop_repeatedly(rounds))
        assert not await _children(), f"seed {seed}"
        async with asyncio.TaskGroup() as group:
            for stopped in made:
                group.create_task(stopped.finish())


async def _children() -> list[str]:
    listed = await asyncio.create_subprocess_exec(
        "ps", "--ppid", str(os.getpid()), "-o", "args=", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await listed.communicate()
    return [line for line in output.decode().splitlines() if "boot.py" in line]


async def main(folder: Path, queues: int, rounds: int, times: int) -> None:
    """Check that the loop reported no error, nothing is open, and no task is left."""
    problems: list[str] = []
    # Only in this process. Interrupted jobs leave their processes running, and the test is about these.
    warnings.simplefilter("error")
    sys.unraisablehook = lambda context: problems.append(f"{context.err_msg} {context.object!r}: {context.exc_value!r}")
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(str(context)))
    began = time.monotonic()
    async with MemoryStorage() as storage:
        for number in range(times):
            await stop_concurrently(storage, folder, f"q{number}", queues=queues, rounds=rounds)
            done, minutes = (number + 1) * queues * rounds, (time.monotonic() - began) / 60
            print(f"{done} shutdowns, {done / minutes:.0f} a minute", flush=True)
    gc.collect()
    assert not problems, problems
    assert asyncio.all_tasks() == {asyncio.current_task()}


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *(int(each) for each in sys.argv[2:5])))
