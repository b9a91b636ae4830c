"""Checks that a server can be reached: once for a command, and for some time for a worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from glidemq_async.cli.exits import UNAVAILABLE, CommandError
from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.retry import TRY_SECONDS, RetryPauses
from glidemq_async.storage.redis.server import ServerStorage, servers_of
from glidemq_async.storage.redis.wire import Wire

_ADVICE: Final = "Start the server, or correct the URL or $GLIDEMQ_URL."
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts of a worker. Each one is a log line."""

_log = logging.getLogger("glidemq_async.cli")


async def check_server(storage: ServerStorage) -> None:
    """Raise CommandError if the server cannot be reached in one attempt, for a command that a person waits for."""
    # A client would wait until an unreachable server returns: for 10 seconds when it connects, for 30 in a call.
    if not _is_embedded(storage):
        with report_unreachable(storage):
            (await dial(storage, "")).drop("checked")


async def wait_for_server(storage: object, seconds: float) -> None:
    """Wait until a server can be reached and has loaded its data, and log each failed attempt.

    Raises CommandError after this time. A refused login raises StorageUnavailable immediately.
    """
    if not isinstance(storage, ServerStorage) or _is_embedded(storage):
        return
    loop = asyncio.get_running_loop()
    started, pauses = loop.time(), RetryPauses(0.25, _LONGEST_PAUSE)
    while (problem := await _problem(storage)) is not None:
        left = started + seconds - loop.time()
        if left <= 0:
            raise CommandError(
                f"cannot reach {storage.url} (tried for {seconds:g} s): {problem}. {_ADVICE}", UNAVAILABLE
            ) from problem
        # From the first attempt on, because a typing error in the URL must not look like a slow start.
        _log.warning("cannot reach %s: %s; trying for %.1f s more", storage.url, problem, left)
        await asyncio.sleep(min(pauses.next(), left))


async def dial(storage: ServerStorage, key: str) -> Wire:
    """Open a separate connection to the server of a store key, in one attempt. Raises OSError, StorageUnavailable."""
    servers = servers_of(storage)
    servers.bind()
    return await (await servers.find_node(key)).dial()


@contextmanager
def report_unreachable(storage: ServerStorage) -> Generator[None]:
    """Report in one line that a server cannot be reached."""
    try:
        yield
    except StorageUnavailable:
        raise
    except OSError as error:
        raise CommandError(f"cannot reach {storage.url}: {error}. {_ADVICE}", UNAVAILABLE) from error


async def _problem(storage: ServerStorage) -> Exception | None:
    """Return why the server cannot be used yet, None if it can."""
    try:
        wire = await dial(storage, "")
    except StorageUnavailable:
        raise
    except OSError as error:
        return error
    # A server accepts connections while it loads its data, and refuses PING until the end. Another error, such as a
    # missing permission, is left to the client.
    reply = await wire.send(pack("PING"), asyncio.get_running_loop().time() + TRY_SECONDS)
    wire.drop("checked")
    if isinstance(reply, OSError) or (isinstance(reply, Exception) and str(reply).startswith("LOADING")):
        return reply
    return None


def _is_embedded(storage: ServerStorage) -> bool:
    # The client starts an embedded server itself. The classes are not imported, so that workers start faster.
    return storage.url.startswith(("file:", "memory:"))
