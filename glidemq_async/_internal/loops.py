"""What belongs to an event loop is used and closed there."""

from __future__ import annotations

import asyncio


def refuse_elsewhere(loop: asyncio.AbstractEventLoop | None, what: str) -> None:
    """Raise RuntimeError where the loop that something belongs to runs, and is another one than that of the caller."""
    if loop is not None and loop is not asyncio.get_running_loop() and loop.is_running():
        raise elsewhere(loop, what)


def elsewhere(loop: asyncio.AbstractEventLoop, what: str) -> RuntimeError:
    """Return the error of something that belongs to this loop and is used in another one."""
    if loop.is_running():
        return RuntimeError(
            f"{what} belongs to another event loop: go on there, which is by .sync for what .sync has opened; or make "
            "another one for this loop (of a storage: clone()); a GlideMQ app is to be opened here while it is closed "
            "there (async with mq; in a web service lifespan(mq), which a TestClient runs in its with block)"
        )
    return RuntimeError(
        f"{what} belongs to an event loop that does not run any more: close objects before their loop ends, and make "
        "new ones for the next (of a storage: clone())"
    )
