"""Replay: jobs that failed, chosen in the lake, put into a queue again with the payloads that the queue still keeps.

The new id says where a job comes from, `replay:<campaign>:<original id>`, and a campaign is one transaction of the
writer: however often it is run, each job is replayed once.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

from glidemq_async.spark.write.enqueue import Option, enqueue_frame
from glidemq_async.spark.write.report import WriteReport
from glidemq_async.stored.names import MAX_ID_BYTES, check_name

if TYPE_CHECKING:
    from pyspark.sql import Column

PREFIX: Final = "replay"


@dataclass(frozen=True)
class Selection:
    """Which failed jobs: of one queue, and, where something is given, of these names, error classes and times.

    Instants are those of the failure; `until` itself is left out.
    """

    queue: str
    names: tuple[str, ...] = ()
    error_classes: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name, value in (("since", self.since), ("until", self.until)):
            if value is not None and value.tzinfo is None:
                raise ValueError(f"{name} must have a time zone, got {value!r}")


@dataclass(frozen=True)
class Replay:
    """What a replay found and did: `report` is None after a dry run."""

    campaign: str
    selected: int
    found: int
    """Those of them whose payload the queue still keeps."""
    by_error: dict[str, int]
    report: WriteReport | None

    @property
    def missing(self) -> int:
        """Selected jobs without a payload: removed by the queue's retention, or by hand."""
        return self.selected - self.found


def failed_jobs(jobs: DataFrame, selection: Selection) -> DataFrame:
    """Return the chosen jobs of silver that are failed now: of each id the last job, none that is itself a replay.

    Jobs of which a replay, of whatever campaign, has completed are left out. A replay in another queue counts for a job
    of that queue if it has one of this id, and otherwise for the one here.
    """
    newest = Window.partitionBy("queue", "job_id").orderBy(F.desc_nulls_last("added"), F.desc("life"))
    last = jobs.withColumn("age", F.row_number().over(newest)).where("age = 1").drop("age")
    wanted: list[Column] = [
        F.col("queue") == selection.queue,
        F.col("state") == "failed",
        ~F.col("job_id").startswith(f"{PREFIX}:"),
    ]
    if selection.names:
        wanted.append(F.col("name").isin(*selection.names))
    if selection.error_classes:
        wanted.append(F.col("error_class").isin(*selection.error_classes))
    if selection.since is not None:
        wanted.append(F.unix_millis("finished") >= _millis(selection.since))
    if selection.until is not None:
        wanted.append(F.unix_millis("finished") < _millis(selection.until))
    chosen = last.where(reduce(lambda a, b: a & b, wanted))
    mended = _mended(jobs, selection.queue)
    for name in (F.col("job_id"), _digest()):
        chosen = chosen.join(mended, name == F.col("original"), "left_anti")
    return chosen


def _mended(jobs: DataFrame, queue: str) -> DataFrame:
    """The jobs of a queue of which a replay has completed: `original`, their ids or the digests of them."""
    replayed = F.col("job_id").startswith(f"{PREFIX}:")
    done = jobs.where(replayed & (F.col("state") == "completed")).select(
        "queue", F.regexp_replace("job_id", f"^{PREFIX}:[^:]*:", "").alias("original")
    )
    others = jobs.where(~replayed & (F.col("queue") != queue))
    for name in (F.col("job_id"), _digest()):
        done = done.join(others.select("queue", name.alias("original")), ["queue", "original"], "left_anti")
    return done.select("original").distinct()


def _digest() -> Column:
    """What stands for an id that would make the id of a replay too long."""
    return F.concat(F.lit("sha256:"), F.sha2("job_id", 256))


def replay(
    jobs: DataFrame,
    payloads: DataFrame,
    selection: Selection,
    campaign: str,
    *,
    url: str,
    queue: str | None = None,
    dry_run: bool = False,
    version: int = 1,
    options: Mapping[str, Option] | None = None,
) -> Replay:
    """Put the chosen failed jobs into a queue (their own one, if none is named), each once per campaign.

    `payloads` has the columns job_id, name and data: bytes as they are stored, or JSON. A campaign of a `version` that
    has been committed does nothing any more; a higher one adds what failed since then, and finds what is there already
    by its id. `options` are those of `enqueue_frame`; a replay is a new job, so the options of the old one are not its
    own: give `opts` (`{"attempts": 3}`) again. With `dry_run` everything is counted and nothing written.

    Raises ValueError for the name of a campaign with a colon, and what `enqueue_frame` raises.
    """
    check_name("campaign", campaign)
    chosen = failed_jobs(jobs, selection).select("job_id", "error_class", F.col("name").alias("told_name"))
    kept = payloads.dropDuplicates(["job_id"])
    both = chosen.join(kept, "job_id", "left").cache()
    try:
        counts = both.groupBy(F.coalesce("error_class", F.lit("")).alias("error")).agg(
            F.count("*").alias("n"), F.count("data").alias("found")
        )
        counted = counts.sort(F.desc("n"), "error").collect()
        by_error = {row["error"]: row["n"] for row in counted}
        selected, found = sum(by_error.values()), sum(row["found"] for row in counted)
        report = None
        if not dry_run and found:
            report = _write(both.where("data IS NOT NULL"), selection, campaign, url, queue, version, options or {})
        return Replay(campaign, selected, found, by_error, report)
    finally:
        both.unpersist()


def outcomes(jobs: DataFrame, campaign: str) -> DataFrame:
    """Return one row per job that the campaign replayed: its queue, its original id, and what came of it."""
    start = f"{PREFIX}:{check_name('campaign', campaign)}:"
    return jobs.where(F.col("job_id").startswith(start)).select(
        "queue",
        F.expr(f"substring(job_id, {len(start) + 1})").alias("replay_of"),
        *("job_id", "name", "state", "attempts", "error_class", "end_to_end_ms"),
    )


def _write(
    rows: DataFrame,
    selection: Selection,
    campaign: str,
    url: str,
    queue: str | None,
    version: int,
    options: Mapping[str, Option],
) -> WriteReport:
    start = f"{PREFIX}:{campaign}:"
    made = F.concat(F.lit(start), F.col("job_id"))
    # What would be too long for an id keeps its place by a digest.
    short = F.concat(F.lit(start), _digest())
    frame = rows.select(
        F.when(F.octet_length(made) <= MAX_ID_BYTES, made).otherwise(short).alias("id"),
        F.coalesce("name", "told_name").alias("name"),
        "data",
    )
    # With the queue: another one's jobs of the same campaign may go into the same target, as a transaction of theirs.
    transaction = f"{PREFIX}:{campaign}:{selection.queue}"
    given = {"txn_app_id": transaction, "txn_version": version, "id_mode": "column", **options}
    return enqueue_frame(frame, queue or selection.queue, url=url, **given)


def _millis(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)
