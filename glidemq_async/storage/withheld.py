"""What stands for `$GLIDEMQ_URL` in a process that was not told it: nothing, and least of all another default."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from glidemq_async.errors import StorageUnavailable

from .file import FileStorage

_MESSAGE: Final = (
    "$GLIDEMQ_URL is set in the worker and kept from the processes of its jobs: give the Queue or the app here a URL, "
    'or the executor Permissions(environment=["GLIDEMQ_URL"], ...)'
)


class WithheldStorage(FileStorage):
    """Can be made, as modules do that name no place, and not be used: jobs would be added where nobody looks."""

    @override
    async def connect(self) -> None:
        """Raise StorageUnavailable, which says what to do."""
        raise StorageUnavailable(_MESSAGE)
