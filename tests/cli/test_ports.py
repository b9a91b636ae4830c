"""The ports of worker processes: one listener for all of them, and one reply that covers all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from glidemq_async.cli.worker.metrics import merged
from tests.cli.commands import glidemq
from tests.cli.running import SUPERVISED, Running, start, worker
from tests.support.helpers import AnyQueue
from tests.support.servers import Server, eventually, free_port

APP = """
import asyncio
import os
from pathlib import Path

from glidemq_async import GlideMQ
from glidemq_async.telemetry import Prometheus

mq = GlideMQ(instrumentation=[Prometheus(port={metrics})] if {metrics} else [], queue="q")


@mq.task
async def who() -> int:
    return os.getpid()


@mq.task
async def meet(processes: int) -> int:
    # It ends once so many processes have run it.
    Path(f"met-{{os.getpid()}}").touch()
    while len(list(Path().glob("met-*"))) < processes:
        await asyncio.sleep(0.01)
    return os.getpid()
"""
CODED = """
from glidemq_async import Worker


async def process(job) -> None: ...


worker = Worker("q", process, health_port={port})
"""


TAKEN = (
    "the {purpose} port {port} ({host}) cannot be used: address already in use; choose another port, or stop the "
    "program that uses it"
)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APP.format(metrics=0))
    return tmp_path


async def get(port: int, path: str) -> tuple[int, str]:
    """Request a page: return its status and body."""

    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def probe(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Probe: return the status and the report of each worker."""
    status, body = await get(port, path)
    return status, json.loads(body)["workers"]


async def all_ready(port: int, count: int) -> dict[str, Any]:
    """Wait until this many workers are ready. Subscribing may take a moment after the first claim."""
    found: dict[str, Any] = {}

    async def check() -> bool:
        nonlocal found
        status, found = await probe(port, "/readyz")
        return (status, len(found)) == (200, count)

    await eventually(check, f"{count} workers must be ready")
    return found


async def ready(running: Running, count: int = 2) -> list[int]:
    """Wait until this many more processes claim jobs; return their ids."""
    return [(await running.event("ready"))["worker_pid"] for _ in range(count)]


async def test_one_health_port_covers_all_processes(server: Server, app: Path) -> None:
    port = free_port()
    async with worker(*SUPERVISED, "--health-port", str(port), cwd=app, url=server.url) as running:
        await running.event("started")
        status, found = await probe(port, "/readyz")
        if status == 503:  # usually: they have only been started
            assert any("it is not running" in str(one["problems"]) for one in found.values())
            assert (await probe(port, "/healthz"))[0] == 200, "a process that starts must count as alive"
        first, second = await ready(running)
        await all_ready(port, 2)
        for path in ("/healthz", "/livez", "/readyz"):
            status, found = await probe(port, path)
            assert (status, len(found)) == (200, 2)
            assert {one["ready"] for one in found.values()} == {True}
        assert (await get(port, "/no"))[0] == 404

        os.kill(first, signal.SIGSTOP)
        status, found = await probe(port, "/healthz")
        assert status == 503
        assert min(str(one["problems"]) for one in found.values()) == "['it did not reply within 2.5 s']"
        os.kill(first, signal.SIGCONT)
        assert (await probe(port, "/healthz"))[0] == 200

        (app / "jobs.py").write_text("import time\ntime.sleep(600)\n")
        os.kill(second, signal.SIGKILL)
        await running.event("waiting")
        status, found = await probe(port, "/readyz")
        assert (status, len(found)) == (503, 2)
        assert (await probe(port, "/healthz"))[0] == 200
        running.send(signal.SIGTERM)
        assert await running.code() == 0
    with pytest.raises(urllib.error.URLError):
        await get(port, "/healthz")


async def test_a_single_process_has_the_port_itself(server: Server, app: Path) -> None:
    port = free_port()
    async with worker("--health-port", str(port), cwd=app, url=server.url) as running:
        await running.working()
        await all_ready(port, 1)
        asked = ("healthcheck", "--ready", "--json", "--port", str(port))
        done = await asyncio.to_thread(partial(glidemq, *asked, temporary=app / "t"))
        found = json.loads(done.stdout)
        assert (done.returncode, found["status"], found["problem"], len(found["workers"])) == (0, "ok", None, 1)
        [name] = found["workers"]
        assert found["workers"][name]["queue"] == "q"
        done = await asyncio.to_thread(partial(glidemq, "healthcheck", "--port", str(port), temporary=app / "t"))
        assert done.stdout == f"{name} (q): ok\n"
    done = await asyncio.to_thread(partial(glidemq, *asked, temporary=app / "t"))
    found = json.loads(done.stdout)
    assert (done.returncode, found["status"], found["workers"]) == (1, "failing", {})
    assert f"no reply from 127.0.0.1:{port}" in found["problem"]


