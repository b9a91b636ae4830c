"""Timeout and retries of the calls of a write, for a server that is temporarily unreachable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, Unpack

from glidemq_async.errors import StorageUnavailable
from glidemq_async.functions.calling import Arg, CallOptions, FunctionStore

__all__ = ["RetryingStore", "retry_while_unavailable"]

T = TypeVar("T")


async def retry_while_unavailable(call: Callable[[], Awaitable[T]], retries: int) -> T:
    """Make a call, and repeat it up to `retries` times while the server is unreachable."""
    while True:
        try:
            return await call()
        except StorageUnavailable:
            if retries <= 0:
                raise
            retries -= 1


class RetryingStore:
    """A store whose calls have the timeout and the number of retries of a write.

    A retry sends the same call with the same number on the same request channel. If the server executed the first
    attempt and only its reply was lost, the retry has no second effect.
    """

    def __init__(self, store: FunctionStore, timeout: float, retries: int) -> None:
        self._store, self._timeout, self._retries = store, timeout, retries

    async def call(self, function: str, key: str, args: Sequence[Arg], **options: Unpack[CallOptions]) -> object:
        """Call a function; see `Storage.call`."""
        # The caller has numbered `args` already. A retry that numbered them again could add the jobs twice.
        options["timeout"] = self._timeout
        return await retry_while_unavailable(lambda: self._store.call(function, key, args, **options), self._retries)
