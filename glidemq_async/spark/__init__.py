"""Spark beside the queue: jobs in bulk from DataFrames, events and jobs as tables, Spark work as jobs.

Needs the extra `spark` (pyspark 4.0 or newer, pyarrow) and a Java 17 for Spark itself. Nothing of Spark is imported
before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidemq_async.spark.diagnosis import doctor
    from glidemq_async.spark.enqueue import enqueue_frame
    from glidemq_async.spark.executor import SparkExecutor
    from glidemq_async.spark.foreach import BatchJobs, foreach_batch
    from glidemq_async.spark.frames import jobs_frame
    from glidemq_async.spark.handoff import HandoffStats
    from glidemq_async.spark.listener import QueryEvent, QueryListener
    from glidemq_async.spark.progress import Progress
    from glidemq_async.spark.report import WriteReport, write_report
    from glidemq_async.spark.session import register, use_session
    from glidemq_async.spark.source import GlideMQDataSource
    from glidemq_async.spark.streams import StreamState, run_stream
    from glidemq_async.spark.tables import latest

__all__ = [
    "BatchJobs",
    "GlideMQDataSource",
    "HandoffStats",
    "Progress",
    "QueryEvent",
    "QueryListener",
    "SparkExecutor",
    "StreamState",
    "WriteReport",
    "doctor",
    "enqueue_frame",
    "foreach_batch",
    "jobs_frame",
    "latest",
    "register",
    "run_stream",
    "use_session",
    "write_report",
]

_HOMES = {
    "BatchJobs": "foreach",
    "GlideMQDataSource": "source",
    "HandoffStats": "handoff",
    "Progress": "progress",
    "QueryEvent": "listener",
    "QueryListener": "listener",
    "SparkExecutor": "executor",
    "StreamState": "streams",
    "WriteReport": "report",
    "doctor": "diagnosis",
    "enqueue_frame": "enqueue",
    "foreach_batch": "foreach",
    "jobs_frame": "frames",
    "latest": "tables",
    "register": "session",
    "run_stream": "streams",
    "use_session": "session",
    "write_report": "report",
}


# Any: the types are those of the names above.
def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module(f"{__name__}.requirements").require_pyspark()
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
