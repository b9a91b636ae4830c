"""Endpoints that explain jobs, show settings, and change whole queues and their schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidemq_async.ops.errors import SettingsChanged
from glidemq_async.ops.queue_changes import ObliteratePreview
from glidemq_async.queues.explanation import Explanation
from glidemq_async.queues.rates import RateLimit
from glidemq_async.web.change_routes import change_route
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply
from glidemq_async.web.models import (
    CleanBody,
    DrainBody,
    EventRulesBody,
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


async def explain(call: ApiCall) -> Reply:
    """Return why a job does not run."""
    return Reply(call.context.shown(await call.ops.explain(call.path["queue"], call.path["job"])))


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
    await call.ops.queue(queue)  # a missing queue has no version to compare
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
        # The server compares one version only. If the header has several, the present one of them is chosen here.
        current = (await call.ops.settings_and_version(queue))[1]
        tags = [tag for tag in tags if tag == current]
    if not tags or not tags[0]:
        raise SettingsChanged(queue)
    return tags[0]


def _retention(call: ApiCall) -> Mapping[str, Any]:
    models = {"completed": call.body.completed, "failed": call.body.failed}
    given = {state: keep_of(model) for state, model in models.items() if model is not None}
    if not given:
        raise RequestError(422, "invalid-body", "name at least one of completed and failed")
    return {**given, "note": call.body.note}


def _event_rules(call: ApiCall) -> Mapping[str, Any]:
    given = {name: getattr(call.body, name) for name in call.body.model_fields_set - {"note"}}
    if not given:
        raise RequestError(422, "invalid-body", "name at least one of max_events, off, progress_interval and content")
    return {**given, "note": call.body.note}


def _clean(call: ApiCall) -> Mapping[str, Any]:
    return {"grace": call.body.grace, "limit": call.body.limit, "state": call.body.state}


async def preview_obliterate(call: ApiCall) -> Reply:
    """Return what an obliteration would remove, and the ticket that permits it."""
    return Reply(await call.ops.preview_obliterate(call.path["queue"]))


_QUEUE = "/queues/{queue}"
_SCHEDULE = f"{_QUEUE}/schedules/{{schedule}}"
_KEY = f"{_QUEUE}/keys/{{key}}"

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
        summary="Show the pause, the limits and the rules of events of a queue, and who has set them.",
        handle=settings,
        result=SettingList,
        tool=True,
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
    change_route("setEvents", f"{_QUEUE}/event-rules", "set_events", EventRulesBody, _event_rules),
    change_route("setRetention", f"{_QUEUE}/retention", "set_retention", RetentionBody, _retention),
    change_route(
        "releaseHold",
        f"{_QUEUE}/settings/{{setting}}/release",
        "release_hold",
        ReleaseBody,
        lambda call: {"name": call.path["setting"], "key": call.body.key},
        part="setting",
    ),
    change_route(
        "pauseQueue",
        f"{_QUEUE}/pause",
        "pause",
        PauseBody,
        lambda call: {"note": call.body.note, "until": call.body.end()},
    ),
    change_route("resumeQueue", f"{_QUEUE}/resume", "resume", NoBody),
    change_route(
        "pauseKey", f"{_KEY}/pause", "pause_key", KeyPauseBody, lambda call: {"seconds": call.body.seconds}, part="key"
    ),
    change_route("resumeKey", f"{_KEY}/resume", "resume_key", NoBody, part="key"),
    change_route("drainQueue", f"{_QUEUE}/drain", "drain", DrainBody, lambda call: {"delayed": call.body.delayed}),
    change_route("cleanQueue", f"{_QUEUE}/clean", "clean", CleanBody, _clean),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/obliteration",
        name="previewObliteration",
        summary="Show what an obliteration would remove, and the ticket that permits it.",
        handle=preview_obliterate,
        role="admin",
        result=ObliteratePreview,
    ),
    change_route(
        "obliterateQueue",
        _QUEUE,
        "obliterate",
        ObliterateBody,
        lambda call: {"ticket": call.body.ticket, "force": call.body.force},
        method="DELETE",
        action="obliterate",
    ),
    change_route("fireSchedule", f"{_SCHEDULE}/fire", "fire_schedule", NoBody, part="schedule"),
    change_route(
        "pauseSchedule",
        f"{_SCHEDULE}/pause",
        "pause_schedule",
        NotedBody,
        lambda call: {"note": call.body.note},
        part="schedule",
    ),
    change_route("resumeSchedule", f"{_SCHEDULE}/resume", "resume_schedule", NoBody, part="schedule"),
    change_route(
        "removeSchedule",
        _SCHEDULE,
        "remove_schedule",
        None,
        method="DELETE",
        action="remove schedule",
        part="schedule",
    ),
)
