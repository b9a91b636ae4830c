"""The queues of a storage."""

from __future__ import annotations

from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.storage.embedded.file import FileStorage
from glidemq_async.storage.protocol import Storage
from glidemq_async.storage.redis.server import ServerStorage, find_keys
from glidemq_async.storage.urls import storage_here
from glidemq_async.stored.names import SYSTEM, QueueKeys


async def list_queues(
    storage: str | Storage | None = None, *, prefix: str = DEFAULT_PREFIX, system: bool = False
) -> list[str]:
    """Return the names of the queues of a storage with this prefix, sorted; on a cluster the queues of all primaries.

    For tools that watch or clean queues which they do not declare. `storage` is a URL, a storage, or None for
    `$GLIDEMQ_URL` or the embedded default. A storage that is passed stays open. An unused `file://` directory has no
    queues, and is not created. With `system`, the queues of the library itself are listed too: their names begin with
    `system/`.

    A queue exists from the first time that a Queue or a Worker opens it until `obliterate`. The call compares the names
    of all keys of the server, 2,000 in each step: on a server with millions of other keys it takes seconds, so do not
    call it for each request. A queue that is created or removed during the call may be missing or listed.

    Raises StorageUnavailable when the storage cannot be reached, PermissionDenied when its user may not run SCAN,
    ValueError for a bad URL or prefix, and TypeError for a storage that is not one of this package.
    """
    pattern = QueueKeys.pattern(prefix)
    opened = storage_here(storage)
    if not isinstance(opened, ServerStorage):
        raise TypeError(f"list_queues needs a URL or a storage of glidemq_async.storage, got {opened!r}")
    try:
        if isinstance(opened, FileStorage) and not opened.exists():
            return []
        names = QueueKeys.found(await find_keys(opened, pattern))
        return names if system else [name for name in names if not name.startswith(SYSTEM)]
    finally:
        if opened is not storage:
            await opened.close()
