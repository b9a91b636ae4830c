"""`glidemq mcp` serves a client over standard input and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glidemq_async import Queue
from glidemq_async.ops import Ops
from tests.cli.commands import COMMAND, environment
from tests.cli.shell import Shell
from tests.support.helpers import soon
from tests.support.servers import Server


async def test_a_model_gets_the_tools_of_the_options_and_its_operations_run(
    tmp_path: Path, server: Server, name: str
) -> None:
    from mcp import types
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def call(tool: str, **arguments: str) -> dict[str, Any]:
        [content] = (await client.call_tool(tool, dict(arguments))).content
        assert isinstance(content, types.TextContent)
        found: dict[str, Any] = json.loads(content.text)
        return found

    command = [*COMMAND, "mcp", "--url", server.url, "--all-tools", "--allow-changes"]
    started = StdioServerParameters(command=command[0], args=command[1:], env=environment(tmp_path))
    # The default of `errlog` is the sys.stderr of the first import. That import may happen while a test captures the
    # output, and a captured stream has no descriptor for a process.
    with (tmp_path / "errors").open("w") as errors:
        async with Queue[Any, Any](name, server.url) as queue, Client(stdio_client(started, errors)) as client:
            await queue.add("x", delay=60)
            assert len((await client.list_tools()).tools) == 22
            preview = await call("previewOperation", action="promote", filter=f"queue:{name}")
            operation = preview["operation_id"]
            await call("startOperation", operation=operation, ticket=preview["ticket"])
            async with Ops(server.url) as ops:
                assert (await soon(ops.wait_operation(operation), 20)).done == 1
            assert (await call("getOperation", operation=operation))["state"] == "done"


async def test_all_tools_without_tools_is_refused(tmp_path: Path, server: Server) -> None:
    refused = await Shell(server.url, tmp_path).run("ui", "--all-tools")
    assert refused.returncode == 2
    assert "add --mcp read or --mcp change" in refused.stderr
