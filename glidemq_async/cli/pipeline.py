"""The commands `glidemq pipeline run`, `report`, `replay` and `backfill`."""

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

from glidemq_async.cli.exits import FAILED, USAGE, CommandError
from glidemq_async.cli.options import AsJson
from glidemq_async.cli.pipeline_needs import need_queues, need_spark
from glidemq_async.cli.pipeline_session import OBJECTIVE, open_pipeline, open_session
from glidemq_async.demo.spark.command import demo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glidemq_async.spark.pipeline import Pipeline
    from glidemq_async.spark.write.report import WriteReport

# Copies of the library's defaults, because `--help` must not import pyspark.
_PREFIX: Final = "glide"
_DEPTH: Final = 10_000
_MASTER: Final = "local[*]"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        show_default="$GLIDEMQ_URL, else the embedded default",
        help="Server of the queues: redis://host:port, file:///directory, …",
    ),
]
# There is no --app here: Spark reads and writes payloads in stored form, and events have no payloads.
Prefix = Annotated[str, typer.Option("--prefix", help="Prefix of the store keys.")]
LakeFolder = Annotated[Path, typer.Option("--lake", envvar="GLIDEMQ_LAKE", help="Folder of the tables.")]
Queues = Annotated[list[str], typer.Argument(metavar="QUEUE…", help="Queues whose events are stored.")]
Most = Annotated[
    int | None, typer.Option("--max-events", min=1, help="Maximum number of events per batch (Spark 4.2 or newer).")
]
AllowLoss = Annotated[
    bool, typer.Option("--allow-data-loss", help="Continue without events that were trimmed before they were read.")
]
Every = Annotated[
    float | None,
    typer.Option("--every", min=1, help="Repeat after this many seconds, until Ctrl-C.", show_default="once"),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")]
Title = Annotated[str | None, typer.Option("--title", help="Title of the page.")]
Objective = Annotated[float, typer.Option("--objective", help="Objective: the share of jobs that complete.")]
LatencyMs = Annotated[int | None, typer.Option("--latency-ms", min=1, help="Slower jobs count as bad too.")]
Master = Annotated[str, typer.Option("--master", help="Spark master, unless spark-submit sets it.")]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Campaign = Annotated[
    str, typer.Option("--campaign", help="Name of the campaign. It adds each job once, even if it runs several times.")
]
Version = Annotated[
    int, typer.Option("--version", min=0, help="Version of the campaign. A higher version adds later jobs.")
]
Names = Annotated[list[str] | None, typer.Option("--name", help="Only jobs of this name. Repeat it for several names.")]
Errors = Annotated[
    list[str] | None, typer.Option("--error", help="Only failures of this error class. Repeat it for several classes.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only jobs that failed at or after this time (ISO 8601 with a time zone).")
]
Until = Annotated[
    str | None, typer.Option("--until", help="Only jobs that failed before this time (ISO 8601 with a time zone).")
]
DeadLetters = Annotated[str | None, typer.Option("--dead-letters", help="Dead-letter queue with the payloads.")]
Target = Annotated[str | None, typer.Option("--into", help="Target queue.", show_default="the same queue")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the jobs.")]
Depth = Annotated[int, typer.Option("--max-queue-depth", min=1, help="Pause while more jobs than this wait.")]
Rows = Annotated[
    Path, typer.Argument(metavar="ROWS", exists=True, help="File or folder of Parquet, JSON lines or CSV.")
]
Name = Annotated[str, typer.Option("--job-name", help="Name of the jobs.")]
IdColumns = Annotated[
    list[str], typer.Option("--id-column", help="Column that identifies a row. Repeat it for several columns.")
]
Rate = Annotated[float | None, typer.Option("--max-rows-per-second", min=1, help="Maximum rate of all tasks together.")]


def run(
    queues: Queues,
    lake: LakeFolder,
    every: Every = None,
    max_events: Most = None,
    allow_data_loss: AllowLoss = False,
    objective: Objective = OBJECTIVE,
    latency_ms: LatencyMs = None,
    url: Url = None,
    prefix: Prefix = _PREFIX,
    master: Master = _MASTER,
    as_json: AsJson = False,
) -> None:
    """Append the new events of the queues to the lake, and compute its tables.

    Exit code 1 means that events are missing or duplicated. The output shows the queues.
    """
    import time

    server = _url_of(url)
    need_queues(queues, lake, server, prefix)
    with open_pipeline(lake, master, objective, latency_ms) as pipeline:

        def ingest(report_progress: Any) -> int:
            return pipeline.ingest(
                server,
                queues,
                prefix=prefix,
                most=max_events,
                fail_on_data_loss=not allow_data_loss,
                progress=report_progress,
            )

        while True:
            # One Spark session serves all rounds, because its start takes seconds. With --every only a signal ends the
            # loop, so the exit code below belongs to a single round.
            clean = _run_once(pipeline, ingest, as_json=as_json)
            if every is None:
                break
            time.sleep(every)
    if not clean:
        raise typer.Exit(FAILED)


def _run_once(pipeline: Pipeline, ingest: Callable[[Any], int], *, as_json: bool) -> bool:
    """Ingest and refresh once, print the result, and return True if each event exists once."""
    from glidemq_async.cli import output

    with _progress(silent=as_json) as report_progress:
        events = ingest(report_progress)
        refresh = pipeline.refresh(progress=report_progress)
    if as_json:
        typer.echo(output.to_json({"events": events, **asdict(refresh), "clean": refresh.clean}))
    else:
        rows = [(a.queue, a.incarnation, a.rows, a.gap, a.doubled) for a in refresh.audits]
        output.print_table(("queue", "incarnation", "events", "missing", "duplicated"), rows, empty="no events yet")
        typer.echo(f"{events:,} new events; tables {refresh.version} of {pipeline.lake.root}")
    return refresh.clean


def report(
    lake: LakeFolder,
    out: Out = Path("report"),
    title: Title = None,
    objective: Objective = OBJECTIVE,
    latency_ms: LatencyMs = None,
    master: Master = _MASTER,
    as_json: AsJson = False,
) -> None:
    """Write report.html with embedded charts, and the charts as PNG files."""
    from glidemq_async.cli import output

    with open_pipeline(lake, master, objective, latency_ms, made=True) as pipeline:
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
    """Add failed jobs of the lake's last run to the queue again, each once per campaign."""
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
    with open_pipeline(lake, master, made=True) as pipeline:
        # A second run of the same campaign and version does nothing, so a user may repeat a command that was
        # interrupted.
        found = pipeline.replay(
            chosen,
            campaign,
            url=_url_of(url),
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
    output.print_table(("error", "failed jobs"), list(found.by_error.items()), empty="no failed job matches")
    kept = f"{found.selected:,} selected, {found.found:,} with a payload, {found.missing:,} without"
    typer.echo(kept if found.report is None else f"{kept}; {_summary(found.report)}")


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
    """Add a job for each row, while fewer than --max-queue-depth jobs wait.

    An interrupted backfill continues when it is run again. The id columns determine the ids of the jobs.
    """
    from glidemq_async.cli import output

    need_spark()
    from glidemq_async.spark.pipeline.backfill import backfill as fill
    from glidemq_async.spark.pipeline.backfill import job_rows

    with open_session(master) as spark, _progress(silent=as_json) as report_progress:
        frame = job_rows(_read(spark, rows), name=job_name, id_columns=id_column)
        made = fill(
            frame,
            queue,
            url=_url_of(url),
            campaign=campaign,
            version=version,
            max_queue_depth=max_queue_depth,
            max_rows_per_second=max_rows_per_second,
            prefix=prefix,
            progress=lambda so_far: report_progress("jobs", so_far.inserted + so_far.duplicate),
        )
    if as_json:
        output.print_json(asdict(made))
    else:
        typer.echo(_summary(made))


pipeline = typer.Typer(no_args_is_help=True, help="Compute tables and reports from the events of queues with Spark.")
for _command in (run, report, replay, backfill, demo):
    pipeline.command(_command.__name__)(_command)


@contextmanager
def _progress(*, silent: bool) -> Generator[Any]:
    """Yield a callback for progress. On a terminal it shows a line per step, elsewhere nothing."""
    if silent or not sys.stderr.isatty():
        yield _ignore_progress
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<16}{task.completed:>12,}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, Any] = {}

        def report_progress(name: str, number: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=None)
            progress.update(tasks[name], completed=number)

        yield report_progress


def _ignore_progress(_name: str, _number: int) -> None:
    pass


def _read(spark: SparkSession, path: Path) -> DataFrame:
    """Read rows in the format that the file's name, or the names in the folder, end with."""
    from glidemq_async.spark.pipeline.lake import escaped

    names = [path.name] if path.is_file() else [each.name for each in path.rglob("*.*")]
    where = escaped(path.absolute())
    if any(name.endswith(".parquet") for name in names):
        return spark.read.parquet(where)
    if any(name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")) for name in names):
        return spark.read.json(where)
    if any(name.endswith((".csv", ".csv.gz")) for name in names):
        return spark.read.csv(where, header=True)
    raise CommandError(f"{path} contains no .parquet, .json, .jsonl or .csv file", USAGE)


def _url_of(url: str | None) -> str:
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
        raise typer.BadParameter(f"the time zone is missing; for UTC write {text}Z", param_hint=option)
    return found


def _summary(made: WriteReport) -> str:
    return f"{made.inserted:,} jobs added, {made.duplicate:,} existed already, {made.rejected:,} rejected"
