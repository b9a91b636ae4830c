"""The commands `glidemq pipeline …`: run, report, replay and backfill, and their demonstration."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from glidemq_async.cli.exits import FAILED, NOT_FOUND, UNAVAILABLE, USAGE, CommandError
from glidemq_async.cli.options import AsJson
from glidemq_async.cli.pipeline_needs import lake_in, need_java, need_queues, need_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glidemq_async.spark.pipeline import Pipeline
    from glidemq_async.spark.write.report import WriteReport

# What the library takes by default, told again: a command that is only asked for its help imports nothing of it.
_PREFIX: Final = "glide"
_OBJECTIVE: Final = 0.99
_DEPTH: Final = 10_000
_MASTER: Final = "local[*]"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        show_default="$GLIDEMQ_URL, else the embedded default",
        help="Where the queues live: redis://host:port, file:///directory, …",
    ),
]
# No --app here: Spark reads and writes payloads as they are stored, and events have none.
Prefix = Annotated[str, typer.Option("--prefix", help="What the keys of the queues start with.")]
LakeFolder = Annotated[Path, typer.Option("--lake", envvar="GLIDEMQ_LAKE", help="The folder of the tables.")]
Queues = Annotated[list[str], typer.Argument(metavar="QUEUE…", help="The queues whose events are kept.")]
Most = Annotated[int | None, typer.Option("--max-events", min=1, help="Events of one batch (Spark 4.2 or newer).")]
AllowLoss = Annotated[
    bool, typer.Option("--allow-data-loss", help="Go on without events that went before they were read.")
]
Every = Annotated[
    float | None,
    typer.Option("--every", min=1, help="Run again after so many seconds, until Ctrl-C.", show_default="once"),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder of the report.")]
Title = Annotated[str | None, typer.Option("--title", help="What stands on top of the page.")]
Objective = Annotated[float, typer.Option("--objective", help="The share of jobs that are to complete.")]
LatencyMs = Annotated[int | None, typer.Option("--latency-ms", min=1, help="Jobs that take longer are bad, too.")]
Master = Annotated[str, typer.Option("--master", help="Where Spark runs, unless spark-submit says so.")]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
Campaign = Annotated[
    str, typer.Option("--campaign", help="Its name: a campaign adds each job once, however often it is run.")
]
Version = Annotated[int, typer.Option("--version", min=0, help="A higher one adds what has come since then.")]
Names = Annotated[list[str] | None, typer.Option("--name", help="Jobs of this name only; repeat it.")]
Errors = Annotated[list[str] | None, typer.Option("--error", help="Failures of this class only; repeat it.")]
Since = Annotated[str | None, typer.Option("--since", help="Failed since then, ISO 8601 with a time zone.")]
Until = Annotated[str | None, typer.Option("--until", help="Failed before then, ISO 8601 with a time zone.")]
DeadLetters = Annotated[
    str | None, typer.Option("--dead-letters", help="The dead-letter queue that keeps the payloads.")
]
Target = Annotated[str | None, typer.Option("--into", help="Another queue for them.", show_default="the same")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count, and write nothing.")]
Depth = Annotated[int, typer.Option("--max-queue-depth", min=1, help="Pause while more jobs than this wait.")]
Rows = Annotated[
    Path, typer.Argument(metavar="ROWS", exists=True, help="A file or folder of Parquet, JSON lines or CSV.")
]
Name = Annotated[str, typer.Option("--job-name", help="The name of the jobs.")]
IdColumns = Annotated[
    list[str], typer.Option("--id-column", help="A column that makes a row the row it is; repeat it.")
]
Rate = Annotated[
    float | None, typer.Option("--max-rows-per-second", min=1, help="No more than this, all tasks together.")
]


def run(
    queues: Queues,
    lake: LakeFolder,
    every: Every = None,
    max_events: Most = None,
    allow_data_loss: AllowLoss = False,
    objective: Objective = _OBJECTIVE,
    latency_ms: LatencyMs = None,
    url: Url = None,
    prefix: Prefix = _PREFIX,
    master: Master = _MASTER,
    as_json: AsJson = False,
) -> None:
    """Read what happened to the queues since the last time into the lake, and compute its tables anew.

    Exit code 1 means that events are missing or doubled; the tables say where.
    """
    import time

    place = _known(url)
    need_queues(queues, lake, place, prefix)
    with _pipeline(lake, master, objective, latency_ms) as pipeline:

        def ingest(tell: Any) -> int:
            return pipeline.ingest(
                place, queues, prefix=prefix, most=max_events, fail_on_data_loss=not allow_data_loss, progress=tell
            )

        while True:
            clean = _run_once(pipeline, ingest, as_json=as_json)
            if every is None:
                break
            time.sleep(every)
    if not clean:
        raise typer.Exit(FAILED)


def _run_once(pipeline: Pipeline, ingest: Callable[[Any], int], *, as_json: bool) -> bool:
    """Do it once, tell of it, and return whether each event is there once."""
    from glidemq_async.cli import output

    with _progress(silent=as_json) as tell:
        events = ingest(tell)
        refresh = pipeline.refresh(progress=tell)
    if as_json:
        typer.echo(output.to_json({"events": events, **asdict(refresh), "clean": refresh.clean}))
    else:
        rows = [(a.queue, a.incarnation, a.rows, a.gap, a.doubled) for a in refresh.audits]
        output.print_table(("queue", "incarnation", "events", "missing", "doubled"), rows, empty="no event yet")
        typer.echo(f"{events:,} new events; tables {refresh.version} of {pipeline.lake.root}")
    return refresh.clean


def report(
    lake: LakeFolder,
    out: Out = Path("report"),
    title: Title = None,
    objective: Objective = _OBJECTIVE,
    latency_ms: LatencyMs = None,
    master: Master = _MASTER,
    as_json: AsJson = False,
) -> None:
    """Write report.html, which needs nothing else, and its pictures as PNG files."""
    from glidemq_async.cli import output

    with _pipeline(lake, master, objective, latency_ms, made=True) as pipeline:
        figures = pipeline.figures()
        made = pipeline.report(out, title=title)
    if as_json:
        output.print_json(
            {
                "page": str(made.page),
                "pictures": [str(path) for path in made.pictures],
                "total": figures.total._asdict(),
            }
        )
    else:
        typer.echo(made.page)


def replay(
    queue: QueueArgument,
    lake: LakeFolder,
    campaign: Campaign,
    version: Version = 1,
    name: Names = None,
    error: Errors = None,
    since: Since = None,
    until: Until = None,
    dead_letters: DeadLetters = None,
    into: Target = None,
    dry_run: DryRun = False,
    max_queue_depth: Depth = _DEPTH,
    url: Url = None,
    prefix: Prefix = _PREFIX,
    master: Master = _MASTER,
    as_json: AsJson = False,
) -> None:
    """Put failed jobs of the lake's last run into the queue again, each once per campaign."""
    from glidemq_async.cli import output
    from glidemq_async.stored.names import check_name

    need_spark()
    from glidemq_async.spark.pipeline.replay import Selection

    try:
        check_name("campaign", campaign)
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--campaign") from None
    chosen = Selection(
        queue, tuple(name or ()), tuple(error or ()), _instant("--since", since), _instant("--until", until)
    )
    with _pipeline(lake, master, made=True) as pipeline:
        found = pipeline.replay(
            chosen,
            campaign,
            url=_known(url),
            prefix=prefix,
            dead_letters=dead_letters,
            queue=into,
            dry_run=dry_run,
            version=version,
            options={"max_queue_depth": max_queue_depth},
        )
    if as_json:
        output.print_json({**asdict(found), "missing": found.missing})
        return
    output.print_table(("error", "failed jobs"), list(found.by_error.items()), empty="no failed job is like that")
    kept = f"{found.selected:,} selected, {found.found:,} with a payload, {found.missing:,} without"
    typer.echo(kept if found.report is None else f"{kept}; {_told(found.report)}")


