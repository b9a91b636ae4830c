"""Readers of a topic without a subscription. Each process, or each iteration, gets all messages that are still kept."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from glidemq_async._internal.problems import problem_of
from glidemq_async.errors import GlideMQError
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.topics import Message, MessageRead, TopicPosition
from glidemq_async.storage import Storage, Subscription

RECHECK_SECONDS: Final = 5.0
"""Interval at which the topic is read, in case a wake-up was lost."""
POLL_SECONDS: Final = 0.25
"""This interval while the subscription to the channel is not confirmed."""
RETRY_SECONDS: Final = 1.0
ROWS: Final = 250

_log = logging.getLogger(__name__)


class MessageReader:
    """Reads the messages of a topic from a position on."""

    def __init__(self, storage: Storage, calls: Functions, patterns: Sequence[str]) -> None:
        self._storage = storage
        self._calls = calls
        self._patterns = patterns
        self._position = TopicPosition("0-0", 0)
        self._woken = asyncio.Event()
        self._is_up = False
        self._link: Subscription | None = None

    async def open(self, start: str) -> None:
        """Find the position of a start. The reader gets the messages after it."""
        base = self._calls.caller.base
        self._link = await self._storage.subscribe(base, f"{base}:published", self._on_message, self._on_link)
        try:
            self._position = await self._calls.topics.locate(start)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def next(self) -> MessageRead:
        """Wait for messages. Return the next ones, or how many were lost, or both."""
        while True:
            self._woken.clear()
            found = await self._calls.topics.read("", self._position, self._patterns, ROWS)
            assert found is not None  # noqa: S101 - only named subscriptions can be unknown
            is_end = found.end.number >= found.total or found.end == self._position
            self._position = found.end
            if found.messages or found.lost:
                return found
            if is_end:
                # Not `wait_for`, which on Python 3.11 ignores a cancellation that comes together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(RECHECK_SECONDS if self._is_up else POLL_SECONDS):
                        await self._woken.wait()

    def _on_message(self, message: bytes) -> None:
        del message
        self._woken.set()

    def _on_link(self, up: bool) -> None:
        self._is_up = up
        if up:
            self._woken.set()


class TopicListener:
    """A function that each process calls for each message. Created by `mq.subscribe(..., ephemeral=True)`.

    The messages are handled one after another, at most once. An exception of the function is logged.
    """

    def __init__(self, function: Callable[[Any], Any], topic: str, patterns: tuple[str, ...]) -> None:
        self.function = function
        """The function."""
        self.topic = topic
        """The name of the topic."""
        self.patterns = patterns
        """The patterns of the subjects."""
        self.received = 0
        """The number of messages that this process has received."""
        self.missed = 0
        """The number of messages that the topic removed before this process had read them."""

    def __repr__(self) -> str:
        return f"<TopicListener {self.function.__name__} of topic {self.topic!r}>"

    def __call__(self, data: Any) -> Any:
        """Call the function."""
        return self.function(data)


async def serve(listener: TopicListener, reader: MessageReader, decode: Callable[[Message], object]) -> None:
    """Call the function of a listener for each message, until cancelled."""
    try:
        while True:
            try:
                found = await reader.next()
            except GlideMQError as error:
                _log.warning("%r cannot read: %s", listener, problem_of(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if found.lost:
                listener.missed += found.lost
                _log.warning("%r has missed %d messages, which the topic no longer keeps", listener, found.lost)
            for message in found.messages:
                listener.received += 1
                await _handle(listener, message, decode)
    finally:
        await reader.close()


async def _handle(listener: TopicListener, message: Message, decode: Callable[[Message], object]) -> None:
    try:
        data = decode(message)
        if inspect.iscoroutinefunction(listener.function):
            await listener.function(data)
        else:
            await asyncio.to_thread(listener.function, data)
    except Exception:  # noqa: BLE001 - the next message must be handled
        _log.exception("%r failed with message %s (%s)", listener, message.entry, message.subject)
