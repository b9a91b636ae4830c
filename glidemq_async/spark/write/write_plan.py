"""What every task of a write is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from glidemq_async.functions.callers import Functions
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.retries import RetryingStore
from glidemq_async.spark.write.options import WriteOptions

__all__ = ["WritePlan", "functions_of"]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What every task of a write gets: the options, the write's id and token, and the queues it is to write to.

    `queues` maps a queue to its incarnation; those missing have this write already.
    """

    options: WriteOptions
    write_id: str
    token: str
    queues: dict[str, str] = field(default_factory=dict[str, str])


def functions_of(connection: Connection, options: WriteOptions, queue: str) -> Functions:
    """Return callers of a queue's functions, as patient as the options say."""
    store = RetryingStore(connection.storage, options.request_timeout, options.max_retries)
    return Functions(store, options.keys(queue).base)
