"""The command-line application. The work of each command is in a module that is imported when the command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from glidemq_async._internal.control_characters import escape
from glidemq_async.cli import bulk_commands, change_commands, events_command, inspect_commands, pipeline, servers
from glidemq_async.cli.doctor.command import doctor
from glidemq_async.cli.exits import FAILED, CommandError, code_of
from glidemq_async.cli.healthcheck import healthcheck
from glidemq_async.cli.worker.command import worker
from glidemq_async.demo.jobs.command import demo

RUN, LOOK, CHANGE, CARE = "Running", "Looking", "Changing", "Care"


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

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
    app = typer.Typer(name="glidemq", no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_root)
    app.command("worker", rich_help_panel=RUN)(worker)
    app.command("demo", rich_help_panel=RUN)(demo)
    app.add_typer(pipeline.build(), name="pipeline", rich_help_panel=RUN)
    for look in (
        inspect_commands.queues,
        inspect_commands.jobs,
        inspect_commands.job,
        events_command.events,
        inspect_commands.workers,
        inspect_commands.schedulers,
    ):
        app.command(look.__name__, rich_help_panel=LOOK)(look)
    one_by_one = (change_commands.retry, change_commands.remove, change_commands.revoke, change_commands.promote)
    for change in (
        change_commands.add,
        *one_by_one,
        change_commands.dlq,
        bulk_commands.clean,
        bulk_commands.release,
        change_commands.pause,
        change_commands.resume,
    ):
        app.command(change.__name__, rich_help_panel=CHANGE)(change)
    app.command("doctor", rich_help_panel=CARE)(doctor)
    app.command("functions", rich_help_panel=CARE)(servers.functions)
    app.command("healthcheck", rich_help_panel=CARE)(healthcheck)
    return app


def run() -> None:
    """Run the command line of this process. A library error becomes one line and an exit code."""
    from glidemq_async.errors import GlideMQError

    try:
        build()(prog_name="glidemq")
    except (CommandError, GlideMQError) as error:
        typer.echo("glidemq: " + escape(str(error), keep="\n"), err=True)
        raise SystemExit(code_of(error)) from None
    except OSError as error:  # usually from standard output, for example on a full disk
        typer.echo(f"glidemq: {escape(str(error))}", err=True)
        raise SystemExit(FAILED) from None
