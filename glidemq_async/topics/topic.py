"""Topics: publish a message once, and each subscription gets it as a job of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypedDict, cast

from glidemq_async._internal import forks
from glidemq_async._internal.connectable import Connectable
from glidemq_async._internal.loops import refuse_elsewhere
from glidemq_async._internal.waits import together
from glidemq_async.client.payload_coder import DEFAULT_LIMIT, Payloads
from glidemq_async.client.queue_client import DEFAULT_PREFIX
from glidemq_async.durations import from_ms, to_ms
from glidemq_async.errors import QueueClosed
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Wait
from glidemq_async.functions.checking import Finding
from glidemq_async.functions.feeds import FeedCalls, FeedState
from glidemq_async.functions.topics import Kept, Message, Subscriber, TopicPosition
from glidemq_async.instrumentation import Addition, Instrumentation, instruments_of
from glidemq_async.options.validation import durability as checked_durability
from glidemq_async.options.validation import headers as checked_headers
from glidemq_async.options.validation import whole_number
from glidemq_async.payloads.codecs import Codec
from glidemq_async.payloads.serialization import Serializer
from glidemq_async.queues.add_buffer import Added, split_into_calls
from glidemq_async.storage import Storage, StorageLike, open_storage
from glidemq_async.stored.names import QueueKeys, check_id
from glidemq_async.topics.messages import SubscriptionInfo, TopicInfo, TopicMessage, message_of, pack_headers
from glidemq_async.topics.publishing import PublishBuffer, request_of, sent_headers
from glidemq_async.topics.reader import MessageReader
from glidemq_async.topics.subjects import Start, check_patterns, check_subject, stored_start, topic_queue
from glidemq_async.topics.subscription import TopicSubscription

DEFAULT_MAX_MESSAGES: Final = 100_000
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
WRAPPER_BYTES: Final = 256
"""The size that the job of a message may have beyond the message."""

NewTopicMessage: TypeAlias = "tuple[str, Any] | tuple[str, Any, str | None]"
"""A message of `publish_many`: subject and data, and possibly the ordering key."""


class TopicSettings(TypedDict, total=False):
    """The retention of the messages of a topic."""

    max_messages: int | None
    max_age: float | timedelta | None
    until_read: bool


class Topic(Connectable):
    """A named topic in a storage. Each of its messages becomes one job of each subscription whose patterns it fits.

    Use it as an async context manager, or call `close()` at the end. The first call connects automatically. In an app,
    use `mq.topic(name)`.

    - `storage`, `prefix`, `serializer`, `codecs`, `payload_limit`, `timeout` and `instrumentation` are the same as for
      a Queue. A publish is reported as an add of `topic/<name>`, with the subject as the name.
    - `max_messages`: the number of messages to keep (default: 100,000), None for all. The oldest ones are removed.
    - `max_age`: the time in seconds for which messages are kept, None for ever.
    - `until_read`: keep a message only until all subscriptions have read it.

    A message that is removed before a subscription has read it is lost for that subscription, which counts it. The
    settings of the last publish apply to the topic. Raises TypeError or ValueError for bad options.
    """

    def __init__(
        self,
        name: str,
        storage: StorageLike = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        max_messages: int | None = DEFAULT_MAX_MESSAGES,
        max_age: float | timedelta | None = None,
        until_read: bool = False,
        serializer: Serializer | None = None,
        codecs: Sequence[Codec] = (),
        payload_limit: int | None = None,
        timeout: float | timedelta | None = None,
        instrumentation: Sequence[Instrumentation] = (),
    ) -> None:
        self._keys = QueueKeys(prefix, topic_queue(name))
        self._name = name
        limit = DEFAULT_LIMIT if payload_limit is None else whole_number("payload_limit", payload_limit, least=1)
        self._payloads = Payloads(self._keys.base, serializer, codecs, max(1, limit - WRAPPER_BYTES))
        self._kept = _kept(max_messages, max_age, until_read=until_read)
        self._owned = not isinstance(storage, Storage)
        self._storage: Storage = open_storage(storage, timeout=timeout)
        self._closed = False
        self._instruments = instruments_of(instrumentation)
        self._stored: Callable[[Any], object] = _as_it_is
        self._begin()
        forks.watch(self)

    def _begin(self) -> None:
        self._functions = Functions(self._storage, self._keys.base)
        self._buffers: dict[Wait, PublishBuffer] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def _after_fork(self) -> object:
        """Reset in a forked child; see `_internal/forks.py`."""
        parents = (self._functions, self._buffers)
        self._begin()
        return parents

    def __repr__(self) -> str:
        return f"<Topic {self._name!r} on {self._storage.url}>"

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._name

    @property
    def storage(self) -> Storage:
        """The storage of the topic."""
        return self._storage

    async def connect(self) -> None:
        """Connect. Idempotent; every other method connects when needed. Raises QueueClosed after `close`."""
        if self._closed:
            raise QueueClosed(f"topic {self._name!r} is closed; create a new one")
        if self._loop is None:
            await self._storage.connect()
            self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Send the waiting messages, and close the storage if it was opened here. Idempotent."""
        if self._closed:
            return
        refuse_elsewhere(self._loop, repr(self))
        self._closed = True
        try:
            for buffer in self._buffers.values():
                await buffer.close()
        finally:
            self._loop = None
            if self._owned:
                await self._storage.close()

    # -- publishing -----------------------------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        data: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        durability: Wait = "default",
    ) -> str:
        """Publish a message. When this returns, it is stored. Return its id.

        `subject` has tokens that are separated by dots, for example "order.paid.eu". `key` is the ordering key of the
        jobs that the message becomes, and `headers` are short texts for them. Concurrent publishes share calls to the
        server. `durability` is the same as for a job.

        Raises TypeError or ValueError for a bad subject, key or headers, SerializationError or PayloadTooLarge before
        anything is sent, QueueFull, and StorageUnavailable; after the latter the message may have been stored.
        """
        checked = _NO_HEADERS if headers is None else checked_headers("headers", headers)
        if not self._instruments:
            return await self._publish(self._request(subject, data, key, checked), durability)
        addition = Addition(self._keys.queue, subject, checked)
        with self._instruments.adding([addition]):
            request = self._request(subject, data, key, sent_headers(addition, checked))
            addition.id = await self._publish(request, durability)
            addition.outcome, addition.size = "added", len(request.data)
        return addition.id

    async def _publish(self, request: AddRequest, durability: Wait) -> str:
        if self._loop is None or self._closed:
            await self.connect()
        added = await self._buffer(durability).add(request)
        return added.ids[0]

    async def publish_many(self, messages: Iterable[NewTopicMessage], *, durability: Wait = "default") -> list[str]:
        """Publish messages in order, each given as (subject, data) or (subject, data, key). Return their ids.

        All are checked before the first is sent. A call to the server holds up to 250 messages and is stored as a
        whole. `durability` is as for `publish`. Raises the errors of `publish`.
        """
        inputs = [_checked_input(message) for message in messages]
        if not self._instruments or not inputs:
            return await self._publish_all([self._request(*each) for each in inputs], durability)
        additions = [Addition(self._keys.queue, each[0], {}) for each in inputs]
        with self._instruments.adding(additions):
            requests = [
                self._request(*each, sent_headers(addition, _NO_HEADERS))
                for each, addition in zip(inputs, additions, strict=True)
            ]
            ids = await self._publish_all(requests, durability)
            for addition, entry, request in zip(additions, ids, requests, strict=True):
                addition.id, addition.outcome, addition.size = entry, "added", len(request.data)
        return ids

    async def _publish_all(self, requests: Sequence[AddRequest], durability: Wait) -> list[str]:
        await self.connect()
        buffer = self._buffer(durability)
        futures = [buffer.submit(part) for part in split_into_calls(requests)]
        ids: list[str] = []
        for added in await _all(futures):
            for error in added.errors.values():
                raise error
            ids += added.ids
        return ids

    def _request(
        self, subject: str, data: object, key: str | None = None, headers: Mapping[str, str] = _NO_HEADERS
    ) -> AddRequest:
        check_subject(subject)
        if key is not None:
            check_id("key", key)
        encoded = self._payloads.encode(self._stored(data), "message", subject)
        return request_of(subject, key, pack_headers(headers), encoded)

    def _buffer(self, durability: Wait) -> PublishBuffer:
        buffer = self._buffers.get(durability)
        if buffer is None:
            checked_durability("durability", durability)
            buffer = PublishBuffer(self._name, self._functions.topics, self._kept, durability, self._loop)
            self._buffers[durability] = buffer
        return buffer

    # -- reading --------------------------------------------------------------------------------------------------

    async def listen(self, *patterns: str, start: Start = "now") -> AsyncGenerator[TopicMessage]:
        """Yield the messages whose subjects fit, each once, without a subscription. Does not end by itself.

        `start` is "now" (when the iteration begins), "beginning", an instant with a time zone, or the id of a message.
        `message.missed` is the number of messages that the topic removed before this one could be read. Nothing waits
        for a reader, so read fast enough for the retention of the topic.

        Raises TypeError or ValueError for bad patterns or a bad start, SerializationError for a message that cannot be
        decoded, and StorageUnavailable.
        """
        checked, place = check_patterns(patterns), stored_start(start)
        await self.connect()
        reader = MessageReader(self._storage, self._functions, checked)
        await reader.open(place)
        try:
            missed = 0
            while True:
                found = await reader.next()
                missed += found.lost
                for message in found.messages:
                    yield message_of(self._name, message, decode_message(self, message), missed)
                    missed = 0
        finally:
            await reader.close()

    # -- inspecting -----------------------------------------------------------------------------------------------

    async def info(self) -> TopicInfo:
        """Return the state of the topic and its subscriptions."""
        await self.connect()
        state = await self._functions.topics.describe()
        feeds = await together(self._feed(one.queue).read() for one in state.subscribers)
        subscriptions = tuple(
            _described(one, feed, state.total) for one, feed in zip(state.subscribers, feeds, strict=True)
        )
        return TopicInfo(self._name, state.total, state.length, state.first, state.last, subscriptions)

    def _feed(self, queue: str) -> FeedCalls:
        return Functions(self._storage, QueueKeys(self._keys.prefix, queue).base).feeds

    async def remove_subscription(self, name: str) -> bool:
        """Forget a subscription. Return whether it existed. Its queue stays; `obliterate` removes it.

        Stop its workers first: a running worker registers its subscription again.
        """
        await self.connect()
        return await self._functions.topics.leave(name)

    async def check(self) -> list[Finding]:
        """Verify that no subscription is registered with a position after the end. Return the faults; [] means none.

        `Queue.check` verifies the queue of a subscription, with its cursor.
        """
        await self.connect()
        state = await self._functions.topics.describe()
        end = TopicPosition(state.last, state.total)
        return [
            Finding("I24", one.name, f"the subscription is at {one.position.entry}, after the end {end.entry}")
            for one in state.subscribers
            if one.position.order > end.order
        ]

    def subscription(self, name: str) -> TopicSubscription:
        """Return the handle of a subscription, to replay its messages. Raises ValueError for a bad name."""
        return TopicSubscription(self, name, self._functions, self._keys.prefix)


