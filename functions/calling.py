"""Base class of the callers, request channels with numbered calls, and replies as plain Python.

A call that changes something has one effect, however often it is sent; request.lua explains how.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias, TypedDict, cast, runtime_checkable

Arg: TypeAlias = bytes | str | int
Wait: TypeAlias = Literal["default", "replicated", "fsync"]
"""The durability that a call waits for: the reply of the primary, a copy on a replica, or a sync of its disk."""
Record: TypeAlias = dict[bytes, bytes]

ANY_INCARNATION = "*"
"""The incarnation of a caller that has not opened its queue: adds are refused only if nobody has opened it."""
_MOST_IDS = 500


class CallOptions(TypedDict, total=False):
    """The keywords of a call, for stores that pass them on: `**options: Unpack[CallOptions]`."""

    readonly: bool
    timeout: float | None
    wait: Wait
    messages_first: bool


@runtime_checkable
class FunctionStore(Protocol):
    """The part of a storage that is needed to call functions."""

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,
        wait: Wait = "default",
        messages_first: bool = False,
    ) -> object:
        """Call a library function and return its reply (bytes, int, list or None).

        `key` is the queue's base key. The same arguments are sent again after a lost reply, so a call that is not
        idempotent must have a request channel and a request number. `wait` names the confirmation that the call waits
        for. A call is tried for `timeout` seconds (None: the timeout of the storage). Time in which bytes of the call
        or of its reply are being transferred does not count. With `messages_first` the server sends the messages that
        the call publishes before its reply, if it can.

        Raises `StorageUnavailable` after the timeout, `FunctionError` when the function refuses, `QueueFull` when
        the server is out of memory, `UnsupportedDurability` when it cannot confirm what `wait` asks for,
        `QueueClosed` once the storage is closed.
        """
        ...


@runtime_checkable
class PromptStore(FunctionStore, Protocol):
    """A storage that knows whether it can send a call immediately."""

    def sends_at_once(self, key: str) -> bool:
        """Return whether a call would send its request now. False if it would first connect or wait for the network."""
        ...

    def call_after_silence(self, function: str, key: str) -> None:
        """Send a call without arguments whose reply is not read, if the connection has been silent for a moment.

        Does nothing if the connection is in use, missing or congested, or if the user may not make the call.
        """
        ...


@runtime_checkable
class TransactionStore(FunctionStore, Protocol):
    """A storage that can also execute several commands as one transaction. Without it, workers claim with functions."""

    async def transact(self, key: str, commands: Sequence[Sequence[Arg]]) -> list[object] | None:
        """Try once to execute commands in the cluster slot of `key` as one transaction, and return their replies.

        The reply of a command that failed is an exception. Returns None if the commands were not executed, or if that
        is unknown. It never waits for a connection.
        """
        ...


@runtime_checkable
class BatchStore(FunctionStore, Protocol):
    """A storage that can also send the same reading call to many queues together."""

    async def read_each(self, function: str, keys: Sequence[str], args: Sequence[Arg]) -> list[object]:
        """Try once to call a function that only reads for each base key, and return the replies.

        The reply is None for a call that was refused, lost or not sent. Call it with `call` to get the reason.
        """
        ...


class RequestChannel:
    """A request channel: a sequence of numbered calls, of which at most one is in flight.

    The number lets the server recognize a repeated call."""

    __slots__ = ("name", "number")

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0

    def next(self) -> int:
        """Return the number of the next call."""
        self.number += 1
        return self.number


# Channels are reused, and the server stores one reply per channel. A new channel for each call would leave a stored
# reply behind for each call, for ten minutes. One channel for all calls would allow only one call in flight. So there
# are as many as calls were ever in flight at the same time.
class RequestChannels:
    """The request channels of one client. Their number is the highest number of calls that were ever in flight."""

    def __init__(self) -> None:
        self._client = uuid.uuid4().hex
        self._count = 0
        self._free: list[RequestChannel] = []

    def acquire(self) -> RequestChannel:
        """Return a request channel without a call in flight. Return it to the pool with `release`."""
        if self._free:
            return self._free.pop()
        self._count += 1
        return RequestChannel(f"{self._client}.{self._count}")

    def release(self, channel: RequestChannel) -> None:
        """Return a request channel to the pool after its call has a reply.

        A channel whose call was interrupted must not return: its call may still reach the server, and would have the
        number of a later call.
        """
        self._free.append(channel)


def text(value: object) -> str:
    """Return a reply as text."""
    return cast("bytes", value).decode()


def texts(values: object) -> list[str]:
    """Return a reply that is an array of texts."""
    return [item.decode() for item in cast("list[bytes]", values)]


def record(flat: object) -> Record:
    """Return a flat reply of fields and values as a record."""
    items = cast("list[bytes]", flat)
    return dict(zip(items[::2], items[1::2], strict=True))


def counts(flat: object) -> dict[str, int]:
    """Return a flat reply of names and whole numbers."""
    items = cast("list[object]", flat)
    return {text(items[i]): cast("int", items[i + 1]) for i in range(0, len(items), 2)}


class Caller:
    """Sends the calls of one client to one queue. Each part of `Functions` sends its calls through the same caller."""

    def __init__(self, storage: FunctionStore, base: str, channels: RequestChannels | None = None) -> None:
        self.storage = storage
        self.base = base
        """The queue's base key."""
        self.incarnation = ""
        """The incarnation of the queue, "" until the queue is open. Calls accept any incarnation until then."""
        self.consumer = ""
        """The worker that makes the calls, "" for clients that do not run jobs."""
        self._channels = channels or RequestChannels()

    async def call(self, function: str, args: Sequence[Arg] = (), *, timeout: float | None = None) -> object:
        """Make a call without a number. A second call with the same arguments must have no further effect."""
        # For functions that describe a state and not a change: "these leases are renewed", "this channel waits for this
        # job". A second execution then finds its work done. Such calls need no stored reply, and several of them may be
        # in flight. A function that counts, appends or moves something must use `once`.
        return await self.storage.call(function, self.base, args, timeout=timeout)

    async def once(
        self,
        function: str,
        args: Sequence[Arg],
        *,
        timeout: float | None = None,
        wait: Wait = "default",
        messages_first: bool = False,
    ) -> object:
        """Make a call that has one effect, however often it is sent."""
        # A retry must not take effect twice, so the server has to recognize it. Each attempt of this call carries the
        # same channel and number. The server stores the number and the reply of a channel's last call together with
        # the change. If an attempt arrives with the stored number, the server returns the stored reply.
        #
        # This is correct under two conditions:
        # 1. A channel has at most one call in flight, because the server keeps one reply per channel. A second call
        #    would overwrite the reply that a retry of the first one still needs. Concurrent calls therefore acquire
        #    different channels.
        # 2. No call follows on a channel whose last call has no reply. Therefore `release` is not in a `finally`. After
        #    a cancellation or a timeout, the interrupted call may still be on its way, and the next call could overtake
        #    it. A refused call has stored no number. In both cases the server would see a gap in the numbers and
        #    conclude that a failover lost a write. The channel is abandoned, and the server's copy expires.
        channel = self._channels.acquire()
        reply = await self.storage.call(
            function,
            self.base,
            [channel.name, channel.next(), *args],
            timeout=timeout,
            wait=wait,
            messages_first=messages_first,
        )
        self._channels.release(channel)
        return reply

    async def read(self, function: str, args: Sequence[Arg] = ()) -> object:
        """Make a call that changes nothing."""
        return await self.storage.call(function, self.base, args, readonly=True)

    async def pieces(self, function: str, ids: Sequence[str]) -> AsyncIterator[list[tuple[str, object]]]:
        """Yield the reply for each id, in pieces. The server returns fewer of them per call when they are large."""
        at, step = 0, _MOST_IDS
        while at < len(ids):
            asked = ids[at : at + step]
            rows = cast("list[object]", await self.read(function, list(asked)))
            yield list(zip(asked, rows, strict=False))
            at += len(rows)
            # The server ignores ids beyond its budget, so a request should not name many more than a reply holds.
            step = min(_MOST_IDS, 2 * len(rows))

    async def read_all(self, function: str, ids: Sequence[str]) -> list[Record]:
        """Return the record of each id, {} for an id without a record."""
        return [record(flat) async for piece in self.pieces(function, ids) for _, flat in piece]


class Calls:
    """Base class of the parts of `Functions`. A part has one method for each function of its Lua file."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
