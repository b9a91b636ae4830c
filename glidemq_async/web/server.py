"""The server of `glidemq ui`. At SIGTERM and SIGINT it ends its requests before it stops."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

import uvicorn
from starlette.applications import Starlette

from glidemq_async.web.state import WebState
from glidemq_async.worker.signals import stop_on_signals

IDLE_SECONDS: Final = 60
"""Time for which an idle connection stays open. Open pages send a request every few seconds."""
END_SECONDS: Final = 10
"""Time for which the server waits for the end of its requests before it ends them."""


class _Server(uvicorn.Server):
    # uvicorn repeats a signal after its end, which would end the process with a traceback.
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle no signals."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, on a free port if `port` is 0. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(2048)
    except BaseException:
        found.close()
        raise
    return found


def address_of(listener: socket.socket) -> str:
    """Return the address of a listening socket for browsers."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


async def serve_app(app: Starlette, listener: socket.socket) -> None:
    """Serve an operations app until SIGTERM or SIGINT. A second signal ends the open requests immediately."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=END_SECONDS,
        timeout_keep_alive=IDLE_SECONDS,
    )
    server = _Server(config)

    def stop() -> None:
        server.should_exit = True
        # Browsers keep their streams open for ever.
        cast("WebState", app.state.web).end_streams()

    def stop_now() -> None:
        server.force_exit = True

    with stop_on_signals(stop, stop_now):
        await server.serve(sockets=[listener])
