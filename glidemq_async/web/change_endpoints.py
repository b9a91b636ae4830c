"""Endpoints that explain jobs, show settings, and change whole queues and their schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from glidemq_async.errors import SchedulerNotFound
from glidemq_async.ops.core import Ops
from glidemq_async.ops.errors import SettingsChanged
from glidemq_async.ops.queue_changes import ObliteratePreview
from glidemq_async.queues.explanation import Explanation
from glidemq_async.queues.rates import RateLimit
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply
from glidemq_async.web.models import (
    CleanBody,
    DrainBody,
    KeyPauseBody,
    LimitsBody,
    NoBody,
    NotedBody,
    ObliterateBody,
    PauseBody,
    ReleaseBody,
    RetentionBody,
)
from glidemq_async.web.problems import RequestError
from glidemq_async.web.producer_endpoints import keep_of
from glidemq_async.web.replies import Done, SettingList

Change = Callable[[Ops, ApiCall], Awaitable[object]]


async def explain(call: ApiCall) -> Reply:
    """Return why a job does not run."""
    return Reply(await call.ops.explain(call.path["queue"], call.path["job"]))


async def settings(call: ApiCall) -> Reply:
    """Return the settings of a queue."""
    found, version = await call.ops.settings_and_version(call.path["queue"])
    return Reply(SettingList(found), headers={"ETag": f'"{version}"'})


async def set_limits(call: ApiCall) -> Reply:
    """Set limits of a queue."""
    queue, body = call.path["queue"], call.body
    given: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set - {"note"}}
    if (rate := given.get("rate_limit")) is not None:
        given["rate_limit"] = RateLimit(rate.max, rate.duration)
    if not given:
        raise RequestError(422, "invalid-body", "name at least one of concurrency, rate_limit and max_waiting")
    version = await _expected(call, queue)
    await call.ops.set_limits(queue, note=body.note, version=version, reason=call.reason, **given)
    return Reply(Done("set limits", queue, ""))


async def _expected(call: ApiCall, queue: str) -> str:
    """Return the version that the header If-Match expects, "" for any. Raises SettingsChanged."""
    wanted = call.headers.get("if-match")
    if wanted is None or wanted.strip() == "*":
        return ""
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in wanted.split(",")]
    if len(tags) > 1:
        # The server compares one version. Which of several it is may be decided before.
        current = (await call.ops.settings_and_version(queue))[1]
        tags = [tag for tag in tags if tag == current]
    if not tags or not tags[0]:
        raise SettingsChanged(queue)
    return tags[0]


async def _set_retention(ops: Ops, call: ApiCall) -> None:
    body = call.body
    models = {"completed": body.completed, "failed": body.failed}
    given = {state: keep_of(model) for state, model in models.items() if model is not None}
    if not given:
        raise RequestError(422, "invalid-body", "name at least one of completed and failed")
    await ops.set_retention(_queue(call), note=body.note, reason=call.reason, **given)


async def _release_hold(ops: Ops, call: ApiCall) -> None:
    await ops.release_hold(_queue(call), call.path["setting"], key=call.body.key, reason=call.reason)


def changing(action: str, change: Change, part: str = "") -> Callable[[ApiCall], Awaitable[Reply]]:
    """Return the handler of a change of a queue, or of the part of it that the path names."""

    async def handle(call: ApiCall) -> Reply:
        found = await change(call.ops, call)
        if part == "schedule" and found is False:
            raise SchedulerNotFound(f"queue {call.path['queue']!r} has no schedule {call.path[part]!r}")
        count = found if isinstance(found, int) and not isinstance(found, bool) else None
        return Reply(Done(action, call.path["queue"], call.path.get(part, ""), count))

    return handle


async def _clean(ops: Ops, call: ApiCall) -> int:
    body = call.body
    return len(await ops.clean(call.path["queue"], body.grace, body.limit, body.state, reason=call.reason))


async def preview_obliterate(call: ApiCall) -> Reply:
    """Return what an obliteration would remove, and the ticket that permits it."""
    return Reply(await call.ops.preview_obliterate(call.path["queue"]))


def _queue(call: ApiCall) -> str:
    return call.path["queue"]


def _post(
    name: str, path: str, summary: str, body: Any, change: Change, *, role: Any = "operator", part: str = ""
) -> ApiRoute:
    handle = changing(path.rpartition("/")[2], change, part)
    path = f"/queues/{{queue}}/{path}"
    return ApiRoute(
        method="POST", path=path, name=name, summary=summary, handle=handle, role=role, body=body, result=Done
    )


ENDPOINTS = (
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/explain",
        name="explainJob",
        summary="Explain why a job does not run.",
        handle=explain,
        result=Explanation,
        tool=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/settings",
        name="getSettings",
        summary="Show the pause and the limits of a queue, who has set them, and what the code declares.",
        handle=settings,
        result=SettingList,
    ),
    ApiRoute(
        method="PUT",
        path="/queues/{queue}/limits",
        name="setLimits",
        summary="Set limits of a queue. null removes a limit; what is left out stays.",
        handle=set_limits,
        role="admin",
        body=LimitsBody,
        result=Done,
        match=True,
    ),
    _post(
        "setRetention",
        "retention",
        "Hold how many ended jobs a queue keeps, over the options of the jobs.",
        RetentionBody,
        _set_retention,
        role="admin",
    ),
    _post(
        "releaseHold",
        "settings/{setting}/release",
        "Release a setting that an operator holds: the declared value applies again, or none.",
        ReleaseBody,
        _release_hold,
        role="admin",
        part="setting",
    ),
    _post(
        "pauseQueue",
        "pause",
        "Pause a queue, also over deploys.",
        PauseBody,
        lambda ops, call: ops.pause(_queue(call), note=call.body.note, until=call.body.end(), reason=call.reason),
    ),
    _post(
        "resumeQueue",
        "resume",
        "End the pause of a queue.",
        NoBody,
        lambda ops, call: ops.resume(_queue(call), reason=call.reason),
    ),
    _post(
        "pauseKey",
        "keys/{key}/pause",
        "Pause an ordering key.",
        KeyPauseBody,
        lambda ops, call: ops.pause_key(_queue(call), call.path["key"], call.body.seconds, reason=call.reason),
        part="key",
    ),
    _post(
        "resumeKey",
        "keys/{key}/resume",
        "End the pause of an ordering key.",
        NoBody,
        lambda ops, call: ops.resume_key(_queue(call), call.path["key"], reason=call.reason),
        part="key",
    ),
    _post(
        "drainQueue",
        "drain",
        "Remove the waiting jobs of a queue.",
        DrainBody,
        lambda ops, call: ops.drain(_queue(call), delayed=call.body.delayed, reason=call.reason),
        role="admin",
    ),
    _post("cleanQueue", "clean", "Remove old jobs of a queue.", CleanBody, _clean, role="admin"),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/obliteration",
        name="previewObliteration",
        summary="Show what an obliteration would remove, and the ticket that permits it.",
        handle=preview_obliterate,
        role="admin",
        result=ObliteratePreview,
    ),
    ApiRoute(
        method="DELETE",
        path="/queues/{queue}",
        name="obliterateQueue",
        summary="Remove a queue with all of its jobs.",
        handle=changing(
            "obliterate",
            lambda ops, call: ops.obliterate(_queue(call), call.body.ticket, force=call.body.force, reason=call.reason),
        ),
        role="admin",
        body=ObliterateBody,
        result=Done,
    ),
    _post(
        "fireSchedule",
        "schedules/{schedule}/fire",
        "Add a job of a schedule now.",
        NoBody,
        lambda ops, call: ops.fire_schedule(_queue(call), call.path["schedule"], reason=call.reason),
        part="schedule",
    ),
    _post(
        "pauseSchedule",
        "schedules/{schedule}/pause",
        "Pause a schedule, also over deploys.",
        NotedBody,
        lambda ops, call: ops.pause_schedule(
            _queue(call), call.path["schedule"], note=call.body.note, reason=call.reason
        ),
        part="schedule",
    ),
    _post(
        "resumeSchedule",
        "schedules/{schedule}/resume",
        "Resume a schedule.",
        NoBody,
        lambda ops, call: ops.resume_schedule(_queue(call), call.path["schedule"], reason=call.reason),
        part="schedule",
    ),
    ApiRoute(
        method="DELETE",
        path="/queues/{queue}/schedules/{schedule}",
        name="removeSchedule",
        summary="Remove a schedule.",
        handle=changing(
            "remove schedule",
            lambda ops, call: ops.remove_schedule(_queue(call), call.path["schedule"], reason=call.reason),
            "schedule",
        ),
        role="admin",
        result=Done,
    ),
)
