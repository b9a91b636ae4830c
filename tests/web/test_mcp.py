"""The MCP server: its tools are routes of the API, with the same rights."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from httpx2 import ASGITransport, AsyncClient

from glidemq_async import Queue
from glidemq_async.ops import Ops
from glidemq_async.ops.access import Identity
from glidemq_async.storage import Storage
from glidemq_async.web.api import DEFAULT_TOOLS, ENDPOINTS
from glidemq_async.web.app import McpTools, operations_app, running
from glidemq_async.web.context import RequestContext
from tests.web.clients import LOCAL, user

if TYPE_CHECKING:  # Each test process reads this file, and the package takes a second to import.
    from mcp.client import Client

pytestmark = pytest.mark.only_on("memory")
NOT_OFFERED = {
    "whoAmI": "a model has no use for its own name",
    "findJobsOfQueue": "findJobs finds them with queue:",
    "getResult": "getJob has the result",
    "previewObliteration": "no tool obliterates a queue",
    "listAlerts": "the rules have the addresses of webhooks",
    "drawFlowGraph": "getFlowGraph has the same as JSON",
    "drawWaterfall": "getWaterfall has the same as JSON",
    "exportAudit": "listAudit has the lines in pages",
    "streamChunks": "a tool has one reply",
    "streamEvents": "a tool has one reply",
}
"""The reading routes that are never offered as tools, with the reason."""
CHANGING = {"previewOperation", "startOperation", "cancelOperation"}
PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"


def tools(*, allow_changes: bool = False, all_tools: bool = False) -> dict[str, Any]:
    """Return the tools of the server."""
    from glidemq_async.web import mcp_server

    return mcp_server.tools(allow_changes=allow_changes, all_tools=all_tools)


@asynccontextmanager
async def model(
    storage: Storage, identity: Identity, *, allow_changes: bool = False, all_tools: bool = False
) -> AsyncGenerator[Client]:
    """Provide a client of an MCP server for an identity."""
    from mcp.client import Client

    from glidemq_async.web.mcp_server import mcp_server

    app = operations_app(storage, read_only=not allow_changes)
    async with running(app):
        context = RequestContext(app.state.web, identity, "", "")
        server = mcp_server(context, allow_changes=allow_changes, all_tools=all_tools)
        async with Client(server) as client:
            yield client


@asynccontextmanager
async def over_http(
    storage: Storage, identity: Identity | None, offered: McpTools, *, all_tools: bool = False, read_only: bool = False
) -> AsyncGenerator[Client]:
    """Provide a client of the MCP server of an operations app."""
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    app = operations_app(
        storage,
        access=None if identity is None else lambda _: identity,
        mcp=offered,
        all_tools=all_tools,
        read_only=read_only,
    )
    transport = ASGITransport(app, client=("127.0.0.1", 1234))
    async with (
        running(app),
        AsyncClient(transport=transport, base_url=LOCAL) as http,
        Client(streamable_http_client(f"{LOCAL}/mcp", http_client=http)) as client,
    ):
        yield client


async def call(client: Client, name: str, **arguments: object) -> tuple[bool, dict[str, Any]]:
    """Call a tool. Return whether it has failed, and its document."""
    from mcp import types

    result = await client.call_tool(name, dict(arguments))
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return bool(result.is_error), json.loads(content.text)


async def test_a_model_sees_the_queues_of_its_identity(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await queue.add("x")
        async with model(storage, user("viewer")) as client:
            failed, document = await call(client, "getQueue", queue=name)
            assert not failed
            assert document["summary"]["counts"]["waiting"] == 1
        async with model(storage, user("viewer", queues=("other",))) as client:
            failed, document = await call(client, "getQueue", queue=name)
            assert failed
            assert document["type"] == "urn:glidemq:error:access-denied"


async def test_wrong_arguments_are_explained(storage: Storage) -> None:
    async with model(storage, user("viewer")) as client:
        failed, document = await call(client, "getQueue", queue="a", colour="red")
        assert failed
        assert "colour" in document["detail"]
        for name, said in (
            ("dropEverything", "there is no tool 'dropEverything'"),
            ("listWorkers", "--all-tools"),
            ("startOperation", "--allow-changes"),
        ):
            failed, document = await call(client, name)
            assert failed
            assert said in document["detail"]


def test_twelve_tools_are_the_default_and_three_of_them_change_something() -> None:
    assert tuple(tools(allow_changes=True)) == DEFAULT_TOOLS
    assert len(DEFAULT_TOOLS) == 12
    assert DEFAULT_TOOLS[:9] == tuple(tools())
    assert set(DEFAULT_TOOLS[9:]) == CHANGING


def test_all_tools_are_the_routes_that_read_and_the_steps_of_an_operation() -> None:
    reading = {route.name for route in ENDPOINTS if route.method == "GET"}
    offered = set(tools(all_tools=True))
    assert reading - offered == NOT_OFFERED.keys()
    assert set(tools(allow_changes=True, all_tools=True)) - offered == CHANGING


def test_the_page_names_every_tool_in_one_of_its_two_tables() -> None:
    default, rest = PAGE.read_text(encoding="utf-8").split("### Further tools")
    assert sorted(_named(default)) == sorted(DEFAULT_TOOLS)
    assert sorted(_named(rest)) == sorted(tools(all_tools=True).keys() - set(DEFAULT_TOOLS))


def _named(text: str) -> list[str]:
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall("`([a-z]+[A-Z]\\w+)`", row.split("|")[1])]


async def test_tools_only_read_by_default(storage: Storage) -> None:
    assert {route.method for route in tools(all_tools=True).values()} == {"GET"}
    async with model(storage, user("admin")) as client:
        found = (await client.list_tools()).tools
    assert {tool.name for tool in found} == set(tools())
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in found)


async def delayed(queue: Queue[Any, Any]) -> dict[str, int]:
    await queue.add_bulk([("n", number) for number in range(3)])
    for job in await queue.get_jobs("waiting"):
        await job.change_delay(60)
    return {"delayed": 3}


@pytest.mark.parametrize("http", [False, True], ids=["stdio", "http"])
async def test_an_operation_is_previewed_and_started_with_its_ticket(storage: Storage, name: str, http: bool) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await delayed(queue)
        operator = user("operator")
        opened = over_http(storage, operator, "change") if http else model(storage, operator, allow_changes=True)
        async with opened as client, Ops(storage) as ops:
            hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
            started = hints["startOperation"]
            assert started is not None
            assert (started.read_only_hint, started.destructive_hint) == (False, True)
            failed, preview = await call(
                client, "previewOperation", action="promote", filter=f"queue:{name}", reason="asked by ada"
            )
            assert (failed, preview["count"], preview["refused"]) == (False, 3, {})
            assert (await queue.get_job_counts())["delayed"] == 3
            operation = preview["operation_id"]
            failed, refused = await call(client, "startOperation", operation=operation, ticket="guessed")
            assert (failed, "ticket" in refused["detail"]) == (True, True)
            failed, _ = await call(client, "startOperation", operation=operation, ticket=preview["ticket"])
            assert not failed
            assert (await ops.run_operation(operation)).done == 3
            failed, shown = await call(client, "getOperation", operation=operation)
            assert (shown["state"], shown["done"]) == ("done", 3)
            other = (await call(client, "previewOperation", action="cancel", filter=f"queue:{name}"))[1]
            failed, shown = await call(client, "cancelOperation", operation=other["operation_id"], reason="no need")
            assert (failed, shown["state"]) == (False, "cancelled")
            lines = (await ops.audit.read()).lines
        assert [(line.source, line.actor, line.action, line.reason, line.result) for line in lines] == [
            ("mcp", "ada", "cancel_operation", "no need", "ok"),
            ("mcp", "ada", "promote", "asked by ada", "ok"),
        ]


@pytest.mark.parametrize(
    ("identity", "action", "queues"),
    [(user("viewer"), "promote", ""), (user("operator"), "delete", ""), (user("operator", queues=("x",)), "retry", "")],
    ids=["viewer", "operator", "other queues"],
)
async def test_tools_that_change_something_check_the_rights(
    storage: Storage, name: str, identity: Identity, action: str, queues: str
) -> None:
    async with Queue[Any, Any](name, storage) as queue, over_http(storage, identity, "change") as client:
        await delayed(queue)
        failed, document = await call(client, "previewOperation", action=action, filter=f"queue:{name}")
        assert failed
        assert document["type"] in {"urn:glidemq:error:access-denied", "urn:glidemq:error:queue-not-found"}
        assert (await queue.get_job_counts())["delayed"] == 3


@pytest.mark.parametrize(
    ("mcp", "options", "count"),
    [
        ("read", {}, 9),
        ("change", {}, 12),
        ("read", {"all_tools": True}, 19),
        ("change", {"all_tools": True}, 22),
        ("all", {}, 22),
        ("all", {"read_only": True}, 19),
    ],
)
async def test_an_app_offers_the_tools_of_its_options(
    storage: Storage, mcp: McpTools, options: dict[str, bool], count: int
) -> None:
    async with over_http(storage, user("admin"), mcp, **options) as client:
        found = {tool.name for tool in (await client.list_tools()).tools}
        assert len(found) == count
        assert found >= set(tools())
        failed, document = await call(client, "startOperation", operation="x", ticket="y")
        assert failed
        assert document["type"].endswith("no-such-tool") == ("startOperation" not in found)


async def test_tools_over_http_need_the_access_of_the_app(storage: Storage) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream"}
    for offered, status in (("read", 401), ("none", 404)):
        app = operations_app(storage, mcp=offered)  # type: ignore[arg-type]
        address = "10.0.0.9" if status == 401 else "127.0.0.1"
        transport = ASGITransport(app, client=(address, 1234))
        async with running(app), AsyncClient(transport=transport, base_url=LOCAL) as http:
            assert (await http.post("/mcp", json=asked, headers=headers)).status_code == status


def test_bad_options_of_the_tools_are_refused(storage: Storage) -> None:
    with pytest.raises(ValueError, match="'none', 'read', 'change' or 'all'"):
        operations_app(storage, mcp="write")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="add mcp='read'"):
        operations_app(storage, all_tools=True)
