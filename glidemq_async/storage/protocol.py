"""The interface between queues and the servers that store them.

A back end runs the function library, delivers channel messages and reads streams. Queue rules live in the
functions, never here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, runtime_checkable

from glidemq_async.errors import GlideMQError
from glidemq_async.functions import calling

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster, Sentinel

Arg: TypeAlias = calling.Arg
"""One argument of a function call."""

Wait: TypeAlias = calling.Wait
"""The durability that a call waits for: the reply of the primary, a copy on a replica, or a sync of its disk."""

StreamEntry: TypeAlias = tuple[bytes, dict[bytes, bytes]]
"""A stream entry: its id and its fields."""


class FunctionError(GlideMQError):
    """A library function refused a call.

    `code` is the error code of the function, or `ERR` if the server itself refused the command. `message` explains it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[FunctionError], tuple[str, str]]:
        return type(self), (self.code, self.message)


@runtime_checkable
class Subscription(Protocol):
    """A subscribed channel, kept alive until it is closed."""

    def reset(self) -> None:
        """Drop the link and connect again; use it when the link is silent although it should not be."""
        ...

    async def close(self) -> None:
        """Unsubscribe; no callback runs afterwards. Idempotent."""
        ...


# A protocol and not a base class: a test or an application may provide another storage. Everything above this module
# depends only on these methods. None of them knows a rule of queues, so each rule exists once, in the functions.
@runtime_checkable
class Storage(calling.FunctionStore, Protocol):
    """A server, a cluster or an embedded server that stores queues.

    A storage belongs to the event loop that first uses it. `clone()` returns one for another loop.
    """

    @property
    def url(self) -> str:
        """The address for messages and logs; passwords are masked."""
        ...

    async def connect(self) -> None:
        """Connect, check the server and load the function library; idempotent.

        Raises `StorageUnavailable` when the server cannot be reached, is too old or refuses the user, and
        `LibraryVersionError` when the server has a library of another major version.
        """
        ...

    async def close(self) -> None:
        """Close every connection of this storage; idempotent."""
        ...

    async def subscribe(
        self,
        key: str,
        channel: str,
        on_message: Callable[[bytes], None],
        on_change: Callable[[bool], None],
    ) -> Subscription:
        """Subscribe to a sharded channel in the cluster slot of `key`; returns before the link is confirmed.

        `on_change(True)` follows each confirmation, `on_change(False)` each loss and each refusal by a server that
        does not give its user the channel. Messages published while the link was down are gone. The callbacks run in
        the event loop, outside of every task, because a worker continues its own tasks in them. They must not block.
        """
        ...

    async def read_stream(self, key: str, after: str, count: int, block: float) -> list[StreamEntry]:
        """Read up to `count` entries after the id `after`, waiting up to `block` seconds (0 = not at all)."""
        ...

    def scan(self, match: str) -> AsyncIterator[bytes]:
        """Iterate over the keys that match a pattern which contains one literal hash tag."""
        ...

    def clone(self) -> Storage:
        """Return a storage for the same servers with separate connections, for use in another event loop."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


StorageLike: TypeAlias = "str | Storage | Redis | RedisCluster | Sentinel | None"
"""A URL, a storage, a client of redis-py's `redis.asyncio`, or None for `$GLIDEMQ_URL` or the embedded default."""
