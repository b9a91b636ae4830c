"""The parts of the pipeline that need no Spark: objectives, versions of the lake, texts of the report, demo jobs."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import pytest

from glidemq_async.demo.spark.files import ATTEMPTS, expected, find_files, hash_file, runs_that_fail

pytest.importorskip("pyspark")

from glidemq_async.errors import StorageUnavailable
from glidemq_async.queues.events import EventKind
from glidemq_async.spark.pipeline import backfill, silver
from glidemq_async.spark.pipeline.bronze import Audit, remove_incomplete_files
from glidemq_async.spark.pipeline.durations import duration
from glidemq_async.spark.pipeline.figures import (
    MAX_POINTS,
    Burn,
    Campaign,
    Cause,
    NameRow,
    Percentiles,
    PipelineFigures,
    Point,
    step_of,
)
from glidemq_async.spark.pipeline.lake import Lake
from glidemq_async.spark.pipeline.report import save_report
from glidemq_async.spark.pipeline.slo import Count, Slo
from glidemq_async.spark.write.report import WriteReport, report_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPREAD = Percentiles(5, 800, 12_000)


def test_a_burn_is_the_share_of_bad_jobs_in_a_window_by_the_budget() -> None:
    slo = Slo(objective=0.75)
    counts = {minute: Count(10, 5 if minute == 10 else 0) for minute in range(11)}
    assert slo.burn(counts, 10, 1) == 2
    assert slo.burn(counts, 10, 5) == pytest.approx(0.4)
    assert slo.burn(counts, 9, 5) == 0
    assert slo.burn({}, 9, 5) == 0


def test_an_alert_needs_both_windows() -> None:
    slo = Slo(objective=0.99)
    sudden = {minute: Count(100, 100 if minute >= 55 else 0) for minute in range(60)}
    # Burn rates: 100 in the last five minutes, 8.3 in the hour. The limits are 14.4 and 6.
    assert [pair.name for pair in slo.alerts(sudden, 59)] == ["slow"]
    assert [pair.name for pair in slo.alerts(dict.fromkeys(range(60), Count(100, 20)), 59)] == ["fast", "slow"]
    over = {minute: Count(100, 100 if minute < 20 else 0) for minute in range(60)}
    assert slo.alerts(over, 59) == []


@pytest.mark.parametrize(("objective", "latency"), [(0, None), (1, None), (0.9, 0)])
def test_an_objective_that_makes_no_sense_is_refused(objective: float, latency: int | None) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        Slo(objective=objective, latency_ms=latency)


def test_the_progress_of_a_backfill_continues_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report_of("w", {b"state": b"open", b"inserted": b"7"})
    answers: list[Exception | WriteReport] = [LookupError("not yet"), StorageUnavailable("away"), made]
    reported: list[WriteReport] = []
    heard = threading.Event()

    def ask(*_: object, **__: object) -> WriteReport:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def report(so_far: WriteReport) -> None:
        reported.append(so_far)
        heard.set()

    def write(*_: object, **__: object) -> WriteReport:
        assert heard.wait(10)
        return made

    monkeypatch.setattr(backfill, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(backfill, "write_report", ask)
    monkeypatch.setattr(backfill, "enqueue_frame", write)
    frame = cast("DataFrame", None)
    assert backfill.backfill(frame, "q", url="redis://h", campaign="c", progress=report) == made
    assert reported[0].inserted == 7


def test_an_audit_counts_gaps_and_duplicates() -> None:
    assert Audit("q", "i", 0, 9, 10, 10).clean
    missing = Audit("q", "i", 0, 9, 8, 8)
    assert (missing.gap, missing.doubled, missing.clean) == (2, 0, False)
    both = Audit("q", "i", 0, 9, 10, 9)
    assert (both.gap, both.doubled, both.clean) == (1, 1, False)


def test_a_lake_keeps_the_previous_version_only(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert lake.current == {}
    for _ in range(3):
        version = lake.begin()
        lake.folder(version).mkdir(parents=True)
        lake.publish(version, {"rows": {}})
    assert lake.current["version"] == "000003"
    assert sorted(path.name for path in (lake.root / "tables").iterdir()) == ["000002", "000003"]
    # The next refresh removes the files of an interrupted one.
    left = lake.folder(lake.begin()) / "attempts"
    left.mkdir(parents=True)
    assert lake.begin() == "000004"
    assert not left.exists()


def test_every_kind_of_event_is_known_to_be_of_a_job_or_of_none() -> None:
    of_jobs = {*silver.ENDS, *silver.STATES, "dead-lettered", "revoking", "changed", "progress", "updated"}
    assert {*get_args(EventKind)} == of_jobs | {*silver.NOT_OF_JOBS}
    assert not of_jobs & {*silver.NOT_OF_JOBS}


def test_a_lake_must_be_a_local_folder() -> None:
    assert Lake("file:///data/lake").root == Path("/data/lake")
    with pytest.raises(ValueError, match="a local folder of the driver"):
        Lake("s3://bucket/lake")
    with pytest.raises(ValueError, match=r"must not contain \[ \]"):
        Lake("/data/lake[1]")


@pytest.mark.parametrize(
    ("ms", "said"),
    [(None, "-"), (0, "0 ms"), (840, "840 ms"), (1_234, "1.23 s"), (90_000, "1.5 min"), (7_200_000, "2 h")],
)
def test_durations_have_readable_units(ms: int | None, said: str) -> None:
    assert duration(ms) == said


@pytest.mark.parametrize("seconds", [0, 10, 3_600, 86_400, 40 * 86_400])
def test_a_plot_has_no_more_points_than_it_can_show(seconds: int) -> None:
    assert seconds / step_of(seconds) <= MAX_POINTS


def figures(*, empty: bool = False) -> PipelineFigures:
    nothing = Percentiles(None, None, None)
    total = NameRow("work", "<b>mail</b>", 1_200, 1_100, 40, 60, 7, 2, SPREAD, SPREAD, nothing)
    return PipelineFigures(
        queues=("work",),
        first=NOW,
        last=NOW.replace(minute=2),
        step=60,
        total=total,
        points=tuple(Point(NOW.replace(minute=m), 600, 500, 20, 80, SPREAD, nothing) for m in range(1 if empty else 3)),
        causes=() if empty else (Cause("failed", "OSError", 40), Cause("stalled", "recovered", 2)),
        burns=() if empty else (Burn(NOW, (4.0, 40.0, 4.0, 4.0), ("fast",)),),
        names=(total,),
        campaigns=() if empty else (Campaign("smtp-is-back", 40, 39, 1, 0),),
        slo=Slo(latency_ms=30_000),
    )


@pytest.mark.parametrize("empty", [False, True])
def test_a_report_is_one_file_that_needs_no_network(tmp_path: Path, empty: bool) -> None:
    audit = Audit("work", "i", 0, 9, 10, 10)
    made = save_report(figures(empty=empty), tmp_path / "report", [audit])
    page = made.page.read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "")
    assert "src=" in page
    assert page.count("data:image/png;base64,") == page.count("src=") == len(made.pictures) == 4
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made.pictures)
    # Names of users are escaped.
    assert "&lt;b&gt;mail" in page
    assert "<b>mail" not in page
    assert "1,200" in page
    assert "10 events. None is missing or duplicated." in page
    assert ("smtp-is-back" in page) is not empty


def test_a_report_counts_missing_events(tmp_path: Path) -> None:
    made = save_report(figures(), tmp_path, [Audit("work", "i", 0, 9, 8, 8)])
    assert "2 events are missing and 0 are duplicated" in made.page.read_text(encoding="utf-8")


def test_the_jobs_of_the_demonstration_fail_as_computed_before() -> None:
    files = find_files(400)
    assert files == find_files(400)
    completed = failed = retries = 0
    for file in files[:120]:
        if runs_that_fail(file["path"]) == 0:
            continue
        for failures in range(ATTEMPTS):
            try:
                digest = hash_file(file, failures)
            except (TimeoutError, ConnectionError, ValueError):
                retries += failures + 1 < ATTEMPTS
                failed += failures + 1 == ATTEMPTS
            else:
                assert len(digest) == 64
                completed += 1
                break
    wanted = expected([file for file in files[:120] if runs_that_fail(file["path"])])
    assert (completed, failed, retries) == (wanted["completed"], wanted["failed"], wanted["retries"])
    assert completed > 0
    assert failed > 0


def test_files_of_interrupted_batches_are_removed(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "a lake")
    day = lake.bronze / "dt=2026-05-01"
    day.mkdir(parents=True)
    for name in ("part-0-kept.parquet", "part-1-old.parquet", "part-2-cut.parquet", "part-3-again.parquet"):
        (day / name).write_bytes(b"")
        (day / f".{name}.crc").write_bytes(b"")
    assert remove_incomplete_files(lake) == []  # without a log no file is removed
    log = lake.bronze / "_spark_metadata"
    log.mkdir()

    def entry(number: str, name: str) -> None:
        path = f"{lake.bronze.as_uri()}/dt=2026-05-01/{name}"
        (log / number).write_text("v1\n" + json.dumps({"path": path, "size": 4, "action": "add"}) + "\n")

    entry("9.compact", "part-1-old.parquet")
    entry("10", "part-0-kept.parquet")
    (log / ".10.crc").write_bytes(b"\xff")
    assert sorted(path.name for path in remove_incomplete_files(lake)) == ["part-2-cut.parquet", "part-3-again.parquet"]
    assert sorted(path.name for path in day.iterdir()) == [
        ".part-0-kept.parquet.crc", ".part-1-old.parquet.crc", "part-0-kept.parquet", "part-1-old.parquet",
    ]  # fmt: skip
