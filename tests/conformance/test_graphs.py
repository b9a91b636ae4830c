"""The graphs and waterfalls of flows and runs."""

from __future__ import annotations

import asyncio
from typing import Any
from xml.etree import ElementTree

import pytest

from glidemq_async import DagNode, FlowJob, FlowProducer, GlideMQ, JobFailed, JobNotFound, UnrecoverableError, workflows
from glidemq_async.ops import graphs
from glidemq_async.ops.graphs import FlowGraph, read_flow_graph
from glidemq_async.ops.waterfall import read_waterfall
from glidemq_async.workflows import waiting
from tests.support.helpers import PATIENCE, AnyJob, AnyQueue, worker_of

SVG = "{http://www.w3.org/2000/svg}"


def edges_of(graph: FlowGraph) -> set[tuple[str, str]]:
    return {(graph.nodes[start].name, graph.nodes[end].name) for start, end in graph.edges}


def texts_of(svg: str) -> list[str]:
    """Return the texts of a drawing, which must be valid XML."""
    root = ElementTree.fromstring(svg)
    assert root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc") is not None
    return [element.text or "" for element in root.iter(f"{SVG}text")]


async def test_a_graph_has_every_job_of_a_flow_in_its_state(queue: AnyQueue) -> None:
    other = f"{queue.name}-other"

    async def handle(job: AnyJob) -> None:
        if job.name == "bad":
            raise UnrecoverableError("no <paper> & ink")

    async with FlowProducer(queue.storage) as flows:
        jobs = await flows.add_dag(
            [
                DagNode("load", queue.name),
                DagNode("bad", queue.name, on_failure="ignore"),
                DagNode("away", other),
                DagNode("merge", queue.name, deps=["load", "bad", "away"]),
            ]
        )
        graph = await read_flow_graph(queue, jobs["load"].id)
        assert edges_of(graph) == {("load", "merge"), ("bad", "merge"), ("away", "merge")}
        assert {node.name: node.level for node in graph.nodes} == {"load": 0, "bad": 0, "away": 0, "merge": 1}
        assert [node.name for node in graph.nodes if node.is_focus] == ["load"]
        async with worker_of(queue, handle):
            with pytest.raises(JobFailed):
                await jobs["bad"].result(PATIENCE)
            await jobs["load"].result(PATIENCE)
        graph = await read_flow_graph(queue, jobs["merge"].id)
        states = {node.name: node.state for node in graph.nodes}
        assert states["load"] == "completed"
        assert states["bad"] == "failed"
        assert states["merge"] == "waiting-children"
        assert states["away"] in {"planned", "waiting"}
        assert any(text.startswith("failed") for text in texts_of(graph.to_svg()))
        assert "&lt;paper&gt; &amp; ink" in graph.to_svg()
        assert graph.to_mermaid().count("-->") == 3
        await jobs["merge"].revoke()
        assert (await read_flow_graph(queue, jobs["merge"].id)).states["cancelled"] == 1


async def test_nodes_whose_jobs_are_not_made_are_planned(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_DRAWN", 10)
    children = [FlowJob("leaf", queue.name, "x" * 3_000) for _ in range(600)]
    async with FlowProducer(queue.storage) as flows:
        node = await flows.add(FlowJob("root", queue.name, children=children))
        graph = await read_flow_graph(queue, node.job.id)
        assert graph.total == 601
        assert graph.is_complete
        assert sum(graph.states.values()) == 601
        assert len(graph.edges) == 600
        await node.job.revoke()
        small = graph.collapsed(10)
        assert sum(one.count for one in small.nodes) == 601
        assert len(small.nodes) <= 3


async def test_a_job_without_a_flow_is_alone(queue: AnyQueue) -> None:
    job = await queue.add("alone")
    graph = await read_flow_graph(queue, job.id)
    assert [(node.name, node.state) for node in graph.nodes] == [("alone", "waiting")]
    with pytest.raises(JobNotFound, match="no job and no flow 'unknown'"):
        await read_flow_graph(queue, "unknown")


async def test_runs_of_workflows_are_drawn_with_their_calls(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.02)
    mq: GlideMQ[Any] = GlideMQ(queue.storage, queue=queue.name)

    @mq.step
    async def pay(order: str) -> str:
        return order

    @mq.task
    async def resize(width: int) -> int:
        return width

    @mq.workflow
    async def inner() -> int:
        return await resize.call(2)

    @mq.workflow
    async def order(name: str) -> int:
        await pay(name)
        widths = await asyncio.gather(resize.call(1), inner.task.call())
        await workflows.receive("approved")
        return sum(widths)

    async with mq, mq.worker():
        run = await order.start("book")
        await run.signal("approved")
        assert await run.result(PATIENCE) == 3
        graph = await read_flow_graph(mq.queue(queue.name), run.id)
        assert edges_of(graph) == {("resize", "order"), ("inner", "order"), ("resize", "inner")}
        assert graph.states == {"completed": 4}
        waterfall = await read_waterfall(mq.queue(queue.name), run.id)
    kinds = [(row.kind, row.name) for row in waterfall.rows]
    assert kinds[0] == ("job", "order")
    assert {("step", "pay"), ("child", "call resize"), ("child", "call inner"), ("signal", "approved")} <= set(kinds)
    assert ("wait", "receive approved") in kinds
    assert all(row.ended_at is not None and row.ended_at >= row.started_at for row in waterfall.rows)
    texts = texts_of(waterfall.to_svg())
    assert {"order", "pay", "receive approved", "signal approved"} <= set(texts)
    assert "<style>" not in waterfall.to_svg(styled=False)


async def test_a_run_that_waits_has_an_open_row(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GRACE", 0.02)
    mq: GlideMQ[Any] = GlideMQ(queue.storage, queue=queue.name)

    @mq.workflow
    async def order() -> None:
        await workflows.receive("approved")

    async with mq, mq.worker():
        run = await order.start()
        async for update in run.job.watch():
            if update.state == "suspended":
                break
        waterfall = await read_waterfall(mq.queue(queue.name), run.id)
        waits = [row for row in waterfall.rows if row.kind == "wait"]
        assert [(row.name, row.ended_at) for row in waits] == [("waits for approved", None)]
        await run.cancel()
    with pytest.raises(JobNotFound):
        await read_waterfall(queue, "unknown")
