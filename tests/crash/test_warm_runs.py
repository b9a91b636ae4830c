"""Workers that keep suspended runs in memory are killed: their runs go on elsewhere, and record each step once."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import GlideMQ, RunHandle
from tests.crash.size import scaled, seconds
from tests.crash.warm_worker import ROUNDS, talk_of
from tests.support.servers import standalone

pytestmark = pytest.mark.crash
KILLS = max(3, min(20, scaled(4)))
RUNS = 8
WORKERS = 2


class Workers:
    """Worker processes, of which a test kills one after another."""

    def __init__(self, *args: str) -> None:
        self._args = args
        self._running: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        self._running.append(
            await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.crash.warm_worker", *self._args)
        )

    async def kill(self) -> None:
        """Kill the oldest one, which has runs, while the newest one may still be starting."""
        one = self._running.pop(0)
        one.kill()
        await one.wait()

    async def close(self) -> None:
        while self._running:
            await self.kill()


def _lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()]


async def _grow(file: Path, lines: int) -> None:
    """Wait until the workers have written this many lines."""
    while len(_lines(file)) < lines:  # noqa: ASYNC110 - other processes write it
        await asyncio.sleep(0.01)


async def _converse(run: RunHandle[list[int]], draw: random.Random) -> None:
    """Send the signals of a run, some of them while it is suspended."""
    for word in range(ROUNDS):
        await asyncio.sleep(draw.random() * 0.6)
        await run.signal("say", word)


@pytest.mark.timeout(seconds(90))
async def test_runs_of_a_killed_worker_go_on_in_another_one(tmp_path: Path) -> None:
    draw, file = random.Random(17), tmp_path / "effects"
    file.touch()
    async with standalone(unix=True) as server:
        workers = Workers(server.url, "talks", str(file))
        mq: GlideMQ[Any] = GlideMQ(server.url, queue="talks")
        talk = talk_of(mq)
        try:
            for _ in range(WORKERS):
                await workers.start()
            async with mq:
                runs = [await talk.start() for _ in range(RUNS)]
                await _grow(file, RUNS)  # all functions have started, so most signals meet a run that waits
                talks = asyncio.ensure_future(asyncio.gather(*(_converse(run, draw) for run in runs)))
                for _ in range(KILLS):
                    await _grow(file, min(len(_lines(file)) + draw.randrange(1, RUNS), RUNS * (ROUNDS + 1)))
                    await workers.kill()
                    await workers.start()
                await talks
                for run in runs:
                    assert await run.result(seconds(40)) == [*range(ROUNDS)]
                await _check(file, runs)
                assert await mq.queue("talks").check() == []
        finally:
            await workers.close()


async def _check(file: Path, runs: list[RunHandle[list[int]]]) -> None:
    lines = _lines(file)
    executed = Counter((line[1], line[2]) for line in lines if line[0] == "step")
    assert executed.keys() == {(run.id, str(word)) for run in runs for word in range(ROUNDS)}
    # A step is repeated only if its worker was killed before it was recorded.
    assert sum(executed.values()) - len(executed) <= KILLS * 4
    for run in runs:
        steps = [step for step in await run.steps() if step.name == "note"]
        assert sorted(step.result for step in steps) == [*range(ROUNDS)]
        received = [step for step in await run.steps() if step.name == "workflow.receive"]
        assert len(received) == ROUNDS
    starts = Counter(line[1] for line in lines if line[0] == "start")
    assert sum(starts.values()) > RUNS, "no run has started again after a kill"
    claims = 0
    for run in runs:
        await run.job.refresh()
        claims += run.job.fence
    assert sum(starts.values()) < claims, "no run has continued its function"
