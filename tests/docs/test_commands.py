"""Each command in a shell block of the documentation works.

`glidemq worker` runs and ends at SIGTERM or by itself. Other `glidemq` commands run to their end. `pip install` names
extras that exist, and `make` names targets that exist.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import tomllib
from pathlib import Path

import pytest

from glidemq_async import Queue
from glidemq_async.storage import Storage
from tests.cli.commands import COMMAND, environment
from tests.cli.shell import Shell
from tests.docs.blocks import ROOT, blocks
from tests.docs.test_samples import ALL, SPARK
from tests.support.helpers import soon
from tests.support.servers import free_port, standalone
from tests.support.stores import RunningStore

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
WORKERS = [line for _, line in LINES if line.startswith("glidemq worker ")]
INSPECTIONS = [line for _, line in LINES if line.startswith("glidemq ") and line not in WORKERS]
INSTALLS = [line for _, line in LINES if line.startswith("pip install ")]
TARGETS = [line for _, line in LINES if line.startswith("make ")]


def test_each_line_is_a_command_that_a_test_runs() -> None:
    assert len(WORKERS) >= 7
    assert len(LINES) == len(WORKERS) + len(INSPECTIONS) + len(INSTALLS) + len(TARGETS)


@pytest.mark.parametrize("line", INSTALLS)
def test_an_installation_names_existing_extras(line: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.fullmatch(r"(?P<name>\.|[\w-]+)(?:\[(?P<extras>[\w,-]+)\])?", shlex.split(line, comments=True)[-1])
    assert found is not None
    assert found["name"] in {".", project["name"]}
    assert {*(found["extras"] or "").split(",")} - {""} <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("line", TARGETS)
def test_each_target_of_make_exists(line: str) -> None:
    target = shlex.split(line, comments=True)[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.only_on("unix")
@pytest.mark.parametrize("line", INSPECTIONS)
async def test_each_inspection_succeeds(storage: Storage, store: RunningStore, line: str, tmp_path: Path) -> None:
    async with Queue[str, None]("emails", storage) as queue:
        await queue.add("welcome", "ada@example.com")
    done = await Shell(store.url, tmp_path / "t").run(*shlex.split(line, comments=True)[1:])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", WORKERS)
async def test_each_worker_command_works_and_ends(line: str, tmp_path: Path) -> None:
    (tmp_path / "myapp").mkdir()
    for name in ("app.py", "myapp/jobs.py"):
        (tmp_path / name).write_text(APP)
    for block in blocks(ROOT / "docs" / "project-layout.md"):
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
    port = str(free_port())
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
