"""Run jobs after other jobs: a tree whose parent reads the results of its children, and a graph that shares a job."""

import asyncio
from typing import Any

from glidemq_async import DagNode, FlowJob, FlowProducer, Job, JobFailed, Queue, Worker


async def handle(job: Job[Any, Any]) -> Any:
    if job.name == "count":
        return len(job.data.split())
    if job.name == "broken":
        raise ValueError("no text")
    values = await job.get_children_values()
    return sum(values.values())


async def add_flows(flows: FlowProducer) -> None:
    texts = ("a b c", "d e")
    tree = await flows.add(FlowJob("total", "totals", children=[FlowJob("count", "texts", text) for text in texts]))
    print("words:", await tree.job.result(timeout=10))

    children = [FlowJob("count", "texts", "a"), FlowJob("broken", "texts")]
    failing = await flows.add(FlowJob("total", "totals", children=children))
    try:
        await failing.job.result(timeout=10)
    except JobFailed as error:
        print("failed because of", error.message)

    graph = await flows.add_dag(
        [
            DagNode("load", "texts", "a b", job_name="count"),
            DagNode("left", "totals", deps=["load"], job_name="total"),
            DagNode("right", "totals", deps=["load"], job_name="total"),
            DagNode("both", "totals", deps=["left", "right"], job_name="total"),
        ]
    )
    print("twice:", await graph["both"].result(timeout=10))


async def main() -> None:
    async with (
        Queue("texts", "memory://") as queue,
        Worker("texts", handle, queue.storage),
        Worker("totals", handle, queue.storage),
        FlowProducer(queue.storage) as flows,
    ):
        await add_flows(flows)


if __name__ == "__main__":
    asyncio.run(main())
