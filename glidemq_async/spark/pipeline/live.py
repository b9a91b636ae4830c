"""Live windows: counts per minute over the stream of events, and alerts when an error budget burns too fast.

For alerting only. Windows are told as they change (update mode): the append mode of Spark would keep the last ones back
until later events come. Figures that must be right to the last digit are those of gold.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.pipeline.bronze import started
from glidemq_async.spark.pipeline.columns import count_of
from glidemq_async.spark.pipeline.lake import Lake, uri
from glidemq_async.spark.pipeline.silver import was_revoked
from glidemq_async.spark.pipeline.slo import MINUTE, PAIRS, Count, Slo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

WATERMARK: Final = "5 minutes"
"""How late an event may be: its time is the server's, so that only a failover to another clock makes it late."""
LONGEST_SHORT: Final = max(pair.short for pair in PAIRS)
KEPT_MINUTES: Final = max(pair.long for pair in PAIRS) + LONGEST_SHORT


@dataclass(frozen=True)
class Alert:
    """A pair of windows began to burn too fast at a minute."""

    slo: str
    queue: str
    pair: str
    minute: datetime
    short_burn: float
    long_burn: float

    @property
    def id(self) -> str:
        """The same for the same alert, however often it is found: an id for the job that tells somebody."""
        return f"{self.slo}:{self.queue}:{self.pair}:{self.minute:%Y-%m-%dT%H:%MZ}"


OnAlert = Callable[[Alert], None]


@dataclass
class Budget:
    """What is known of the last hours of each queue, and which pairs are burning. Kept as a file between batches."""

    counts: dict[str, dict[int, Count]] = field(default_factory=dict[str, dict[int, Count]])
    burning: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    looked: dict[str, int] = field(default_factory=dict[str, int])

    def learn(self, slo: Slo, queue: str, minute: int, count: Count) -> list[Alert]:
        """Take a minute's counts, which replace what was known of it; return the alerts that begin with them."""
        known = self.counts.setdefault(queue, {})
        known[minute] = count
        newest = max(known)
        self.counts[queue] = {each: known[each] for each in known if each > newest - KEPT_MINUTES}
        if minute < self.looked.get(queue, minute):
            return []
        before = self._still_burning(slo, queue, minute)
        found = slo.alerts(self.counts[queue], minute)
        self.looked[queue] = minute
        self.burning[queue] = [pair.name for pair in found]
        return [
            Alert(
                slo.name,
                queue,
                pair.name,
                datetime.fromtimestamp(minute * MINUTE, UTC),
                slo.burn(self.counts[queue], minute, pair.short),
                slo.burn(self.counts[queue], minute, pair.long),
            )
            for pair in found
            if pair.name not in before
        ]

    def _still_burning(self, slo: Slo, queue: str, minute: int) -> set[str]:
        """Return the pairs that burnt when this was looked at last, and in each minute of silence since then."""
        burning = set(self.burning.get(queue, ()))
        # A silence as long as the longest short window leaves none.
        silent = range(max(self.looked.get(queue, minute) + 1, minute - LONGEST_SHORT), minute)
        for each in silent:
            burning &= {pair.name for pair in slo.alerts(self.counts[queue], each)}
        return burning

    def save(self, path: Path) -> None:
        """Write it to a file, in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"counts": self.counts, "burning": self.burning, "looked": self.looked}))
        fresh.replace(path)

    @classmethod
    def load(cls, path: Path) -> Budget:
        """Read what `save` wrote; an empty one where there is none."""
        try:
            found = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        counts = {
            queue: {int(minute): Count(*count) for minute, count in known.items()}
            for queue, known in found["counts"].items()
        }
        return cls(counts, found["burning"], found["looked"])


def minute_windows(events: DataFrame) -> DataFrame:
    """Return the counts of each queue and minute as a stream of changes: added, started, retried, completed, failed."""
    named = {"added": "added", "started": "active", "retried": "retrying", "completed": "completed", "failed": "failed"}
    return (
        # What a user revoked burns no budget.
        events.where(F.col("event").isin(*named.values()) & ~((F.col("event") == "failed") & was_revoked()))
        .withWatermark("ts", WATERMARK)
        .groupBy("queue", F.window("ts", "1 minute").alias("window"))
        .agg(*(count_of(F.col("event") == event).alias(name) for name, event in named.items()))
        .withColumn("minute", F.col("window.start"))
        .drop("window")
    )


def watch(events: DataFrame, lake: Lake, slo: Slo, on_alert: OnAlert, *, every: float | None = 10.0) -> StreamingQuery:
    """Start the stream that calls `on_alert` when a pair of windows begins to burn too fast; bad are the failed jobs.

    `on_alert` may be called twice for one alert when the driver dies in between: add a job with the alert's id, and
    there is one. every: seconds between batches; None ends with what there is now. Raises ValueError for an objective
    with a latency, which events of their own do not tell.
    """
    if slo.latency_ms is not None:
        raise ValueError(f"live windows know failures only, got latency_ms={slo.latency_ms}: leave it to the reports")
    path = lake.root / "live" / f"{slo.name}.json"

    def learn(changed: DataFrame, _batch: int) -> None:
        budget = Budget.load(path)
        rows = changed.select("queue", F.unix_seconds("minute").alias("at"), "completed", "failed").collect()
        told = [
            (row["queue"], row["at"] // MINUTE, Count(row["completed"] + row["failed"], row["failed"])) for row in rows
        ]
        for alert in _learn(budget, slo, told):
            on_alert(alert)
        budget.save(path)

    writer = (
        minute_windows(events)
        .writeStream.outputMode("update")
        .foreachBatch(learn)
        .option("checkpointLocation", uri(lake.checkpoint(f"live-{slo.name}")))
        .queryName(f"glidemq-live-{slo.name}")
    )
    return started(writer, every)


def _learn(budget: Budget, slo: Slo, told: Iterable[tuple[str, int, Count]]) -> Iterable[Alert]:
    for queue, minute, count in sorted(told, key=lambda each: each[:2]):
        yield from budget.learn(slo, queue, minute, count)
