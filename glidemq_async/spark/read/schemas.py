"""The columns of each table, and the check of a schema that a user passes to select columns."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa

_JOB: Final = (
    "queue string, id string, name string, state string, key string, priority int, lifo boolean, attempts_made int, "
    "stalled_count int, fence bigint, created_at timestamp, processed_at timestamp, finished_at timestamp, "
    "failed_reason string, failure_cause string, data_size bigint, "
)
_PAYLOAD: Final = "progress string, data string, payload binary, result string, stacktrace string, unreadable string, "
SCHEMAS: Final = {
    "events": (
        "queue string, offset string, seq bigint, event string, job_id string, name string, key string, "
        "detail string, delay_ms bigint, reason string, error_class string, size bigint, value string, "
        "ts timestamp, incarnation string, v smallint"
    ),
    "jobs": f"{_JOB}{_PAYLOAD}observed_at timestamp",
    "dlq": (
        f"{_JOB}origin_queue string, origin_id string, origin_attempts int, origin_failed_at timestamp, "
        f"{_PAYLOAD}observed_at timestamp"
    ),
    "results": (
        "queue string, id string, name string, state string, key string, finished_at timestamp, failed_reason string, "
        "failure_cause string, result string, unreadable string, observed_at timestamp"
    ),
    "queues": (
        "queue string, waiting bigint, active bigint, delayed bigint, prioritized bigint, key_waiting bigint, "
        "rate_limited bigint, completed bigint, failed bigint, paused boolean, oldest_waiting_ms bigint, "
        "completed_last_hour bigint, failed_last_hour bigint, mean_run_ms double, workers bigint, events bigint, "
        "incarnation string, observed_at timestamp"
    ),
    "schedulers": (
        "queue string, id string, name string, cron string, tz string, every_ms bigint, next_at timestamp, "
        "last_at timestamp, last_job_id string, fired bigint, skipped bigint, observed_at timestamp"
    ),
    "workers": (
        "queue string, name string, host string, pid int, concurrency int, running int, started_at timestamp, "
        "last_seen timestamp, observed_at timestamp"
    ),
    "writes": (
        "queue string, write_id string, state string, began timestamp, ended timestamp, inserted bigint, "
        "replayed bigint, duplicate bigint, rejected bigint, partitions int, app string, version bigint, label string, "
        "observed_at timestamp"
    ),
    "losses": (
        "queue string, reader string, why string, incarnation string, first bigint, upto bigint, events bigint, "
        "noted_at timestamp"
    ),
    "readers": (
        "queue string, reader string, incarnation string, n bigint, lag bigint, noted_at timestamp, "
        "observed_at timestamp"
    ),
}
"""The schema of each `kind`, as a Spark schema string."""
# Spark's parser of schema strings needs a session, and the planner runs in a process without one.
_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "smallint": ShortType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
}


def schema_of(kind: str) -> StructType:
    """Return the complete schema of a kind."""
    if kind not in SCHEMAS:
        raise ValueError(f"kind must be one of {', '.join(SCHEMAS)}, got {kind!r}")
    fields = [part.split() for part in SCHEMAS[kind].split(",")]
    return StructType([StructField(name, _TYPES[type_name]) for name, type_name in fields])


def check_columns(kind: str, wanted: StructType) -> None:
    """Raise ValueError unless each column of a user's schema exists with this type."""
    known = {field.name: field.dataType for field in schema_of(kind)}
    for field in wanted:
        found = known.get(field.name)
        if found is None:
            raise ValueError(f"kind={kind} has no column {field.name!r}; its columns are {', '.join(known)}")
        if found != field.dataType:
            raise ValueError(
                f"the column {field.name!r} has the type {found.simpleString()}, got {field.dataType.simpleString()}; "
                "read it with its own type and cast it afterwards"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark requires of record batches."""
    # Any: the annotations do not match all versions of pyspark.
    convert: Any = to_arrow_schema
    try:
        found: pa.Schema = convert(schema, timezone="UTC")
    except TypeError:  # before Spark 4.1 there is no parameter, and the time zone is always UTC
        found = convert(schema)
    return found
