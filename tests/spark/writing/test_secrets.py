"""Plans, explanations, progress, errors and reports do not contain the password of the server."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from glidemq_async.spark import doctor, enqueue_frame, write_report
from tests.spark.writing.conftest import Written

pytestmark = pytest.mark.only_on("unix")

SECRET = "s3cret"


def with_login(url: str) -> str:
    """Return the server's URL with a login. The user has no password, so the server accepts any."""
    return url.replace("://", f"://default:{SECRET}@", 1)


def executed(spark: Any) -> str:
    """Return the texts of all executions in the UI."""
    store = spark._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    shown: list[str] = []
    for number in range(found.size()):
        one = found.apply(number)
        shown += [one.description(), one.details(), one.physicalPlanDescription(), str(one.errorMessage())]
    assert len(shown) > 4
    return "\n".join(shown)


def plans(frame: Any) -> str:
    query = frame._jdf.queryExecution()
    return "\n".join([query.toString(), query.simpleString(), query.stringWithStats(), query.logical().toJSON()])


@pytest.mark.slow
def test_a_password_is_shown_nowhere(spark: SparkSession, queue: Written, tmp_path: Path) -> None:
    url = with_login(queue.url)
    frame = spark.sql("select 'a' as id, 'n' as name, '1' as data")
    report = enqueue_frame(frame, queue.name, url=url, write_id="w")
    shown = [repr(report), repr(write_report(url, queue.name, "w")), repr(doctor(spark, url))]
    for kind in ("jobs", "events", "writes"):
        table = spark.read.format("glidemq").options(url=url, kind=kind, subscribe=queue.name).load()
        assert table.count() >= 1
        shown.append(plans(table))

    events = spark.readStream.format("glidemq").options(url=url, subscribe=queue.name, startingOffsets="earliest")
    rows = events.load().selectExpr("concat('e', seq) as id", "'n' as name", "job_id as data")
    rows = rows.selectExpr("id", "name", "to_json(struct(data)) as data")
    sink = rows.writeStream.format("glidemq").options(url=url, queue="others")
    query: Any = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    shown += [str(query.lastProgress), query.lastProgress.json, str(query.status), query._jsq.explainInternal(True)]
    shown += [path.read_text(errors="replace") for path in (tmp_path / "c").rglob("*") if path.is_file()]

    with pytest.raises(PySparkException) as refused:
        enqueue_frame(frame, queue.name, url=url, on_duplicate="fail")
    writer = frame.write.format("glidemq").mode("append").option("queue", "q")
    with pytest.raises(PySparkException) as unreachable:
        writer.option("url", f"redis://u:{SECRET}@127.0.0.1:1/0").save()
    with pytest.raises(PySparkException) as unencoded:
        writer.option("url", f"redis://u:{SECRET}/x@127.0.0.1:1/0").save()
    failing = rows.selectExpr("'' as id", "name", "data").writeStream.format("glidemq")
    started = failing.options(url=url, queue="others").option("checkpointLocation", str(tmp_path / "d")).start()
    with pytest.raises(StreamingQueryException) as broken:
        started.awaitTermination(60)
    shown += [f"{error.value} {error.value!r}" for error in (refused, unreachable, unencoded, broken)]
    shown.append(executed(spark))
    assert "127.0.0.1:1" in shown[-4]
    assert [text for text in shown if SECRET in text] == []
