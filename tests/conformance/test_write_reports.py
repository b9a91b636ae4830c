"""The report of a write, read from programs of all kinds and long after it."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pyspark")

from glidemq_async.functions.callers import Functions
from glidemq_async.spark.write.report import report_of_run, write_report
from glidemq_async.stored.names import QueueKeys
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore

pytestmark = pytest.mark.only_on("unix")


async def commit(functions: Functions, version: int) -> None:
    write_id = f"app@{version}"
    assert await functions.writes.open(write_id, "t", 1000, "app", version)
    await functions.writes.end(write_id, "t", "committed", 1)


async def test_a_report_is_read_in_a_thread_whose_loop_runs(
    queue: AnyQueue, functions: Functions, store: RunningStore
) -> None:
    await commit(functions, 1)
    # Without to_thread, as in the cell of a notebook.
    assert write_report(store.url, queue.name, txn_app_id="app").state == "committed"


async def test_a_run_without_rows_has_a_report_without_numbers(
    queue: AnyQueue, functions: Functions, store: RunningStore
) -> None:
    await commit(functions, 5)
    keys = QueueKeys("glide", queue.name)
    await store.ask("DEL", keys.key("write:app@5"))  # as after a week

    def report(version: int) -> tuple[str, str, int, float | None]:
        found = report_of_run(store.url, queue.name, "app", version, prefix="glide")
        return found.write_id, found.state, found.inserted, found.seconds

    assert await asyncio.to_thread(report, 5) == ("app@5", "committed", 0, None)
    assert await asyncio.to_thread(report, 3) == ("app@3", "committed", 0, None)
    with pytest.raises(LookupError, match="has no write 'app@6'"):
        await asyncio.to_thread(report, 6)
    with pytest.raises(LookupError, match="has no write 'app@3'"):
        await asyncio.to_thread(write_report, store.url, queue.name, txn_app_id="app", txn_version=3)
