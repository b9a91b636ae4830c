"""The MCP server: its tools are routes of the API, with the same rights."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import types
from mcp.client import Client

from glidemq_async import Queue
from glidemq_async.ops.access import Identity
from glidemq_async.storage import Storage
from glidemq_async.web.app import operations_app, running
from glidemq_async.web.mcp_server import mcp_server, tools
from tests.web.clients import user

pytestmark = pytest.mark.only_on("memory")


async def call(storage: Storage, identity: Identity, name: str, **arguments: object) -> tuple[bool, dict[str, Any]]:
    """Call a tool as an identity. Return whether it has failed, and its document."""
    app = operations_app(storage, read_only=True)
    async with running(app), Client(mcp_server(app.state.web, identity)) as client:
        result = await client.call_tool(name, dict(arguments))
        [content] = result.content
        assert isinstance(content, types.TextContent)
        return bool(result.is_error), json.loads(content.text)


async def test_a_model_sees_the_queues_of_its_identity(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue:
        await queue.add("x")
        failed, document = await call(storage, user("viewer"), "getQueue", queue=name)
        assert not failed
        assert document["summary"]["counts"]["waiting"] == 1
        failed, document = await call(storage, user("viewer", queues=("other",)), "getQueue", queue=name)
        assert failed
        assert document["type"] == "urn:glidemq:error:access-denied"


async def test_wrong_arguments_are_explained(storage: Storage) -> None:
    failed, document = await call(storage, user("viewer"), "getQueue", queue="a", colour="red")
    assert failed
    assert "colour" in document["detail"]
    failed, document = await call(storage, user("viewer"), "dropEverything")
    assert failed
    assert "--allow-changes" in document["detail"]


async def test_tools_only_read_by_default(storage: Storage) -> None:
    assert {route.method for route in tools(allow_changes=False).values()} == {"GET"}
    app = operations_app(storage, read_only=True)
    async with running(app), Client(mcp_server(app.state.web, user("admin"))) as client:
        found = (await client.list_tools()).tools
    assert {tool.name for tool in found} == set(tools(allow_changes=False))
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in found)
