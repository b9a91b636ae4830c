"""The forms of alert rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from glidemq_async.ops.alerts.rules import check_format
from glidemq_async.ops.core import Ops
from glidemq_async.web.pages.change_forms import ChangeForm, Form, FormField


async def _set(ops: Ops, form: Form, reason: str) -> str:
    name = form["rule"].strip()
    webhooks = form.get("webhooks", "").split()
    stored = await ops.set_alert(
        name,
        form.get("condition", ""),
        queues=form.get("queues", "").split() or ("*",),
        webhooks=webhooks or None,
        format=check_format(form["format"]) if form.get("format") else None,
        note=form.get("note", ""),
        reason=reason,
    )
    secret = f" The secret of its signatures, shown only once: {stored.secret}" if stored.secret else ""
    return f"Alert rule {name} is stored.{secret}"


async def _present(ops: Ops, target: Form) -> Form:
    """Return the stored rule, without its webhooks."""
    for rule in (await ops.alerts()).rules:
        if rule.name == target.get("alert"):
            values = {"rule": rule.name, "condition": rule.condition, "queues": " ".join(rule.queues)}
            return {**values, "format": rule.format, "note": rule.note}
    return {}


async def _remove(ops: Ops, form: Form, reason: str) -> str:
    await ops.remove_alert(form["alert"], reason=reason)
    return f"Alert rule {form['alert']} is removed."


async def _test(ops: Ops, form: Form, reason: str) -> str:
    replies = await ops.test_alert(form["alert"], reason=reason)
    told = "; ".join(f"{each.webhook}: {each.error or 'accepted'}" for each in replies)
    return told or f"Alert rule {form['alert']} has no webhook."


ALERT_CHANGES: Final[Mapping[str, ChangeForm]] = {
    "set_alert": ChangeForm(
        title="Alert rule {alert}",
        text="Each queue that the rule covers has separate episodes. A rule with the same name is replaced.",
        verb="Store the rule",
        run=_set,
        present=_present,
        fields=(
            FormField("rule", "Name", required=True, placeholder="mail-slow"),
            FormField("condition", "Condition", required=True, placeholder="oldest_age > 60s for 5m"),
            FormField("queues", "Queues", "Names or patterns. Empty: every queue.", placeholder="mail-*"),
            FormField(
                "webhooks",
                "Webhooks",
                "URLs. Empty: the webhooks of the rule.",
                placeholder="https://hooks.example.com/queues",
            ),
            FormField("format", "Content", kind="choice", value="json", options=("json", "slack")),
            FormField("note", "Note"),
        ),
    ),
    "remove_alert": ChangeForm(
        title="Remove alert rule {alert}",
        text="Its open episodes end without a notification.",
        verb="Remove",
        run=_remove,
    ),
    "test_alert": ChangeForm(
        title="Test alert rule {alert}",
        text="Each webhook of the rule gets a test notification now.",
        verb="Send the test",
        run=_test,
    ),
}
