"""Endpoints that find, show and change jobs, one at a time and in bulk."""

from __future__ import annotations

from typing import Any

from glidemq_async.filters.filter import Filter
from glidemq_async.ops.bulk.documents import Operation, Preview
from glidemq_async.ops.rows import JobDetail
from glidemq_async.ops.search import JobPage
from glidemq_async.web.change_routes import Arguments, change_route, no_arguments
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
from glidemq_async.web.permitted_filters import permitted_filter, sees_operation
from glidemq_async.web.replies import OperationList


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
    started = await call.ops.start(
        call.path["operation"], body.ticket, rate=body.rate, stop_if_failing=body.stop_if_failing
    )
    return Reply(call.context.shown(started))


async def _permitted(call: ApiCall) -> Operation:
    """Return an operation whose queues the user sees. Raises AccessDenied."""
    found: Operation = await call.ops.operation(call.path["operation"])
    await checked_filter(call, found.filter)
    return found


async def operation(call: ApiCall) -> Reply:
    """Return an operation and its progress."""
    return Reply(call.context.shown(await _permitted(call)))


async def operations(call: ApiCall) -> Reply:
    """Return the newest operations, without the ones that the user may not see."""
    found = await call.ops.operations(min(call.query.limit, 100))
    seen = [each for each in found if await sees_operation(call.context, call.ops, each)]
    return Reply(call.context.shown(OperationList(seen)))


async def cancel(call: ApiCall) -> Reply:
    """Cancel an operation."""
    await _permitted(call)
    return Reply(call.context.shown(await call.ops.cancel_operation(call.path["operation"], reason=call.reason)))


_JOB = "/queues/{queue}/jobs/{job}"


def _change(operation: str, action: str, name: str, body: Any, arguments: Arguments = no_arguments) -> ApiRoute:
    return change_route(operation, f"{_JOB}/{action}", name, body, arguments, part="job")


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
    _change("retryJob", "retry", "retry", RetryBody, lambda call: {"force": call.body.force}),
    _change("cancelJob", "cancel", "revoke", NoBody),
    _change("promoteJob", "promote", "promote", NoBody),
    _change("delayJob", "delay", "delay", DelayBody, lambda call: {"delay": call.body.delay}),
    _change(
        "prioritizeJob", "priority", "change_priority", PriorityBody, lambda call: {"priority": call.body.priority}
    ),
    _change(
        "editJob",
        "edit",
        "edit_and_replay",
        EditBody,
        lambda call: {"data": call.body.data, "options": call.body.options, "force": call.body.force},
    ),
    _change("moveJob", "move", "move", MoveBody, lambda call: {"to": call.body.to}),
    change_route("deleteJob", _JOB, "delete", None, method="DELETE", action="delete", part="job"),
    ApiRoute(
        method="GET",
        path="/operations",
        name="listOperations",
        summary="List the newest bulk operations whose filters the user may apply.",
        handle=operations,
        query=ListQuery,
        result=OperationList,
        tool=True,
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
