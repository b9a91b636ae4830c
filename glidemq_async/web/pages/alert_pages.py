"""The page about alerts: open episodes, rules, and earlier episodes."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from glidemq_async.ops.alerts.conditions import MEASURES
from glidemq_async.ops.alerts.rules import AlertRules
from glidemq_async.web.context import context_of, identity_of, ops_of
from glidemq_async.web.pages.rendering import render

MOST: Final = 50
_NO_RULES: Final = AlertRules((), "", None)


async def show_alerts(request: Request) -> Response:
    """Show the alert rules and their episodes."""
    ops, context = ops_of(request), context_of(request)
    # A rule can be about queues that the user does not see.
    sees_rules = identity_of(request).sees_all
    found = await ops.alerts() if sees_rules else _NO_RULES
    episodes = context.shown(await ops.alert_episodes(limit=MOST))
    return render(
        request,
        "alerts.html.j2",
        found=found,
        sees_rules=sees_rules,
        open_episodes=context.shown(await ops.alert_episodes(open_only=True, limit=100)),
        closed=[each for each in episodes if each.state == "closed"],
        measures=", ".join(MEASURES),
    )
