"""Random asyncio programs of steps, killed at random steps and run again in other interleavings."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from typing import Any, Final

import pytest

from glidemq_async import JobOptions
from glidemq_async.jobs.job import journal_of
from glidemq_async.jobs.journal import Journal, Numbers, forget_last_step
from glidemq_async.workflows.run import WorkflowRun, running
from tests.support.helpers import AnyJob, AnyQueue, worker_of
from tests.support.random_workflows import (
    TURN,
    Program,
    RunStore,
    TurnLoop,
    World,
    execute,
    expected,
    random_program,
    run_once,
)

RUNS: Final = int(os.environ.get("GLIDEMQ_WORKFLOW_RUNS", "20000"))
SECONDS: Final = 60
"""Processor time after which the test starts no more programs."""
LEAST: Final = 5_000
"""The number of runs that each machine must reach within this time."""
MOST_KILLS: Final = 4
PROGRAMS: Final = 60
"""The number of programs that run on a server."""


def program_of(seed: int) -> Program:
    return random_program(random.Random(f"program {seed}"))


async def live(program: Program, seed: int) -> int:
    """Run a program until it ends, after random kills. Return the number of its runs."""
    draw = random.Random(seed)
    world = World(draw)
    kills, number = draw.randrange(MOST_KILLS), 0
    while True:
        number += 1
        kill_at = len(world.journal) + draw.randrange(6) if number <= kills else None
        journal, result = await run_once(program, world, number, kill_at=kill_at)
        if result is not None or kill_at is None:
            break
    while world.in_flight:  # noqa: ASYNC110 - calls whose callers were cancelled
        await asyncio.sleep(TURN)
    assert world.recorded.total() == len(world.journal), "a step was recorded twice"
    own = Counter({name: n for name, n in world.recorded.items() if not name.startswith("workflow.")})
    assert world.executed == own.total() + world.lost, "a recorded step was executed again"
    if not program.is_timed:
        assert result == expected(program)
        assert not journal.steps_not_asked(), "a recorded step was not found again"
    return number


def run_programs(runs: int, first: int = 0) -> int:
    """Run programs until they have had this many runs, or the time is over. Return the number of runs."""
    began, made, seed = time.process_time(), 0, first
    with asyncio.Runner(loop_factory=TurnLoop) as runner:
        # A killed `gather` leaves the errors of its other tasks to the loop.
        runner.get_loop().set_exception_handler(_ignored)
        while made < runs and time.process_time() - began < SECONDS:
            program = program_of(seed)
            try:
                made += runner.run(live(program, seed))
            except BaseException as error:
                error.add_note(f"seed {seed}: {program}")
                raise
            seed += 1
    return made


@pytest.mark.timeout(300)
def test_each_recorded_step_is_executed_once_in_any_order() -> None:
    assert run_programs(RUNS) >= min(RUNS, LEAST)


def _ignored(*_: object) -> None:
    pass


def _position(*_: object) -> str:
    return "position"


def _unshielded(status: asyncio.Future[Any]) -> asyncio.Future[Any]:
    return status


def test_the_programs_detect_steps_that_are_known_by_their_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "_base_of", _position)
    with pytest.raises(AssertionError):
        run_programs(1_000)


def test_the_programs_detect_that_a_cancelled_call_keeps_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbers, "release", _ignored)
    with pytest.raises(AssertionError):
        run_programs(2_000)


def test_the_programs_detect_that_a_cancellation_takes_a_record_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "shield", _unshielded)
    with pytest.raises(AssertionError):
        run_programs(2_000)


class _Killed(Exception):
    """The end of a run that a test has stopped."""


@pytest.mark.everywhere
async def test_programs_run_on_a_server(queue: AnyQueue) -> None:
    worlds = {seed: World(random.Random(seed)) for seed in range(PROGRAMS)}
    left: list[Any] = []

    async def handler(job: AnyJob) -> Any:
        program, world = program_of(job.data), worlds[job.data]
        run = WorkflowRun(journal_of(job), "random", "code", "fail")
        forget_last_step()
        with running(run):
            work = asyncio.ensure_future(execute(program, RunStore(world)))
            if job.fence <= MOST_KILLS and world.draw.random() < 0.7:
                await asyncio.wait([work], timeout=world.draw.random() / 50)
                if not work.done():
                    work.cancel()
                    raise _Killed
            result = await work
        run.end()
        if not program.is_timed:
            left.extend(run.journal.steps_not_asked())
            assert result == expected(program), program
        return None

    async with worker_of(queue, handler, concurrency=20):
        jobs = await queue.add_bulk(("n", seed, JobOptions(attempts=MOST_KILLS + 1)) for seed in worlds)
        for job in jobs:
            await job.result(30)
    assert not left
    assert not await queue.check()
    for job in jobs:
        names = [step for step in await job.get_steps() if not step.name.startswith("workflow.")]
        assert worlds[job.data].executed >= len(names)
