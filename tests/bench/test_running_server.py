"""A server of a benchmark is used once it accepts connections."""

from __future__ import annotations

import socket
from pathlib import Path

from benchmarks.server import accepts


def test_a_server_is_ready_once_it_listens_and_not_once_its_socket_exists(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    assert not accepts(socket.AF_UNIX, path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        assert Path(path).exists()
        assert not accepts(socket.AF_UNIX, path)
        server.listen()
        assert accepts(socket.AF_UNIX, path)
