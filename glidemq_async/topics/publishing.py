"""Combine concurrent publishes: messages that come while a call is in flight share the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from typing_extensions import override

from glidemq_async.errors import PayloadTooLarge
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.calling import Wait
from glidemq_async.functions.grouped_adds import AddReply
from glidemq_async.functions.topics import Kept, NewMessage, TopicCalls
from glidemq_async.instrumentation import Addition
from glidemq_async.options.validation import headers as checked_headers
from glidemq_async.queues.add_buffer import CallBuffer

_log = logging.getLogger(__name__)


class PublishBuffer(CallBuffer):
    """The buffer of the messages of one topic and one durability. A request has the subject as name."""

    def __init__(
        self, topic: str, calls: TopicCalls, kept: Kept, wait: Wait, loop: asyncio.AbstractEventLoop | None
    ) -> None:
        super().__init__(f"topic {topic!r}", wait, loop)
        self._calls = calls
        self._kept = kept

    @override
    async def _answer(self, jobs: Sequence[AddRequest]) -> AddReply:
        messages = [NewMessage(job.name, job.extra.decode(), job.opts, job.data) for job in jobs]
        return AddReply(0, await self._calls.publish(messages, self._kept, self._wait), {})


def request_of(subject: str, key: str | None, headers: bytes, data: bytes) -> AddRequest:
    """Return a message as an item of a PublishBuffer."""
    return AddRequest("", subject, data, headers, (key or "").encode())


def sent_headers(addition: Addition, given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers that instrumentation has set, or the ones of the caller if those are invalid."""
    try:
        return checked_headers("headers", addition.headers)
    except (TypeError, ValueError, PayloadTooLarge) as error:
        _log.warning("message %r is published without telemetry headers: %s", addition.name, error)
        return given
