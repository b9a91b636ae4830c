"""The client in JavaScript of examples/node shares queues with Python, as docs/wire-protocol.md describes."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from glidemq_async import Backoff, GlideMQ, JobFailed, Queue
from tests.support.servers import Server, eventually, standalone

SOURCE = Path(__file__).parents[2] / "examples" / "node"
NODE, NPM = shutil.which("node"), shutil.which("npm")
INSTALL_SECONDS = 60
"""npm waits longer than this for a registry that does not answer."""
UNREACHABLE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|network")
RESULT_SECONDS = 15

pytestmark = [
    # The first test installs the packages.
    pytest.mark.timeout(60 + INSTALL_SECONDS),
    pytest.mark.skipif(
        not SOURCE.exists() or NODE is None or NPM is None,
        reason="THE CLIENT IN JAVASCRIPT IS NOT TESTED: node and npm are not installed",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of examples/node with its packages."""
    place = tmp_path_factory.mktemp("node")
    shutil.copytree(SOURCE, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    arguments = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--prefer-offline", "--ignore-scripts"]
    try:
        done = subprocess.run(
            [str(NPM), *arguments], cwd=place, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"THE CLIENT IN JAVASCRIPT IS NOT TESTED: npm got no packages in {INSTALL_SECONDS} s")
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"THE CLIENT IN JAVASCRIPT IS NOT TESTED: npm cannot fetch its packages: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    yield place
    shutil.rmtree(place)


@pytest.fixture
async def broker() -> AsyncIterator[Server]:
    async with standalone() as started:
        yield started


async def node(folder: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(NODE), *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    return output.decode().strip()


@asynccontextmanager
async def node_worker(folder: Path, queue: Queue[object, object], url: str) -> AsyncGenerator[None]:
    """Run the worker in Node until the block ends, then stop it with SIGTERM. It must sign off."""
    process = await asyncio.create_subprocess_exec(
        str(NODE), "work.mjs", url, queue.name, cwd=folder, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), RESULT_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    assert await queue.get_workers() == []


async def test_a_python_worker_runs_a_task_that_node_has_added(folder: Path, broker: Server) -> None:
    mq = GlideMQ(broker.url)

    @mq.task(queue="letters")
    async def greet(name: str) -> str:
        return f"hello {name}"

    async with mq, mq.worker(handle_signals=False):
        arguments = broker.url, "letters", "greet", json.dumps({"name": "Ada"})
        plain = await node(folder, "produce.mjs", *arguments)
        keyed = await node(
            folder, "produce.mjs", *arguments, json.dumps({"key": "tenant-7", "attempts": 3, "delay": 1})
        )
        async with Queue[object, str]("letters", broker.url) as queue:
            jobs = [await queue.get_job(job_id) for job_id in (plain, keyed)]
            assert [await job.result(timeout=RESULT_SECONDS) for job in jobs if job] == ["hello Ada"] * 2
            assert [(job.key, job.options.attempts) for job in jobs if job] == [(None, 1), ("tenant-7", 3)]
    assert plain != keyed


async def test_a_node_worker_runs_retries_and_renews_jobs_that_python_has_added(folder: Path, broker: Server) -> None:
    async with (
        Queue[object, object]("letters", broker.url) as queue,
        node_worker(folder, queue, broker.url),
    ):
        shouts = await queue.add_bulk([("shout", {"text": text}) for text in ("tea", "milk")])
        keyed = await queue.add("shout", {"text": "key"}, key="tenant-7")
        flaky = await queue.add("flaky", None, attempts=2, backoff=Backoff.fixed(0.01))
        hopeless = await queue.add("flaky", None)
        unknown = await queue.add("unknown", None, attempts=5)
        # Its lease is shorter than its run, so it is reclaimed unless it is renewed.
        slow = await queue.add("slow", {"seconds": 2.5}, lock_duration=1)
        results = [await job.result(timeout=RESULT_SECONDS) for job in (*shouts, keyed, flaky, slow)]
        assert results == ["TEA", "MILK", "KEY", "attempt 2", "run 1"]
        with pytest.raises(JobFailed, match="RangeError: the first attempt fails"):
            await hopeless.result(timeout=RESULT_SECONDS)
        with pytest.raises(JobFailed, match="no handler for unknown"):
            await unknown.result(timeout=RESULT_SECONDS)
        ended = [await queue.get_job(job.id) for job in (flaky, unknown, slow)]
        assert [(job.attempts_made, job.stalled_count) for job in ended if job] == [(2, 0), (1, 0), (1, 0)]
        assert await queue.check() == []


async def test_a_revoked_run_of_a_node_worker_is_stopped(folder: Path, broker: Server) -> None:
    async with (
        Queue[object, object]("letters", broker.url) as queue,
        node_worker(folder, queue, broker.url),
    ):
        job = await queue.add("slow", {"seconds": 600})

        async def is_active() -> bool:
            found = await queue.get_job(job.id)
            return found is not None and found.state == "active"

        await eventually(is_active, "the worker in Node must start the job")
        await queue.revoke(job.id)
        with pytest.raises(JobFailed, match="AbortError"):
            await job.result(timeout=RESULT_SECONDS)
        found = await queue.get_job(job.id)
        assert found is not None
        assert found.failure_cause == "revoked"
