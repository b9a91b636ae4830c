"""The rights of users: every route with every role, tokens, proxies, this machine, and other sites."""

from __future__ import annotations

import re
from itertools import product
from typing import Any, cast

import pytest

from glidemq_async import Queue
from glidemq_async.ops.access import ROLES, AccessDenied, Identity
from glidemq_async.ops.core import Ops
from glidemq_async.ops.tokens import TokenNotFound, Tokens
from glidemq_async.storage import Storage
from glidemq_async.web.api import ENDPOINTS
from glidemq_async.web.app import operations_app, running
from glidemq_async.web.endpoints import ApiRoute
from glidemq_async.web.settings import Access, ProxyUsers, WebLimits
from tests.support.stores import RunningStore
from tests.web.clients import NO_LIMITS, client_of, serving, user

pytestmark = pytest.mark.only_on("memory")
VOLATILE = re.compile(r":(call:|schedule_roles)")


async def digest(store: RunningStore) -> dict[str, bytes]:
    """Return the content of every key of the store, except for request channels and the processes of schedules."""
    kept = [name for name in await store.keys() if not VOLATILE.search(name)]
    return {name: cast("bytes", await store.ask("DUMP", name)) for name in kept}


def request_of(route: ApiRoute, queue: str) -> tuple[str, dict[str, Any]]:
    """Return the path and the keywords of a request that the route can read."""
    path = "/api/v1" + re.sub(r"{(\w+)}", lambda part: queue if part[1] == "queue" else "unknown", route.path)
    if route.body is None:
        return path, {}
    return path, {"json": {"name": "x", "wait": 0.01} if route.name == "addJobAndWait" else {"name": "x"}}


def route_id(route: ApiRoute) -> str:
    """Return the id of a case."""
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", ENDPOINTS, ids=route_id)
async def test_each_route_is_served_to_its_roles_only(
    route: ApiRoute, storage: Storage, store: RunningStore, name: str
) -> None:
    identity = user("viewer")
    app = operations_app(storage, access=lambda _: identity, limits=NO_LIMITS)
    async with Queue[Any, Any](name, storage) as queue, running(app), client_of(app) as client:
        await queue.add("x", {"secret": 1})
        path, keywords = request_of(route, name)
        for role, payloads, queues in product(ROLES, (False, True), (("*",), (name,), ("other-*",))):
            identity = user(role, queues=queues, payloads=payloads)
            if route.media == "text/event-stream" and allowed(route, identity, name):
                continue  # a stream does not end; other tests read it
            before = await digest(store)
            reply = await client.request(route.method, path, **keywords)
            assert (reply.status_code == 403) is not allowed(route, identity, name), (identity, reply.text)
            assert reply.status_code < 500
            if reply.status_code == 403 or route.method == "GET":
                assert await digest(store) == before


def allowed(route: ApiRoute, identity: Identity, queue: str) -> bool:
    """Return whether an identity may use a route."""
    if not identity.has(route.role) or (route.payloads and not identity.payloads):
        return False
    if "{queue}" in route.path or route.name == "findJobs":  # a search must name queues that the user sees
        return identity.sees(queue)
    return identity.sees_all or not route.whole


async def test_a_read_only_server_refuses_changes_of_admins(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage):
        app = operations_app(storage, read_only=True)
        async with running(app), client_of(app) as client:
            reply = await client.post(f"/api/v1/queues/{name}/jobs", json={"name": "x"})
            assert (await client.get("/api/v1/me")).json()["read_only"]
    assert reply.status_code == 403
    assert "read-only" in reply.json()["detail"]


async def test_only_direct_clients_of_this_machine_are_admitted_without_credentials(storage: Storage) -> None:
    app = operations_app(storage)
    async with running(app):
        for address, base, headers, status in (
            ("127.0.0.1", "http://localhost", {}, 200),
            ("127.0.0.1", "http://127.0.0.1:8321", {}, 200),
            ("::1", "http://[::1]", {}, 200),
            ("10.0.0.1", "http://localhost", {}, 401),
            ("127.0.0.1", "http://evil.example", {}, 401),
            ("127.0.0.1", "http://localhost", {"X-Forwarded-For": "1.2.3.4"}, 401),
            ("127.0.0.1", "http://localhost", {"Authorization": "Bearer wrong"}, 401),
        ):
            async with client_of(app, address=address, base=base) as client:
                reply = await client.get("/api/v1/me", headers=headers)
                assert reply.status_code == status, (address, base, headers)


