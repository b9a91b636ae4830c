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

    Use it in tools for queues that they do not declare. `storage` is a URL, a storage, or None for `$GLIDEMQ_URL` or
    the embedded default. A storage that you pass stays open. A `file://` directory that does not exist has no queues,
    and the call does not create it. `system=True` adds the queues of the library itself. Their names begin with
    `system/`.

    A Queue or a Worker creates a queue when it opens it for the first time, and `obliterate` removes it. The call scans
    the names of all keys of the server in steps of 2,000. This takes seconds on a server with millions of keys, so do
    not call it for each request. If a queue is created or removed during the call, the result may contain it or not.

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
