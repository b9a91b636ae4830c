"""`enqueue_frame`: write a DataFrame to a queue and return the report of the write."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.spark.driver.session import register
from glidemq_async.spark.write.report import WriteReport, report_of_run, write_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["enqueue_frame"]

Option = str | int | float | bool | list[str] | tuple[str, ...] | Mapping[str, object] | None


def enqueue_frame(df: DataFrame, queue: str, *, url: str | None = None, **options: Option) -> WriteReport:
    """Write a DataFrame to a queue, and return the server's counts of the write.

    The default of `url` is $GLIDEMQ_URL. `options` are the options of `format("glidemq")` in snake_case
    (`id_mode="hash"`, `id_columns=["order"]`, `max_queue_depth=10_000`). A list is joined by commas, or becomes JSON if
    one of its names contains a comma. A mapping becomes JSON (`opts={"attempts": 3}`).

    If the transaction was committed earlier and its counts have expired, or a later version was committed, the report
    contains zeros. Raises ValueError for bad options, and Spark's error if the write fails. The jobs that were added
    stay then, and the same call with the same ids adds the others.
    """
    url = url or os.environ.get("GLIDEMQ_URL")
    if not url:
        raise ValueError("enqueue_frame has no server; pass url=, or set GLIDEMQ_URL")
    # A batch write without a name gets one here. Otherwise the planner would choose it, and this function would not
    # know which write to report.
    texts = {_camel(name): _text(value) for name, value in options.items() if value is not None}
    if "txnAppId" not in texts:
        texts.setdefault("writeId", uuid.uuid4().hex)
    register(df.sparkSession)
    # One attempt: Spark retries failed tasks by itself. After a failed write the caller decides whether to write again.
    df.write.format("glidemq").options(url=url, queue=queue, **texts).mode("append").save()
    return _report(url, queue, texts)


def _report(url: str, queue: str, texts: Mapping[str, str]) -> WriteReport:
    prefix = texts.get("prefix", DEFAULT_PREFIX)
    if "writeId" in texts:
        return write_report(url, queue, texts["writeId"], prefix=prefix)
    app, version = texts["txnAppId"], int(texts["txnVersion"])
    return report_of_run(url, queue, app, version, prefix=prefix)


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def _text(value: Option) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return json.dumps(value) if any("," in each for each in value) else ",".join(value)
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
