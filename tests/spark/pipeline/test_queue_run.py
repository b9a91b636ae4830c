"""The pipeline with a real queue: its figures are exact, also after crashes."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from glidemq_async import Queue
from glidemq_async.spark.pipeline import Pipeline
from glidemq_async.spark.pipeline.bronze import audit
from glidemq_async.spark.pipeline.lake import escaped
from tests.spark.pipeline.queue import drain, fill
from tests.support.stores import RunningStore

FATES = ["", "", "", "retry", "fail"] * 20


async def run_jobs(url: str, fates: list[str], start: int = 0) -> None:
    await fill(url, "work", fates, start=start)
    await drain(url, "work")


def test_figures_match_the_queue(spark: SparkSession, server: RunningStore, tmp_path: Path) -> None:
    asyncio.run(run_jobs(server.url, FATES))
    pipeline = Pipeline(spark, tmp_path / "lake")
    ingested = pipeline.ingest(server.url, ["work"])
    refresh = pipeline.refresh()
    assert refresh.clean
    assert [(audit.queue, audit.first, audit.rows) for audit in refresh.audits] == [("work", 0, ingested)]

    jobs = {row["job_id"]: row for row in pipeline.table("jobs").collect()}
    assert Counter(row["state"] for row in jobs.values()) == {"completed": 80, "failed": 20}
    assert Counter(row["error_class"] for row in jobs.values()) == {None: 80, "UnrecoverableError": 20}
    attempts = pipeline.table("attempts").collect()
    assert Counter(row["outcome"] for row in attempts) == {"completed": 80, "failed": 20, "retrying": 20}
    assert Counter(row["name"] for row in attempts) == {"mail": 60, "resize": 60}

    async def stored() -> dict[str, tuple[int, int]]:
        async with Queue[str, str]("work", server.url) as queue:
            completed = [job async for job in queue.iter_jobs("completed")]
            ended = [*completed, *[job async for job in queue.iter_jobs("failed")]]
        return {job.id: (job.attempts_made, _ms(job.finished_at) - _ms(job.created_at)) for job in ended}

    assert {job_id: (row["attempts"], row["end_to_end_ms"]) for job_id, row in jobs.items()} == asyncio.run(stored())


def _ms(at: datetime | None) -> int:
    assert at is not None
    return round(at.timestamp() * 1000)


def test_names_of_lakes_and_queues_may_contain_special_characters(
    spark: SparkSession, server: RunningStore, tmp_path: Path
) -> None:
    asyncio.run(fill(server.url, "mail, all", ["", "fail"]))
    asyncio.run(drain(server.url, "mail, all"))
    pipeline = Pipeline(spark, tmp_path / "the lake, 100%")
    ingested = pipeline.ingest(server.url, ["mail, all"])
    assert pipeline.ingest(server.url, ["mail, all"]) == 0
    assert pipeline.refresh().rows["jobs"] == 2
    assert [each.rows for each in pipeline.audits] == [ingested]
    assert pipeline.payloads(server.url, "mail, all").count() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["the lake, 100%"]


def test_an_obliterated_queue_stops_the_pipeline_unless_losses_are_permitted(
    spark: SparkSession, server: RunningStore, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, tmp_path / "lake")
    asyncio.run(fill(server.url, "work", [""] * 4))
    assert pipeline.ingest(server.url, ["work"]) == 4

    async def obliterate() -> None:
        async with Queue[str, str]("work", server.url) as queue:
            await queue.obliterate(force=True)

    asyncio.run(obliterate())
    asyncio.run(fill(server.url, "work", [""] * 3))
    with pytest.raises(StreamingQueryException, match="recreated under the same name"):
        pipeline.ingest(server.url, ["work"])
    assert pipeline.ingest(server.url, ["work"], fail_on_data_loss=False) == 3
    assert pipeline.ingest(server.url, ["work"]) == 0
    assert sorted((each.first, each.rows) for each in audit(pipeline.lake.events(spark))) == [(0, 3), (0, 4)]


def test_a_path_that_looks_like_a_pattern_is_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a [1] {b,c} *%20"
    folder.mkdir()
    (folder / "x.csv").write_text("user\n1\n2\n")
    assert spark.read.csv(escaped(folder), header=True).count() == 2


@pytest.mark.slow
def test_each_run_appends_the_events_since_the_last_run(
    spark: SparkSession, server: RunningStore, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, tmp_path / "lake")
    asyncio.run(run_jobs(server.url, FATES))
    first = pipeline.ingest(server.url, ["work"])
    assert pipeline.ingest(server.url, ["work"]) == 0
    asyncio.run(run_jobs(server.url, FATES, start=1000))
    second = pipeline.ingest(server.url, ["work"])
    refresh = pipeline.refresh()
    assert refresh.clean
    assert (second, refresh.rows["jobs"]) == (first, 2 * len(FATES))


@pytest.mark.slow
def test_a_batch_whose_commit_was_lost_is_not_stored_twice(
    spark: SparkSession, server: RunningStore, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, tmp_path / "lake")
    asyncio.run(run_jobs(server.url, FATES))
    pipeline.ingest(server.url, ["work"], most=150)
    folder = pipeline.lake.checkpoint("bronze") / "commits"
    newest = max(int(path.name) for path in folder.glob("[0-9]*"))
    assert newest > 0
    for path in (folder / str(newest), folder / f".{newest}.crc"):
        path.unlink()
    asyncio.run(run_jobs(server.url, FATES, start=1000))
    pipeline.ingest(server.url, ["work"], most=150)
    refresh = pipeline.refresh()
    assert refresh.clean
    assert refresh.rows["jobs"] == 2 * len(FATES)


@pytest.mark.slow
def test_an_interrupted_refresh_does_not_change_the_tables(
    spark: SparkSession, server: RunningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(spark, tmp_path / "lake")
    asyncio.run(run_jobs(server.url, FATES[:10]))
    pipeline.ingest(server.url, ["work"])
    pipeline.refresh()

    def die(name: str, rows: int) -> None:
        if name == "jobs":
            raise KeyboardInterrupt

    asyncio.run(run_jobs(server.url, FATES[:10], start=1000))
    pipeline.ingest(server.url, ["work"])
    with pytest.raises(KeyboardInterrupt):
        pipeline.refresh(progress=die)
    assert pipeline.table("jobs").count() == 10
    assert pipeline.refresh().rows["jobs"] == 20
    assert pipeline.table("jobs").count() == 20
