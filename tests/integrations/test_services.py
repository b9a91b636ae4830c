"""The example services as they are deployed: a real server, a real worker, and one run of every acknowledged
request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Queue
from tests.support.servers import Server, eventually, free_port, standalone

ROOT = Path(__file__).parents[2]
#: Requests use nearly all of the time of these tests, so ordinary runs make only 10 for each client.
REQUESTS = [2_000, pytest.param(10_000, marks=pytest.mark.slow)]
START_SECONDS = 60.0
UVICORN = ("-m", "uvicorn", "--app-dir", "examples", "fastapi_service:app", "--log-level", "warning", "--port")
Process = asyncio.subprocess.Process

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not (ROOT / "examples").exists(), reason="the examples are not next to the tests"),
]


@contextlib.asynccontextmanager
async def process(*command: str, url: str, port: int = 0) -> AsyncGenerator[Process]:
    """A Python program in a separate process. It must end without an error, by itself or on request."""
    env = {**os.environ, "GLIDEMQ_URL": url, "PORT": str(port)}
    started = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, env=env, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield started
        with contextlib.suppress(ProcessLookupError):
            started.terminate()
        await asyncio.wait_for(started.communicate(), 20)
    finally:
        if started.returncode is None:
            started.kill()
            await started.communicate()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server for this test only."""
    async with standalone() as started:
        yield started


@contextlib.asynccontextmanager
async def service(kind: str, url: str) -> AsyncGenerator[tuple[int, Process]]:
    """Start a serving process and wait until it replies."""
    port = free_port()

    async def answers() -> bool:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True

    command = (*UVICORN, str(port)) if kind == "fastapi" else ("examples/aiohttp_service.py",)
    async with process(*command, url=url, port=port) as serving:
        await eventually(answers, f"the {kind} service must reply", START_SECONDS)
        yield port, serving


async def load(port: int, accepted: Path, url: str, *options: str) -> dict[str, Any]:
    """Run the load generator to its end; return its report."""
    command = ["-m", "benchmarks.http_load", str(port), "--accepted", str(accepted), *options]
    async with process(*command, url=url) as loading:
        out, _ = await asyncio.wait_for(loading.communicate(), 100)
        report: dict[str, Any] = json.loads(out)
        return report


async def all_ended(url: str) -> None:
    """Wait until no job waits or runs, and check the stored data."""
    async with Queue[Any, Any]("orders", url) as queue:

        async def none_left() -> bool:
            counts = await queue.get_job_counts()
            return counts["waiting"] == counts["active"] == 0

        await eventually(none_left, "every job must end", 60)
        assert (await queue.get_job_counts())["failed"] == 0
        assert await queue.check() == []


@pytest.mark.parametrize("requests", REQUESTS)
@pytest.mark.parametrize("kind", ["aiohttp", "fastapi"])
async def test_every_acknowledged_request_runs_once(kind: str, requests: int, server: Server, tmp_path: Path) -> None:
    accepted, journal = tmp_path / "accepted", tmp_path / "journal"
    worker = ("-m", "tests.integrations.journal", f"examples/{kind}_service.py", str(journal))
    async with process(*worker, url=server.url), service(kind, server.url) as (port, _):
        report = await load(port, accepted, server.url, "--requests", str(requests))
        await all_ended(server.url)
    assert (report["accepted"], report["refused"], report["broken"]) == (requests, 0, 0)
    runs = Counter(journal.read_text().split())
    assert runs == Counter(accepted.read_text().split())
    assert len(runs) == requests


@pytest.mark.parametrize("kind", ["aiohttp", "fastapi"])
async def test_a_stopped_service_loses_no_acknowledged_request(kind: str, server: Server, tmp_path: Path) -> None:
    accepted, journal = tmp_path / "accepted", tmp_path / "journal"
    worker = ("-m", "tests.integrations.journal", f"examples/{kind}_service.py", str(journal))
    async with process(*worker, url=server.url):
        async with service(kind, server.url) as (port, serving):
            loading = asyncio.create_task(load(port, accepted, server.url, "--requests", "1000000", "--clients", "50"))

            async def some_ran() -> bool:
                return journal.exists() and journal.stat().st_size > 5_000

            await eventually(some_ran, "some jobs must have run", START_SECONDS)
            serving.send_signal(signal.SIGTERM)
            report = await loading
            assert await asyncio.wait_for(serving.wait(), 20) in {0, -signal.SIGTERM}
        await all_ended(server.url)
    assert report["accepted"] > 100
    runs = Counter(journal.read_text().split())
    assert set(accepted.read_text().split()) <= runs.keys()
    assert set(runs.values()) == {1}
