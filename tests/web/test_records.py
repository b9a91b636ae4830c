"""Failures, histories, audit lines and drawings over HTTP, and what users without some rights see of them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from glidemq_async import FlowJob, FlowProducer, Job, Queue
from glidemq_async.ops import Ops
from glidemq_async.ops.access import Identity
from glidemq_async.storage import Storage
from glidemq_async.web.api import ENDPOINTS
from tests.support.helpers import AnyQueue, ended, worker_of
from tests.web.clients import serving, user

pytestmark = pytest.mark.only_on("memory")
SECRET = "4111-1111"
READER = user("viewer", payloads=True)


async def fail(job: Job[Any, Any]) -> None:
    """Fail with an error that has a payload in its message."""
    await job.log(SECRET)
    raise ValueError(SECRET)


async def failed_job(queue: AnyQueue) -> str:
    """Return the id of a job that has failed."""
    job = await queue.add("charge", {"card": SECRET})
    async with worker_of(queue, fail):
        await ended(job)
    return job.id


async def test_failure_groups_are_listed_and_shown(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await failed_job(queue)
        async with serving(storage, READER) as client:
            listed = (await client.get("/api/v1/failures")).json()
            [group] = listed["failures"]
            assert (group["queue"], group["name"], group["message"], listed["more"]) == (name, "charge", SECRET, False)
            assert (await client.get(f"/api/v1/failures?queue={name}")).json() == listed
            assert (await client.get(f"/api/v1/failures/{group['fingerprint']}")).json() == listed
            missing = await client.get("/api/v1/failures/unknown")
            assert (missing.status_code, missing.json()["type"]) == (404, "urn:glidemq:error:failure-not-found")
            assert (await client.get("/api/v1/failures?queue=nowhere")).status_code == 404
        async with serving(storage, user("viewer", queues=("other-*",), payloads=True)) as client:
            assert (await client.get("/api/v1/failures")).json()["failures"] == []
            assert (await client.get(f"/api/v1/failures?queue={name}")).status_code == 403
            assert (await client.get(f"/api/v1/failures/{group['fingerprint']}")).status_code == 404


async def test_no_reading_route_shows_a_payload_without_the_right(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, Ops(storage) as ops:
        parts = {"queue": name, "job": await failed_job(queue)}
        preview = await ops.preview("edit", f"queue:{name}", data={"card": SECRET})
        parts["operation"] = preview.operation_id
        parts["fingerprint"] = (await queue.get_failure_groups())[0].fingerprint
        paths = [
            f"/api/v1{route.path.format_map(parts)}"
            for route in ENDPOINTS
            if route.method == "GET" and route.media != "text/event-stream" and not route.payloads
        ]
        page = f"/operations/{preview.operation_id}"
        allowed = await _texts(storage, user("admin", payloads=True), [*paths, page])
        refused = await _texts(storage, user("admin"), [*paths, page])
    seen = {path for path, text in allowed.items() if SECRET in text}
    assert seen >= {f"/api/v1/queues/{name}/jobs/{parts['job']}/explain", f"/api/v1{page}", page}
    assert [path for path, text in refused.items() if SECRET in text] == []


async def _texts(storage: Storage, identity: Identity, paths: list[str]) -> dict[str, str]:
    async with serving(storage, identity) as client:
        replies = {path: await client.get(path) for path in paths}
    assert {path: reply.status_code for path, reply in replies.items()} == dict.fromkeys(paths, 200)
    return {path: reply.text for path, reply in replies.items()}


async def test_the_history_of_a_job_has_its_runs(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        job_id = await failed_job(queue)
        waiting = await queue.add("x")
        async with serving(storage, READER) as client:
            [run] = (await client.get(f"/api/v1/queues/{name}/jobs/{job_id}/history")).json()["entries"]
            assert (run["kind"], run["outcome"], run["log"][0][1]) == ("attempt", "failed", SECRET)
            assert SECRET in run["error"]
            assert (await client.get(f"/api/v1/queues/{name}/jobs/{waiting.id}/history")).json()["entries"] == []
            assert (await client.get(f"/api/v1/queues/{name}/jobs/unknown/history")).status_code == 404


async def test_audit_lines_are_read_in_pages_and_exported(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage), Ops(storage) as ops, serving(storage, READER) as client:
        for number in range(3):
            async with ops.changing("edit", name, str(number), data={"card": SECRET}, force=True):
                pass
        first = await client.get("/api/v1/audit?limit=2")
        assert [line["target"] for line in first.json()["lines"]] == ["2", "1"]
        assert first.json()["lines"][0]["arguments"] == {"data": {"card": SECRET}, "force": True}
        rest = await client.get(first.links["next"]["url"])
        assert ([line["target"] for line in rest.json()["lines"]], rest.json()["cursor"]) == (["0"], None)
        assert (await client.get("/api/v1/audit?cursor=x")).status_code == 422
        export = await client.get("/api/v1/audit/export")
        assert export.headers["content-type"].startswith("application/x-ndjson")
        assert [json.loads(line)["target"] for line in export.text.splitlines()] == ["2", "1", "0"]


async def test_flows_and_runs_are_drawn(storage: Storage, name: str) -> None:
    other = f"{name}-other"
    async with FlowProducer(storage) as producer, Queue[Any, Any](name, storage), Queue[Any, Any](other, storage):
        flow = await producer.add(FlowJob("parent", name, children=[FlowJob("secret-child", other)]))
        path = f"/api/v1/queues/{name}/jobs/{flow.job.id}"
        async with serving(storage, READER) as client:
            graph = (await client.get(f"{path}/graph")).json()
            assert {node["name"] for node in graph["nodes"]} == {"parent", "secret-child"}
            assert graph["edges"]
            rows = (await client.get(f"{path}/waterfall")).json()["rows"]
            assert rows[0]["kind"] == "job"
            for drawing in ("graph.svg", "waterfall.svg"):
                reply = await client.get(f"{path}/{drawing}")
                assert reply.headers["content-type"].startswith("image/svg+xml")
                assert ElementTree.fromstring(reply.text).tag.endswith("svg")
                assert (await client.get(f"/api/v1/queues/{name}/jobs/unknown/{drawing}")).status_code == 404
        async with serving(storage, user("viewer", queues=(name,))) as client:
            for document in ("graph", "graph.svg"):
                reply = await client.get(f"{path}/{document}")
                assert "parent" in reply.text
                assert "secret-child" not in reply.text


async def test_jobs_in_queues_that_a_user_does_not_see_are_not_named(storage: Storage, name: str) -> None:
    other = f"{name}-other"
    async with FlowProducer(storage) as producer, Queue[Any, Any](name, storage), Queue[Any, Any](other, storage):
        below = await producer.add(FlowJob("parent", name, children=[FlowJob("child", other)]))
        above = await producer.add(FlowJob("parent", other, children=[FlowJob("child", name)]))
        [child] = (await above.job.get_dependencies()).pending
        waiting = f"/api/v1/queues/{name}/jobs/{below.job.id}/explain"
        # The id of a child begins with the queue of the flow's root.
        added = f"/api/v1/queues/{name}/jobs/{quote(child.job_id, safe='')}"
        async with serving(storage, user("viewer")) as client:
            assert other in (await client.get(waiting)).json()["summary"]
            [parent] = (await client.get(added)).json()["parents"]
            assert parent[0] == other
        async with serving(storage, user("viewer", queues=(name,))) as client:
            reply = await client.get(waiting)
            assert "waits for 1 child job." in reply.json()["summary"]
            assert other not in reply.text
            assert (await client.get(added)).json()["parents"] == []


async def test_operations_are_listed_for_users_who_may_apply_their_filters(storage: Storage, name: str) -> None:
    other = f"{name}-other"
    async with Queue[Any, Any](name, storage) as queue, Queue[Any, Any](other, storage) as unseen, Ops(storage) as ops:
        await failed_job(queue)
        await failed_job(unseen)
        here, there = f"state:failed queue:{name}", f"state:failed queue:{other}"
        private = f"{here} data.card:{SECRET}"
        for wanted in (here, there, private):
            preview = await ops.preview("retry", wanted)
            await ops.start(preview.operation_id, preview.ticket)
        expected = {
            user("admin", payloads=True): {here, there, private},
            user("admin"): {here, there},
            user("operator", queues=(name,), payloads=True): {here, private},
            user("operator", queues=(name,)): {here},
        }
        for identity, filters in expected.items():
            async with serving(storage, identity) as client:
                found = (await client.get("/api/v1/operations")).json()["operations"]
            assert {each["filter"] for each in found} == filters


async def test_payloads_are_hidden_from_users_without_the_right(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, Ops(storage) as ops:
        job_id = await failed_job(queue)
        async with ops.changing("edit", name, job_id, data={"card": SECRET}):
            pass
        [group] = await ops.failures(name)
        job = f"/api/v1/queues/{name}/jobs/{job_id}"
        async with serving(storage, user("admin")) as client:
            for path in (
                "/api/v1/overview",
                "/api/v1/failures",
                f"/api/v1/failures/{group.fingerprint}",
                f"{job}/history",
                f"{job}/graph",
                f"{job}/graph.svg",
                f"{job}/waterfall",
                f"{job}/waterfall.svg",
                "/api/v1/audit",
                "/api/v1/audit/export",
            ):
                reply = await client.get(path)
                assert reply.status_code == 200, path
                assert SECRET not in reply.text, path