def backfill(
    rows: Rows,
    queue: QueueArgument,
    campaign: Campaign,
    job_name: Name,
    id_column: IdColumns,
    version: Version = 1,
    max_queue_depth: Depth = _DEPTH,
    max_rows_per_second: Rate = None,
    url: Url = None,
    prefix: Prefix = _PREFIX,
    master: Master = _MASTER,
    as_json: AsJson = False,
) -> None:
    """Add a job per row as the workers take them: no more than so many jobs wait at a time.

    Run again after it was cut off, it goes on; the ids are made of the id columns.
    """
    from glidemq_async.cli import output

    need_spark()
    from glidemq_async.spark.pipeline.backfill import backfill as fill
    from glidemq_async.spark.pipeline.backfill import job_rows

    with _session(master) as spark, _progress(silent=as_json) as tell:
        frame = job_rows(_read(spark, rows), name=job_name, id_columns=id_column)
        made = fill(
            frame,
            queue,
            url=_known(url),
            campaign=campaign,
            version=version,
            max_queue_depth=max_queue_depth,
            max_rows_per_second=max_rows_per_second,
            prefix=prefix,
            progress=lambda so_far: tell("jobs", so_far.inserted + so_far.duplicate),
        )
    if as_json:
        output.print_json(asdict(made))
    else:
        typer.echo(_told(made))


