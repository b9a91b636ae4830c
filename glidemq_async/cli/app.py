"""The commands, put together. What a command does lives in its own module, imported when it runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from glidemq_async.cli.demo.command import demo
from glidemq_async.errors import GlideMQError


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"glidemq-async {version('glidemq-async')}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """An asyncio job queue on Redis and Valkey Functions."""


def build() -> typer.Typer:
    """Return the application with every command."""
    app = typer.Typer(name="glidemq", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    app.command("demo")(demo)
    return app


def run() -> None:
    """Run the command line of this process; an error of the library is one line and exit code 1."""
    try:
        build()(prog_name="glidemq")
    except GlideMQError as error:
        typer.echo(f"glidemq: {error}", err=True)
        raise SystemExit(1) from None
