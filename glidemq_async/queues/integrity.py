"""The integrity check of one queue. It reads every structure and record in bounded steps and writes nothing.

Each function call sees one instant, but the whole check does not. So a fault is reported only if a second pass finds
it again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.checking import Finding
from glidemq_async.functions.topics import TopicPosition

STEP: Final = 200
"""Number of members of a structure, or of records, that one call checks."""
STRUCTURES: Final = (
    "returned",
    "scheduled",
    "completed",
    "failed",
    "lifo",
    "prioritized",
    "keyed",
    "parents",
    "suspended",
    "fifo",
    "runs",
)
#: The store keys of a queue other than its records. Any further key with the queue's prefix is a fault.
# Obliteration deletes exactly these keys in its last step, and the check reports any other one as a key without an
# owner. A new structure of the library therefore needs an entry here, or it would outlive its queue.
SINGLE_KEYS: Final = frozenset(
    {
        *STRUCTURES,
        "id",
        "results",
        "recorded",
        "started",
        "streamed",
        "signalled",
        "stepped",
        "tasks",
        "failing",
        "failure_groups",
        "settings",
        "event_rules",
        "events",
        "meta",
        "meta2",
        "idle",
        "timer",
        "alive",
        "workers",
        "waiters",
        "held",
        "expiry",
        "revoking",
        "outbox",
        "inbox",
        "moved",
        "flowed",
        "flow_work",
        "test",
        "confirm",
        "sequence",
        "ready",
        "sleeping",
        "resting",
        "pauses",
        "limited",
        "limits",
        "rate",
        "deduped",
        "compact",
        "compact_runs",
        "renewed",
        "consumers",
        "lane",
        "key_lines",
        "schedules",
        "schedule_roles",
        "schedules_timer",
        "running",
        "stopping",
        "stopping_runs",
        "writes",
        "positions",
        "losses",
        "feed",
        "audit",
        "tokens",
        "alerts",
        "alert_states",
        "alert_lease",
        "alert_episodes",
        "operations",
    }
)
#: Store keys that exist per ordering key, as long as jobs of that ordering key exist.
KEY_LINES: Final = frozenset({"keyq", "keyz", "keyrest"})
#: Store keys that have no owner and may be missing, because they expire or a user removes them (limits of a key). A
#: "call" key contains a reply for a repeated call.
FREE_STANDING: Final = frozenset(
    {
        "call",
        "dedup",
        "key",
        "keyrate",
        "keybucket",
        "metrics",
        "write",
        "written",
        "transaction",
        "operation",
        "operation_targets",
        "alert_episode",
    }
)
OF_MANY: Final = KEY_LINES | FREE_STANDING | {"job", "logs", "chunks", "signals", "steps", "scheduler", "flow"}


async def check_queue(client: QueueClient) -> list[Finding]:
    """Return every violation of an invariant in the stored data."""
    suspects = [finding async for finding in _walk(client)]
    if not suspects:
        return []
    # A job that moves between two calls of a walk can look like a fault. The second walk then finds no fault there. A
    # real fault is found by both walks.
    again = {(f.invariant, f.subject) async for f in _walk(client)}
    return [finding for finding in suspects if (finding.invariant, finding.subject) in again]


async def _walk(client: QueueClient) -> AsyncIterator[Finding]:
    functions = client.functions
    for structure in STRUCTURES:
        cursor = ""
        while True:
            cursor, findings = await functions.check.locations(structure, cursor, STEP)
            for finding in findings:
                yield finding
            if not cursor:
                break
    for finding in await functions.check_marks.queue():
        yield finding
    for finding in await _check_feed(client):
        yield finding
    async for finding in _check_keys(client):
        yield finding


async def _check_feed(client: QueueClient) -> list[Finding]:
    """Check that the cursor of a subscription is not after the end of its topic."""
    feed = await client.functions.feeds.read()
    if feed is None:
        return []
    # The topic may be in another cluster slot. Its end only rises, so reading it second makes no fault.
    topic = await Functions(client.storage, feed.topic).topics.describe()
    if feed.position.order <= TopicPosition(topic.last, topic.total).order:
        return []
    return [Finding("I24", feed.topic, f"the cursor {feed.position.entry} is after the end {topic.last} of the topic")]


async def _check_keys(client: QueueClient) -> AsyncIterator[Finding]:
    """Check every store key of the queue, and the contents of each record and each ordering key."""
    found: dict[str, list[str]] = {"job": [], "logs": [], "chunks": [], "signals": [], "steps": []}
    async for name in scan_keys(client):
        kind, _, rest = name.partition(":")
        found.setdefault("line" if kind in KEY_LINES else kind, []).append(rest)
        if kind not in OF_MANY and (kind not in SINGLE_KEYS or rest):
            yield Finding("I12", client.keys.key(name), "a key without an owner")
    async for finding in _check_records(client, found["job"], found["chunks"]):
        yield finding
    check = client.functions.check_marks
    for finding in [*await check.mailboxes(found["signals"]), *await check.journals(found["steps"])]:
        yield finding
    for job_id in sorted(set(found["logs"]).difference(found["job"])):
        yield Finding("I12", job_id, "log lines of a job that has no record")
    async for finding in _check_schedulers(client, set(found.get("scheduler", []))):
        yield finding
    for key in sorted(set(found.get("line", []))):
        for finding in await client.functions.check_marks.key(key):
            yield finding


async def _check_records(client: QueueClient, ids: list[str], streams: list[str]) -> AsyncIterator[Finding]:
    """Check each record, and each stream of chunks."""
    for start in range(0, len(ids), STEP):
        for finding in await client.functions.check.records(ids[start : start + STEP]):
            yield finding
    for start in range(0, len(streams), STEP):
        for finding in await client.functions.check_marks.chunks(streams[start : start + STEP]):
            yield finding


async def _check_schedulers(client: QueueClient, records: set[str]) -> AsyncIterator[Finding]:
    """Check that each job scheduler has both a record and a next fire time."""
    listed: set[str] = set()
    cursor = "0"
    while cursor:
        cursor, ids = await client.functions.scheduler_list.list_ids(cursor)
        listed.update(ids)
    for scheduler_id in sorted(listed ^ records):
        lacks = "a record" if scheduler_id in listed else "a next fire time"
        yield Finding("I12", scheduler_id, f"a job scheduler without {lacks}")


async def scan_keys(client: QueueClient) -> AsyncIterator[str]:
    """Iterate over the store keys of a queue, without their common prefix. A key may come twice."""
    base = client.keys.base
    async for raw in client.storage.scan(f"{_literal(base)}:*"):
        yield raw.decode()[len(base) + 1 :]


def _literal(text: str) -> str:
    """Escape the characters that are wildcards in a key pattern."""
    return "".join(f"\\{c}" if c in "*?[]\\^-" else c for c in text)
