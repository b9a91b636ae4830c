"""How patient a write is with a server that is away: the same with each of its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from glidemq_async.errors import StorageUnavailable
from glidemq_async.functions.calling import Arg, FunctionStore, Wait

__all__ = ["RetryingStore", "retry_while_unavailable"]

T = TypeVar("T")


async def retry_while_unavailable(call: Callable[[], Awaitable[T]], retries: int) -> T:
    """Make a call, and make it again so often while the server is away."""
    while True:
        try:
            return await call()
        except StorageUnavailable:
            if retries <= 0:
                raise
            retries -= 1


class RetryingStore:
    """Functions of a store, each call for `timeout` seconds, and `retries` times more.

    What is sent again is the same call with the same number, so one that was carried out unheard happens once.
    """

    def __init__(self, store: FunctionStore, timeout: float, retries: int) -> None:
        self._store, self._timeout, self._retries = store, timeout, retries

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,  # noqa: ARG002 - a write has its own
        wait: Wait = "default",
    ) -> object:
        """Call a function; see `Storage.call`."""
        return await retry_while_unavailable(
            lambda: self._store.call(function, key, args, readonly=readonly, timeout=self._timeout, wait=wait),
            self._retries,
        )
