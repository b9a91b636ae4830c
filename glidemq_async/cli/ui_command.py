"""The command ui, which serves the pages and the HTTP API, and manages access tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glidemq_async.cli.command_runner import answer
from glidemq_async.cli.exits import UNAVAILABLE, USAGE, CommandError
from glidemq_async.cli.options import AsJson, CommandTarget, with_target

if TYPE_CHECKING:
    from socket import socket

    from glidemq_async.cli.output import Document
    from glidemq_async.ops.tokens import Tokens

Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="The port to listen on; 0 chooses a free one.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse every change.")]
Mcp = Annotated[
    str, typer.Option("--mcp", help="Offer tools for language models at /mcp: none, read or change.", metavar="TOOLS")
]
AllTools = Annotated[bool, typer.Option("--all-tools", help="With --mcp: also offer the tools that are rarely needed.")]
Auth = Annotated[str, typer.Option("--auth", help="Who may use it: loopback, tokens or proxy.", metavar="HOW")]
TrustedProxy = Annotated[
    list[str] | None, typer.Option("--trusted-proxy", help="Address or network of the proxy, with --auth proxy.")
]
UserHeader = Annotated[str, typer.Option("--user-header", help="The header with the user, with --auth proxy.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason, for the audit.")]

ui = typer.Typer(help="Serve the pages and the HTTP API, or manage access tokens.", invoke_without_command=True)
token = typer.Typer(help="Manage access tokens.", no_args_is_help=True)
ui.add_typer(token, name="token")


def serve(
    target: CommandTarget,
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8321,
    auth: Auth = "loopback",
    trusted_proxy: TrustedProxy = None,
    user_header: UserHeader = "X-Forwarded-User",
    read_only: ReadOnly = False,
    mcp: Mcp = "none",
    all_tools: AllTools = False,
) -> None:
    """Serve the pages at / and the HTTP API at /api/v1."""
    if context.invoked_subcommand is not None:
        return
    from glidemq_async.cli.loops import run_in_loop
    from glidemq_async.web.settings import Access, ProxyUsers

    if auth not in {"loopback", "tokens", "proxy"}:
        raise typer.BadParameter("it must be loopback, tokens or proxy", param_hint="--auth")
    refuse_open_door(host, auth)
    proxy = ProxyUsers(user_header, tuple(trusted_proxy or ("127.0.0.1", "::1"))) if auth == "proxy" else None
    access = Access(proxy=proxy, open_on_loopback=auth == "loopback")
    if mcp not in {"none", "read", "change", "all"}:
        raise typer.BadParameter("it must be none, read or change", param_hint="--mcp")
    if all_tools and mcp == "none":
        raise typer.BadParameter("add --mcp read or --mcp change", param_hint="--all-tools")
    tools = {"mcp": mcp, "all_tools": all_tools}
    run_in_loop(_serve(target, access, host, port, read_only=read_only, tools=tools))


ui.callback()(with_target(serve))


def refuse_open_door(host: str, auth: str) -> None:
    """Raise CommandError for an address that others can reach, without authentication."""
    from glidemq_async.web.authentication import LOOPBACK_HOSTS, is_loopback

    if auth == "loopback" and not (host in LOOPBACK_HOSTS or is_loopback(host)):
        raise CommandError(
            f"--host {host} can be reached by other machines without authentication; add --auth tokens "
            "(`glidemq ui token create` makes one) or --auth proxy, or use --host 127.0.0.1",
            USAGE,
        )


async def _serve(
    target: CommandTarget, access: Any, host: str, port: int, *, read_only: bool, tools: dict[str, Any]
) -> None:
    from glidemq_async.cli import targets
    from glidemq_async.web.app import operations_app
    from glidemq_async.web.server import address_of, serve_app

    async with targets.open_store(target, check=False) as store:
        app = operations_app(
            store.app or store.storage, prefix=store.prefix, access=access, read_only=read_only, **tools
        )
        with _listening(host, port) as listener:
            typer.echo(
                f"glidemq ui: {address_of(listener)} ({'read-only' if read_only else 'read and write'})", err=True
            )
            if read_only:
                await serve_app(app, listener)
            else:
                async with app.state.web.ops.worker():  # runs the bulk operations
                    await serve_app(app, listener)


def _listening(host: str, port: int) -> socket:
    from glidemq_async._internal.http_endpoint import port_problem
    from glidemq_async.web.server import listen

    try:
        return listen(host, port)
    except OSError as error:
        raise CommandError(str(port_problem("ui", host, port, error)), UNAVAILABLE) from None


# -- tokens -----------------------------------------------------------------------------------------------------------


@token.command("create")
@with_target
def create(
    target: CommandTarget,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user, for audit lines.")],
    role: Annotated[str, typer.Option("--role", help="viewer, operator or admin.")] = "viewer",
    queues: Annotated[
        list[str] | None, typer.Option("--queue", help="Pattern of queues that the user sees, for example 'mail-*'.")
    ] = None,
    payloads: Annotated[bool, typer.Option("--payloads", help="Show payloads, results, errors and log lines.")] = False,
    days: Annotated[float, typer.Option("--days", help="Days until it expires; 0 for never.")] = 90,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Create an access token, and print its secret once."""

    async def work() -> Document:
        async with _tokens(target) as tokens:
            patterns = tuple(queues or ("*",))
            expires = days * 86_400 or None
            secret = await tokens.create(
                name, checked_role(role), queues=patterns, payloads=payloads, expires=expires, reason=reason
            )
            return {"name": name, "token": secret}

    answer(work(), lambda found: typer.echo(found["token"]), as_json=as_json)


