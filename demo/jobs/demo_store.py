"""The server of the demonstration's queue, and the deletion of everything that the run stored."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage import MemoryStorage, Storage, open_storage
from glidemq_async.storage.embedded.file import socket_path
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.server import ServerStorage, servers_of
from glidemq_async.storage.redis.wire import ReplyError
from glidemq_async.stored.names import QueueKeys

_LINGER_SECONDS: Final = 0.5
_END_SECONDS: Final = 5.0
_DELETE_SECONDS: Final = 30.0
_BATCH: Final = 1000


def check_url(url: str) -> None:
    """Raise ValueError for a URL that worker processes cannot share."""
    if isinstance(open_storage(url), MemoryStorage):
        # The value is wrong, not its type.
        raise ValueError(  # noqa: TRY004
            f"{url!r} is private to one process, and the workers are separate processes; use file:// or a server"
        )


@asynccontextmanager
async def open_demo_store(url: str | None) -> AsyncGenerator[str]:
    """Yield the given URL, or the URL of an embedded server in a temporary directory."""
    if url is not None:
        yield url
        return
    directory = _make_directory()
    try:
        yield f"{directory.as_uri()}?linger={_LINGER_SECONDS:g}"
    finally:
        await _server_has_ended(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _make_directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="glidemq-demo-")).resolve()


async def _server_has_ended(directory: Path) -> None:
    # The server ends by itself after its last client has disconnected. Then its socket disappears.
    deadline = asyncio.get_running_loop().time() + _END_SECONDS
    while _has_socket(directory) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _has_socket(directory: Path) -> bool:
    return Path(socket_path(str(directory))).exists()


async def delete_queue(storage: Storage, keys: QueueKeys) -> None:
    """Delete every store key of a queue that has no clients any more. Raises StorageUnavailable."""
    if not isinstance(storage, ServerStorage):
        return
    found = [key async for key in storage.scan(f"{keys.base}:*")]
    node = await servers_of(storage).find_node(keys.base)
    wire = await node.open()
    deadline = asyncio.get_running_loop().time() + _DELETE_SECONDS
    for start in range(0, len(found), _BATCH):
        reply = await wire.send(pack("UNLINK", *found[start : start + _BATCH]), deadline)
        if isinstance(reply, (ReplyError, OSError)):
            raise StorageUnavailable(
                f"the data of queue {keys.queue!r} on {storage.url} could not be deleted: {reply}; delete the keys "
                f"{keys.base}:* yourself"
            )
