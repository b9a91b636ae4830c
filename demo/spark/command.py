"""The command `glidemq pipeline demo`: its options, its display, and its exit codes."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from glidemq_async.demo.spark.show import Draw, Outcome, State

Files = Annotated[int, typer.Option("--files", "-n", min=10, max=100_000, help="How many files, one job each.")]
Workers = Annotated[int, typer.Option("--workers", "-w", min=1, max=16, help="Worker processes.")]
Rate = Annotated[int, typer.Option("--rate", min=1, help="Jobs that may start in a second, all workers together.")]
Kill = Annotated[bool, typer.Option("--kill/--no-kill", help="SIGKILL Spark and a worker half way.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", file_okay=False, show_default="a new one", help="Where the lake and the report go."),
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
    """Hash files of this interpreter as jobs that Spark enqueues, and let the pipeline tell what became of them.

    Some fail on purpose. With --kill the process with Spark and a worker are killed half way and started again. Exit
    code 1 means that a figure is not what it had to be. Needs Java 17 and no server.
    """
    from glidemq_async.cli.exits import INTERRUPTED, UNAVAILABLE, CommandError
    from glidemq_async.cli.loops import run_interruptible
    from glidemq_async.demo.spark.show import Plan, show
    from glidemq_async.spark.requirements import require_java, require_pyspark

    try:
        require_pyspark()
        require_java()
    except (ImportError, FileNotFoundError) as error:
        raise CommandError(str(error), UNAVAILABLE) from None
    place = folder or Path(tempfile.mkdtemp(prefix="glidemq-spark-"))
    with _display(silent=as_json) as draw:
        outcome = run_interruptible(show(Plan(place.absolute(), files, workers, rate, kill), draw))
    if outcome is None:
        raise typer.Exit(INTERRUPTED)
    _print(outcome, place, as_json)
    if not outcome.as_expected:
        raise typer.Exit(1)


@contextmanager
def _display(*, silent: bool) -> Generator[Draw]:
    """Give what draws the state: bars on a terminal, a line per change elsewhere."""
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
        """Print a line for each step, and the notes."""
        while state.notes:
            typer.echo(state.notes.pop(0))
        if state.step != self._last:
            self._last = state.step
            known = f"{state.enqueued:,} jobs enqueued, {state.ended:,} ended, {state.ingested:,} events read"
            typer.echo(f"Spark: {state.step} ({known})")


def _print(outcome: Outcome, folder: Path, as_json: bool) -> None:
    from glidemq_async.cli import output

    told, wanted = outcome.result["figures"], outcome.expected
    if as_json:
        result = {**outcome.result, "expected": wanted, "as_expected": outcome.as_expected}
        output.print_json({**result, "killed": outcome.killed, "seconds": round(outcome.seconds, 1)})
        return
    rows = [(name, told[name], wanted[name]) for name in ("jobs", "completed", "failed", "retries")]
    output.print_table(("", "told by the pipeline", "had to be"), rows, empty="")
    events, stalls = outcome.result["events"], outcome.result["stalls"]
    once = "each exactly once" if outcome.result["clean"] else "and some are missing or doubled"
    typer.echo(f"{events:,} events, {once}; {stalls} runs were cut off and run again; {outcome.seconds:.0f} s")
    typer.echo("as it had to be" if outcome.as_expected else "NOT as it had to be")
    typer.echo(f"report: {outcome.result['page']}")
    typer.echo(f"kept, with the lake and the queue: {folder}; remove it when you have seen it")
