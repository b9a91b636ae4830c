"""Endpoints that show the graph of a flow and the waterfall of a run, as documents and as drawings."""

from __future__ import annotations

from starlette.responses import Response

from glidemq_async.ops.drawings import STYLE_SOURCE
from glidemq_async.ops.graphs import FlowGraph
from glidemq_async.ops.waterfall import Waterfall
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply

SVG = "image/svg+xml"
# The drawing of a browser window has its style sheet in it, so its policy permits exactly this one.
_POLICY = {"Content-Security-Policy": f"default-src 'none'; style-src {STYLE_SOURCE}; frame-ancestors 'none'"}


async def graph(call: ApiCall) -> Reply:
    """Return the graph of the flow of a job."""
    return Reply(await _graph(call))


async def graph_drawing(call: ApiCall) -> Response:
    """Return the graph of the flow of a job as SVG."""
    return Response((await _graph(call)).to_svg(), media_type=SVG, headers=_POLICY)


async def waterfall(call: ApiCall) -> Reply:
    """Return the waterfall of a job."""
    return Reply(await _waterfall(call))


async def waterfall_drawing(call: ApiCall) -> Response:
    """Return the waterfall of a job as SVG."""
    return Response((await _waterfall(call)).to_svg(), media_type=SVG, headers=_POLICY)


async def _graph(call: ApiCall) -> FlowGraph:
    found: FlowGraph = call.context.shown(await call.ops.flow_graph(call.path["queue"], call.path["job"]))
    return found


async def _waterfall(call: ApiCall) -> Waterfall:
    found: Waterfall = call.context.shown(await call.ops.waterfall(call.path["queue"], call.path["job"]))
    return found


ENDPOINTS = (
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/graph",
        name="getFlowGraph",
        summary="Show the jobs of the flow of a job, their states, and which of them wait for which.",
        handle=graph,
        result=FlowGraph,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/graph.svg",
        name="drawFlowGraph",
        summary="Draw the graph of the flow of a job.",
        handle=graph_drawing,
        media=SVG,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/waterfall",
        name="getWaterfall",
        summary="Show the attempts, steps, waits, signals and children of a job with their times.",
        handle=waterfall,
        result=Waterfall,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/waterfall.svg",
        name="drawWaterfall",
        summary="Draw the attempts, steps, waits, signals and children of a job on a time axis.",
        handle=waterfall_drawing,
        media=SVG,
    ),
)
