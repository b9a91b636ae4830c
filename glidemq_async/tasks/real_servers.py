"""Keeps apps from real servers while tests run; the pytest plugin switches it on.

A test that forgets to move its app would otherwise add jobs where the workers of production may run them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from glidemq_async.storage import Storage

_refusing = False


@contextmanager
def refused() -> Generator[None]:
    """Let no app open a server inside of the block, but for servers of the test's own (memory://)."""
    global _refusing  # noqa: PLW0603 - for all apps of the process
    former, _refusing = _refusing, True
    try:
        yield
    finally:
        _refusing = former


def check(storage: Storage) -> Storage:
    """Return a storage that an app may open. Raises RuntimeError for a real server where these are refused."""
    if not _refusing:
        return storage
    from glidemq_async.storage.embedded.memory import MemoryStorage
    from glidemq_async.storage.redis.server import ServerStorage

    is_real = isinstance(storage, ServerStorage) and not isinstance(storage, MemoryStorage)
    if is_real:
        raise RuntimeError(
            f"the app would connect to {storage.url} in a test: call glidemq.use(mq) or glidemq.eager(mq) first (the "
            "fixture `glidemq`), or open it with memory://. A test that needs this server is marked with "
            "@pytest.mark.glidemq_real_server; `glidemq_real_servers = true` in the configuration of pytest is for all"
        )
    return storage
