"""The commands on the pages start: each `glidemq worker` of a shell block works, and ends at SIGTERM or by itself."""

from __future__ import annotations

import asyncio
import shlex
import signal
import socket
from pathlib import Path

import pytest

from tests.cli.commands import COMMAND, environment
from tests.docs.blocks import ROOT, blocks
from tests.docs.test_samples import ALL, SPARK
from tests.servers import standalone
from tests.workbench import soon

APP = """
from glidemq_async import GlideMQ

mq = GlideMQ()


@mq.task(queue="emails")
async def send_email(to: str) -> str:
    return f"sent to {to}"


worker = mq.worker()
"""
LINES = [
    (block, line)
    for block in ALL
    if block.language == "sh" and block.page not in SPARK and block.reason is None
    for line in block.text.splitlines()
]


def test_each_line_is_a_command_of_a_worker() -> None:
    assert len(LINES) >= 7
    for _, line in LINES:
        assert line.startswith("glidemq worker "), f"{line!r}: run it here, or mark its block as a fragment"


@pytest.mark.parametrize("line", [line for _, line in LINES])
async def test_it_works_and_ends(line: str, tmp_path: Path) -> None:
    (tmp_path / "myapp").mkdir()
    for name in ("app.py", "myapp/jobs.py"):
        (tmp_path / name).write_text(APP)
    for block in blocks(ROOT / "docs" / "project-layout.md"):
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    _, *words = shlex.split(line, comments=True)
    words = [port if word == "8081" else word for word in words]
    async with standalone() as server:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *words,
            cwd=tmp_path,
            env=environment(tmp_path / "t") | {"GLIDEMQ_URL": server.url},
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        said: list[str] = []
        while raw := await soon(process.stderr.readline(), 30):
            said.append(raw.decode())
            if "works on queue" in said[-1]:
                break
        if "--until-empty" not in words:
            process.send_signal(signal.SIGTERM)
        _, rest = await soon(process.communicate(), 30)
        assert process.returncode == 0, "".join(said) + rest.decode()
