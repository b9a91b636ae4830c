"""A tree of 10,000 jobs is cancelled within seconds: nothing starts after the call, and running jobs have stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from glidemq_async import FlowJob, FlowProducer, Queue
from tests.support.helpers import AnyQueue, Gate, counts, worker_of
from tests.support.machine_speed import crowding, slowness
from tests.support.servers import standalone

RUNNING = 100
LONGEST_SECONDS = 3.0
"""`make bench-workflows` measures the time on a machine that runs nothing else; the goal is one second."""
TRIES = 5


def wide(first: str, second: str) -> FlowJob:
    """Return a root with 10,000 children in two queues."""
    return FlowJob("root", first, children=[FlowJob("leaf", (first, second)[n % 2]) for n in range(10_000)])


def branched(first: str, second: str) -> FlowJob:
    """Return a tree with 100 parents in one queue, and 9,900 leaves in the other one."""
    parents = [FlowJob("middle", second, children=[FlowJob("leaf", first) for _ in range(99)]) for _ in range(100)]
    return FlowJob("root", first, children=[*parents, FlowJob("leaf", second)])


async def cancel(first: AnyQueue, second: AnyQueue, flow: FlowJob) -> float:
    """Cancel a flow while some of its jobs run. Return the seconds until all of them have stopped."""
    gate = Gate()
    async with (
        FlowProducer(first.storage) as flows,
        worker_of(first, gate, concurrency=RUNNING),
        worker_of(second, gate, concurrency=RUNNING),
    ):
        node = await flows.add(flow)
        leaves = await second.get_job_counts()
        running = RUNNING + min(RUNNING, leaves["waiting"] + leaves["active"])
        for _ in range(running):
            await gate.running()
        began = time.perf_counter()
        await node.job.revoke()
        waiting = [set(await counts(each)) - {"active", "failed"} for each in (first, second)]
        for _ in range(running):
            await gate.stopped()
        seconds = time.perf_counter() - began
        assert waiting == [set(), set()]
    assert gate.started.empty()
    return seconds


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shape", [wide, branched])
async def test_a_tree_of_10_000_jobs_is_cancelled_within_seconds(shape: Callable[[str, str], FlowJob]) -> None:
    async with standalone(unix=True) as server:
        best = float("inf")
        for number in range(TRIES):
            async with Queue(f"first{number}", server.url) as first, Queue(f"second{number}", server.url) as second:
                before = crowding()
                seconds = await cancel(first, second, shape(first.name, second.name))
                # Other tests may use the same cores. The client and the server are both busy during the cancellation.
                best = min(best, seconds / slowness() / min(before, crowding()))
                assert await first.check() == await second.check() == []
            if best < LONGEST_SECONDS:
                return
        pytest.fail(f"the fastest of {TRIES} cancellations took {best:.2f} s")
