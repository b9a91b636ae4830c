"""The command mcp, which offers the operations core to language models."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

import typer

from glidemq_async.cli.options import CommandTarget, with_target

AllowChanges = Annotated[
    bool,
    typer.Option(
        "--allow-changes", help="Also offer tools that change jobs, and run the bulk operations that they start."
    ),
]
AllTools = Annotated[bool, typer.Option("--all-tools", help="Also offer the tools that are rarely needed.")]
Payloads = Annotated[bool, typer.Option("--payloads", help="Show payloads, results, errors and log lines.")]
Role = Annotated[str, typer.Option("--role", help="The role of the model: viewer, operator or admin.")]
Queues = Annotated[list[str] | None, typer.Option("--queue", help="Pattern of queues, for example 'mail-*'.")]


@with_target
def mcp(
    target: CommandTarget,
    allow_changes: AllowChanges = False,
    all_tools: AllTools = False,
    payloads: Payloads = False,
    role: Role = "operator",
    queues: Queues = None,
) -> None:
    """Serve the tools of an MCP server over standard input and output: by default nine tools that only read."""
    from glidemq_async.cli import targets
    from glidemq_async.cli.ui_command import checked_role
    from glidemq_async.ops.access import Identity
    from glidemq_async.ops.actor import Actor

    name = f"{Actor.here('mcp').name} (mcp)"
    identity = Identity(name, checked_role(role), tuple(queues or ("*",)), payloads)

    async def serve() -> None:
        from glidemq_async.web.app import operations_app, running
        from glidemq_async.web.mcp_server import serve_stdio

        async with targets.open_store(target, check=False) as store:
            app = operations_app(store.app or store.storage, prefix=store.prefix, read_only=not allow_changes)
            async with running(app), AsyncExitStack() as opened:
                web = app.state.web
                if allow_changes:
                    await opened.enter_async_context(web.ops.worker(alert_interval=None))  # runs the bulk operations
                await serve_stdio(web, identity, all_tools=all_tools)

    targets.run(serve())
