"""Commands whose server cannot be reached: each one says so after one attempt, and a service waits for its server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from glidemq_async import Queue
from glidemq_async.cli.app import build
from glidemq_async.cli.server_checks import wait_for_server
from glidemq_async.storage import open_storage
from tests.cli.running import APP, SUPERVISED, start, worker
from tests.cli.shell import Shell
from tests.support.helpers import soon
from tests.support.servers import Server, eventually, standalone

NOWHERE = "redis://127.0.0.1:1"
FILTER = "state:failed"

COMMANDS = {
    "ui token create": ("n",),
    "ui token list": (),
    "ui token revoke": ("1",),
    "queues": (),
    "jobs": (),
    "find": (FILTER,),
    "job": ("q", "1"),
    "explain": ("q", "1"),
    "history": ("q", "1"),
    "failures": (),
    "events": ("q",),
    "watch": (),
    "workers": (),
    "topics": (),
    "schedulers": (),
    "add": ("q", "n"),
    "retry": ("q", "1"),
    "remove": ("q", "1"),
    "revoke": ("q", "1"),
    "promote": ("q", "1"),
    "signal": ("q", "1", "s"),
    "workflows send": ("q", "1", "s"),
    "workflows export": ("q",),
    "workflows graph": ("q", "1"),
    "workflows waterfall": ("q", "1"),
    "workflows list": ("q",),
    "workflows show": ("q", "1"),
    "workflows cancel": ("q", "1"),
    "workflows retry": ("q", "1"),
    "workflows restart": ("q", "1"),
    "workflows accept": ("q", "1"),
    "workflows fork": ("q", "1"),
    "dlq": (),
    "clean": ("q", "--state", "failed"),
    "release": ("q", "d"),
    "pause": ("q",),
    "resume": ("q",),
    "operations change": ("retry", FILTER),
    "operations list": (),
    "operations show": ("1",),
    "operations start": ("1", "--ticket", "t"),
    "operations cancel": ("1",),
    "alerts list": (),
    "alerts add": ("n", "waiting > 5"),
    "alerts remove": ("n",),
    "alerts episodes": (),
    "alerts test": ("n",),
    "settings": ("q",),
    "limits": (),
    "retention": ("q",),
    "drain": ("q",),
    "obliterate": ("q",),
    "audit": (),
    "functions": (),
}
"""Arguments of each command that needs a server and ends by itself."""

VARIANTS = [
    ("jobs", "q"),
    ("failures", "q"),
    ("watch", "q", "1"),
    ("workers", "q"),
    ("topics", "orders"),
    ("schedulers", "q", "--trigger", "s"),
    ("add", "q", "n", "--wait", "1"),
    ("retry", "q", "--filter", FILTER, "--yes"),
    ("dlq", "q", "--replay"),
    ("limits", "q"),
    ("limits", "q", "--concurrency", "2"),
    ("retention", "q", "--completed", "all"),
    ("functions", "--load"),
]
"""Options and arguments with which a command goes another way."""

OTHERS = {
    "worker": "a service",
    "mcp": "a service",
    "operations run": "a service",
    "top": "needs a terminal",
    "demo": "starts its own server",
    "pipeline run": "needs Spark",
    "pipeline report": "needs Spark",
    "pipeline replay": "needs Spark",
    "pipeline backfill": "needs Spark",
    "pipeline demo": "needs Spark",
    "workflows check": "needs no server",
    "doctor": "reports it as one of its checks",
    "acl": "needs no server",
    "healthcheck": "needs no server",
}


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not hasattr(command, "list_commands"):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from _paths(command.get_command(context, name), (*path, name))


def test_every_command_is_covered_here() -> None:
    assert sorted(_paths(typer.main.get_command(build()))) == sorted([*COMMANDS, *OTHERS])


@pytest.mark.parametrize(
    "words", [*((*path.split(), *rest) for path, rest in COMMANDS.items()), *VARIANTS], ids=" ".join
)
async def test_a_command_reports_an_unreachable_server_after_one_attempt(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, said = await Shell(NOWHERE, tmp_path / "t").fails(*words)
    assert code == 3
    # A client that tried for a while would add for how long.
    assert said.startswith(f"glidemq: cannot reach {NOWHERE}: [Errno 111]")
    assert said.endswith("Start the server, or correct the URL or $GLIDEMQ_URL.")
    assert said.count("\n") == 0


# -- services ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), SUPERVISED], ids=["alone", "supervised"])
async def test_a_worker_waits_for_a_server_that_starts_later(
    server: Server, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    server.kill()
    async with worker(*options, cwd=tmp_path, url=server.url) as running:
        # The first line comes with the first attempt, so that a typing error in the URL is visible.
        line = await running.line(lambda line: line["message"].startswith(f"cannot reach {server.url}: "))
        assert line["level"] == "warning"
        await server.start()
        await running.working()
        async with Queue[Any, Any]("q", server.url) as queue:
            assert (await queue.add_and_wait("n", wait_timeout=10))[0] == 1
        running.send(signal.SIGTERM)
        assert await running.code() == 0
        assert "exited" not in [line.get("event") for line in running.lines if line["level"] == "warning"]


@pytest.mark.parametrize("options", [(), ("-p", "1"), SUPERVISED], ids=["alone", "one", "supervised"])
async def test_a_worker_whose_server_never_starts_ends_with_code_3(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    async with worker(*options, "--server-timeout", "0.3", cwd=tmp_path, url=NOWHERE) as running:
        assert await running.code() == 3
    said = [line for line in running.lines if line["message"].startswith(f"cannot reach {NOWHERE}")]
    assert said[0]["level"] == "warning"
    [last, *_] = [line["message"] for line in said if line["level"] == "error"]
    assert "(tried for 0.3 s)" in last
    events = [line["event"] for line in running.lines if "event" in line]
    assert "waiting" not in events  # another start would fail too
    assert ("gave_up" in events) == bool(options)


async def test_a_reloading_worker_tries_again_when_its_server_was_not_reachable_in_time(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    server.kill()
    async with worker("--reload", "--server-timeout", "0.3", cwd=tmp_path, url=server.url) as running:
        waiting = await running.event("waiting")
        assert waiting["message"] == "worker 1 starts again in 0.25 s, or when a file changes"
        await server.start()
        await running.working()
        running.send(signal.SIGTERM)
        assert await running.code() == 0


async def test_a_signal_ends_the_wait_for_a_server(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    async with worker(cwd=tmp_path, url=NOWHERE) as running:
        await running.line(lambda line: line["message"].startswith("cannot reach"))
        running.send(signal.SIGTERM)
        assert await running.code() == 0


async def test_another_service_waits_for_its_server(tmp_path: Path) -> None:
    async with standalone() as server:
        server.kill()
        tried = asyncio.Event()

        def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()
            tried.set()

        listening = await asyncio.start_server(refuse, "127.0.0.1", server.port)
        async with start("operations", "run", cwd=tmp_path, url=server.url) as running:
            async with listening:
                await soon(tried.wait(), 20)
            await server.start()

            async def connected() -> bool:
                return int((await server.info("clients"))["connected_clients"]) > 1  # one of them reads this

            await eventually(connected, "the service must connect")
            running.send(signal.SIGINT)
            assert await running.code() == 130


async def test_a_worker_waits_for_a_server_that_loads_its_data(caplog: pytest.LogCaptureFixture) -> None:
    slow = ("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
    async with standalone(*slow) as server:
        await server.command("DEBUG", "POPULATE", 1_000, "filler", 10)
        await server.command("SAVE")
        await asyncio.to_thread(server.stop)
        started = asyncio.ensure_future(server.start())
        storage = open_storage(server.url)
        await wait_for_server(storage, 20)
        assert "LOADING" in caplog.text
        assert await server.command("PING") == b"PONG"
        await started
        await storage.close()
