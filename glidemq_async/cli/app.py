"""The command-line application. A command's module is imported, and its options are read, when the command is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from glidemq_async._internal.control_characters import escape
from glidemq_async.cli.exits import FAILED, CommandError, code_of

if TYPE_CHECKING:
    from typer._click import Command, Context

RUN, INSPECT, MODIFY, MAINTAIN = "Run", "Inspect", "Modify", "Maintain"

COMMANDS: Final = {
    "worker": (RUN, "glidemq_async.cli.worker.command"),
    "ui": (RUN, "glidemq_async.cli.ui_command"),
    "mcp": (RUN, "glidemq_async.cli.mcp_command"),
    "demo": (RUN, "glidemq_async.demo.jobs.command"),
    "pipeline": (RUN, "glidemq_async.cli.pipeline"),
    "top": (INSPECT, "glidemq_async.cli.top_command"),
    "queues": (INSPECT, "glidemq_async.cli.inspect_commands"),
    "jobs": (INSPECT, "glidemq_async.cli.inspect_commands"),
    "find": (INSPECT, "glidemq_async.cli.find_command"),
    "job": (INSPECT, "glidemq_async.cli.inspect_commands"),
    "explain": (INSPECT, "glidemq_async.cli.explain_command"),
    "history": (INSPECT, "glidemq_async.cli.history_command"),
    "failures": (INSPECT, "glidemq_async.cli.failures_command"),
    "events": (INSPECT, "glidemq_async.cli.events_command"),
    "watch": (INSPECT, "glidemq_async.cli.watch_command"),
    "workers": (INSPECT, "glidemq_async.cli.inspect_commands"),
    "topics": (INSPECT, "glidemq_async.cli.topic_commands"),
    "schedulers": (INSPECT, "glidemq_async.cli.inspect_commands"),
    "add": (MODIFY, "glidemq_async.cli.change_commands"),
    "retry": (MODIFY, "glidemq_async.cli.change_commands"),
    "remove": (MODIFY, "glidemq_async.cli.change_commands"),
    "revoke": (MODIFY, "glidemq_async.cli.change_commands"),
    "promote": (MODIFY, "glidemq_async.cli.change_commands"),
    "signal": (MODIFY, "glidemq_async.cli.signal_commands"),
    "workflows": (MODIFY, "glidemq_async.cli.workflow_commands"),
    "dlq": (MODIFY, "glidemq_async.cli.dead_letter_command"),
    "clean": (MODIFY, "glidemq_async.cli.bulk_commands"),
    "release": (MODIFY, "glidemq_async.cli.bulk_commands"),
    "pause": (MODIFY, "glidemq_async.cli.queue_commands"),
    "resume": (MODIFY, "glidemq_async.cli.queue_commands"),
    "operations": (MODIFY, "glidemq_async.cli.operation_commands"),
    "alerts": (MODIFY, "glidemq_async.cli.alert_commands"),
    "settings": (MODIFY, "glidemq_async.cli.settings_command"),
    "limits": (MODIFY, "glidemq_async.cli.limit_commands"),
    "retention": (MODIFY, "glidemq_async.cli.retention_command"),
    "drain": (MODIFY, "glidemq_async.cli.queue_commands"),
    "obliterate": (MODIFY, "glidemq_async.cli.queue_commands"),
    "audit": (INSPECT, "glidemq_async.cli.audit_command"),
    "doctor": (MAINTAIN, "glidemq_async.cli.doctor.command"),
    "functions": (MAINTAIN, "glidemq_async.cli.servers"),
    "acl": (MAINTAIN, "glidemq_async.cli.acl_command"),
    "healthcheck": (MAINTAIN, "glidemq_async.cli.healthcheck"),
}
"""The panel of the help, and the module, of each command. The module contains a function or a Typer of its name."""


class _Commands(TyperGroup):
    """The group of all commands. Typer takes 1 ms to read the options of one, so it reads the used ones."""

    @override
    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        # Typer suggests names among the loaded commands, so an unknown name loads all of them.
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self._load(name)
        return super().get_command(ctx, cmd_name)

    def _load(self, name: str) -> None:
        panel, module = COMMANDS[name]
        command = getattr(import_module(module), name)
        app = typer.Typer()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)
        self.commands.update(typer.main.get_group(app).commands)


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
    app = typer.Typer(name="glidemq", cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_root)
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
