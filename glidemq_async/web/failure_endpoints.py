"""Endpoints that show why jobs fail: the groups of failures, and the history of a job."""

from __future__ import annotations

from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply
from glidemq_async.web.models import FailureQuery
from glidemq_async.web.problems import RequestError
from glidemq_async.web.replies import FailureList, HistoryDocument


async def failures(call: ApiCall) -> Reply:
    """Return the failure groups of the queues that the user sees, or of one queue."""
    queue = call.query.queue
    if queue is not None:
        call.context.require("viewer", queue)
    groups = call.context.shown(await call.ops.failures(queue))
    return Reply(FailureList(groups[: call.query.limit], len(groups) > call.query.limit))


async def failure(call: ApiCall) -> Reply:
    """Return the groups with a fingerprint, one for each queue that the user sees."""
    fingerprint = call.path["fingerprint"]
    groups = call.context.shown(await call.ops.failure(fingerprint))
    if not groups:
        raise RequestError(
            404, "failure-not-found", f"there is no group {fingerprint!r}; a queue keeps the 200 that failed last"
        )
    return Reply(FailureList(groups, False))


async def history(call: ApiCall) -> Reply:
    """Return the history of a job."""
    queue, job_id = call.path["queue"], call.path["job"]
    entries = await call.ops.history(queue, job_id)
    return Reply(call.context.shown(HistoryDocument(queue, job_id, entries)))


ENDPOINTS = (
    ApiRoute(
        method="GET",
        path="/failures",
        name="listFailures",
        summary="List the groups of failures with the same error and place, the one that failed last first.",
        handle=failures,
        query=FailureQuery,
        result=FailureList,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/failures/{fingerprint}",
        name="getFailure",
        summary="Show a group of failures in each queue in which it occurs.",
        handle=failure,
        result=FailureList,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/history",
        name="getJobHistory",
        summary="Show the runs of a job with their workers, errors and log lines, and the actions of operators.",
        handle=history,
        result=HistoryDocument,
        tool=True,
    ),
)
