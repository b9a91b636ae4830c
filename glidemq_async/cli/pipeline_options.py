"""The options of the commands `glidemq pipeline …`. Each group of options is a dataclass; see `option_groups`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from glidemq_async.cli.exits import USAGE, CommandError
from glidemq_async.cli.pipeline_needs import need_spark

if TYPE_CHECKING:
    from glidemq_async.spark.pipeline.replay import Selection
    from glidemq_async.spark.pipeline.slo import Slo

# Copies of the library's defaults, because `--help` must not import pyspark.
_PREFIX: Final = "glide"
_DEPTH: Final = 10_000
_OBJECTIVE: Final = 0.99
MASTER: Final = "local[*]"

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
Master = Annotated[str, typer.Option("--master", help="Spark master, unless spark-submit sets it.")]
DeadLetters = Annotated[str | None, typer.Option("--dead-letters", help="Dead-letter queue with the payloads.")]
Target = Annotated[str | None, typer.Option("--into", help="Target queue.", show_default="the same queue")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the jobs.")]
Rows = Annotated[
    Path, typer.Argument(metavar="ROWS", exists=True, help="File or folder of Parquet, JSON lines or CSV.")
]
Name = Annotated[str, typer.Option("--job-name", help="Name of the jobs.")]
IdColumns = Annotated[
    list[str], typer.Option("--id-column", help="Column that identifies a row. Repeat it for several columns.")
]
Rate = Annotated[float | None, typer.Option("--max-rows-per-second", min=1, help="Maximum rate of all tasks together.")]


# There is no --app here: Spark reads and writes payloads in stored form, and events have no payloads.
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The server of the queues, and Spark."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            "-u",
            show_default="$GLIDEMQ_URL, else the embedded default",
            help="Server of the queues: redis://host:port, file:///directory, …",
        ),
    ] = None
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix of the store keys.")] = _PREFIX
    master: Master = MASTER

    @property
    def address(self) -> str:
        """The URL of the server, which is the default one if none was typed."""
        from glidemq_async.storage.urls import VARIABLE, default_url

        return self.url or os.environ.get(VARIABLE) or default_url()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveOptions:
    """The objective of the figures."""

    objective: Annotated[float, typer.Option("--objective", help="Objective: the share of jobs that complete.")] = (
        _OBJECTIVE
    )
    latency_ms: Annotated[int | None, typer.Option("--latency-ms", min=1, help="Slower jobs count as bad too.")] = None

    def slo(self) -> Slo:
        """Return the objective. Raises CommandError."""
        need_spark()
        from glidemq_async.spark.pipeline.slo import Slo

        try:
            return Slo(objective=self.objective, latency_ms=self.latency_ms)
        except ValueError as error:
            raise CommandError(str(error), USAGE) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOptions:
    """The campaign that adds jobs, and its limit."""

    campaign: Annotated[
        str,
        typer.Option("--campaign", help="Name of the campaign. It adds each job once, even if it runs several times."),
    ]
    version: Annotated[
        int, typer.Option("--version", min=0, help="Version of the campaign. A higher version adds later jobs.")
    ] = 1
    max_queue_depth: Annotated[
        int, typer.Option("--max-queue-depth", min=1, help="Pause while more jobs than this wait.")
    ] = _DEPTH


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureOptions:
    """A selection of failed jobs."""

    name: Annotated[
        list[str] | None, typer.Option("--name", help="Only jobs of this name. Repeat it for several names.")
    ] = None
    error: Annotated[
        list[str] | None,
        typer.Option("--error", help="Only failures of this error class. Repeat it for several classes."),
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only jobs that failed at or after this time (ISO 8601 with a time zone)."),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", help="Only jobs that failed before this time (ISO 8601 with a time zone).")
    ] = None

    def selection(self, queue: str) -> Selection:
        """Return the selection among the jobs of a queue. Raises BadParameter."""
        from glidemq_async.spark.pipeline.replay import Selection

        since, until = _instant("--since", self.since), _instant("--until", self.until)
        return Selection(queue, tuple(self.name or ()), tuple(self.error or ()), since, until)


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
