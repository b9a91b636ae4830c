"""The handle of a subscription: replay its messages, and see how far it has come."""

from __future__ import annotations

from typing import Protocol

from glidemq_async.errors import JobNotFound
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.feeds import FeedCalls
from glidemq_async.storage import Storage
from glidemq_async.stored.names import QueueKeys
from glidemq_async.topics.messages import SubscriptionInfo, TopicInfo
from glidemq_async.topics.subjects import Start, stored_start, subscription_queue


class SubscribedTopic(Protocol):
    """The topic of a subscription."""

    @property
    def name(self) -> str:
        """The name of the topic."""
        ...

    @property
    def storage(self) -> Storage:
        """The storage of the topic."""
        ...

    async def connect(self) -> None:
        """Connect. Idempotent."""

    async def info(self) -> TopicInfo:
        """Return the state of the topic and its subscriptions."""
        ...


class TopicSubscription:
    """A subscription of a topic. Created by `topic.subscription(name)`."""

    def __init__(self, topic: SubscribedTopic, name: str, calls: Functions, prefix: str) -> None:
        self._topic = topic
        self._calls = calls
        self._prefix = prefix
        self.name = name
        """The name of the subscription."""
        self.queue = subscription_queue(topic.name, name)
        """The name of its queue. A Queue of this name shows, pauses, limits and repeats its jobs."""

    def __repr__(self) -> str:
        return f"<TopicSubscription {self.name!r} of {self._topic!r}>"

    async def info(self) -> SubscriptionInfo:
        """Return how far the subscription has come. Raises JobNotFound if it is not registered."""
        for one in (await self._topic.info()).subscriptions:
            if one.name == self.name:
                return one
        raise self._missing()

    async def replay(self, start: Start = "beginning") -> None:
        """Continue from another message: each message from there on becomes a new job with a new id.

        `start` is "beginning" (the oldest message that is kept), an instant with a time zone, the id of a message, or
        "now", which skips all unread messages. Jobs that exist stay.

        Raises TypeError or ValueError for a bad start, JobNotFound if the subscription is not registered.
        """
        place = stored_start(start)
        await self._topic.connect()
        # First the topic, which then keeps the messages from there on, and then the cursor in the queue. A subscription
        # that was never fed has no cursor yet. It begins where its topic says.
        found = await self._calls.topics.rewind(self.name, place)
        if found is None:
            raise self._missing()
        await self._feed().move(*found)

    def _missing(self) -> JobNotFound:
        return JobNotFound(f"topic {self._topic.name!r} has no subscription {self.name!r}; start a worker for it first")

    def _feed(self) -> FeedCalls:
        return Functions(self._topic.storage, QueueKeys(self._prefix, self.queue).base).feeds
