"""A server for each test of a program, and the queue that its workers serve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Queue
from tests.cli.shell import Shell
from tests.support.helpers import AnyQueue
from tests.support.servers import Server, standalone


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with standalone(unix=True) as started:
        yield started


@pytest.fixture
async def jobs(server: Server) -> AsyncIterator[AnyQueue]:
    """The queue "q"."""
    async with Queue[Any, Any]("q", server.url) as queue:
        yield queue


@pytest.fixture
def q(jobs: AnyQueue) -> AnyQueue:
    """The same queue, for tests whose own jobs are called `jobs`."""
    return jobs


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    """A shell whose commands use the server."""
    return Shell(server.url, tmp_path / "t")