async def test_a_token_has_the_rights_it_was_created_with_until_it_is_revoked(
    storage: Storage, store: RunningStore
) -> None:
    async with Ops(storage) as ops:
        tokens = Tokens(ops)
        secret = await tokens.create("ada", "operator", queues=("mail-*",), payloads=True)
        app = operations_app(storage, access=Access())
        async with running(app), client_of(app, address="10.0.0.1") as client:
            reply = await client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
            assert reply.json() == {
                "name": "ada",
                "role": "operator",
                "queues": ["mail-*"],
                "payloads": True,
                "read_only": False,
            }
            assert (await client.get("/api/v1/me")).status_code == 401
        stored = b"".join((await digest(store)).values())
        assert secret.encode() not in stored
        [token] = await tokens.list()
        await tokens.revoke(token.id)
        assert await Tokens(ops).identity(secret) is None
        with pytest.raises(TokenNotFound):
            await tokens.revoke(token.id)
        assert [line.action for line in (await ops.audit.read()).lines] == ["revoke token", "create token"]


async def test_a_proxy_names_the_user_from_its_own_addresses_only(storage: Storage) -> None:
    proxy = ProxyUsers(trusted=["10.1.0.0/16"], known={"ada": Identity("ada", "admin")})
    app = operations_app(storage, access=Access(proxy=proxy))
    async with running(app):
        for address, who, role in (
            ("10.1.2.3", "ada", "admin"),
            ("10.1.2.3", "bob", "viewer"),
            ("10.2.0.1", "ada", ""),
        ):
            async with client_of(app, address=address) as client:
                reply = await client.get("/api/v1/me", headers={"X-Forwarded-User": who})
                assert reply.json().get("role", "") == role
        async with client_of(app, address="10.1.2.3") as client:
            twice = [("X-Forwarded-User", "bob"), ("X-Forwarded-User", "ada")]
            assert (await client.get("/api/v1/me", headers=twice)).status_code == 401


async def test_another_site_cannot_let_a_browser_change_anything(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, serving(storage) as client:
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Content-Type": "text/plain"}, 415),
            ({"Sec-Fetch-Site": "same-origin"}, 201),
            ({"Origin": "http://localhost"}, 201),
            ({}, 201),
        ):
            sent = {"Content-Type": "application/json", **headers}
            reply = await client.post(f"/api/v1/queues/{name}/jobs", content='{"name":"x"}', headers=sent)
            assert reply.status_code == status, headers
        assert await queue.count() == 3


async def test_every_response_has_the_security_headers(storage: Storage) -> None:
    async with serving(storage) as client:
        for path in ("/api/v1/me", "/api/v1/nowhere", "/nowhere"):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"


async def test_requests_beyond_the_rate_and_bodies_beyond_the_size_are_refused(storage: Storage, name: str) -> None:
    limits = WebLimits(requests_per_second=0.01, burst=2, body_bytes=100)
    app = operations_app(storage, limits=limits)
    async with Queue[Any, Any](name, storage), running(app), client_of(app) as client:
        large = await client.post(f"/api/v1/queues/{name}/jobs", json={"name": "x" * 200})
        assert large.status_code == 413
        assert (await client.get("/api/v1/me")).status_code == 200
        refused = await client.get("/api/v1/me")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1


def test_an_identity_refuses_bad_values() -> None:
    with pytest.raises(ValueError, match="role must be one of"):
        Identity("ada", "root")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="list of patterns"):
        Identity("ada", queues="mail")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AccessDenied, match=r"ada does not have the right 'admin' for queue 'mail'"):
        Identity("ada").require("admin", "mail")
