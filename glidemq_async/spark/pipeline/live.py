"""Live windows: counts per minute from the stream of events, and alerts when an error budget burns too fast.

Use them for alerts only, and the gold tables for exact figures. Windows are reported as they change (update mode).
Spark's append mode would hold the newest windows back until later events arrive.
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

from glidemq_async.spark.pipeline.bronze import start_stream
from glidemq_async.spark.pipeline.columns import count_of
from glidemq_async.spark.pipeline.lake import Lake, uri
from glidemq_async.spark.pipeline.silver import was_revoked
from glidemq_async.spark.pipeline.slo import MINUTE, PAIRS, Count, Slo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

WATERMARK: Final = "5 minutes"
"""Maximum delay of an event. Events have the server's time, so they are late only after a failover to another clock."""
LONGEST_SHORT: Final = max(pair.short for pair in PAIRS)
KEPT_MINUTES: Final = max(pair.long for pair in PAIRS) + LONGEST_SHORT


@dataclass(frozen=True)
class Alert:
    """A pair of windows that began to burn too fast in a minute."""

    slo: str
    queue: str
    pair: str
    minute: datetime
    short_burn: float
    long_burn: float

    @property
    def id(self) -> str:
        """The identity of the alert.

        Use it as the id of a notification job, so that a repeated alert is a duplicate.
        """
        return f"{self.slo}:{self.queue}:{self.pair}:{self.minute:%Y-%m-%dT%H:%MZ}"


OnAlert = Callable[[Alert], None]


@dataclass
class Budget:
    """The counts of the last hours of each queue, and the pairs that burn. A file stores it between batches."""

    counts: dict[str, dict[int, Count]] = field(default_factory=dict[str, dict[int, Count]])
    burning: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    looked: dict[str, int] = field(default_factory=dict[str, int])

    def update(self, slo: Slo, queue: str, minute: int, count: Count) -> list[Alert]:
        """Replace the counts of a minute, and return the alerts that begin with them."""
        known = self.counts.setdefault(queue, {})
        known[minute] = count
        newest = max(known)
        self.counts[queue] = {each: known[each] for each in known if each > newest - KEPT_MINUTES}
        # A late count of an earlier minute. The alert of that minute was decided, and deciding it again could repeat
        # it.
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
        """Return the pairs that burned at the last update and in each minute without events since then."""
        burning = set(self.burning.get(queue, ()))
        # After a silence as long as the longest short window no pair burns.
        silent = range(max(self.looked.get(queue, minute) + 1, minute - LONGEST_SHORT), minute)
        for each in silent:
            burning &= {pair.name for pair in slo.alerts(self.counts[queue], each)}
        return burning

    def save(self, path: Path) -> None:
        """Replace the file atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # A rename is atomic. A reader sees the old or the new budget and never a part of one.
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"counts": self.counts, "burning": self.burning, "looked": self.looked}))
        fresh.replace(path)

    @classmethod
    def load(cls, path: Path) -> Budget:
        """Read the file that `save` wrote. Without a file the budget is empty."""
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
    """Return the counts per queue and minute as a stream of changes: added, started, retried, completed, failed."""
    named = {"added": "added", "started": "active", "retried": "retrying", "completed": "completed", "failed": "failed"}
    return (
        # Revoked jobs do not count against the budget.
        events.where(F.col("event").isin(*named.values()) & ~((F.col("event") == "failed") & was_revoked()))
        .withWatermark("ts", WATERMARK)
        .groupBy("queue", F.window("ts", "1 minute").alias("window"))
        .agg(*(count_of(F.col("event") == event).alias(name) for name, event in named.items()))
        .withColumn("minute", F.col("window.start"))
        .drop("window")
    )


def watch(events: DataFrame, lake: Lake, slo: Slo, on_alert: OnAlert, *, every: float | None = 10.0) -> StreamingQuery:
    """Start the stream that calls `on_alert` when a pair of windows begins to burn too fast. Failed jobs count as bad.

    If the driver dies, `on_alert` may be called a second time for an alert. Add a job with the alert's id, so that the
    second one is a duplicate. every: seconds between batches; None reads the stored events and ends. Raises ValueError
    for an objective with a latency, because single events do not contain one.
    """
    if slo.latency_ms is not None:
        raise ValueError(
            f"live windows count failures only, got latency_ms={slo.latency_ms}; remove it, and use reports for "
            "latencies"
        )
    path = lake.root / "live" / f"{slo.name}.json"

    def update(changed: DataFrame, _batch: int) -> None:
        # From the file each time and not from memory: Spark may run this function again for the same batch, and then
        # the counts of its first run must not be included twice. `update` replaces the counts of a minute, so a
        # repetition gives the same budget.
        budget = Budget.load(path)
        rows = changed.select("queue", F.unix_seconds("minute").alias("at"), "completed", "failed").collect()
        counts = [
            (row["queue"], row["at"] // MINUTE, Count(row["completed"] + row["failed"], row["failed"])) for row in rows
        ]
        # Save after the alerts, not before: a crash in between repeats an alert, and the other order would lose it.
        for alert in _update_all(budget, slo, counts):
            on_alert(alert)
        budget.save(path)

    writer = (
        minute_windows(events)
        .writeStream.outputMode("update")
        .foreachBatch(update)
        .option("checkpointLocation", uri(lake.checkpoint(f"live-{slo.name}")))
        .queryName(f"glidemq-live-{slo.name}")
    )
    return start_stream(writer, every)


def _update_all(budget: Budget, slo: Slo, counts: Iterable[tuple[str, int, Count]]) -> Iterable[Alert]:
    for queue, minute, count in sorted(counts, key=lambda each: each[:2]):
        yield from budget.update(slo, queue, minute, count)
