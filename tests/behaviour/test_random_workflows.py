"""Random asyncio programs of steps, killed at random steps and run again in other interleavings."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import pytest

from glidemq_async import JobOptions
from glidemq_async.errors import JobStateError, Suspended
from glidemq_async.jobs.call_numbers import Numbers
from glidemq_async.jobs.job import journal_of
from glidemq_async.jobs.journal import Journal, forget_last_step
from glidemq_async.jobs.step_recorder import StepRecorder
from glidemq_async.tasks.workflows import given_to
from glidemq_async.workflows import waiting
from glidemq_async.workflows.child_waits import ChildWait, End
from glidemq_async.workflows.clock import RunClock
from glidemq_async.workflows.run import WorkflowRun, running
from glidemq_async.workflows.task_calls import CALLED
from glidemq_async.workflows.waiting import RECEIVE, Given, Waiting
from glidemq_async.workflows.warm import WarmWorkflow, keep_warm, take_warm
from tests.support.helpers import AnyJob, AnyQueue, worker_of
from tests.support.random_workflows import (
    KILLED,
    LEAVES,
    TURN,
    WARM,
    Program,
    RunStore,
    TurnLoop,
    World,
    calls_in,
    execute,
    expected,
    is_own,
    random_program,
    run_once,
    signal_names,
)

RUNS: Final = int(os.environ.get("GLIDEMQ_WORKFLOW_RUNS", "8000"))
SECONDS: Final = 60
"""Processor time after which the test starts no more programs."""
LEAST: Final = 5_000
"""The number of runs that each machine must reach within this time."""
MOST_KILLS: Final = 4
KILLED_RUNS: Final = 0.6
"""The part of the runs that are killed, until a program has had its kills."""
PROGRAMS: Final = 60
"""The number of programs that run on a server."""


continued: Counter[str] = Counter()
"""How many runs have continued the function of the run before."""
taken: Counter[str] = Counter()
"""How many signals runs have received without a suspension."""


def program_of(seed: int) -> Program:
    return random_program(random.Random(f"program {seed}"))


def program_without_calls(seed: int) -> Program:
    return random_program(random.Random(f"program {seed}"), leaves=(*LEAVES, "nap"))


def server_program_of(seed: int) -> Program:
    return random_program(random.Random(f"server program {seed}"), leaves=LEAVES)


async def live(program: Program, seed: int) -> int:
    """Run a program until it ends, after random kills. Return the number of its runs."""
    draw = random.Random(seed)
    world = World(draw)
    world.write(program)
    kills, number, given = draw.randrange(MOST_KILLS), 0, Given()
    while True:
        number += 1
        kill_at = len(world.journal) + draw.randrange(6) if kills and draw.random() < KILLED_RUNS else None
        journal, result = await run_once(program, world, number, given, kill_at=kill_at)
        if result is KILLED:
            kills -= 1
        elif isinstance(result, Suspended):
            given = world.resume(result, given)
        else:
            break
    for kept in world.warm.values():
        await kept.leave()
    while world.in_flight:  # noqa: ASYNC110 - calls whose callers were cancelled
        await asyncio.sleep(TURN)
    assert world.recorded.total() == len(world.journal), "a step was recorded twice"
    own = Counter({name: n for name, n in world.recorded.items() if is_own(name)})
    assert world.executed == own.total() + world.lost, "a recorded step was executed again"
    received = Counter([cast("list[Any]", one)[3] for one in journal.results_of(RECEIVE)])
    assert set(received.values()) <= {1}, "a signal was received twice"
    if not program.is_timed:
        assert result == expected(program)
        # The id of a child is needed only until the result of its call is recorded.
        left = [step for step in journal.steps_not_asked() if step.name != CALLED]
        assert not left, "a recorded step was not found again"
        assert len(received) == len(signal_names(program)), "a signal was not received"
        assert len(world.children) == calls_in(program), "a call was made again"
    continued.update(world.continued)
    taken["runs"] += world.taken
    return number


def run_programs(runs: int, make: Callable[[int], Program] = program_of) -> int:
    """Run programs until they have had this many runs, or the time is over. Return the number of runs."""
    began, made, seed = time.process_time(), 0, 0
    with asyncio.Runner(loop_factory=TurnLoop) as runner:
        # A killed `gather` leaves the errors of its other tasks to the loop.
        runner.get_loop().set_exception_handler(_ignored)
        while made < runs and time.process_time() - began < SECONDS:
            program = make(seed)
            try:
                made += runner.run(live(program, seed))
            except BaseException as error:
                error.add_note(f"seed {seed}: {program}")
                raise
            seed += 1
    return made


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the waits of workflows follow the time of the loop."""

    def now_ms(_: RunClock) -> int:
        return TurnLoop.now_ms()

    monkeypatch.setattr(RunClock, "now_ms", now_ms)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("turns")
