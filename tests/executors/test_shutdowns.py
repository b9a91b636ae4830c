"""Workers with processes are stopped or killed at any time: no job is lost, and no process is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Queue
from tests.executors import handlers
from tests.executors.processes import gone
from tests.support.helpers import worker_of

ROOT = Path(__file__).parents[2]
QUEUES = 4 * (os.cpu_count() or 1)
ROUNDS = 20


async def stop(folder: Path, *, queues: int, rounds: int, times: int = 1) -> None:
    """Stop workers in a separate process. Its output is shown on failure."""
    numbers = [str(each) for each in (queues, rounds, times)]
    command = [sys.executable, "-m", "tests.executors.stopping", str(folder), *numbers]
    program = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        assert await program.wait() == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


async def test_shutdowns_at_random_times_lose_nothing(tmp_path: Path) -> None:
    await stop(tmp_path, queues=3, rounds=3)


@pytest.mark.slow
@pytest.mark.timeout(4 * 60 * 60)
async def test_thousands_of_shutdowns_lose_nothing(tmp_path: Path) -> None:
    """As many as GLIDEMQ_TEST_SHUTDOWNS says, or 5,000."""
    wanted = int(os.environ.get("GLIDEMQ_TEST_SHUTDOWNS", "5000"))
    await stop(tmp_path, queues=QUEUES, rounds=ROUNDS, times=ceil(wanted / (QUEUES * ROUNDS)))


async def kill_repeatedly(url: str, note: Path, rounds: int, seed: int) -> None:
    """Kill worker processes at random times."""
    chance = random.Random(seed)
    note.touch()
    async with Queue[Any, Any]("q", url) as queue:
        jobs = await queue.add_bulk([("n", [0.2, str(note)])] * 4)
        for _ in range(rounds):
            command = [sys.executable, "-m", "tests.executors.worker_process", url]
            with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as worker:
                assert worker.stdout is not None
                await asyncio.to_thread(worker.stdout.readline)
                await asyncio.sleep(chance.uniform(0, 0.6))
                worker.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
                await asyncio.to_thread(worker.wait, 20)
            await gone(*(int(word) for word in note.read_text().split()))
        worker_left = worker_of(queue, handlers.work_for, executor="subprocess", concurrency=2, max_stalled=rounds)
        async with worker_left:
            assert [await job.result(30) for job in jobs] == [1] * 4


async def test_killed_workers_leave_no_process(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    await kill_repeatedly(f"file://{tmp_path}/store", tmp_path / "pids", rounds=3, seed=seed)


@pytest.mark.slow
@pytest.mark.timeout(60 * 60)
async def test_hundreds_of_killed_workers_leave_no_process(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    for number in range(20):
        await kill_repeatedly(f"file://{tmp_path}/store{number}", tmp_path / f"pids{number}", 20, seed + number)
