"""Flows whose calls are cut: each job of each flow runs once, also if a handler adds it."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from typing import Any, Final, cast

import pytest

from glidemq_async import FlowJob, FlowProducer, Job, Queue, Worker
from tests.crash.cutting_proxy import CUTS
from tests.crash.size import scaled, seconds
from tests.crash.test_lost_replies import FORGETFUL, Line, line

pytestmark = pytest.mark.crash

FLOWS: Final = scaled(60)
QUEUES: Final = ("trees", "leaves")


def tree(number: int) -> FlowJob:
    """Return a tree over two queues with five jobs."""
    leaves = [FlowJob("leaf", "leaves", number), FlowJob("leaf", "trees", number)]
    return FlowJob("root", "trees", number, children=[FlowJob("middle", "leaves", number, children=leaves)])


class Handler:
    """Adds a leaf in another queue to each root, through a connection that is cut."""

    def __init__(self, way: Line, flows: FlowProducer, draw: random.Random) -> None:
        self.way, self.flows, self.draw = way, flows, draw
        self.added: list[int] = []

    async def __call__(self, job: Job[Any, Any]) -> int:
        values = await job.get_children_values()
        if job.name == "root" and len(values) < 2:
            self.added.append(job.data)
            self.way.proxy.arm(b"_addChildren", *self.draw.choices(CUTS, k=1))
            await self.flows.add_children(job, [FlowJob("leaf", "leaves", job.data)])
            await job.move_to_waiting_children()
        return 1 + sum(cast("int", value) for value in values.values())


async def run_flows(way: Line, draw: random.Random, number: int) -> tuple[list[int], list[int]]:
    """Add flows and run them, and cut calls. Return the results of the roots, and the roots that added children."""
    async with AsyncExitStack() as stack:
        through = await stack.enter_async_context(way.through_proxy())
        flows = await stack.enter_async_context(FlowProducer(through))
        handler = Handler(way, flows, draw)
        for name in QUEUES:
            # One run at a time, so that each cut meets the call that it is meant for.
            await stack.enter_async_context(
                Worker(name, handler, through, concurrency=1, lock_duration=600, handle_signals=False)
            )
        results: list[int] = []
        for each in range(number):
            way.proxy.arm(b"_addFlow", *draw.choices(CUTS, k=1))
            node = await flows.add(tree(each))
            await way.proxy.all_made()
            way.proxy.arm(draw.choice((b"_relayOutbox", b"_deliverJobs", b"_settleAndClaim")), draw.choice(CUTS))
            results.append(await node.job.result(timeout=20))
        return results, handler.added


@pytest.mark.timeout(seconds(60))
async def test_the_flows_of_cut_calls_run_once() -> None:
    draw = random.Random(11)
    async with line(draw) as way:
        results, added = await run_flows(way, draw, FLOWS)
        # A root, a middle, two leaves, and the leaf that the root has added.
        assert results == [5] * FLOWS
        assert added == list(range(FLOWS))
        async with way.direct() as storage:
            for name, jobs in (("trees", 2), ("leaves", 3)):
                async with Queue[int, int](name, storage) as queue:
                    assert (await queue.get_job_counts())["completed"] == jobs * FLOWS
                    assert await queue.check() == []


@pytest.mark.timeout(seconds(60))
async def test_cut_calls_of_flows_take_effect_twice_without_request_numbers() -> None:
    draw = random.Random(12)
    async with line(draw, FORGETFUL) as way:
        async with way.through_proxy() as storage, FlowProducer(storage) as flows:
            for each in range(10):
                way.proxy.arm(b"_addFlow", *draw.choices(CUTS, k=1))
                await flows.add(FlowJob("root", "trees", each, children=[FlowJob("leaf", "trees", each)]))
                await way.proxy.all_made()
        async with way.direct() as storage, Queue[int, int]("trees", storage) as queue:
            assert (await queue.get_job_counts())["waiting-children"] > 10