async def test_ports_of_the_app_are_shared_too(server: Server, app: Path) -> None:
    port = free_port()
    (app / "jobs.py").write_text(CODED.format(port=port))
    async with worker(*SUPERVISED, cwd=app, url=server.url) as running:
        await ready(running)
        before = await all_ready(port, 2)
        running.send(signal.SIGHUP)
        await ready(running)
        after = await all_ready(port, 2)
        assert not set(before) & set(after)


async def test_one_scrape_covers_all_processes(server: Server, jobs: AnyQueue, app: Path) -> None:
    port = free_port()
    (app / "jobs.py").write_text(APP.format(metrics=port))

    async def counted() -> dict[str, float]:
        status, text = await get(port, "/metrics")
        assert status == 200
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "glidemq_runs_ended_total":
                    pid = sample.labels["pid"]
                    found[pid] = found.get(pid, 0) + sample.value
        return found

    async with worker(*SUPERVISED, "-c", "1", cwd=app, url=server.url) as running:
        pids = await ready(running)
        added = [await jobs.add("meet", {"a": [2], "k": {}}) for _ in range(4)]
        assert {await job.result(10) for job in added} == set(pids)

        async def all_counted() -> bool:
            return sum((await counted()).values()) == 4

        await eventually(all_counted, "every stored outcome must be counted")
        assert set(await counted()) == set(map(str, pids))
        _, text = await get(port, "/metrics")
        for pid in pids:
            assert f'glidemq_process_up{{pid="{pid}"}} 1.0' in text
        assert text.count("# TYPE glidemq_runs_ended_total counter") == 1
        running.send(signal.SIGHUP)
        after = await ready(running)
        await running.count("exited", 2)  # an old process claims until the new ones are ready
        job = await jobs.add("who")
        assert await job.result(10) in after


@pytest.mark.parametrize("options", [(), SUPERVISED], ids=["alone", "supervised"])
async def test_a_taken_port_is_reported_in_one_line(server: Server, app: Path, options: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        async with worker(*options, "--health-port", port, cwd=app, url=server.url) as running:
            assert await running.code() == 1
            [said] = [line for line in running.lines if line["level"] == "error"]
            assert said["message"] == TAKEN.format(purpose="health", port=port, host="all addresses")
            assert running.noise == []
        async with start("worker", "jobs", *options, "--health-port", port, cwd=app, url=server.url) as running:
            assert await running.code() == 1
            assert running.noise[-1] == f"glidemq: {said['message']}\n"


@pytest.mark.parametrize("purpose", ["health", "metrics"])
@pytest.mark.parametrize("options", [(), SUPERVISED], ids=["alone", "supervised"])
async def test_a_taken_port_of_the_app_is_reported(
    server: Server, app: Path, options: tuple[str, ...], purpose: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = APP.format(metrics=port) if purpose == "metrics" else CODED.format(port=port)
        (app / "jobs.py").write_text(text)
        async with worker(*options, cwd=app, url=server.url) as running:
            assert await running.code() == 1
            host = "all addresses" if purpose == "health" else "127.0.0.1"
            expected = TAKEN.format(purpose=purpose, port=port, host=host)
            assert expected in {line["message"] for line in running.lines if line["level"] == "error"}
            # A second start would not get the port either.
            assert "waiting" not in {line.get("event") for line in running.lines}
            assert running.noise == []


def test_metrics_of_processes_are_distinguished_and_complete() -> None:
    first = b'# HELP a_total A.\n# TYPE a_total counter\na_total 1.0\n# TYPE b gauge\nb{x="} y",z="1"} 2.0\n'
    second = b'# HELP a_total A.\n# TYPE a_total counter\na_total{} 3.0\n# HELP c C.\n# TYPE c gauge\nc{x="\\n"} NaN\n'
    text = merged({7: first, 8: second, 9: None}).decode()
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found.pop(("c", (("pid", "8"), ("x", "\n")))) != 0
    assert found == {
        ("a_total", (("pid", "7"),)): 1.0,
        ("a_total", (("pid", "8"),)): 3.0,
        ("b", (("pid", "7"), ("x", "} y"), ("z", "1"))): 2.0,
        ("glidemq_process_up", (("pid", "7"),)): 1.0,
        ("glidemq_process_up", (("pid", "8"),)): 1.0,
        ("glidemq_process_up", (("pid", "9"),)): 0.0,
    }
    assert text.count("# TYPE a_total counter") == 1
