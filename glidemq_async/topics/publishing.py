"""Combine concurrent publishes: messages that come while a call is in flight share the next one."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from glidemq_async.functions.add import AddReply, AddRequest
from glidemq_async.functions.calling import Wait
from glidemq_async.functions.topics import Kept, NewMessage, TopicCalls
from glidemq_async.queues.add_buffer import CallBuffer


class PublishBuffer(CallBuffer):
    """The buffer of the messages of one topic and one durability. A request has the subject as name."""

    def __init__(self, topic: str, calls: TopicCalls, kept: Kept, wait: Wait) -> None:
        super().__init__(f"topic {topic!r}", wait)
        self._calls = calls
        self._kept = kept

    @override
    async def _answer(self, jobs: Sequence[AddRequest]) -> AddReply:
        messages = [NewMessage(job.name, job.extra.decode(), job.data) for job in jobs]
        return AddReply(0, await self._calls.publish(messages, self._kept, self._wait), {})


def request_of(subject: str, key: str | None, data: bytes) -> AddRequest:
    """Return a message as an item of a PublishBuffer."""
    return AddRequest("", subject, data, b"", (key or "").encode())
