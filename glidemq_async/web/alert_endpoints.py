"""Endpoints of alerts: rules, episodes, and tests of webhooks."""

from __future__ import annotations

from glidemq_async.ops.alerts.rules import AlertRules, StoredAlert
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply
from glidemq_async.web.models import AlertBody, EpisodeQuery, NoBody
from glidemq_async.web.replies import Done, EpisodeList, WebhookReplies


async def alerts(call: ApiCall) -> Reply:
    """Return the alert rules."""
    return Reply(await call.ops.alerts())


async def set_alert(call: ApiCall) -> Reply:
    """Store an alert rule."""
    body = call.body
    stored = await call.ops.set_alert(
        call.path["alert"],
        body.condition,
        queues=body.queues,
        webhooks=body.webhooks,
        secret=body.secret,
        format=body.format,
        note=body.note,
        reason=call.reason,
    )
    return Reply(stored)


async def remove_alert(call: ApiCall) -> Reply:
    """Remove an alert rule."""
    name = call.path["alert"]
    await call.ops.remove_alert(name, reason=call.reason)
    return Reply(Done("remove alert", "", name))


async def test_alert(call: ApiCall) -> Reply:
    """Send a test to the webhooks of a rule."""
    return Reply(WebhookReplies(await call.ops.test_alert(call.path["alert"], reason=call.reason)))


async def episodes(call: ApiCall) -> Reply:
    """Return the episodes that the user may see."""
    found = await call.ops.alert_episodes(open_only=call.query.open, limit=call.query.limit)
    return Reply(EpisodeList(call.context.shown(found)))


ENDPOINTS = (
    ApiRoute(
        method="GET",
        path="/alerts",
        name="listAlerts",
        summary="List the alert rules, and when they were last evaluated.",
        handle=alerts,
        result=AlertRules,
        whole=True,
    ),
    ApiRoute(
        method="PUT",
        path="/alerts/{alert}",
        name="setAlert",
        summary="Store an alert rule. The reply has the secret of its signatures if it is new.",
        handle=set_alert,
        role="admin",
        body=AlertBody,
        result=StoredAlert,
        whole=True,
    ),
    ApiRoute(
        method="DELETE",
        path="/alerts/{alert}",
        name="removeAlert",
        summary="Remove an alert rule. Its open episodes end without a notification.",
        handle=remove_alert,
        role="admin",
        result=Done,
        whole=True,
    ),
    ApiRoute(
        method="POST",
        path="/alerts/{alert}/test",
        name="testAlert",
        summary="Send a test notification to each webhook of an alert rule.",
        handle=test_alert,
        role="admin",
        body=NoBody,
        result=WebhookReplies,
        whole=True,
    ),
    ApiRoute(
        method="GET",
        path="/episodes",
        name="listEpisodes",
        summary="List the episodes of alerts, the newest first.",
        handle=episodes,
        query=EpisodeQuery,
        result=EpisodeList,
        tool=True,
    ),
)
