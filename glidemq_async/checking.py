"""The self-check of one queue: every structure and every record, in bounded steps, without a write.

The functions see one instant each, the walk does not: what a step finds is looked at again before it counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from glidemq_async.client import QueueClient
from glidemq_async.functions.callers import Finding

STEP: Final = 200
STRUCTURES: Final = ("returned", "scheduled", "completed", "failed", "stream", "lane")
#: What a queue consists of beside the records; anything else under its tag has no owner.
SINGLE_KEYS: Final = frozenset(
    {
        *STRUCTURES,
        "id",
        "events",
        "meta",
        "idle",
        "timer",
        "alive",
        "workers",
        "waiters",
        "held",
        "expiry",
        "revoking",
        "test",
        "confirm",
    }
)


async def check_queue(client: QueueClient) -> list[Finding]:
    """Return every invariant that the stored data breaks."""
    suspects = [finding async for finding in _walk(client)]
    if not suspects:
        return []
    again = {(f.invariant, f.subject) async for f in _walk(client)}
    return [finding for finding in suspects if (finding.invariant, finding.subject) in again]


async def _walk(client: QueueClient) -> AsyncIterator[Finding]:
    functions = client.functions
    for structure in STRUCTURES:
        cursor = ""
        while True:
            cursor, findings = await functions.check_places(structure, cursor, STEP)
            for finding in findings:
                yield finding
            if not cursor:
                break
    for finding in await functions.check_queue():
        yield finding
    async for finding in _check_keys(client):
        yield finding


async def _check_keys(client: QueueClient) -> AsyncIterator[Finding]:
    base, ids, with_logs = client.keys.base, list[str](), set[str]()
    async for kind, rest in scan_keys(client):
        if kind == "job":
            ids.append(rest)
        elif kind == "logs":
            with_logs.add(rest)
        # These expire by themselves; a reply kept for a repeated call has no other owner.
        elif kind not in {"call", "metrics"} and (kind not in SINGLE_KEYS or rest):
            yield Finding("I12", f"{base}:{kind}" + (f":{rest}" if rest else ""), "a key without an owner")
    for job_id in sorted(with_logs - set(ids)):
        yield Finding("I12", job_id, "log lines of a job that has no record")
    for start in range(0, len(ids), STEP):
        for finding in await client.functions.check_records(ids[start : start + STEP]):
            yield finding


async def scan_keys(client: QueueClient) -> AsyncIterator[tuple[str, str]]:
    """Iterate over the keys of a queue: the word after its base, and the rest ("" for the single ones)."""
    base = client.keys.base
    async for raw in client.storage.scan(f"{_literal(base)}:*"):
        kind, _, rest = raw.decode()[len(base) + 1 :].partition(":")
        yield kind, rest


def _literal(text: str) -> str:
    """Escape what a key pattern would read as a wildcard."""
    return "".join(f"\\{c}" if c in "*?[]\\^-" else c for c in text)
