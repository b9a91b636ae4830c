"""A server for each test of the terminal view, and its application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.ops.actor import Actor
from glidemq_async.ops.core import Ops
from glidemq_async.tui.app import Top
from glidemq_async.tui.source import TopSource
from tests.support.helpers import AnyQueue
from tests.support.servers import Server, standalone


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with standalone(unix=True) as started:
        yield started


@pytest.fixture
async def ops(server: Server) -> AsyncIterator[Ops]:
    async with Ops(server.url, actor=Actor("tui", "ada@host")) as ops:
        yield ops


@pytest.fixture
async def q(server: Server) -> AsyncIterator[AnyQueue]:
    """The queue "mail"."""
    async with Queue[Any, Any]("mail", server.url) as queue:
        yield queue


@pytest.fixture
def top(ops: Ops) -> Top:
    return Top(TopSource(ops))
