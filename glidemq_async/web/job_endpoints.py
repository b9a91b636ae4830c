"""Endpoints that find, show and change jobs, one at a time and in bulk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from glidemq_async.filters.filter import Filter
from glidemq_async.ops.bulk.documents import Operation, Preview
from glidemq_async.ops.core import Ops
from glidemq_async.ops.rows import JobDetail
from glidemq_async.ops.search import JobPage
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply
from glidemq_async.web.models import (
    DelayBody,
    EditBody,
    JobQuery,
    ListQuery,
    MoveBody,
    NewOperation,
    NoBody,
    PriorityBody,
    RetryBody,
    StartBody,
)
from glidemq_async.web.permitted_filters import permitted_filter
from glidemq_async.web.replies import Done, OperationList


async def find(call: ApiCall) -> Reply:
    """Find jobs in all queues that the user sees."""
    wanted = await checked_filter(call, call.query.filter)
    page: JobPage = await call.ops.find(wanted, limit=call.query.limit, cursor=call.query.cursor)
    return Reply(call.context.shown(page), headers=_next(call, page))


async def find_in_queue(call: ApiCall) -> Reply:
    """Find jobs of a queue."""
    await call.ops.queue(call.path["queue"])
    wanted = await checked_filter(call, str(Filter.of_queue(call.path["queue"], call.query.filter)))
    page: JobPage = await call.ops.find(wanted, limit=call.query.limit, cursor=call.query.cursor)
    return Reply(call.context.shown(page), headers=_next(call, page))


def _next(call: ApiCall, page: JobPage) -> dict[str, str]:
    if page.cursor is None or call.request is None:
        return {}
    return {"Link": f'<{call.request.url.include_query_params(cursor=page.cursor)}>; rel="next"'}


async def checked_filter(call: ApiCall, text: str) -> Filter:
    """Return a filter that the user may apply; see `permitted_filter`."""
    return await permitted_filter(call.context, call.ops, text)


async def job(call: ApiCall) -> Reply:
    """Return everything about a job."""
    return Reply(call.context.shown(await call.ops.job(call.path["queue"], call.path["job"])))


Change = Callable[[Ops, str, str, Any, str], Awaitable[object]]


def changing(action: str, change: Change) -> Callable[[ApiCall], Awaitable[Reply]]:
    """Return the handler of a change of one job."""

    async def handle(call: ApiCall) -> Reply:
        queue, job_id = call.path["queue"], call.path["job"]
        await change(call.ops, queue, job_id, call.body, call.reason)
        return Reply(Done(action, queue, job_id, 1))

    return handle


async def _move(call: ApiCall) -> Reply:
    queue, job_id = call.path["queue"], call.path["job"]
    call.context.require("operator", call.body.to)
    await call.ops.move(queue, job_id, call.body.to, reason=call.reason)
    return Reply(Done("move", queue, job_id, 1))


def _edit(ops: Ops, queue: str, job_id: str, body: Any, reason: str) -> Awaitable[object]:
    return ops.edit_and_replay(queue, job_id, data=body.data, options=body.options, force=body.force, reason=reason)


# -- bulk operations ------------------------------------------------------------------------------------------------


async def preview(call: ApiCall) -> Reply:
    """Count the jobs that an operation would change, and store which ones they are."""
    body = call.body
    wanted = await checked_filter(call, body.filter)
    if body.action in {"delete", "edit"}:
        call.context.require_role("admin")
    arguments: dict[str, Any] = dict(body.arguments)
    if "to" in arguments:
        call.context.require("operator", str(arguments["to"]))
    reason = body.reason or call.reason
    found: Preview = await call.ops.preview(body.action, str(wanted), reason=reason, **arguments)
    return Reply(call.context.shown(found))


async def start(call: ApiCall) -> Reply:
    """Start a previewed operation."""
    body = call.body
    await _permitted(call)
    return Reply(
        await call.ops.start(call.path["operation"], body.ticket, rate=body.rate, stop_if_failing=body.stop_if_failing)
    )


async def _permitted(call: ApiCall) -> Operation:
    """Return an operation whose queues the user sees. Raises AccessDenied."""
    found: Operation = await call.ops.operation(call.path["operation"])
    await checked_filter(call, found.filter)
    return found


async def operation(call: ApiCall) -> Reply:
    """Return an operation and its progress."""
    return Reply(await _permitted(call))


async def operations(call: ApiCall) -> Reply:
    """Return the newest operations."""
    return Reply(OperationList(await call.ops.operations(min(call.query.limit, 100))))


async def cancel(call: ApiCall) -> Reply:
    """Cancel an operation."""
    await _permitted(call)
    return Reply(await call.ops.cancel_operation(call.path["operation"], reason=call.reason))


def _change(name: str, path: str, summary: str, body: Any, change: Change, *, role: Any = "operator") -> ApiRoute:
    return ApiRoute(
        method="POST",
        path=f"/queues/{{queue}}/jobs/{{job}}/{path}",
        name=name,
        summary=summary,
        handle=changing(path, change),
        role=role,
        body=body,
        result=Done,
    )


ENDPOINTS = (
    ApiRoute(
        method="GET",
        path="/jobs",
        name="findJobs",
        summary="Find jobs of all queues with a filter.",
        handle=find,
        query=JobQuery,
        result=JobPage,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs",
        name="findJobsOfQueue",
        summary="Find jobs of a queue with a filter.",
        handle=find_in_queue,
        query=JobQuery,
        result=JobPage,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}",
        name="getJob",
        summary="Show a job: its data, options, attempts, error and log.",
        handle=job,
        result=JobDetail,
        tool=True,
    ),
    _change(
        "retryJob",
        "retry",
        "Run a failed job again.",
        RetryBody,
        lambda o, q, j, b, r: o.retry(q, j, force=b.force, reason=r),
    ),
    _change("cancelJob", "cancel", "Stop a job.", NoBody, lambda o, q, j, _, r: o.revoke(q, j, reason=r)),
    _change(
        "promoteJob", "promote", "Start a delayed job now.", NoBody, lambda o, q, j, _, r: o.promote(q, j, reason=r)
    ),
    _change(
        "delayJob",
        "delay",
        "Change the delay of a job.",
        DelayBody,
        lambda o, q, j, b, r: o.delay(q, j, b.delay, reason=r),
    ),
    _change(
        "prioritizeJob",
        "priority",
        "Change the priority of a job.",
        PriorityBody,
        lambda o, q, j, b, r: o.change_priority(q, j, b.priority, reason=r),
    ),
    _change(
        "editJob", "edit", "Change the data of a job, and run it again if it has failed.", EditBody, _edit, role="admin"
    ),
    ApiRoute(
        method="POST",
        path="/queues/{queue}/jobs/{job}/move",
        name="moveJob",
        summary="Move a job to another queue.",
        handle=_move,
        role="operator",
        body=MoveBody,
        result=Done,
    ),
    ApiRoute(
        method="DELETE",
        path="/queues/{queue}/jobs/{job}",
        name="deleteJob",
        summary="Remove a job.",
        handle=changing("delete", lambda o, q, j, _, r: o.delete(q, j, reason=r)),
        role="admin",
        result=Done,
    ),
    ApiRoute(
        method="GET",
        path="/operations",
        name="listOperations",
        summary="List the newest bulk operations.",
        handle=operations,
        query=ListQuery,
        result=OperationList,
        whole=True,
    ),
    ApiRoute(
        method="POST",
        path="/operations",
        name="previewOperation",
        summary="Count the jobs that a bulk operation would change. Nothing changes before it is started.",
        handle=preview,
        role="operator",
        body=NewOperation,
        result=Preview,
        status=202,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/operations/{operation}",
        name="getOperation",
        summary="Show a bulk operation and its progress.",
        handle=operation,
        result=Operation,
        tool=True,
    ),
    ApiRoute(
        method="POST",
        path="/operations/{operation}/start",
        name="startOperation",
        summary="Start a previewed bulk operation with its ticket.",
        handle=start,
        role="operator",
        body=StartBody,
        result=Operation,
        tool=True,
    ),
    ApiRoute(
        method="DELETE",
        path="/operations/{operation}",
        name="cancelOperation",
        summary="Cancel a bulk operation.",
        handle=cancel,
        role="operator",
        result=Operation,
        tool=True,
    ),
)
