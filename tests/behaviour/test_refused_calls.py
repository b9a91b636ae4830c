"""A server that refuses every call of a worker gets few calls and causes few log lines. Work continues afterwards."""

from __future__ import annotations

import asyncio
import logging

import pytest

from glidemq_async import Queue, Worker
from glidemq_async.jobs.job import Job
from tests.support.helpers import until
from tests.support.servers import standalone

REFUSED_SECONDS = 2.0


async def _nothing(job: Job[object, object]) -> None:
    pass


@pytest.mark.parametrize("refusal", ["-fcall", "resetpass"])
async def test_a_refused_worker_backs_off_and_recovers(refusal: str, caplog: pytest.LogCaptureFixture) -> None:
    async with standalone() as server:
        await server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
        url = f"redis://app:secret@127.0.0.1:{server.port}"
        errors: list[Exception] = []
        completed = asyncio.Event()
        async with (
            Queue("refused", server.url) as queue,
            Worker("refused", _nothing, url, handle_signals=False, poll_interval=0.5, lock_duration=1) as worker,
        ):
            worker.on("error", errors.append)
            worker.on("completed", lambda *_: completed.set())
            await server.command("ACL", "SETUSER", "app", refusal)
            await server.command("CLIENT", "KILL", "USER", "app")
            await server.command("CONFIG", "RESETSTAT")
            caplog.set_level(logging.INFO, "glidemq_async.worker")
            await queue.add("work")
            await asyncio.sleep(REFUSED_SECONDS)
            refused = "could not renew the leases of queue refused; "
            await until(lambda: bool(errors) and any(one.startswith(refused) for one in caplog.messages))
            warnings = [one for one in caplog.records if one.name == "glidemq_async.worker.reports"]
            assert all(" of queue refused: " in one.getMessage() for one in warnings)
            assert len(errors) < 30
            assert 1 <= len(warnings) <= 4
            stats = await server.info("stats")
            assert int(stats["total_connections_received"]) < 60
            await server.command("ACL", "SETUSER", "app", ">secret", "+fcall")
            await asyncio.wait_for(completed.wait(), 10)
            await until(lambda: "renewed the leases of queue refused again" in caplog.messages)
