"""An idle worker checks its subscription with an echo. A working one does not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from glidemq_async import Job, Worker, WorkerPool
from glidemq_async.storage import open_storage
from glidemq_async.worker.echo_check import ECHO_SECONDS

POLL = ECHO_SECONDS + 0.5
"""Longer than the time limit of an echo, so that no later echo can hide a missed one."""


async def process(job: Job[None, None]) -> None:
    """Never called, because the queue stays empty."""


async def test_a_link_that_echoes_is_not_reported_as_silent(caplog: pytest.LogCaptureFixture) -> None:
    # Twenty of them, because the two sockets decide whether the echo or the reply to the call comes first.
    with caplog.at_level(logging.WARNING):
        async with open_storage("memory://") as storage:
            workers = [Worker("idle", process, storage, poll_interval=POLL, handle_signals=False) for _ in range(20)]
            async with WorkerPool(workers, handle_signals=False):
                await asyncio.sleep(POLL + ECHO_SECONDS + 0.5)
    assert [record.getMessage() for record in caplog.records] == []
