"""The settings and calls with which a worker moves messages of a topic into the queue of a subscription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import PayloadTooLarge, SerializationError
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.topics import Message, TopicPosition
from glidemq_async.options.job_options import JobOptions, layered
from glidemq_async.options.stored_options import pack_extra, stored_form
from glidemq_async.options.validation import MAX_HEADERS_BYTES, size_of_headers
from glidemq_async.topics.messages import headers_of
from glidemq_async.topics.subjects import subscription_queue
from glidemq_async.topics.topic import Topic, decode_message, functions_of

DEFAULT_BACKLOG: Final = 1_000
OWN_HEADERS_BYTES: Final = 1_024
"""More than the bytes of the headers that the job of each message has: `topic`, `subject` and `message_id`."""


def as_it_is(value: object) -> object:
    """Return the data of a message as the data of its job."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSource:
    """A subscription as its workers feed it.

    `open_topic` returns the topic, `start` is the stored form of the place where a new subscription begins, and
    `backlog` the number of waiting jobs above which no messages are moved. `job_name` is the name of the jobs, None for
    the subject of the message. `shape` turns the data of a message into the data of a job.
    """

    open_topic: Callable[[], Topic]
    topic_name: str
    name: str
    patterns: tuple[str, ...]
    start: str
    backlog: int
    options: JobOptions
    job_name: str | None = None
    shape: Callable[[object], object] = as_it_is

    def __post_init__(self) -> None:
        room = MAX_HEADERS_BYTES - OWN_HEADERS_BYTES
        if size_of_headers(self.options.headers) > room:
            raise PayloadTooLarge(f"headers of subscription {self.name!r}", size_of_headers(self.options.headers), room)

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return subscription_queue(self.topic_name, self.name)

    @property
    def topic_calls(self) -> Functions:
        """The calls to the topic."""
        return functions_of(self.open_topic())

    async def join(self) -> TopicPosition:
        """Register the subscription, or store its changed queue and patterns. Return its position."""
        topic = self.open_topic()
        await topic.connect()
        return await functions_of(topic).topics.join(self.name, self.queue, self.patterns, self.start)

    def request(self, client: QueueClient, message: Message) -> AddRequest:
        """Return the job of a message."""
        name = self.job_name or message.subject
        options = layered(self.options, None, {"headers": self._headers(message)})
        if message.key:
            options = layered(options, None, {"key": message.key})
        return AddRequest("", name, self._data(client, name, message), stored_form(options), pack_extra(options))

    def _headers(self, message: Message) -> dict[str, str]:
        own = {"topic": self.topic_name, "subject": message.subject, "message_id": message.entry}
        found = {**self.options.headers, **headers_of(message), **own}
        # A message must not hold up the messages behind it, so its headers give way to the ones of the subscription.
        return found if size_of_headers(found) <= MAX_HEADERS_BYTES else {**self.options.headers, **own}

    def _data(self, client: QueueClient, name: str, message: Message) -> bytes:
        # A message that cannot be decoded must not hold up the messages behind it. Its job gets the stored bytes, and
        # fails when its data are decoded.
        try:
            return client.encode(self.shape(decode_message(self.open_topic(), message)), "data", name)
        except (SerializationError, PayloadTooLarge):
            return message.data