@token.command("list")
@with_target
def list_tokens(target: CommandTarget, as_json: AsJson = False) -> None:
    """List the access tokens, without their secrets."""

    async def work() -> Document:
        from glidemq_async.ops.documents import as_document

        async with _tokens(target) as tokens:
            return {"tokens": [as_document(each) for each in await tokens.list()]}

    answer(work(), _show_tokens, as_json=as_json)


@token.command("revoke")
@with_target
def revoke(
    target: CommandTarget,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows.")],
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Revoke an access token. Processes may accept it for 5 seconds more."""

    async def work() -> Document:
        async with _tokens(target) as tokens:
            found = await tokens.revoke(token_id, reason=reason)
            return {"revoked": found.id, "name": found.identity.name}

    answer(work(), lambda found: typer.echo(f"revoked {found['revoked']} of {found['name']}"), as_json=as_json)


def checked_role(role: str) -> Any:
    """Return a role. Raises BadParameter for an unknown one."""
    from glidemq_async.ops.access import ROLES

    if role not in ROLES:
        raise typer.BadParameter(f"it must be one of {', '.join(ROLES)}", param_hint="--role")
    return role


@asynccontextmanager
async def _tokens(target: CommandTarget) -> AsyncGenerator[Tokens]:
    from glidemq_async.cli import targets
    from glidemq_async.ops.actor import Actor
    from glidemq_async.ops.core import Ops
    from glidemq_async.ops.tokens import Tokens

    async with targets.open_store(target) as store:
        actor = Actor.here("cli")
        ops = Ops.of(store.app, actor=actor) if store.app else Ops(store.storage, prefix=store.prefix, actor=actor)
        async with ops:
            yield Tokens(ops)


def _show_tokens(found: Document) -> None:
    from glidemq_async.cli import tables

    rows = [
        [
            each["id"],
            each["identity"]["name"],
            each["identity"]["role"],
            " ".join(each["identity"]["queues"]),
            "payloads" if each["identity"]["payloads"] else "",
            each["expires_at"] or "never",
        ]
        for each in found["tokens"]
    ]
    tables.print_table(["id", "name", "role", "queues", "sees", "expires"], rows, empty="no tokens")
