"""Helpers that wait for the effects of a write, in its tasks and in the test."""

from __future__ import annotations

import time
from collections.abc import Callable

from glidemq_async.spark.connection import connection_to
from glidemq_async.stored.names import QueueKeys

PATIENCE = 60


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Poll until a condition that other processes change is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen: {what}"
        time.sleep(0.02)


def arrived(url: str, job_id: str) -> None:
    """Wait until a job exists. Tasks call this."""
    connection = connection_to(url)
    functions = connection.functions(QueueKeys("glide", "orders"))
    until(lambda: bool(connection.run(functions.reading.get_records([job_id]))[0]), f"{job_id} was added")
