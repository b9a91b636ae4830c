"""The HTTP API: its document, adding jobs, results, signals, mounting, and errors."""

from __future__ import annotations

import asyncio
import json
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from glidemq_async import Job, Queue, errors
from glidemq_async.storage import Storage
from glidemq_async.web.api import openapi
from glidemq_async.web.app import operations_app, running
from glidemq_async.web.problems import STATUSES, slug_of
from tests.support.helpers import ended, worker_of
from tests.web.clients import client_of, serving, user

pytestmark = pytest.mark.only_on("memory")
DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


def differences(stored: object, made: object, place: str = "") -> list[str]:
    """Return the places in which two documents differ. pytest would print both documents, 13,000 lines."""
    found: list[list[str]] = []
    if isinstance(stored, dict) and isinstance(made, dict):
        old, new = cast("dict[str, object]", stored), cast("dict[str, object]", made)
        found = [differences(old.get(key), new.get(key), f"{place}/{key}") for key in old | new]
    elif isinstance(stored, list) and isinstance(made, list):
        pairs = zip_longest(cast("list[object]", stored), cast("list[object]", made))
        found = [differences(*pair, f"{place}/{number}") for number, pair in enumerate(pairs)]
    elif stored != made:
        found = [[f"{place}: {stored!s:.200} is now {made!s:.200}"]]
    return [each for part in found for each in part]


def test_a_document_that_differs_is_reported_by_place() -> None:
    stored, made = {"a": {"b": [1, {"c": 2}]}, "d": {}}, {"a": {"b": [1, {"c": 3}, 4]}, "e": 5}
    assert differences(stored, stored) == []
    assert differences(stored, made) == [
        "/a/b/1/c: 2 is now 3",
        "/a/b/2: None is now 4",
        "/d: {} is now None",
        "/e: None is now 5",
    ]


def test_the_document_in_the_repository_is_the_one_of_the_route_table() -> None:
    stored = json.loads(DOCUMENT.read_text())
    stored["info"]["version"] = openapi()["info"]["version"]
    made = json.loads(json.dumps(openapi()))
    assert differences(stored, made)[:9] == [], "run `python -m glidemq_async.web docs/openapi.json`"
    assert stored == made
    operations = [each for path in stored["paths"].values() for each in path.values()]
    assert {each["x-role"] for each in operations} <= {"viewer", "operator", "admin"}
    assert len({each["operationId"] for each in operations}) == len(operations)


def test_each_error_of_the_library_has_a_status_and_its_own_type() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert [kind for kind in kinds if kind not in STATUSES and not kind.__name__.startswith("_")] == []
    assert len({slug_of(kind) for kind in STATUSES}) == len(STATUSES)


