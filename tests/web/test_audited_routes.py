"""Each route that changes something leaves one audit line, with the user, the face and the reason."""

from __future__ import annotations

from typing import Any, Final

import pytest
from httpx2 import AsyncClient

from glidemq_async import Queue, Schedule
from glidemq_async.ops import Ops
from glidemq_async.storage import Storage
from glidemq_async.web.api import ENDPOINTS
from tests.web.clients import serving, user

pytestmark = pytest.mark.only_on("memory")
QUIET: Final = "previewOperation"
"""The route that leaves no line: a preview changes nothing."""


class Changes:
    """Sends changes, and checks the audit line of each one."""

    def __init__(self, client: AsyncClient, ops: Ops) -> None:
        self._client = client
        self._ops = ops
        self.made: set[str] = set()

    async def make(self, route: str, body: dict[str, Any] | None = None, **path: str) -> Any:
        """Send the request of a route, and return its reply."""
        [found] = [each for each in ENDPOINTS if each.name == route]
        before = len((await self._ops.audit.read(200)).lines)
        reply = await self._client.request(
            found.method,
            "/api/v1" + found.path.format(**path),
            headers={"X-Reason": route},
            json=None if found.body is None else body or {},
        )
        assert reply.status_code < 300, (route, reply.text)
        lines = (await self._ops.audit.read(200)).lines
        written = lines[: len(lines) - before]
        assert len(written) == (0 if route == QUIET else 1), (route, written)
        # The reason of an operation is the one of its preview.
        reason = QUIET if route == "startOperation" else route
        assert {(line.actor, line.source, line.reason) for line in written} <= {("ada", "http", reason)}
        self.made.add(route)
        return reply.json() if reply.content else None


async def test_each_change_over_http_leaves_one_line(storage: Storage, name: str) -> None:
    other = f"{name}-other"
    async with (
        Queue[Any, Any](name, storage) as queue,
        Queue[Any, Any](other, storage),
        Ops(storage) as ops,
        serving(storage, user("admin", payloads=True)) as client,
    ):
        changes = Changes(client, ops)
        await change_jobs(changes, queue, other)
        await change_settings(changes, name)
        await queue.upsert_job_scheduler("nightly", Schedule(cron="0 3 * * *"), name="report")
        for route in ("fireSchedule", "pauseSchedule", "resumeSchedule", "removeSchedule"):
            await changes.make(route, queue=name, schedule="nightly")
        await changes.make("setAlert", {"condition": "oldest_age > 60s"}, alert="late")
        await changes.make("testAlert", alert="late")
        await changes.make("removeAlert", alert="late")
        await change_many(changes, name)
        ticket = (await client.get(f"/api/v1/queues/{name}/obliteration")).json()["ticket"]
        await changes.make("obliterateQueue", {"ticket": ticket}, queue=name)
    assert changes.made == {route.name for route in ENDPOINTS if route.method != "GET"}


async def change_jobs(changes: Changes, queue: Queue[Any, Any], other: str) -> None:
    """Add jobs, and change them one at a time."""
    first = (await changes.make("addJob", {"name": "x", "data": 1}, queue=queue.name))["id"]
    await changes.make("addJobAndWait", {"name": "x", "wait": 0.01}, queue=queue.name)
    later = (await queue.add("x", delay=60)).id
    await changes.make("cancelJob", queue=queue.name, job=first)
    await changes.make("retryJob", queue=queue.name, job=first)
    await changes.make("delayJob", {"delay": 60}, queue=queue.name, job=first)
    await changes.make("promoteJob", queue=queue.name, job=first)
    await changes.make("prioritizeJob", {"priority": 5}, queue=queue.name, job=first)
    await changes.make("editJob", {"data": 2}, queue=queue.name, job=first)
    await changes.make("sendSignal", {"data": 1}, queue=queue.name, job=later, signal="go")
    await changes.make("moveJob", {"to": other}, queue=queue.name, job=first)
    await changes.make("deleteJob", queue=queue.name, job=later)


async def change_settings(changes: Changes, queue: str) -> None:
    """Change the settings of a queue, and remove jobs."""
    await changes.make("setLimits", {"concurrency": 2}, queue=queue)
    await changes.make("releaseHold", queue=queue, setting="concurrency")
    await changes.make("setEvents", {"off": ["active"]}, queue=queue)
    await changes.make("setRetention", {"completed": 10}, queue=queue)
    await changes.make("pauseKey", {"seconds": 5}, queue=queue, key="k")
    await changes.make("resumeKey", queue=queue, key="k")
    for route in ("pauseQueue", "resumeQueue", "drainQueue"):
        await changes.make(route, queue=queue)
    await changes.make("cleanQueue", {"state": "failed"}, queue=queue)


async def change_many(changes: Changes, queue: str) -> None:
    """Start a bulk operation, and cancel it."""
    asked = {"action": "cancel", "filter": f"queue:{queue} state:waiting"}
    previewed = await changes.make("previewOperation", asked)
    operation = previewed["operation_id"]
    await changes.make("startOperation", {"ticket": previewed["ticket"]}, operation=operation)
    await changes.make("cancelOperation", operation=operation)
