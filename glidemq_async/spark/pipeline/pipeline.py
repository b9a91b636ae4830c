"""The pipeline as one object: ingest what happened, compute the tables anew, and tell of it."""

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
from glidemq_async.spark.pipeline.figures import Figures, figures
from glidemq_async.spark.pipeline.lake import Lake, uri
from glidemq_async.spark.pipeline.replay import Replay, Selection, replay
from glidemq_async.spark.pipeline.report import Report, write_report
from glidemq_async.spark.pipeline.slo import Slo
from glidemq_async.spark.write.enqueue import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str, int], None]
"""Is told what is being done, and how many rows of it are done."""

# Any: the annotation knows whole seconds only.
_LOOK_SECONDS: Any = 0.2


@dataclass(frozen=True)
class Refresh:
    """A version of the tables: how many rows each has, and what the numbers of the events say."""

    version: str
    rows: dict[str, int]
    audits: tuple[Audit, ...]

    @property
    def clean(self) -> bool:
        """Whether each event between the first and the last of each queue is there once."""
        return all(audit.clean for audit in self.audits)


class Pipeline:
    """Events of queues, kept and computed in a lake.

        pipeline = Pipeline(spark, "/data/lake")
        pipeline.ingest(url, ["emails"])     # what happened since the last time, each event once
        pipeline.refresh()                   # silver and gold, computed anew
        pipeline.report(Path("report"))

    Each step may be killed and run again. One process at a time may ingest into a lake.
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
        """Return the events of the queues as a stream. most: events of one batch (Spark 4.2 or newer).

        Events that went before they were read, by trimming or with an obliterated queue, end it, or, if they are not to
        fail it, are rows of `kind=losses`.
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
        """Append what happened since the last time, and return how many events that was.

        The first time it begins with the oldest events that are kept. Raises what the stream raises: events that went
        before they were read among it, unless `fail_on_data_loss` is off; see `stream`.
        """
        events = self.stream(url, queues, prefix=prefix, most=most, fail_on_data_loss=fail_on_data_loss)
        return self.append(events, progress=progress)

    def append(self, events: DataFrame, *, progress: Progress | None = None) -> int:
        """Append the rows of a stream of events to bronze until there are no more now; return how many there were."""
        query = bronze.append_events(events, self.lake)
        seen: dict[int, int] = {}
        try:
            ended = False
            while not ended:
                ended = bool(query.awaitTermination(_LOOK_SECONDS))
                seen |= {each.batchId: each.numInputRows for each in query.recentProgress}
                if progress is not None:
                    progress("events", sum(seen.values()))
        finally:
            query.stop()
        return sum(seen.values())

    def refresh(self, *, progress: Progress | None = None) -> Refresh:
        """Compute silver and gold from all that was ingested; readers see the old tables until the new are complete."""
        events = self.lake.events(self.spark)
        audits = tuple(bronze.audit(events))
        version, rows = self.lake.begin(), dict[str, int]()
        for name, table in self._tables(events, version):
            folder = uri(self.lake.folder(version) / name)
            table.write.parquet(folder)
            rows[name] = self.spark.read.parquet(folder).count()
            if progress is not None:
                progress(name, rows[name])
        self.lake.publish(version, {"rows": rows, "audits": [asdict(audit) for audit in audits]})
        return Refresh(version, rows, audits)

    def _tables(self, events: DataFrame, version: str) -> Iterator[tuple[str, DataFrame]]:
        """The tables in their order: gold reads silver as it was written."""

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
        """Put failed jobs of the last refresh into a queue again; see replay.py.

        Payloads are those of the queue's failed jobs, and of the jobs that it moved to the queue `dead_letters`.
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
        """Return job_id, name and data of the jobs of a queue that are kept as failed, or as dead letters elsewhere.

        `data` is what is stored; null where nobody can read it here, because codecs sealed it for its own id.
        """
        register(self.spark)

        def kept(kind: str, of: str, **more: str) -> DataFrame:
            reader = self.spark.read.format("glidemq").options(kind=kind, url=url, prefix=prefix, **more)
            return reader.option("subscribe", json.dumps([of])).option("includeData", "true").load()

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
        """What the last refresh found of the events' numbers."""
        return tuple(Audit(**each) for each in self.lake.current.get("audits", []))

    def figures(self) -> Figures:
        """Return what a report tells. Raises LookupError before the first refresh, and when there are no jobs."""
        return figures(self.table("attempts"), self.table("jobs"), self.slo)

    def report(self, folder: str | Path, *, title: str | None = None) -> Report:
        """Write report.html and its pictures into a folder. Raises LookupError as `figures` does."""
        return write_report(self.figures(), Path(folder), self.audits, title=title)
