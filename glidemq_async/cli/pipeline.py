"""The commands `glidemq pipeline run`, `report`, `replay` and `backfill`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glidemq_async.cli.exits import FAILED, USAGE, CommandError
from glidemq_async.cli.option_groups import with_groups
from glidemq_async.cli.options import AsJson, QueueName
from glidemq_async.cli.pipeline_needs import need_queues, need_spark
from glidemq_async.cli.pipeline_options import (
    MASTER,
    AllowLoss,
    CampaignOptions,
    DeadLetters,
    DryRun,
    Every,
    FailureOptions,
    IdColumns,
    LakeFolder,
    Master,
    Most,
    Name,
    ObjectiveOptions,
    Out,
    Queues,
    Rate,
    Rows,
    ServerOptions,
    Target,
    Title,
)
from glidemq_async.cli.pipeline_session import open_pipeline, open_session
from glidemq_async.demo.spark.command import demo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from glidemq_async.spark.pipeline import Pipeline
    from glidemq_async.spark.write.report import WriteReport


@with_groups
def run(
    queues: Queues,
    lake: LakeFolder,
    *,
    every: Every = None,
    max_events: Most = None,
    allow_data_loss: AllowLoss = False,
    objective: ObjectiveOptions,
    server: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Append the new events of the queues to the lake, and compute its tables.

    Exit code 1 means that events are missing or duplicated. The output shows the queues.
    """
    import time

    url = server.address
    need_queues(queues, lake, url, server.prefix)
    with open_pipeline(lake, server.master, objective.slo()) as pipeline:

        def ingest(report_progress: Any) -> int:
            return pipeline.ingest(
                url,
                queues,
                prefix=server.prefix,
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
    from glidemq_async.cli import output, tables

    with _progress(silent=as_json) as report_progress:
        events = ingest(report_progress)
        refresh = pipeline.refresh(progress=report_progress)
    if as_json:
        typer.echo(output.to_json({"events": events, **asdict(refresh), "clean": refresh.clean}))
    else:
        rows = [(a.queue, a.incarnation, a.rows, a.gap, a.doubled) for a in refresh.audits]
        headings: list[str | tables.Column] = [
            "queue",
            "incarnation",
            "events",
            *(tables.Column(name, kept=True) for name in ("missing", "duplicated")),
        ]
        tables.print_table(headings, rows, empty="no events yet")
        typer.echo(f"{events:,} new events; tables {refresh.version} of {pipeline.lake.root}")
    return refresh.clean


@with_groups
def report(
    lake: LakeFolder,
    *,
    out: Out = Path("report"),
    title: Title = None,
    objective: ObjectiveOptions,
    master: Master = MASTER,
    as_json: AsJson = False,
) -> None:
    """Write report.html with embedded charts, and the charts as PNG files."""
    from glidemq_async.cli import output

    with open_pipeline(lake, master, objective.slo(), made=True) as pipeline:
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


@with_groups
def replay(
    queue: QueueName,
    lake: LakeFolder,
    *,
    campaign: CampaignOptions,
    failures: FailureOptions,
    dead_letters: DeadLetters = None,
    into: Target = None,
    dry_run: DryRun = False,
    server: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Add failed jobs of the lake's last run to the queue again, each once per campaign."""
    from glidemq_async.cli import output, tables
    from glidemq_async.stored.names import check_name

    need_spark()
    try:
        check_name("campaign", campaign.campaign)
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--campaign") from None
    selection = failures.selection(queue)
    with open_pipeline(lake, server.master, made=True) as pipeline:
        # A second run of the same campaign and version does nothing, so a user may repeat a command that was
        # interrupted.
        found = pipeline.replay(
            selection,
            campaign.campaign,
            url=server.address,
            prefix=server.prefix,
            dead_letters=dead_letters,
            queue=into,
            dry_run=dry_run,
            version=campaign.version,
            options={"max_queue_depth": campaign.max_queue_depth},
        )
    if as_json:
        output.print_json({**asdict(found), "missing": found.missing})
        return
    tables.print_table(("error", "failed jobs"), list(found.by_error.items()), empty="no failed job matches")
    kept = f"{found.selected:,} selected, {found.found:,} with a payload, {found.missing:,} without"
    typer.echo(kept if found.report is None else f"{kept}; {_summary(found.report)}")


@with_groups
def backfill(
    rows: Rows,
    queue: QueueName,
    *,
    job_name: Name,
    id_column: IdColumns,
    campaign: CampaignOptions,
    max_rows_per_second: Rate = None,
    server: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Add a job for each row, while fewer than --max-queue-depth jobs wait.

    An interrupted backfill continues when it is run again. The id columns determine the ids of the jobs.
    """
    from glidemq_async.cli import output

    need_spark()
    from glidemq_async.spark.pipeline.backfill import backfill as fill
    from glidemq_async.spark.pipeline.backfill import job_rows

    with open_session(server.master) as spark, _progress(silent=as_json) as report_progress:
        frame = job_rows(_read(spark, rows), name=job_name, id_columns=id_column)
        made = fill(
            frame,
            queue,
            url=server.address,
            **asdict(campaign),
            max_rows_per_second=max_rows_per_second,
            prefix=server.prefix,
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


def _summary(made: WriteReport) -> str:
    from glidemq_async.cli.output import counted

    return f"{counted(made.inserted, 'job')} added, {made.duplicate:,} existed already, {made.rejected:,} rejected"
