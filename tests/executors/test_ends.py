"""The ends of runs and their processes: by themselves, by force, and with the worker."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import FlowJob, FlowProducer, JobFailed, Queue
from glidemq_async.executors import SubprocessExecutor
from glidemq_async.executors.subprocess.pool import Pool, PooledChild
from tests.executors import handlers
from tests.executors.processes import gone, lives, noted
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, Heard, ended, job_events, soon, worker_of
from tests.support.machine_speed import BARE_SECONDS, bare_start

pytestmark = pytest.mark.only_on("memory")

ROOT = Path(__file__).parents[2]


async def logged(queue: AnyQueue, job: AnyJob, lines: int = 1) -> list[str]:
    """Wait until a job has logged this many lines."""
    async with asyncio.timeout(20):
        while len(found := await queue.get_job_logs(job.id)) < lines:
            await asyncio.sleep(0.01)
    return found


async def long_enough(seconds: int) -> int:
    """Return a timeout in which the process of a run starts: these seconds, or more on a slow machine."""
    started = await asyncio.to_thread(bare_start)
    return min(15, math.ceil(seconds * max(1.0, started / BARE_SECONDS)))


async def test_the_death_of_a_process_is_the_failure_of_its_job(queue: AnyQueue) -> None:
    ways = {
        "exit 0": ("ended with exit status 0", 0),
        "exit 3": ("ended with exit status 3", 3),
        "kill": ("was killed by SIGKILL", -9),
        "crash": ("was killed by SIGSEGV", -11),
    }
    async with worker_of(queue, handlers.end_process, executor=SubprocessExecutor(1)) as worker:
        failed = Heard(worker, "failed")
        for way, (words, status) in ways.items():
            before = await queue.add_and_wait("n", wait_timeout=20)
            job = await ended(await queue.add("n", way))
            assert job.failed_reason == f"ExecutorError: the process of the job {words} before the job had ended"
            assert (await failed.next())[1].exit_status == status
            # Other jobs continue in another process.
            assert await queue.add_and_wait("n", wait_timeout=20) != before
            assert [kind for kind, _ in await job_events(queue, job.id)] == ["added", "active", "failed"]


@pytest.mark.parametrize(("deaths", "made"), [(1, 1), (2, 1), (3, 2)])
async def test_a_job_whose_process_died_before_its_start_uses_no_attempt(
    queue: AnyQueue, monkeypatch: pytest.MonkeyPatch, deaths: int, made: int
) -> None:
    """Each death comes between the choice of an idle process and the sending of the job. Three in a row are
    tolerated.
    """
    take, left = Pool.take, deaths

    async def take_and_kill(pool: Pool) -> PooledChild:
        nonlocal left
        child = await take(pool)
        if left > 0 and job_is_added:
            left -= 1
            os.kill(child.pid, signal.SIGKILL)
        return child

    job_is_added = False
    monkeypatch.setattr(Pool, "take", take_and_kill)
    async with worker_of(queue, handlers.echo, executor=SubprocessExecutor(1)):
        job_is_added = True
        job = await queue.add("n", "done", attempts=2)
        assert await job.result(20) == "done"
    await job.refresh()
    assert (left, job.attempts_made) == (0, made)


async def test_the_death_of_a_process_does_not_affect_others(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.end_process, executor="subprocess", concurrency=3):
        jobs = await queue.add_bulk([("n", "kill" if number % 3 == 0 else None) for number in range(12)])
        states = [(await ended(job)).state for job in jobs]
    assert states == ["failed", "completed", "completed"] * 4


async def test_a_poison_job_fails_despite_remaining_attempts(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.end_process, executor="subprocess", max_stalled=2):
        job = await ended(await queue.add("n", "kill", attempts=50))
    assert (job.attempts_made, job.failure_cause) == (3, "stalled")


async def test_a_child_that_sends_an_invalid_frame_is_killed(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.by_name, executor="subprocess"):
        job = await ended(await queue.add("close_channel"))
        assert "was killed by SIGKILL" in (job.failed_reason or "")
        job = await ended(await queue.add("write_nonsense"))
        assert "sent a message of 4294967295 bytes" in (job.failed_reason or "")


async def test_a_timeout_kills_all_processes_of_the_run(queue: AnyQueue, tmp_path: Path) -> None:
    async with worker_of(queue, handlers.start_others, executor=SubprocessExecutor(1, grace=0)):
        seconds = await long_enough(4)
        job = await queue.add("n", str(tmp_path / "pids"), timeout=seconds)
        pids = await noted(tmp_path / "pids")
        child, guard, *others = pids
        with pytest.raises(JobFailed, match=f"longer than its timeout of {seconds} s"):
            await job.result(PATIENCE)
        await gone(child, *others)
        assert lives(guard)
    await gone(guard)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("victim", ["worker", "guard"])
async def test_nothing_outlives_the_worker(queue: AnyQueue, tmp_path: Path, method: str, victim: str) -> None:
    """After a SIGKILL only the kernel and the guard process can clean up."""
    note = tmp_path / "pids"
    command = [sys.executable, "-m", "tests.executors.victim", method, str(note)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL) as worker:
        others: list[int] = []
        try:
            child, guard, *others = await noted(note)
            if victim == "worker":
                worker.kill()
                ended = [child, guard, *others]
            else:
                os.kill(guard, signal.SIGKILL)
                ended = [child, guard]
            await gone(*ended)
            assert not any(lives(pid) for pid in ended)
        finally:
            worker.kill()
            for pid in others:
                if lives(pid):
                    os.kill(pid, signal.SIGKILL)


async def test_a_stopped_run_may_clean_up(queue: AnyQueue) -> None:
    ways = {
        "clean_up": ("failed", "cleaned up: revoked"),
        "clean_up_plainly": ("failed", "cleaned up: revoked"),
        # A run that returned before the stop has its result.
        "return_after_abort": ("completed", "aborted: revoked"),
    }
    async with worker_of(queue, handlers.by_name, executor=SubprocessExecutor(1, grace=3)) as worker:
        for name, (state, line) in ways.items():
            settled = Heard(worker, state)
            job = await queue.add(name)
            [pid] = await logged(queue, job)
            await job.revoke()
            assert (await settled.next())[0].id == job.id
            await gone(int(pid))
            assert (await queue.get_job_logs(job.id))[1:] == [line]


async def test_cancelling_a_flow_kills_the_processes_of_its_jobs(queue: AnyQueue) -> None:
    async with (
        Queue[Any, Any](f"{queue.name}-2", queue.storage) as second,
        FlowProducer(queue.storage) as flows,
        worker_of(queue, handlers.hang, executor=SubprocessExecutor(2, grace=0.1), concurrency=2),
        worker_of(second, handlers.hang, executor=SubprocessExecutor(1, grace=0.1)),
    ):
        leaves = [FlowJob("leaf", each.name) for each in (queue, queue, second)]
        node = await flows.add(FlowJob("root", queue.name, children=[FlowJob("middle", second.name, children=leaves)]))
        jobs = [leaf.job for leaf in node.children[0].children]
        pids = [int((await logged(each, job))[0]) for each, job in zip((queue, queue, second), jobs, strict=True)]
        await node.job.revoke()
        await gone(*pids)
        assert [(await ended(job)).failed_reason for job in jobs] == ["revoked: no parent needs it"] * 3


async def test_a_killed_process_gets_no_other_job(queue: AnyQueue) -> None:
    """The process is killed although its run ended before the stop."""
    async with worker_of(queue, handlers.by_name, executor=SubprocessExecutor(1, grace=3), concurrency=2):
        stopped, waiting = await queue.add_bulk([("return_after_abort", None), ("pid", None)])
        await logged(queue, stopped)
        await stopped.revoke()
        assert await stopped.result(20) == "done all the same"
        assert (await ended(waiting)).failed_reason is None


async def test_a_forked_copy_of_a_child_process_cannot_send_its_reply(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.fork_and_return, executor=SubprocessExecutor(1, grace=0)):
        assert [await queue.add_and_wait("n", wait_timeout=10) for _ in range(2)] == ["own", "own"]


async def test_a_process_that_ignores_signals_is_killed_after_the_grace(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.hang_and_ignore_abort, executor=SubprocessExecutor(1, grace=0.4)):
        job = await queue.add("n", timeout=await long_enough(2))
        [pid] = await logged(queue, job)
        with pytest.raises(JobFailed, match="timeout"):
            await job.result(PATIENCE)
        await gone(int(pid))


async def test_a_sigterm_of_another_process_does_not_end_a_run(queue: AnyQueue) -> None:
    """Service managers send SIGTERM to all processes. The worker decides which runs stop."""
    async with worker_of(queue, handlers.ignore_strangers, executor="subprocess"):
        assert await queue.add_and_wait("n", wait_timeout=20) == "still here"


async def test_a_silent_run_is_ended_but_one_with_heartbeats_is_not(queue: AnyQueue) -> None:
    executor = SubprocessExecutor(1, heartbeat_timeout=4, grace=0)  # a host may pause for a second or two
    async with worker_of(queue, handlers.beat, executor=executor):
        assert await queue.add_and_wait("n", 90, wait_timeout=PATIENCE) == "alive"
    async with worker_of(queue, handlers.hang, executor=SubprocessExecutor(1, heartbeat_timeout=0.3, grace=0)):
        job = await ended(await queue.add("n"))
        assert job.failed_reason == "TimeoutError: the run was silent for longer than its heartbeat_timeout of 0.3 s"


async def test_a_stopped_worker_ends_its_processes_before_it_releases_jobs(queue: AnyQueue) -> None:
    worker = worker_of(
        queue, handlers.hang_and_ignore_abort, executor=SubprocessExecutor(1, grace=0.2), shutdown_timeout=0
    )
    alive_at_return: list[bool] = []
    await worker.start()
    job = await queue.add("n")
    [pid] = await logged(queue, job)

    def note(job: AnyJob) -> None:
        alive_at_return.append(lives(int(pid)))

    worker.on("returned", note)
    began = time.monotonic()
    await soon(worker.close())
    assert time.monotonic() - began < 5
    assert alive_at_return == [False]
    assert await job.get_state() == "waiting"


async def test_processes_are_replaced_after_a_number_of_jobs(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.pid, executor=SubprocessExecutor(1, max_jobs=3)):
        pids = [await queue.add_and_wait("n", wait_timeout=20) for _ in range(7)]
        await gone(pids[0], pids[3])
    assert [pids[:3], pids[3:6]] == [[pids[0]] * 3, [pids[3]] * 3]
    assert len(set(pids)) == 3


async def test_processes_that_use_too_much_memory_are_replaced(queue: AnyQueue) -> None:
    executor = SubprocessExecutor(1, max_memory=250 * 2**20)
    async with worker_of(queue, handlers.grow, executor=executor):
        small = [await queue.add_and_wait("n", 1_000, wait_timeout=20) for _ in range(3)]
        assert len(set(small)) == 1
        assert await queue.add_and_wait("n", 300 * 2**20, wait_timeout=20) == small[0]
        assert await queue.add_and_wait("n", 1_000, wait_timeout=20) != small[0]
        await gone(small[0])


async def test_a_job_that_kills_its_guard_fails_alone(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.kill_the_guard, executor="subprocess"):
        job = await soon(ended(await queue.add("n")), 20)
    said = "the process of the job was killed with its guard, the process that starts them, before the job had ended"
    assert job.failed_reason == f"ExecutorError: {said}"


async def test_a_dead_guard_is_replaced(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.describe, executor="subprocess"):
        found = await queue.add_and_wait("n", wait_timeout=20)
        os.kill(found["guard"], signal.SIGKILL)
        await gone(found["guard"], found["pid"])
        # The idle process may be chosen before its death is noticed. That uses no attempt.
        again = await queue.add_and_wait("n", wait_timeout=30)
        assert again["guard"] != found["guard"]


SCRIPT = """
import asyncio
from glidemq_async import Queue, Worker
def double(job):
    return [2 * job.data, __name__]
async def main():
    async with Queue('q', 'memory://') as queue:
        async with Worker('q', double, queue.storage, executor='subprocess'):
            print(await queue.add_and_wait('n', 21, wait_timeout=20))
"""


async def test_the_functions_of_a_script_are_found_and_its_start_must_be_guarded(tmp_path: Path) -> None:
    starts = {"guarded": 'if __name__ == "__main__":\n    asyncio.run(main())\n', "bare": "asyncio.run(main())\n"}
    printed_by: dict[str, tuple[str, str]] = {}
    for name, start in starts.items():
        script = tmp_path / f"{name}.py"
        script.write_text(SCRIPT + start)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", str(script), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await soon(process.communicate(), 40)
        printed_by[name] = output.decode(), errors.decode()
    assert printed_by["guarded"] == ("[42, '__mp_main__']\n", "")
    assert 'move that code below if __name__ == "__main__":' in printed_by["bare"][1]
