"""`glidemq ui` says where it listens, and ends in order at SIGTERM, also while browsers watch."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from httpx2 import AsyncClient

from tests.cli.running import Running, start
from tests.support.helpers import soon
from tests.support.servers import Server


async def address(running: Running) -> str:
    """Return the address that the command prints."""
    while True:
        for line in running.noise:
            if found := re.search(r"http://\S+", line):
                return found[0]
        await running.heard()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_prints_its_free_port_and_ends_at_a_signal(
    tmp_path: Path, server: Server, number: signal.Signals
) -> None:
    async with start("ui", "--port", "0", cwd=tmp_path, url=server.url) as running:
        base = await soon(address(running), 20)
        assert not base.endswith(":0/")
        async with AsyncClient(base_url=base) as client:
            assert (await client.get("/api/v1/me")).json()["role"] == "admin"
            async with client.stream("GET", "/api/v1/events?topics=pulse") as stream:
                lines = stream.aiter_lines()
                while not (await soon(anext(lines), 20)).startswith("event: snapshot"):
                    pass
                running.send(number)
                assert await running.code() == 0
    assert "Traceback" not in "".join(running.noise)


async def test_a_port_in_use_is_named(tmp_path: Path, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with start("ui", "--port", str(port), cwd=tmp_path, url=server.url) as running:
            assert await running.code() == 3
    said = "".join(running.noise)
    assert f"ui port {port} (127.0.0.1) cannot be used: address already in use" in said
    assert "Traceback" not in said
