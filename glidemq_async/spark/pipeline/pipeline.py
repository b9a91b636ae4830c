"""`Pipeline`: ingest new events, compute the tables, and write the report."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.spark.driver.session import register
from glidemq_async.spark.pipeline import bronze, gold, silver
from glidemq_async.spark.pipeline.bronze import Audit
from glidemq_async.spark.pipeline.burn_rates import burn_rates
from glidemq_async.spark.pipeline.figures import PipelineFigures, figures
from glidemq_async.spark.pipeline.lake import Lake, uri
from glidemq_async.spark.pipeline.replay import Replay, Selection, replay
from glidemq_async.spark.pipeline.report import ReportFiles, save_report
from glidemq_async.spark.pipeline.slo import Slo
from glidemq_async.spark.write.enqueue import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str, int], None]
"""Callback with the name of a step and the number of its finished rows."""

# Any: the annotation allows whole seconds only.
_POLL_SECONDS: Any = 0.2


@dataclass(frozen=True)
class Refresh:
    """A new version of the tables: the number of rows of each, and the audits of the event numbers."""

    version: str
    rows: dict[str, int]
    audits: tuple[Audit, ...]

    @property
    def clean(self) -> bool:
        """True if each event between the first and the last of each queue exists once."""
        return all(audit.clean for audit in self.audits)


class Pipeline:
    """The events of queues in a lake, and the tables and reports that are computed from them.

        pipeline = Pipeline(spark, "/data/lake")
        pipeline.ingest(url, ["emails"])     # append new events, each once
        pipeline.refresh()                   # compute silver and gold
        pipeline.report(Path("report"))

    Each step may be killed and run again. Only one process at a time may ingest into a lake.
    """

    def __init__(self, spark: SparkSession, lake: Lake | str | Path, *, slo: Slo | None = None) -> None:
        self.spark = spark
        self.lake = lake if isinstance(lake, Lake) else Lake(lake)
        self.slo = slo or Slo()

    def stream(
        self,
        url: str,
        queues: Sequence[str],
        *,
        prefix: str = DEFAULT_PREFIX,
        most: int | None = None,
        start: str = "earliest",
        fail_on_data_loss: bool = True,
    ) -> DataFrame:
        """Return the events of the queues as a stream. most: maximum number of events per batch (Spark 4.2 or newer).

        Events that were trimmed or obliterated before they were read end the stream. With `fail_on_data_loss=False` the
        stream continues, and the losses are rows of `kind=losses`.
        """
        register(self.spark)
        reader = (
            self.spark.readStream.format("glidemq")
            .option("kind", "events")
            .option("url", url)
            .option("prefix", prefix)
            .option("subscribe", json.dumps([*queues]))
            .option("startingOffsets", start)
            .option("failOnDataLoss", fail_on_data_loss)
        )
        if most is not None:
            reader = reader.option("maxOffsetsPerTrigger", most)
        return reader.load()

    def ingest(
        self,
        url: str,
        queues: Sequence[str],
        *,
        prefix: str = DEFAULT_PREFIX,
        most: int | None = None,
        fail_on_data_loss: bool = True,
        progress: Progress | None = None,
    ) -> int:
        """Append the events since the last call, and return their number.

        The first call begins with the oldest stored events. Raises the errors of the stream, also for lost events,
        unless `fail_on_data_loss` is False; see `stream`.
        """
        events = self.stream(url, queues, prefix=prefix, most=most, fail_on_data_loss=fail_on_data_loss)
        return self.append(events, progress=progress)

    def append(self, events: DataFrame, *, progress: Progress | None = None) -> int:
        """Append the available rows of a stream of events to bronze, and return their number."""
        # With availableNow the query ends by itself. The loop only reports progress, and `stop` matters after an
        # exception, for example Ctrl-C.
        query = bronze.append_events(events, self.lake)
        seen: dict[int, int] = {}
        try:
            ended = False
            while not ended:
                ended = bool(query.awaitTermination(_POLL_SECONDS))
                # Spark keeps the progress of the last 100 batches only, so it is collected while the query runs. The
                # number of the batch is the key, because each poll returns most batches again.
                seen |= {each.batchId: each.numInputRows for each in query.recentProgress}
                if progress is not None:
                    progress("events", sum(seen.values()))
        finally:
            query.stop()
        return sum(seen.values())

    def refresh(self, *, progress: Progress | None = None) -> Refresh:
        """Compute silver and gold from bronze. Readers see the old tables until the new ones are complete."""
        events = self.lake.events(self.spark)
        audits = tuple(bronze.audit(events))
        # The tables go to a new folder, which no reader knows before `publish`. A refresh that is killed leaves an
        # unused folder and changes nothing else.
        version, rows = self.lake.begin(), dict[str, int]()
        for name, table in self._tables(events, version):
            folder = uri(self.lake.folder(version) / name)
            # Each table is written before the next one is computed, so that Spark computes silver once and gold reads
            # its files.
            table.write.parquet(folder)
            rows[name] = self.spark.read.parquet(folder).count()
            if progress is not None:
                progress(name, rows[name])
        self.lake.publish(version, {"rows": rows, "audits": [asdict(audit) for audit in audits]})
        return Refresh(version, rows, audits)

    def _tables(self, events: DataFrame, version: str) -> Iterator[tuple[str, DataFrame]]:
        """Yield the tables in their order. Gold is computed from the written silver tables."""

        def written(name: str) -> DataFrame:
            return self.spark.read.parquet(uri(self.lake.folder(version) / name))

        yield "attempts", silver.attempts(events)
        yield "jobs", silver.jobs(events)
        attempts, jobs = written("attempts"), written("jobs")
        yield "minutes", gold.minutes(attempts, jobs)
        yield "histograms", gold.histograms(attempts, jobs)
        yield "causes", gold.causes(attempts, jobs)
        yield "retry_heat", gold.retry_heat(attempts)
        yield "slo", burn_rates(jobs, self.slo)

    def replay(
        self,
        selection: Selection,
        campaign: str,
        *,
        url: str,
        prefix: str = DEFAULT_PREFIX,
        dead_letters: str | None = None,
        queue: str | None = None,
        dry_run: bool = False,
        version: int = 1,
        options: Mapping[str, Option] | None = None,
    ) -> Replay:
        """Add failed jobs of the last refresh to a queue again; see `replay`.

        The payloads are read from the queue's failed jobs, and from its dead letters in the queue `dead_letters`.
        """
        payloads = self.payloads(url, selection.queue, prefix=prefix, dead_letters=dead_letters)
        return replay(
            self.table("jobs"),
            payloads,
            selection,
            campaign,
            url=url,
            queue=queue,
            dry_run=dry_run,
            version=version,
            options={"prefix": prefix, **(options or {})},
        )

    def payloads(
        self, url: str, queue: str, *, prefix: str = DEFAULT_PREFIX, dead_letters: str | None = None
    ) -> DataFrame:
        """Return job_id, name and data of a queue's stored failed jobs, and of its dead letters in another queue.

        `data` contains the stored bytes. It is null if it cannot be read here, because a codec sealed it for its job
        id.
        """
        register(self.spark)

        def kept(kind: str, of: str, **more: str) -> DataFrame:
            reader = self.spark.read.format("glidemq").options(kind=kind, url=url, prefix=prefix, **more)
            return reader.option("subscribe", json.dumps([of])).option("includeData", "true").load()

        # `payload` has the stored bytes, and `data` is null if no codec here can read them. Such bytes are sealed for
        # the id of the original job, so a new job with another id could not read them either.
        data = F.when(F.col("data").isNotNull(), F.col("payload")).alias("data")
        failed = kept("jobs", queue, states="failed").select(F.col("id").alias("job_id"), "name", data)
        if dead_letters is None:
            return failed
        letters = kept("dlq", dead_letters).where(F.col("origin_queue") == queue)
        return failed.unionByName(letters.select(F.col("origin_id").alias("job_id"), "name", data))

    def table(self, name: str) -> DataFrame:
        """Return a table of the last refresh: attempts, jobs, minutes, histograms, causes, retry_heat, slo."""
        return self.lake.table(self.spark, name)

    @property
    def audits(self) -> tuple[Audit, ...]:
        """The audits of the last refresh."""
        return tuple(Audit(**each) for each in self.lake.current.get("audits", []))

    def figures(self) -> PipelineFigures:
        """Return the figures of a report. Raises LookupError before the first refresh, and without any job."""
        return figures(self.table("attempts"), self.table("jobs"), self.slo)

    def report(self, folder: str | Path, *, title: str | None = None) -> ReportFiles:
        """Write report.html and its charts into a folder. Raises LookupError as `figures` does."""
        return save_report(self.figures(), Path(folder), self.audits, title=title)
