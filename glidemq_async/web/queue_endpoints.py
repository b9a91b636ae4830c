"""Endpoints that show queues, workers, schedules and the server."""

from __future__ import annotations

from datetime import UTC, datetime

from glidemq_async.ops.overview import Overview
from glidemq_async.ops.queue_rows import QueueDetail
from glidemq_async.ops.server_info import ServerInfo
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply
from glidemq_async.web.replies import QueueList, ScheduleList, Who, WorkerList


async def who(call: ApiCall) -> Reply:
    """Return the user of the request."""
    identity = call.identity
    return Reply(
        Who(identity.name, identity.role, list(identity.queues), identity.payloads, call.context.web.read_only)
    )


async def overview(call: ApiCall) -> Reply:
    """Return the state of all queues."""
    return Reply(call.context.shown(await call.ops.overview()))


async def queues(call: ApiCall) -> Reply:
    """Return the figures of all queues."""
    return Reply(QueueList(await call.ops.queues(await visible(call)), datetime.now(UTC)))


async def queue(call: ApiCall) -> Reply:
    """Return a queue."""
    return Reply(await call.ops.queue_detail(call.path["queue"]))


async def workers(call: ApiCall) -> Reply:
    """Return the live workers."""
    return Reply(WorkerList(await call.ops.workers(await visible(call))))


async def schedules(call: ApiCall) -> Reply:
    """Return the job schedulers."""
    return Reply(ScheduleList(await call.ops.schedules(await visible(call))))


async def server(call: ApiCall) -> Reply:
    """Return the servers of the store."""
    return Reply(await call.ops.server())


async def visible(call: ApiCall) -> list[str]:
    """Return the names of the queues that the user sees."""
    return call.identity.visible(await call.ops.known_queue_names())


ENDPOINTS = (
    ApiRoute(method="GET", path="/me", name="whoAmI", summary="Show your name and rights.", handle=who, result=Who),
    ApiRoute(
        method="GET",
        path="/overview",
        name="getOverview",
        summary="Show whether the work is done in time: the figures of all queues, failures, open alerts, changes.",
        handle=overview,
        result=Overview,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues",
        name="listQueues",
        summary="List the queues with their counts, rates and ages.",
        handle=queues,
        result=QueueList,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}",
        name="getQueue",
        summary="Show a queue with its minutes, workers and schedules.",
        handle=queue,
        result=QueueDetail,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/workers",
        name="listWorkers",
        summary="List the live workers.",
        handle=workers,
        result=WorkerList,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/schedules",
        name="listSchedules",
        summary="List the job schedulers, the next ones first.",
        handle=schedules,
        result=ScheduleList,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/server",
        name="getServer",
        summary="Show the servers of the store: version, memory, persistence.",
        handle=server,
        result=ServerInfo,
        whole=True,
        tool=True,
    ),
)
