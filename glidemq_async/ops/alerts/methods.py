"""The methods of Ops for alerts: set and remove rules, list them and their episodes, and test webhooks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from glidemq_async.durations import from_ms
from glidemq_async.ops.alerts.conditions import MEASURES, parse_condition
from glidemq_async.ops.alerts.delivery import TEST, notification, stored_rule
from glidemq_async.ops.alerts.episodes import AlertEpisode, read_episodes
from glidemq_async.ops.alerts.rules import (
    AlertRules,
    StoredAlert,
    StoredRule,
    check_format,
    check_queues,
    check_rule_name,
    check_webhooks,
    rules_of,
)
from glidemq_async.ops.alerts.webhooks import WebhookReply, check_secret, masked, new_secret, permitted_hosts, send
from glidemq_async.ops.errors import AlertNotFound, QueueNotFound, TooManyAlerts
from glidemq_async.ops.part import OpsPart
from glidemq_async.options.validation import reason as check_note
from glidemq_async.options.validation import whole_number
from glidemq_async.stored.names import ALERT_QUEUE

_WILDCARDS = frozenset("*?[")


class AlertMethods(OpsPart):
    """The methods of Ops for alerts."""

    async def alerts(self) -> AlertRules:
        """Return the alert rules, and when they were last evaluated."""
        found = await self._connections.alerts.alerts.stored()
        rules = tuple(rule.document for rule in rules_of(found.rules))
        evaluated = None if found.evaluated_ms is None else from_ms(found.evaluated_ms)
        return AlertRules(rules, found.evaluator, evaluated)

    async def set_alert(
        self,
        name: str,
        condition: str,
        *,
        queues: Sequence[str] = ("*",),
        webhooks: Sequence[str] | None = None,
        secret: str | None = None,
        format: Literal["json", "slack"] | None = None,  # noqa: A002 - the name that users know
        note: str = "",
        reason: str = "",
    ) -> StoredAlert:
        """Store an alert rule, or replace the one with this name.

        - `condition` is for example "oldest_age > 60s for 5m"; see docs/alerts.md.
        - `queues` are names of queues or patterns such as "mail-*". Each queue has separate episodes.
        - `webhooks` are at most 5 URLs. If they are left out, a rule keeps its webhooks. An empty list removes them.
        - `secret` signs the requests. If it is left out, a rule keeps its secret, and a new rule with webhooks gets a
          new secret. It is returned then, and cannot be read again.
        - `format` is the content of the requests: "json" (default), or "slack" for receivers of Slack's messages.
          `note` says what the rule is for.

        Episodes of the rule that are open stay open while the new condition is true. Raises TypeError or ValueError for
        a bad value, with the nearest word, QueueNotFound for a name that is no queue, WebhookRefused for a host that is
        not permitted, and TooManyAlerts.
        """
        parsed = parse_condition(condition)
        patterns = check_queues(queues, parsed)
        hosts = permitted_hosts()
        given = None if webhooks is None else check_webhooks(webhooks, hosts)
        rule = StoredRule(
            name=check_rule_name(name),
            condition=parsed,
            queues=patterns,
            webhooks=given or (),
            secret="" if secret is None else check_secret(secret),
            format="json" if format is None else check_format(format),
            note=check_note("note", note or None),
            who=self.actor.name,
        )
        await self._refuse_unknown_queues(patterns)
        async with self.changing(
            "set alert",
            target=rule.name,
            reason=reason or note,
            condition=str(parsed),
            queues=patterns,
            webhooks=[*map(masked, rule.webhooks)],
        ):
            return await self._store(rule, keeps_webhooks=given is None, keeps_format=format is None)

    async def remove_alert(self, name: str, *, reason: str = "") -> None:
        """Remove an alert rule. Its open episodes end without a notification. Raises AlertNotFound."""
        async with self.changing("remove alert", target=name, reason=reason):
            if not await self._connections.alerts.alerts.remove(name):
                raise await self._not_found(name)

    async def alert_episodes(self, *, open_only: bool = False, limit: int = 50) -> list[AlertEpisode]:
        """Return up to `limit` episodes (at most 100), the newest first; with `open_only` the open ones.

        Closed episodes are kept for 90 days, at most 1,000 episodes.
        """
        whole_number("limit", limit, least=1, most=100)
        return await read_episodes(self._connections, "open" if open_only else "all", limit)

    async def test_alert(self, name: str, *, reason: str = "") -> list[WebhookReply]:
        """Send a test notification to each webhook of a rule, from this process, and return the replies.

        Raises AlertNotFound, and WebhookRefused for a host that is not permitted.
        """
        async with self.changing("test alert", target=name, reason=reason) as change:
            rule = await stored_rule(self._connections, name)
            if rule is None:
                raise await self._not_found(name)
            now = await self._connections.alerts.reading.now()
            text = f"this is a test of the alert rule {name}"
            verdict = MEASURES[rule.condition.measure].verdict
            episode = AlertEpisode(
                TEST, name, str(rule.condition), "", "", text, verdict, "open", from_ms(now), None, "", {}
            )
            body = notification(TEST, episode, rule.format, self._connections.prefix)
            message = f"{TEST}.{secrets.token_hex(6)}"
            change.count = len(rule.webhooks)
            return [await send(url, rule.secret, message, body, permitted_hosts()) for url in rule.webhooks]

    async def _store(self, rule: StoredRule, *, keeps_webhooks: bool, keeps_format: bool) -> StoredAlert:
        await self._connections.open_system_queue(ALERT_QUEUE)
        calls = self._connections.alerts
        before = await stored_rule(self._connections, rule.name)
        if before is not None:
            rule = replace(
                rule,
                webhooks=before.webhooks if keeps_webhooks else rule.webhooks,
                secret=rule.secret or before.secret,
                format=before.format if keeps_format else rule.format,
            )
        made = new_secret() if rule.webhooks and not rule.secret else None
        rule = replace(rule, secret=rule.secret or made or "", at_ms=await calls.reading.now())
        if not await calls.alerts.put(rule.name, rule.packed()):
            raise TooManyAlerts
        return StoredAlert(rule.document, made)

    async def _refuse_unknown_queues(self, patterns: Sequence[str]) -> None:
        exact = [pattern for pattern in patterns if not _WILDCARDS & set(pattern)]
        if not exact:
            return
        known = await self.queue_names()
        for name in exact:
            if name not in known:
                raise QueueNotFound(name, known)

    async def _not_found(self, name: str) -> AlertNotFound:
        return AlertNotFound(name, sorted((await self._connections.alerts.alerts.stored()).rules))
