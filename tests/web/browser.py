"""A headless Chromium for the tests of the pages, and the server that it looks at."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from glidemq_async import GlideMQ
from glidemq_async.web import operations_app
from glidemq_async.web.settings import Access

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


def chromium() -> str | None:
    """Return the path of a Chromium. `$GLIDEMQ_TEST_CHROMIUM` names another one."""
    named = os.environ.get("GLIDEMQ_TEST_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@asynccontextmanager
async def serving(mq: GlideMQ[Any], access: Access | None = None) -> AsyncGenerator[str]:
    """Serve the pages of an app on a free port, and yield their address."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            operations_app(mq, access=access), log_level="error", lifespan="on", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        try:
            yield f"http://localhost:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


@dataclass
class Complaints:
    """What a page must not do: errors of the console, reports of the content policy, requests of other servers."""

    found: list[str] = field(default_factory=list[str])

    def watch(self, page: Any, base: str) -> None:
        """Note the complaints about a page."""

        def hear(message: Any) -> None:
            if message.type in {"error", "warning"}:
                self.found.append(message.text)

        def see(request: Any) -> None:
            if not request.url.startswith((base, "data:")):
                self.found.append(request.url)

        def note(complaint: Any) -> None:
            self.found.append(str(complaint))

        page.on("console", hear)
        page.on("request", see)
        page.on("pageerror", note)
        page.on("dialog", note)
