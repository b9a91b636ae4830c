"""The command `glidemq demo`: its options and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

SourcePath = Annotated[
    Path | None,
    typer.Argument(
        exists=True,
        readable=True,
        show_default="the running interpreter's standard library",
        help="A directory or a file. Installed packages and hidden directories are left out.",
    ),
]
Workers = Annotated[int, typer.Option("--workers", "-w", min=1, max=64, help="Number of worker processes.")]
Concurrency = Annotated[
    int, typer.Option("--concurrency", "-c", min=1, max=1000, help="Maximum number of running jobs in each process.")
]
Url = Annotated[
    str | None,
    typer.Option(
        show_default="an embedded server that is removed afterwards",
        help="The server of the queue: file:///directory, redis://host:port, …",
    ),
]
Kill = Annotated[bool, typer.Option("--kill/--no-kill", help="Kill one worker process halfway through.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")]


def demo(
    path: SourcePath = None,
    workers: Workers = 2,
    concurrency: Concurrency = 4,
    url: Url = None,
    kill: Kill = True,
    as_json: AsJson = False,
) -> None:
    """Run one job for each Python file of PATH, kill a worker halfway through, and count lost jobs.

    Some jobs fail on purpose at their first run and are retried. Exit code 1: a job was lost or ended twice, or the
    stored data did not pass the self-check. Exit code 130: interrupted.
    """
    # Imported here so that other commands, and --help, start without them.
    from rich.console import Console

    from glidemq_async.cli.exits import INTERRUPTED
    from glidemq_async.cli.loops import run_interruptible
    from glidemq_async.demo.jobs import demonstration, report, sources
    from glidemq_async.demo.jobs.display import open_display

    _check(url)
    found = sources.find_sources(path or sources.standard_library())
    if not found.files:
        raise typer.BadParameter(f"no Python files in {found.root}; name a directory that contains some")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=report.PLAIN_WIDTH)
    plan = demonstration.Plan(found, workers, concurrency, kill, url)
    outcome = run_interruptible(demonstration.run_demonstration(plan, open_display(console, silent=as_json)))
    if outcome is None:
        typer.echo("interrupted; the workers were stopped and the queue was deleted", err=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        typer.echo(json.dumps(report.as_json(outcome, found.root), indent=2))
    else:
        report.print_report(console, outcome, found.root)
    if not outcome.figures.clean:
        raise typer.Exit(1)


def _check(url: str | None) -> None:
    from glidemq_async.demo.jobs.demo_store import check_url

    if url is not None:
        try:
            check_url(url)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from None
