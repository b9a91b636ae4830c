"""Steps of jobs whose workers are killed between them, and whose calls lose their replies: each is recorded once."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from glidemq_async import Job, Queue, Worker
from tests.crash.cutting_proxy import CUTS
from tests.crash.size import scaled, seconds
from tests.crash.step_worker import BRANCHES, STEPS
from tests.crash.test_lost_replies import line
from tests.support.servers import standalone

pytestmark = pytest.mark.crash
KILLS = max(3, min(20, scaled(4)))
JOBS = 8
CONCURRENCY = 4

AnyJob = Job[int, list[int]]


@pytest.mark.timeout(seconds(60))
async def test_a_killed_worker_repeats_only_steps_that_were_not_recorded(tmp_path: Path) -> None:
    draw, effects = random.Random(11), tmp_path / "effects"
    effects.touch()
    async with standalone(unix=True) as server, Queue[int, list[str]]("steps", server.url) as queue:
        jobs = await queue.add_bulk(("n", number) for number in range(JOBS))
        results = asyncio.ensure_future(asyncio.gather(*(job.result(seconds(40)) for job in jobs)))
        for kill in range(KILLS + 1):
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.crash.step_worker", server.url, "steps", str(effects))
            )
            try:
                if kill < KILLS:
                    await _grow(effects, len(_lines(effects)) + draw.randrange(1, JOBS * 3), results)
                else:
                    await results
            finally:
                worker.kill()
                await worker.wait()
        expected = [f"{branch}.{step}" for branch in range(BRANCHES) for step in range(STEPS)]
        assert await results == [expected] * JOBS
        executed: dict[tuple[str, str], list[int]] = {}
        for job_id, step, fence in _lines(effects):
            executed.setdefault((job_id, step), []).append(int(fence))
        for job in jobs:
            recorded = {step.result: step.run for step in await job.get_steps()}
            assert sorted(recorded) == sorted(expected)
            # The run that recorded a step is the last one that executed it.
            assert recorded == {step: executed[job.id, step][-1] for step in expected}
            assert all(len(fences) == len({*fences}) for fences in executed.values())
        repeated = sum(len(fences) - 1 for fences in executed.values())
        assert repeated <= KILLS * CONCURRENCY * BRANCHES
        assert await queue.check() == []


def _lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()]


async def _grow(file: Path, lines: int, results: asyncio.Future[list[list[str]]]) -> None:
    """Wait until a file has this many lines, or all jobs have ended."""
    while len(_lines(file)) < lines and not results.done():  # noqa: ASYNC110 - other processes write it
        await asyncio.sleep(0.01)


@pytest.mark.timeout(seconds(40))
async def test_a_lost_reply_neither_loses_nor_repeats_a_step() -> None:
    draw, calls = random.Random(12), Counter[tuple[str, int]]()
    wanted, jobs = scaled(60), scaled(80)

    async def handler(job: AnyJob) -> list[int]:
        async def effect(number: int) -> int:
            calls[job.id, number] += 1
            return number

        return list(await asyncio.gather(*(job.step("effect", effect, number) for number in range(5))))

    async with line(draw) as way, way.direct() as direct, Queue[int, list[int]]("steps", direct) as queue:
        added = await queue.add_bulk(("n", number) for number in range(jobs))
        async with way.through_proxy() as through:
            worker = Worker[int, list[int]](
                "steps", handler, through, concurrency=2, lock_duration=600, handle_signals=False
            )
            async with worker:
                results = asyncio.ensure_future(asyncio.gather(*(job.result(seconds(30)) for job in added)))
                while way.proxy.made.total() < wanted and not results.done():
                    way.proxy.arm(b"_recordSteps", draw.choice(CUTS))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(way.proxy.all_made(), 0.5)
                assert await results == [[*range(5)]] * jobs
                # More jobs follow until enough calls were cut. On a busy machine, reconnecting takes longer.
                while way.proxy.made.total() <= min(wanted, jobs) / 4:
                    way.proxy.arm(b"_recordSteps", draw.choice(CUTS))
                    added.append(await queue.add("n", len(added)))
                    assert await added[-1].result(seconds(30)) == [*range(5)]
                way.proxy.arm(b"")
        assert set(calls.values()) == {1}
        assert len(calls) == 5 * len(added)
        assert await queue.check() == []
