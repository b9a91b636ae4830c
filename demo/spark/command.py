"""The command `glidemq pipeline demo`: its options, its display, and its exit codes."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from glidemq_async.demo.spark.demonstration import Draw, Outcome, State

Files = Annotated[int, typer.Option("--files", "-n", min=10, max=100_000, help="Number of files. Each is one job.")]
Workers = Annotated[int, typer.Option("--workers", "-w", min=1, max=16, help="Number of worker processes.")]
Rate = Annotated[
    int, typer.Option("--rate", min=1, help="Maximum number of jobs that start in a second, of all workers together.")
]
Kill = Annotated[bool, typer.Option("--kill/--no-kill", help="Kill Spark and a worker halfway through.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", file_okay=False, show_default="a new one", help="Folder of the lake and the report."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")]


def demo(
    files: Files = 3000,
    workers: Workers = 2,
    rate: Rate = 200,
    kill: Kill = True,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Add a job with Spark for each file of this interpreter, and report on the jobs by their events.

    Some jobs fail on purpose. With --kill, the process with Spark and a worker are killed halfway through and started
    again.
    Exit code 1 means that a figure differs from the expected one. Needs Java 17 and no server.
    """
    from glidemq_async.cli.exits import INTERRUPTED, UNAVAILABLE, CommandError
    from glidemq_async.cli.loops import run_interruptible
    from glidemq_async.demo.spark.demonstration import Plan, run_demonstration
    from glidemq_async.spark.requirements import require_java, require_pyspark

    try:
        require_pyspark()
        require_java()
    except (ImportError, FileNotFoundError) as error:
        raise CommandError(str(error), UNAVAILABLE) from None
    kept = folder or Path(tempfile.mkdtemp(prefix="glidemq-spark-"))
    with _display(silent=as_json) as draw:
        outcome = run_interruptible(run_demonstration(Plan(kept.absolute(), files, workers, rate, kill), draw))
    if outcome is None:
        raise typer.Exit(INTERRUPTED)
    _print(outcome, kept, as_json)
    if not outcome.as_expected:
        raise typer.Exit(1)


@contextmanager
def _display(*, silent: bool) -> Generator[Draw]:
    """Yield a function that draws the state: bars on a terminal, a line per step elsewhere."""
    from rich.console import Console

    out = Console(highlight=False)
    if silent:
        yield lambda _state: None
    elif out.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=out) as progress:
            bars = {name: progress.add_task(name, total=None) for name in ("jobs enqueued", "jobs ended")}
            spark = progress.add_task("Spark", total=None)

            def draw(state: State) -> None:
                progress.update(bars["jobs enqueued"], total=state.jobs, completed=state.enqueued)
                progress.update(bars["jobs ended"], total=state.jobs, completed=state.ended)
                progress.update(spark, description=f"Spark: {state.step}", completed=state.ingested)
                while state.notes:
                    progress.console.print(state.notes.pop(0))

            yield draw
    else:
        yield _Lines().draw


class _Lines:
    def __init__(self) -> None:
        self._last = ""

    def draw(self, state: State) -> None:
        """Print a line for each new step, and the notes."""
        while state.notes:
            typer.echo(state.notes.pop(0))
        if state.step != self._last:
            self._last = state.step
            known = f"{state.enqueued:,} jobs enqueued, {state.ended:,} ended, {state.ingested:,} events read"
            typer.echo(f"Spark: {state.step} ({known})")


def _print(outcome: Outcome, folder: Path, as_json: bool) -> None:
    from glidemq_async.cli import output, tables

    found, wanted = outcome.result["figures"], outcome.expected
    if as_json:
        result = {**outcome.result, "expected": wanted, "as_expected": outcome.as_expected}
        output.print_json({**result, "killed": outcome.killed, "seconds": round(outcome.seconds, 1)})
        return
    rows = [(name, found[name], wanted[name]) for name in ("jobs", "completed", "failed", "retries")]
    columns: list[str | tables.Column] = [
        "",
        *(tables.Column(name, kept=True) for name in ("found by the pipeline", "expected")),
    ]
    tables.print_table(columns, rows, empty="")
    events, stalls = outcome.result["events"], outcome.result["stalls"]
    once = "each exactly once" if outcome.result["clean"] else "and some are missing or repeated"
    typer.echo(f"{events:,} events, {once}; {stalls} runs were interrupted and repeated; {outcome.seconds:.0f} s")
    typer.echo("all figures are as expected" if outcome.as_expected else "the figures are NOT as expected")
    typer.echo(f"report: {outcome.result['page']}")
    typer.echo(f"the lake and the queue are kept in {folder}; remove the folder when you no longer need it")
