"""Storage that refuses to connect, because the process has no URL and must not use the embedded default."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from typing_extensions import override

from glidemq_async.errors import StorageUnavailable
from glidemq_async.storage.embedded.file import FileStorage

DISABLED: Final = (
    "$GLIDEMQ_URL is set in the worker, but the processes of its jobs do not receive it: give the Queue or the app "
    'here a URL, or grant the variable with Permissions(environment=["GLIDEMQ_URL"], ...)'
)
REQUIRED: Final = (
    "$GLIDEMQ_URL is not set, and {cause} forbids the embedded default: set GLIDEMQ_URL=redis://host:6379/0, or give "
    "the Queue or the app a URL"
)


# Creating it must not fail: modules create queues and apps when they are imported, and the process of a job imports
# them for a function that may never touch a queue. It is a FileStorage so that code which looks at the storage of an
# app finds one of the usual kinds.
class DisabledStorage(FileStorage):
    """A storage that modules can create and that refuses to connect, because no worker would find its jobs."""

    def __init__(self, message: str) -> None:
        super().__init__(Path.home())
        self._message = message

    @override
    async def connect(self) -> None:
        """Raise StorageUnavailable with the cause and the remedy."""
        raise StorageUnavailable(self._message)

    @override
    def exists(self) -> bool:
        """Raise StorageUnavailable with the cause and the remedy."""
        raise StorageUnavailable(self._message)

    @override
    def clone(self) -> DisabledStorage:
        """Return another one with the same message."""
        return DisabledStorage(self._message)