def build() -> typer.Typer:
    """Return the group of commands."""
    from glidemq_async.demo.spark.command import demo

    app = typer.Typer(no_args_is_help=True, help="Events of queues as tables, figures and reports, by Spark.")
    for command in (run, report, replay, backfill, demo):
        app.command(command.__name__)(command)
    return app


@contextmanager
def _session(master: str) -> Generator[SparkSession]:
    """Start Spark, and stop it."""
    need_spark()
    need_java()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName("glidemq pipeline").config("spark.ui.showConsoleProgress", "false")
    if "MASTER" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(master)
    try:
        session = builder.getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise CommandError("Spark's Java ended at once: it must be version 17 or newer", UNAVAILABLE) from error
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    except PySparkException as error:
        raise CommandError(str(error).partition("\nJVM stacktrace")[0]) from error
    except ValueError as error:  # what the library refuses of what was typed
        raise CommandError(str(error), USAGE) from error
    finally:
        session.stop()


@contextmanager
def _pipeline(
    folder: Path, master: str, objective: float = _OBJECTIVE, latency_ms: int | None = None, *, made: bool = False
) -> Generator[Pipeline]:
    """Start Spark with a lake; `made`: one that has tables already."""
    need_spark()
    from glidemq_async.spark.pipeline.slo import Slo

    try:
        slo = Slo(objective=objective, latency_ms=latency_ms)
    except ValueError as error:
        raise CommandError(str(error), USAGE) from None
    lake = lake_in(folder)
    if made and not lake.current:
        raise CommandError(f"{lake.root} is no lake yet: run `glidemq pipeline run` on it first", NOT_FOUND)
    with _session(master) as session:
        from glidemq_async.spark.pipeline import Pipeline

        try:
            yield Pipeline(session, lake, slo=slo)
        except LookupError as error:
            raise CommandError(str(error.args[0]), NOT_FOUND) from error


@contextmanager
def _progress(*, silent: bool) -> Generator[Any]:
    """Give what is told the name and number of what is done; a line each on a terminal, nothing elsewhere."""
    if silent or not sys.stderr.isatty():
        yield _say_nothing
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<16}{task.completed:>12,}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, Any] = {}

        def tell(name: str, number: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=None)
            progress.update(tasks[name], completed=number)

        yield tell


def _say_nothing(_name: str, _number: int) -> None:
    pass


def _read(spark: SparkSession, path: Path) -> DataFrame:
    """Read rows by what the file's name, or those in the folder, end with."""
    from glidemq_async.spark.pipeline.lake import escaped

    names = [path.name] if path.is_file() else [each.name for each in path.rglob("*.*")]
    where = escaped(path.absolute())
    if any(name.endswith(".parquet") for name in names):
        return spark.read.parquet(where)
    if any(name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")) for name in names):
        return spark.read.json(where)
    if any(name.endswith((".csv", ".csv.gz")) for name in names):
        return spark.read.csv(where, header=True)
    raise CommandError(f"{path} holds no .parquet, .json, .jsonl or .csv file", USAGE)


def _known(url: str | None) -> str:
    from glidemq_async.storage.urls import VARIABLE, default_url

    return url or os.environ.get(VARIABLE) or default_url()


def _instant(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if found.tzinfo is None:
        raise typer.BadParameter(f"it needs a time zone: {text}Z for UTC", param_hint=option)
    return found


def _told(made: WriteReport) -> str:
    return f"{made.inserted:,} jobs added, {made.duplicate:,} were there already, {made.rejected:,} rejected"