def test_each_recorded_step_is_executed_once_in_any_order() -> None:
    continued.clear()
    taken.clear()
    made = run_programs(RUNS)
    assert made >= min(RUNS, LEAST)
    assert continued.total() > made / 50, "hardly any run has continued a function"
    assert continued["children"] > made / 200, "hardly any run has continued when a child ended"
    assert taken.total() > made / 50, "hardly any run has received a signal without a suspension"


def _ignored(*_: object) -> None:
    pass


def _position(*_: object) -> str:
    return "position"


def _unshielded(status: asyncio.Future[Any]) -> asyncio.Future[Any]:
    return status


@pytest.mark.usefixtures("turns")
def test_the_programs_detect_steps_that_are_known_by_their_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "_base_of", _position)
    # A step may get the record of another one, which has another form.
    with pytest.raises((AssertionError, AttributeError, ValueError, ExceptionGroup)):
        run_programs(1_000)


@pytest.mark.usefixtures("turns")
def test_the_programs_detect_that_a_cancelled_call_keeps_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbers, "release", _ignored)
    with pytest.raises(AssertionError):
        run_programs(2_000)


@pytest.mark.usefixtures("turns")
def test_the_programs_detect_that_a_cancellation_takes_a_record_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "shield", _unshielded)
    with pytest.raises(AssertionError):
        run_programs(2_000)


class _Killed(Exception):
    """The end of a run that a test has stopped."""


async def converse(job: AnyJob) -> None:
    """Send a job its signals, before, during and after its waits, until it has ended."""
    draw = random.Random(job.data)
    names = signal_names(server_program_of(job.data))
    draw.shuffle(names)
    for place, name in enumerate(names):
        await asyncio.sleep(draw.random() / 50)
        if draw.random() < 0.7:
            async for update in job.watch():
                if update.state == "suspended":
                    break
        with suppress(JobStateError):  # a program with a timeout has ended before
            await job.signal(name, place)
    await job.result(30)


@pytest.mark.everywhere
async def test_programs_run_on_a_server(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.005)
    worlds = {seed: World(random.Random(seed)) for seed in range(PROGRAMS)}
    left: list[Any] = []
    continued.clear()

    async def handler(job: AnyJob) -> Any:
        program, world = server_program_of(job.data), worlds[job.data]
        given, clock = given_to(job), RunClock()
        warm = take_warm(job, given)
        run = warm.run if warm else WorkflowRun(journal_of(job), "random", "code", "fail", given, clock)
        keep = partial(keep_warm, warm or WarmWorkflow(job, run), is_allowed=world.draw.random() < WARM)
        forget_last_step()
        with running(run):
            if warm is None:
                work = asyncio.ensure_future(run.waiting.drive(lambda: execute(program, RunStore(world)), keep))
            else:
                continued["on a server"] += 1
                work = asyncio.ensure_future(warm.go_on(job, given, clock, keep))
            if job.fence <= MOST_KILLS and world.draw.random() < 0.7:
                await asyncio.wait([work], timeout=world.draw.random() / 50)
                if not work.done():
                    work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
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
        await asyncio.gather(*(converse(job) for job in jobs))
    assert not left
    assert continued.total() > 5, "hardly any run has continued a function"
    assert not await queue.check()
    for job in jobs:
        names = [step for step in await job.get_steps() if not step.name.startswith("workflow.")]
        assert worlds[job.data].executed >= len(names)


def _nothing_received(*_: object) -> list[object]:
    return []


@pytest.mark.usefixtures("turns")
def test_the_programs_detect_signals_that_are_received_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_receipts", _nothing_received)
    with pytest.raises(AssertionError):
        run_programs(10_000)


async def _unconfirmed(_: StepRecorder) -> None:
    return


@pytest.mark.usefixtures("turns")
def test_the_programs_detect_steps_that_do_not_wait_for_the_record_of_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepRecorder, "confirm", _unconfirmed)
    with pytest.raises(AssertionError):
        run_programs(10_000)


@pytest.mark.usefixtures("turns")
def test_the_programs_detect_ends_of_children_that_are_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted_twice(self: ChildWait, end: End) -> None:
        self._waits.known_ends += 1  # pyright: ignore[reportPrivateUsage]
        end_with(self, end)

    end_with = ChildWait.end_with
    monkeypatch.setattr(ChildWait, "end_with", counted_twice)
    with pytest.raises(AssertionError):
        run_programs(10_000)


@pytest.mark.usefixtures("turns")
def test_the_programs_detect_kept_functions_that_have_missed_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_fence(self: Waiting, given: Given, fence: int) -> bool:
        del fence
        return can_go_on(self, given, self._journal.run + 1)  # pyright: ignore[reportPrivateUsage]

    can_go_on = Waiting.can_go_on
    monkeypatch.setattr(Waiting, "can_go_on", without_fence)
    with pytest.raises(AssertionError):
        run_programs(20_000)
