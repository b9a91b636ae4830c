"""Checks that objects of an event loop are used and closed in that loop."""

from __future__ import annotations

import asyncio
from typing import Protocol, runtime_checkable


@runtime_checkable
class Home(Protocol):
    """An object that belongs to one event loop and works only in that loop."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop. None before the first use and after `close`."""
        ...

    async def close(self) -> None:
        """Release all resources. Idempotent."""
        ...


def refuse_elsewhere(loop: asyncio.AbstractEventLoop | None, what: str) -> None:
    """Raise RuntimeError if an object belongs to another event loop than the caller's and that loop is running."""
    if loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
        raise elsewhere(loop, what)


def elsewhere(loop: asyncio.AbstractEventLoop, what: str) -> RuntimeError:
    """Return the error for an object that belongs to this loop and is used in another one."""
    if loop.is_running():
        return RuntimeError(
            f"{what} was opened in another event loop and cannot be used in this one. Open a separate one here (of a "
            "storage: clone()), or use .sync if .sync opened it. A GlideMQ app can be opened here after it was closed "
            "there (async with mq; in a web service lifespan(mq), which a TestClient runs in its with block)"
        )
    return RuntimeError(
        f"{what} belongs to an event loop that has ended. Close objects before their loop ends, and create "
        "new ones for the next loop (of a storage: clone())"
    )
