"""Messages of topics, and what is known about topics and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.functions.topics import Message


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message of a topic."""

    topic: str
    """The name of the topic."""
    id: str
    """The id, which sorts by the time of publishing."""
    number: int
    """The number of the message in its topic, from 1."""
    subject: str
    """The subject."""
    data: Any
    """The data."""
    key: str | None
    """The ordering key."""
    headers: Mapping[str, str]
    """The short texts that were published with it, for example a trace id."""
    missed: int = 0
    """The number of messages before this one that the topic removed before they could be read."""

    @property
    def published_at(self) -> datetime:
        """The time at which the server stored the message, in UTC."""
        return from_ms(int(self.id.partition("-")[0]))


class SubscriptionInfo(NamedTuple):
    """A subscription of a topic. `lag` is the number of messages that it has not read, whether they fit or not."""

    name: str
    queue: str
    patterns: tuple[str, ...]
    position: str
    """The id of the last message that it has read."""
    lag: int
    jobs: int
    """The number of jobs that its messages have become."""
    lost: int
    """The number of messages that the topic removed before they were read."""
    read_at: datetime
    """The time of its last read in UTC."""


class TopicInfo(NamedTuple):
    """The state of a topic."""

    name: str
    published: int
    """The number of messages that were ever published."""
    stored: int
    """The number of messages that are kept."""
    first: str
    """The id of the oldest message that is kept, "0-0" without one."""
    last: str
    """The id of the last message, "0-0" without one."""
    subscriptions: tuple[SubscriptionInfo, ...]


def message_of(topic: str, stored: Message, data: object, missed: int = 0) -> TopicMessage:
    """Return a message with decoded data."""
    headers = headers_of(stored)
    return TopicMessage(topic, stored.entry, stored.number, stored.subject, data, stored.key or None, headers, missed)


def pack_headers(headers: Mapping[str, str]) -> bytes:
    """Return the stored form of the headers of a message."""
    return msgpack.packb(dict(headers)) if headers else b""


def headers_of(stored: Message) -> dict[str, str]:
    """Return the headers of a stored message."""
    return cast("dict[str, str]", msgpack.unpackb(stored.headers)) if stored.headers else {}
