"""Typed calls of the functions for the messages of a topic: `topics.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

import msgpack

from glidemq_async.functions.calling import Arg, Calls, Wait, text

_Row: TypeAlias = "tuple[bytes, int, bytes, bytes, bytes, bytes]"

MAX_MESSAGES = 250
"""Maximum number of messages in one call."""


class TopicPosition(NamedTuple):
    """A place between two messages: the entry of the message before it, and the number of that message."""

    entry: str
    number: int

    @classmethod
    def parse(cls, stored: str) -> TopicPosition:
        """Return the position of its stored form."""
        entry, _, number = stored.partition(" ")
        return cls(entry, int(number))

    @property
    def stored(self) -> str:
        """The stored form."""
        return f"{self.entry} {self.number}"

    @property
    def order(self) -> tuple[int, int]:
        """A value that sorts positions."""
        ms, _, sequence = self.entry.partition("-")
        return int(ms), int(sequence)


class NewMessage(NamedTuple):
    """A message to publish. `headers` is a packed map, or empty."""

    subject: str
    key: str
    headers: bytes
    data: bytes


class Message(NamedTuple):
    """A stored message. `headers` is a packed map, or empty."""

    entry: str
    number: int
    subject: str
    key: str
    data: bytes
    headers: bytes


class Kept(NamedTuple):
    """The retention of a topic: the number of messages, their age in ms (0: no limit), and only unread messages."""

    most: int = 0
    age_ms: int = 0
    unread: bool = False


class MessageRead(NamedTuple):
    """Reply of `readMessages`. `end` is the position of the last message that was looked at."""

    lost: int
    end: TopicPosition
    total: int
    messages: Sequence[Message]


class Subscriber(NamedTuple):
    """A subscription as its topic knows it."""

    name: str
    queue: str
    position: TopicPosition
    patterns: tuple[str, ...]
    read_ms: int


class TopicState(NamedTuple):
    """Reply of `describeTopic`."""

    total: int
    first: str
    last: str
    length: int
    kept: Kept
    subscribers: Sequence[Subscriber]


class TopicCalls(Calls):
    """Calls of the functions in `topics.lua`, with the base key of a topic."""

    __slots__ = ()

    async def publish(self, messages: Sequence[NewMessage], kept: Kept, wait: Wait = "default") -> list[str]:
        """Append at most 250 messages. Return their entries."""
        args: list[Arg] = [kept.most, kept.age_ms, int(kept.unread), len(messages)]
        for message in messages:
            args += message
        first = text(await self._caller.once("publishMessages", args, wait=wait))
        ms, _, sequence = first.partition("-")
        return [f"{ms}-{int(sequence) + offset}" for offset in range(len(messages))]

    async def join(self, name: str, queue: str, patterns: Sequence[str], start: str) -> TopicPosition:
        """Register a subscription. Return its position."""
        reply = await self._caller.call("joinTopic", [name, queue, " ".join(patterns), start])
        return TopicPosition.parse(text(reply))

    async def rewind(self, name: str, start: str) -> tuple[TopicPosition, int] | None:
        """Move a subscription to another place. Return its position and epoch, None if it is not registered."""
        reply = cast("list[object]", await self._caller.once("rewindTopic", [name, start]))
        return (TopicPosition.parse(text(reply[0])), cast("int", reply[1])) if reply else None

    async def leave(self, name: str) -> bool:
        """Forget a subscription. Return whether it was registered."""
        return await self._caller.call("leaveTopic", [name]) == 1

    async def locate(self, start: str) -> TopicPosition:
        """Return the position of a start: "now", "beginning", ms, or an entry."""
        return TopicPosition.parse(text(await self._caller.read("locateMessages", [start])))

    async def read(
        self, name: str, after: TopicPosition, patterns: Sequence[str], most: int, epoch: int = 0
    ) -> MessageRead | None:
        """Read at most `most` messages after a position. Return None if the subscription `name` is not registered.

        `name` is "" for a reader whose position is not stored. `epoch` is the last one that the caller knows.
        """
        args: list[Arg] = [name, *after, most, epoch, *patterns]
        status, lost, end, total, rows = cast("list[object]", await self._caller.call("readMessages", args))
        if status == b"unknown":
            return None
        messages = [
            Message(text(entry), number, text(subject), text(key), data, headers)
            for entry, number, subject, key, data, headers in cast("list[_Row]", rows)
        ]
        return MessageRead(cast("int", lost), TopicPosition.parse(text(end)), cast("int", total), messages)

    async def describe(self) -> TopicState:
        """Return the state of the topic and its subscriptions."""
        reply = cast("list[object]", await self._caller.read("describeTopic"))
        total, first, last, length, most, age, unread, flat = reply
        rows = cast("list[bytes]", flat)
        return TopicState(
            cast("int", total),
            text(first),
            text(last),
            cast("int", length),
            Kept(cast("int", most), cast("int", age), unread == b"1"),
            sorted(_subscriber(name.decode(), packed) for name, packed in zip(rows[::2], rows[1::2], strict=True)),
        )


def _subscriber(name: str, packed: bytes) -> Subscriber:
    queue, position, patterns, read_ms, *_ = cast("tuple[str, str, str, int, int, str]", msgpack.unpackb(packed))
    return Subscriber(name, queue, TopicPosition.parse(position), tuple(patterns.split()), int(read_ms))
