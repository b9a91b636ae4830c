"""`glidemq worker` with an app of tasks."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from glidemq_async import Queue
from tests.cli.running import worker
from tests.support.servers import Server

APP = """
import logging

from glidemq_async import GlideMQ
from glidemq_async.telemetry import JobLogging

mq = GlideMQ(instrumentation=[JobLogging()])


@mq.task(queue="q")
async def talk() -> None:
    logging.getLogger("talk").info("here", extra={"color": "red"})


@mq.task(queue="q")
def shout() -> None:
    logging.getLogger("shout").error("there")
"""


HANGS = """
import asyncio
import logging

from glidemq_async import GlideMQ


async def lifespan(mq):
    logging.getLogger("life").info("in")
    try:
        await asyncio.Event().wait()
        yield
    finally:
        logging.getLogger("life").info("out")


mq = GlideMQ(lifespan=lifespan)
mq.task(print, name="print")
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APP)
    return tmp_path


async def test_log_lines_of_a_worker_name_their_job(server: Server, app: Path) -> None:
    async with Queue("q", server.url) as queue:
        for name in ("talk", "shout"):
            await queue.add(name, {"a": [], "k": {}}, job_id=name)
    async with worker("--until-empty", cwd=app, url=server.url) as running:
        assert await running.code() == 0
    said = {line["logger"]: line for line in running.lines}
    about = {"queue": "q", "job_id": "talk", "job_name": "talk", "attempt": 1}
    assert said["talk"].items() >= {**about, "message": "here", "color": "red", "pid": running.pid}.items()
    assert said["shout"]["job_id"] == "shout", "in threads, too"
    assert "job_id" not in said["glidemq_async.worker.worker"]
    assert "worker" not in said["talk"], "it must run alone"


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["alone", "supervised"])
async def test_a_starting_worker_can_be_stopped(server: Server, app: Path, options: tuple[str, ...]) -> None:
    (app / "jobs.py").write_text(HANGS)
    async with worker(*options, cwd=app, url=server.url) as running:
        for _ in range(2 if options else 1):
            await running.line(lambda line: line["logger"] == "life")
        running.send(signal.SIGTERM)
        assert await running.code() == 0
        assert running.lines[-1]["message"] != "in"
        assert any(line["message"] == "out" for line in running.lines)