async def test_a_job_is_added_once_for_each_idempotency_key(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        path, sent = f"/api/v1/queues/{name}/jobs", {"name": "mail", "data": {"to": "ada"}}
        first = await client.post(path, json=sent, headers={"Idempotency-Key": "k1"})
        again = await client.post(path, json=sent, headers={"Idempotency-Key": "k1"})
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == {**first.json(), "outcome": "duplicate"}
        [job] = await queue.get_jobs("waiting")
        assert (job.name, job.data) == ("mail", {"to": "ada"})


async def test_each_line_of_a_bulk_has_its_own_outcome(storage: Storage, name: str) -> None:
    named = '{"name":"b","options":{"delay":60,"job_id":"x"}}\n{"name":"c","options":{"job_id":"x"}}'
    lines = '{"name":"a"}\n{"nam":1}\nno json\n\n' + named
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        headers = {"Content-Type": "application/x-ndjson"}
        reply = await client.post(f"/api/v1/queues/{name}/jobs", content=lines, headers=headers)
        outcomes = [json.loads(line) for line in reply.text.splitlines()]
        found = [each.get("outcome") or each["error"]["title"] for each in outcomes]
        assert found == ["added", "invalid body", "invalid json", "added", "duplicate"]
        assert [each["line"] for each in outcomes] == [1, 2, 3, 4, 5]
        assert await queue.count() == 2


async def test_a_request_waits_for_the_result_of_its_job(storage: Storage, name: str) -> None:
    async def double(job: Job[Any, Any]) -> int:
        return int(job.data["n"]) * 2

    async with Queue[Any, Any](name, storage) as queue, worker_of(queue, double), serving(storage) as client:
        path = f"/api/v1/queues/{name}/jobs:wait"
        ended = await client.post(path, json={"name": "x", "data": {"n": 4}})
        assert ended.json()["result"] == 8
        failed = await client.post(path, json={"name": "x", "data": {}})
        assert (failed.json()["state"], failed.json()["error_type"]) == ("failed", "KeyError")
        again = await client.get(f"/api/v1/queues/{name}/jobs/{ended.json()['id']}/result")
        assert again.json()["result"] == 8


async def test_a_signal_with_an_idempotency_key_arrives_once(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        job = await queue.add("x")
        path = f"/api/v1/queues/{name}/jobs/{job.id}/signals/approved"
        for _ in range(2):
            reply = await client.post(path, json={"data": {"by": "ada"}}, headers={"Idempotency-Key": "k"})
            assert reply.status_code == 200
        assert [(each.name, each.data) for each in await queue.get_mailbox(job.id)] == [("approved", {"by": "ada"})]


async def test_names_and_ids_may_contain_slashes(storage: Storage) -> None:
    async with Queue[Any, Any]("mail/eu", storage) as queue, serving(storage) as client:
        await queue.add("x", job_id="a/b c?d")
        found = await client.get("/api/v1/queues/mail%2Feu/jobs/a%2Fb%20c%3Fd/result")
        assert (found.status_code, found.json()["id"]) == (200, "a/b c?d")


async def test_an_error_says_what_to_do(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage), serving(storage) as client:
        missing = await client.get(f"/api/v1/queues/{name}x")
        assert missing.headers["content-type"] == "application/problem+json"
        assert missing.json()["type"] == "urn:glidemq:error:queue-not-found"
        assert f"did you mean '{name}'?" in missing.json()["detail"]
        unknown = await client.post(f"/api/v1/queues/{name}/jobs", json={"name": "x", "prority": 1})
        assert (unknown.status_code, unknown.json()["title"]) == (422, "invalid body")
        assert "prority" in unknown.json()["detail"]
        assert (await client.put(f"/api/v1/queues/{name}")).status_code == 405


async def test_retention_and_a_pause_of_a_schedule_are_held_until_they_are_released(
    storage: Storage, name: str
) -> None:
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        await queue.upsert_job_scheduler("night", every=3600)
        path = f"/api/v1/queues/{name}"
        body = {"completed": {"count": 5, "age": 60}, "failed": False, "note": "disk"}
        assert (await client.post(f"{path}/retention", json=body)).status_code == 200
        assert (await client.post(f"{path}/retention", json={})).status_code == 422
        rules = {"off": ["active"], "progress_interval": 0.5, "content": "size", "max_events": 500, "note": "disk"}
        assert (await client.post(f"{path}/event-rules", json=rules)).status_code == 200
        for wrong in ({}, {"off": ["activ"]}, {"off": ["obliterated"]}, {"max_events": 0}):
            assert (await client.post(f"{path}/event-rules", json=wrong)).status_code == 422
        await client.post(f"{path}/schedules/night/pause", json={"note": "holiday"})
        found = (await client.get(f"{path}/settings")).json()["settings"]
        held = {one["name"]: (one["value"], one["note"]) for one in found if one["origin"] == "operator"}
        assert held == {
            "keep_completed": ("5 jobs, 60 s", "disk"),
            "keep_failed": ("0 jobs", "disk"),
            "events_off": ("active", "disk"),
            "progress_interval": ("0.5 s", "disk"),
            "event_content": ("size", "disk"),
            "max_events": ("500", "disk"),
            "schedule": ("paused", "holiday"),
        }
        for setting, key in (("keep_completed", None), ("events_off", None), ("schedule", "night")):
            for status in (200, 404):
                reply = await client.post(f"{path}/settings/{setting}/release", json={"key": key})
                assert reply.status_code == status


async def test_limits_are_set_only_if_nobody_has_changed_them_since(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        path = f"/api/v1/queues/{name}"
        first = (await client.get(f"{path}/settings")).headers["etag"]
        headers = {"If-Match": first}
        # Of two changes that have read the same version, the server makes one, whichever comes first.
        replies = await asyncio.gather(
            *(client.put(f"{path}/limits", json={"concurrency": n}, headers=headers) for n in range(2, 10))
        )
        assert sorted(reply.status_code for reply in replies) == [200, *[412] * 7]
        assert {reply.json()["type"] for reply in replies if reply.status_code == 412} == {
            "urn:glidemq:error:settings-changed"
        }
        [made] = [n for n, reply in zip(range(2, 10), replies, strict=True) if reply.status_code == 200]
        assert await queue.get_global_concurrency() == made
        second = (await client.get(f"{path}/settings")).headers["etag"]
        assert second != first
        for value, status in ((f"{first}, {second}", 200), ("*", 200), ('""', 412), (first, 412)):
            reply = await client.put(f"{path}/limits", json={"max_waiting": 9}, headers={"If-Match": value})
            assert reply.status_code == status, value


async def test_unusual_headers_and_cursors_get_a_documented_reply(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        job = await queue.add("n")
        signal, keyed = f"/api/v1/queues/{name}/jobs/{job.id}/signals/go", {"Idempotency-Key": "a\tb"}
        reply = await client.post(signal, json={}, headers=keyed)
        assert (reply.status_code, "printable ASCII" in reply.json()["detail"]) == (400, True)
        missing = await client.put("/api/v1/queues/none/limits", json={"concurrency": 1}, headers={"If-Match": ""})
        assert missing.status_code == 404
        large = await client.post(f"/api/v1/queues/{name}/jobs", json={"name": "x", "kwargs": {"a": 2**64}})
        assert (large.status_code, "more than 64" in large.json()["detail"]) == (422, True)
        for cursor in ("0-0", "00-000", "0", "1-0"):
            page = await client.get("/api/v1/audit", params={"cursor": cursor})
            assert (page.status_code, page.json()["lines"]) == (200, []), cursor


async def test_a_failed_job_in_a_list_names_its_group(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        async with worker_of(queue, _fail):
            await ended(await queue.add("x"))
        [group] = (await client.get("/api/v1/failures")).json()["failures"]
        for path in (f"/api/v1/jobs?filter=queue:{name}", f"/api/v1/queues/{name}/jobs"):
            [job] = (await client.get(path)).json()["jobs"]
            assert job["failure_group"] == group["fingerprint"]


async def _fail(_: Job[Any, Any]) -> None:
    raise ValueError("no")


async def test_each_addition_has_an_audit_line_with_the_user(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage), serving(storage, user("operator")) as client:
        await client.post(f"/api/v1/queues/{name}/jobs", json={"name": "x"}, headers={"X-Reason": "by hand"})
        await client.post(
            f"/api/v1/queues/{name}/jobs",
            content='{"name":"x"}\n' * 3,
            headers={"Content-Type": "application/x-ndjson"},
        )
    async with serving(storage) as client:
        lines = (await client.get("/api/v1/overview")).json()["audit"]
    shown = [(line["action"], line["actor"], line["source"], line["reason"], line["count"]) for line in lines]
    assert shown == [("add many", "ada", "http", "", 3), ("add", "ada", "http", "by hand", 1)]


@pytest.mark.parametrize("prefix", ["", "/ops", "/a/b"])
async def test_the_app_can_be_mounted_and_stand_behind_a_proxy(storage: Storage, name: str, prefix: str) -> None:
    app = operations_app(storage)
    host = FastAPI()
    host.mount(prefix, app)

    async def stripped(scope: Scope, receive: Receive, send: Send) -> None:
        # What `uvicorn --root-path /public` makes of the requests of a proxy that removes "/public" from the path.
        whole = {"path": "/public" + scope["path"], "raw_path": b"/public" + scope["raw_path"]}
        await host({**scope, **whole, "root_path": "/public"}, receive, send)

    async with Queue[Any, Any](name, storage), running(app):
        async with client_of(host) as client:
            assert (await client.get(f"{prefix}/api/v1/queues/{name}")).status_code == 200
            document = (await client.get(f"{prefix}/api/v1/openapi.json")).json()
            assert document["servers"] == [{"url": f"{prefix}/api/v1"}]
        async with client_of(stripped) as client:
            assert (await client.get(f"{prefix}/api/v1/queues/{name}")).status_code == 200


async def test_a_mounted_app_connects_with_its_first_requests(storage: Storage) -> None:
    app = operations_app(storage)
    async with client_of(app) as client:
        replies = await asyncio.gather(*(client.get("/api/v1/me") for _ in range(3)))
        assert {reply.status_code for reply in replies} == {200}
    await app.state.web.close()
