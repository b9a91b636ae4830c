"""Executors of other packages are found by the name under which they are registered."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from glidemq_async import Worker
from tests.executors import handlers
from tests.support.helpers import AnyQueue, worker_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_executor"

pytestmark = [
    pytest.mark.only_on("memory"),
    pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not next to the tests"),
]


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the files that installing the example's package would create."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, names in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(EXAMPLE), *sys.path])


@pytest.mark.usefixtures("_installed")
async def test_a_registered_executor_runs_jobs(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.echo_later, executor="timed", concurrency=7):
        assert await queue.add_and_wait("mail", 1, wait_timeout=10) == 1
    assert len(importlib.import_module("glidemq_timed").seconds["mail"]) == 1


@pytest.mark.usefixtures("_installed")
async def test_a_registered_executor_may_refuse_a_handler(queue: AnyQueue) -> None:
    with pytest.raises(TypeError, match="coroutine function"):
        Worker(queue.name, handlers.echo, queue.storage, executor="timed")


async def test_an_unknown_name_is_refused_with_the_known_ones(queue: AnyQueue) -> None:
    with pytest.raises(ValueError, match="inline, thread, subprocess"):
        Worker(queue.name, handlers.echo, queue.storage, executor="timed")
