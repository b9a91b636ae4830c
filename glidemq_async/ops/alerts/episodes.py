"""Episodes: the times during which the condition of an alert rule was true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.functions.calling import Record
from glidemq_async.ops.connections import Connections

AlertVerdict: TypeAlias = Literal["behind", "failing", "stopped"]
MOST_OPEN = 100


@dataclass(frozen=True, slots=True)
class AlertEpisode:
    """A time during which the condition of a rule was true for one queue, or for the server.

    - `queue` is "" for the server. `subject` is the fingerprint of a failure group, otherwise "".
    - `text` says what was found when the episode opened. `verdict` is the verdict on the queues while it is open.
    - `closed_at` and `ended_by` are None and "" while it is open.
    - `notifications` has the status of each notification by "opened" or "closed" and the number of the webhook, for
      example `{"opened:1": "delivered (200)"}`.
    """

    id: str
    rule: str
    condition: str
    queue: str
    subject: str
    text: str
    verdict: AlertVerdict
    state: Literal["open", "closed"]
    opened_at: datetime
    closed_at: datetime | None
    ended_by: str
    notifications: Mapping[str, str]


def packed_document(condition: str, text: str, verdict: AlertVerdict) -> bytes:
    """Return the stored form of what an episode says."""
    return msgpack.packb({"condition": condition, "text": text, "verdict": verdict})


def episode_of(episode_id: str, record: Record) -> AlertEpisode:
    """Return an episode from its record."""
    document = cast("dict[str, Any]", msgpack.unpackb(record[b"document"]))
    queue, _, subject = record[b"target"].decode().partition("\n")
    closed = record.get(b"closed")
    return AlertEpisode(
        id=episode_id,
        rule=record[b"rule"].decode(),
        condition=str(document["condition"]),
        queue=queue,
        subject=subject,
        text=str(document["text"]),
        verdict=cast("AlertVerdict", document["verdict"]),
        state="closed" if closed else "open",
        opened_at=from_ms(int(record[b"opened"])),
        closed_at=from_ms(int(closed)) if closed else None,
        ended_by=record.get(b"ended_by", b"").decode(),
        notifications={
            field[2:].decode(): value.decode(errors="replace")
            for field, value in sorted(record.items())
            if field.startswith(b"n:")
        },
    )


async def read_episodes(connections: Connections, which: Literal["open", "all"], count: int) -> list[AlertEpisode]:
    """Return up to `count` episodes (at most 100), the newest first."""
    rows = await connections.alerts.alerts.episodes(which, count)
    found = [episode_of(episode_id, record) for episode_id, record in rows]
    return sorted(found, key=lambda each: each.opened_at, reverse=True)
