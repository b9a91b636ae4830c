"""The servers of tests use only ports that no other process takes."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from tests.support import servers


def port_with_occupied_bus() -> tuple[int, socket.socket]:
    """Return a reserved port, and a listener on the port that its server would use for its bus by default."""
    while True:
        port = servers.free_port()
        with suppress(OSError):
            return port, socket.create_server(("127.0.0.1", port + 10_000))


async def test_a_node_of_a_cluster_uses_only_ports_that_it_has_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    port, occupied = port_with_occupied_bus()
    ports = iter([port, servers.free_port()])
    monkeypatch.setattr(servers, "free_port", lambda: next(ports))
    with occupied:
        async with servers.standalone("--cluster-enabled", "yes") as node:
            assert await node.command("PING") == b"PONG"
