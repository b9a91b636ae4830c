"""Broadcast: publish messages to all subscriptions, with the names of glide-mq."""

from __future__ import annotations

from typing_extensions import override

from glidemq_async.topics.topic import Topic

__all__ = ["Broadcast"]


class Broadcast(Topic):
    """A Topic under the name that glide-mq gives it. A BroadcastWorker receives its messages.

    It has the options and methods of Topic, for example `publish(subject, data)`, `max_messages` and `info()`.
    """

    @override
    def __repr__(self) -> str:
        return f"<Broadcast {self.name!r} on {self.storage.url}>"
