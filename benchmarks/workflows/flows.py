"""Flows: the longest call while a large graph is made, the end of one of many children, the cancel of a large tree."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.processor_time import MeasuredStorage
from benchmarks.server import ServerCost, connected
from benchmarks.workflows.figures import Figure
from glidemq_async import DagNode, FlowJob, FlowProducer, GlideMQ, Job, Queue, Worker

QUEUE: Final = "flows"
GRAPHS: Final = 3
"""How often the large graph is made."""
PLACES: Final = 100
"""The number of places at which the calls of two runs are compared."""


async def measure(url: str, nodes: int, children: int, items: int) -> list[Figure]:
    """Return the figures of a graph with `nodes`, a parent with `children`, and a map over `items`."""
    return [
        *await _graph(url, nodes),
        await _ends(url, children),
        await _cancel(url, children),
        *await _map(url, items),
    ]


async def _nothing(_job: Job[Any, Any]) -> None:
    return


async def _graph(url: str, nodes: int) -> list[Figure]:
    """Make a graph in which each node depends on one of the previous level, and the last node on the last level.

    A virtual machine counts some of the time in which it does not run, in another call each time. A call that is long
    by itself comes at the same place in each run. So the graph is made three times, and calls are compared by place.
    """
    graph = [DagNode(f"n{number}", QUEUE, deps=[f"n{number // 10}"] if number else []) for number in range(nodes)]
    runs, seconds = zip(*[await _make(url, graph) for _ in range(GRAPHS)], strict=True)
    name = f"longest processor time of a call while a graph of {nodes:,} nodes is made"
    return [
        Figure(name, _longest_in_each(runs) * 1e3, "ms", most=10),
        Figure(f"time until a graph of {nodes:,} nodes is made", min(seconds), "s"),
    ]


def _longest_in_each(runs: Sequence[Sequence[float]]) -> float:
    """Return the duration of the longest call that each run has at about the same place."""
    places = range(min(PLACES, *map(len, runs)))
    return max(min(max(_at_place(run, place, len(places))) for run in runs) for place in places)


def _at_place(run: Sequence[float], place: int, places: int) -> Sequence[float]:
    return run[place * len(run) // places : (place + 1) * len(run) // places]


async def _make(url: str, graph: list[DagNode]) -> tuple[Sequence[float], float]:
    """Return the processor time of each call, and the time until the whole graph is made, in seconds."""
    async with (
        connected(url) as wire,
        MeasuredStorage(url, wire) as storage,
        Queue[Any, Any](QUEUE, url) as queue,
        FlowProducer(storage) as producer,
    ):
        began = time.perf_counter()
        await producer.add_dag(graph)
        seconds = time.perf_counter() - began
        made = (await queue.get_job_counts())["waiting-children"]
        if made != len(graph) - 1:
            raise RuntimeError(f"{made} nodes wait for children instead of {len(graph) - 1}")
        await queue.obliterate(force=True)
    return storage.seconds, seconds


async def _ends(url: str, children: int) -> Figure:
    """Return how much more a child of a large parent costs the server than a child of a small one."""
    cost = {}
    for size in (10, children):
        async with connected(url) as wire, Queue[Any, Any](QUEUE, url) as queue, FlowProducer(url) as producer:
            parents = [
                FlowJob("parent", QUEUE, children=[FlowJob("child", QUEUE) for _ in range(size)])
                for _ in range(children // size)
            ]
            await producer.add_bulk(parents)
            before = await ServerCost.read(wire)
            await Worker(QUEUE, _nothing, url, concurrency=50, handle_signals=False).run(until_empty=True)
            spent = (await ServerCost.read(wire)).since(before)
            cost[size] = spent.in_functions / (children + children // size)
            await queue.obliterate(force=True)
    name = f"server time of the end of one of {children:,} children, to one of 10"
    return Figure(name, cost[children] / cost[10], "ratio", most=1.2)


async def _cancel(url: str, children: int) -> Figure:
    started: list[str] = []

    async def wait(job: Job[Any, Any]) -> None:
        started.append(job.id)
        await asyncio.Event().wait()

    async with Queue[Any, Any](QUEUE, url) as queue, FlowProducer(url) as producer:
        flow = await producer.add(FlowJob("root", QUEUE, children=[FlowJob("child", QUEUE) for _ in range(children)]))
        async with Worker(QUEUE, wait, url, concurrency=50, handle_signals=False):
            while len(started) < min(50, children):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            began = time.perf_counter()
            await queue.revoke(flow.job.id)
            returned = len(started)
            counts = await queue.get_job_counts()
            while counts["active"] or counts["waiting"]:
                await asyncio.sleep(0.01)
                counts = await queue.get_job_counts()
            seconds = time.perf_counter() - began
        if len(started) > returned:
            raise RuntimeError(f"{len(started) - returned} jobs started after the tree was cancelled")
        await queue.obliterate(force=True)
    return Figure(f"time until a tree of {children:,} jobs with 50 running ones has stopped", seconds, "s", most=1.0)


async def _map(url: str, items: int) -> list[Figure]:
    mq: GlideMQ[Any] = GlideMQ(url, queue=QUEUE)
    seen = most = 0

    @mq.task
    async def double(value: int) -> int:
        return 2 * value

    async with mq:
        began = time.perf_counter()
        for first in range(0, items, 1_000):
            await double.add_many([(value,) for value in range(first, first + 1_000)])
        await mq.run_worker(until_empty=True, concurrency=50, handle_signals=False)
        plain = items / (time.perf_counter() - began)
        await mq.queue(QUEUE).obliterate(force=True)
        async with mq.worker(concurrency=50):
            began = time.perf_counter()
            async for _ in double.map(range(items), at_once=1_000):
                seen += 1
                if seen % 5_000 == 0:
                    counts = await mq.queue(QUEUE).get_job_counts()
                    most = max(most, counts["waiting"] + counts["active"])
            rate = items / (time.perf_counter() - began)
        await mq.queue(QUEUE).obliterate(force=True)
    return [
        Figure(f"rate of `map` over {items:,} items, 1,000 at once, to `add_many`", rate / plain, "ratio", least=0.5),
        Figure("most jobs of this map that waited or ran", most, "jobs", most=2_000),
    ]
