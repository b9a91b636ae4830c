"""Delivery of notifications: the handler of the jobs of the queue `system/alerts`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from glidemq_async.errors import GlideMQError, UnrecoverableError
from glidemq_async.jobs.job import Job
from glidemq_async.ops.alerts.episodes import AlertEpisode, episode_of
from glidemq_async.ops.alerts.rules import StoredRule, WebhookFormat
from glidemq_async.ops.alerts.webhooks import WebhookRefused, send
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.documents import as_document
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.job_options import JobOptions
from glidemq_async.stored.names import ALERT_QUEUE
from glidemq_async.worker.worker import Worker

DELIVERY: Final = JobOptions(attempts=10, backoff=Backoff.exponential(5, max=600, jitter=0.2))
"""The options of notifications: ten attempts within about half an hour."""
TEST: Final = "test"


class NotDelivered(GlideMQError):
    """Raised when a receiver has not accepted a notification. The job is tried again."""


def delivery_worker(connections: Connections, hosts: Sequence[str] | None) -> Worker[Any, Any]:
    """Return a worker that sends the notifications. With `hosts`, it sends them to these hosts only."""

    async def run(job: Job[Any, Any]) -> str:
        return await deliver(connections, job, hosts)

    return Worker(
        ALERT_QUEUE,
        run,
        connections.storage,
        prefix=connections.prefix,
        concurrency=4,
        shutdown_timeout=5,
        handle_signals=False,
    )


async def deliver(connections: Connections, job: Job[Any, Any], hosts: Sequence[str] | None) -> str:
    """Send the notification of a job, and return its status. Raises NotDelivered, UnrecoverableError."""
    episode_id, what, number = job.id.split(":")
    calls = connections.alerts.alerts
    record = await calls.episode(episode_id)
    rule = await stored_rule(connections, record[b"rule"].decode()) if record else None
    if rule is None or int(number) > len(rule.webhooks):
        return "not sent: the rule or the webhook was removed"
    episode = episode_of(episode_id, record)
    body = notification(what, episode, rule.format, connections.prefix)
    try:
        reply = await send(rule.webhooks[int(number) - 1], rule.secret, f"{episode_id}.{what}", body, hosts)
    except WebhookRefused as error:
        await calls.note_notification(episode_id, f"{what}:{number}", f"not permitted: {error}")
        raise UnrecoverableError(str(error)) from error
    status = f"attempt {job.attempts_made + 1}: {reply.error}" if reply.error else f"delivered ({reply.status})"
    await calls.note_notification(episode_id, f"{what}:{number}", status)
    if reply.error:
        raise NotDelivered(f"{reply.webhook}: {reply.error}")
    return status


async def stored_rule(connections: Connections, name: str) -> StoredRule | None:
    """Return a rule with its secrets, None if it does not exist."""
    packed = (await connections.alerts.alerts.stored()).rules.get(name)
    return None if packed is None else StoredRule.read(name, packed)


def notification(what: str, episode: AlertEpisode, form: WebhookFormat, prefix: str) -> bytes:
    """Return the content of a notification that an episode has opened or closed, or of a test."""
    if form == "slack":
        text = _escaped(f"{episode.text} ({episode.condition})")
        return _json({"text": f"*Alert {_escaped(episode.rule)} {what}*: {text}"})
    at = episode.closed_at or episode.opened_at
    document = {name: value for name, value in _document(episode).items() if name != "notifications"}
    return _json({"type": f"alert.{what}", "timestamp": as_document(at), "data": {"prefix": prefix, **document}})


def _document(episode: AlertEpisode) -> dict[str, Any]:
    found = as_document(episode)
    return found if isinstance(found, dict) else {}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