def functions_of(topic: Topic) -> Functions:
    """Return the calls to a topic, for the workers of its subscriptions."""
    return topic._functions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def decode_message(topic: Topic, message: Message) -> object:
    """Return the data of a stored message. Raises SerializationError."""
    what = f"message {message.entry} of topic {topic.name!r}"
    return topic._payloads.decode(message.data, "message", message.subject, "", what=what)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def convert_with(topic: Topic, stored: Callable[[Any], object]) -> None:
    """Give a topic a converter, which runs before the serializer."""
    topic._stored = stored  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _as_it_is(data: Any) -> object:
    return data


def change_settings(topic: Topic, settings: TopicSettings) -> None:
    """Give a topic other settings. Raises TypeError or ValueError for bad ones."""
    topic._kept = _kept(**settings)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    topic._buffers.clear()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _kept(
    max_messages: int | None = DEFAULT_MAX_MESSAGES,
    max_age: float | timedelta | None = None,
    *,
    until_read: bool = False,
) -> Kept:
    return Kept(
        0 if max_messages is None else whole_number("max_messages", max_messages, least=1),
        0 if max_age is None else to_ms("max_age", max_age, allow_zero=False),
        bool(until_read),
    )


def _described(one: Subscriber, feed: FeedState | None, total: int) -> SubscriptionInfo:
    # The topic learns a position with the next read. The cursor in the queue is newer.
    position = one.position if feed is None else feed.position
    return SubscriptionInfo(
        one.name,
        one.queue,
        one.patterns,
        position.entry,
        max(0, total - position.number),
        0 if feed is None else feed.fed,
        0 if feed is None else feed.lost,
        from_ms(one.read_ms),
    )


def _checked_input(message: object) -> tuple[str, object, str | None]:
    if not isinstance(message, (tuple, list)) or not 2 <= len(message) <= 3:  # pyright: ignore[reportUnknownArgumentType]
        raise TypeError(f"each message must be (subject, data) or (subject, data, key), got {message!r}")
    found = cast("Sequence[Any]", message)
    return found[0], found[1], found[2] if len(found) > 2 else None


async def _all(futures: Sequence[asyncio.Future[Added]]) -> list[Added]:
    if futures:
        await asyncio.wait(futures)
    return [future.result() for future in futures]
