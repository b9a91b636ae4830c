"""Keeps apps from connecting to real servers during tests. The pytest plugin enables it.

Otherwise a test that forgets to move its app could add jobs that the workers of production run.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from glidemq_async.storage import Storage

# A module variable and not a setting of the app: an app is usually created at the import of a module, which is before
# any fixture could configure it.
_refusing = False


@contextmanager
def refused() -> Generator[None]:
    """Forbid apps to open a server inside the block, except memory:// storages."""
    global _refusing  # noqa: PLW0603 - for all apps of the process
    former, _refusing = _refusing, True
    try:
        yield
    finally:
        _refusing = former


def check(storage: Storage) -> Storage:
    """Return a storage that an app may open. Raises RuntimeError for a real server while these are forbidden."""
    if not _refusing:
        return storage
    from glidemq_async.storage.embedded.memory import MemoryStorage
    from glidemq_async.storage.redis.server import ServerStorage

    is_real = isinstance(storage, ServerStorage) and not isinstance(storage, MemoryStorage)
    if is_real:
        raise RuntimeError(
            f"the app would connect to {storage.url} in a test; call glidemq.use(mq) or glidemq.eager(mq) first "
            "(fixture `glidemq`), or use a memory:// URL. If the test needs this server, mark it with "
            "@pytest.mark.glidemq_real_server, or set `glidemq_real_servers = true` in the pytest configuration "
            "for all tests"
        )
    return storage
