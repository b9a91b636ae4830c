"""The plan of a write, which Spark sends to every task."""

from __future__ import annotations

from dataclasses import dataclass, field

from glidemq_async.functions.callers import Functions
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.retries import RetryingStore
from glidemq_async.spark.write.options import WriteOptions

__all__ = ["WritePlan", "functions_of"]


# Spark pickles the plan into each task, and again into the process that commits. It contains values only: the
# connection is made where it is used (`connection_to`).
@dataclass(frozen=True, slots=True)
class WritePlan:
    """The options of a write, its id and token, and its target queues.

    `queues` maps each queue to its incarnation. A queue in which the write is committed already is missing.
    """

    options: WriteOptions
    write_id: str
    token: str
    queues: dict[str, str] = field(default_factory=dict[str, str])


def functions_of(connection: Connection, options: WriteOptions, queue: str) -> Functions:
    """Return callers of a queue's functions, with the timeout and the retries of the options."""
    store = RetryingStore(connection.storage, options.request_timeout, options.max_retries)
    return Functions(store, options.keys(queue).base)
