"""Signals whose senders wait for a reply of the job's run. A run replies with `workflows.reply`.

A reply is a step that the run records. Its key is the question, which the sender makes and which comes with the signal.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, cast

from typing_extensions import TypeVar

from glidemq_async.client.job_tail import ExpectedReply, Feed
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import DuplicateSignal, JobStateError, NoReply, ResultTimeout
from glidemq_async.jobs.journal import identity_of_key
from glidemq_async.jobs.recorded_steps import read_stored
from glidemq_async.jobs.sent_signals import send_signal
from glidemq_async.jobs.signal_types import decoded, signal_type
from glidemq_async.options.streams import StreamLimits
from glidemq_async.options.validation import optional_seconds
from glidemq_async.stored.names import check_id
from glidemq_async.stored.record import FINAL

Reply = TypeVar("Reply", default=Any)
"""The type of a reply: the class that its sender names with `reply_type`, otherwise any payload."""
REPLY: Final = "workflow.reply"
"""The name of the step that records a reply."""
_CONFIRMED_SECONDS: Final = 1.0
"""Time for which a signal waits for the subscription of its sender. Without one, replies are polled."""


class Asking(NamedTuple):
    """A signal whose sender waits: an instance of a class with `@mq.signal`, or a name and its data."""

    signal: object
    data: object = None
    ttl: float | timedelta | None = None
    once: str | None = None

    def named(self) -> tuple[str, object]:
        """Return the name and the payload. Raises TypeError for an instance of any other class."""
        if isinstance(self.signal, str):
            return self.signal, self.data
        if self.data is not None:
            raise TypeError("data is the payload of a signal that is given by its name; put it into the instance")
        found = signal_type(type(self.signal))
        return found.name, found.encode(self.signal)


# A reply reaches its sender in two ways. The call that records it publishes it, and the journal of the job keeps it. So
# a sender finds a reply that was recorded before it listened, and gets one of a job that is removed immediately.
class Question:
    """A sent signal whose reply is awaited. Created by `asked`."""

    def __init__(self, client: QueueClient, feed: Feed, job_id: str, name: str, awaited: ExpectedReply) -> None:
        self._client = client
        self._feed = feed
        self._job_id = job_id
        self._name = name
        self._awaited = awaited
        self.refused: JobStateError | None = None
        """The job has ended before the signal was sent. An earlier call with the same `once` may have sent it."""

    async def reply(self, seconds: float | None) -> Any:
        """Wait up to `seconds` for the reply. Raises NoReply (ended without one), ResultTimeout, JobStateError."""
        try:
            async with asyncio.timeout(seconds):
                packed = await self._next_reply()
        except TimeoutError:
            raise ResultTimeout(
                f"job {self._job_id} has not replied to signal {self._name!r} within {seconds} s. It keeps the signal "
                "and may still reply; pass once= and repeat the call to wait for the same reply"
            ) from None
        return read_stored(self._client, self._job_id, [(self._awaited.identity, packed)])[0].result

    async def _next_reply(self) -> bytes:
        awaited, updates = self._awaited, self._feed.updates
        while True:
            seen = updates.count
            found = await self._client.tail.read_reply(self._job_id, awaited.identity)
            # It may have been published while the job was read, and its journal removed since.
            if step := awaited.step or found.step:
                return step
            if found.state in ("", "removed", *FINAL):
                state = found.state or "removed"
                raise self.refused or NoReply(
                    f"job {self._job_id} is {state} and has not replied to signal {self._name!r}; its workflow must "
                    "receive the signal and call workflows.reply"
                )
            if not found.is_open:
                # From now on the server announces the end of the job.
                await self._client.functions.streaming.follow(self._job_id, StreamLimits().ttl_ms)
                continue
            await updates.wait(seen)


@asynccontextmanager
async def asked(client: QueueClient, job_id: str, asking: Asking) -> AsyncGenerator[Question]:
    """Send a signal, and listen for its reply within the block. Raises the errors of `Queue.signal`."""
    name, data = asking.named()
    key = uuid.uuid4().hex if asking.once is None else check_id("once", asking.once)
    awaited = ExpectedReply(identity_of_key(REPLY, key))
    tail = client.tail  # raises in the process of a job
    await client.open()
    async with tail.listen(job_id) as feed:
        question = Question(client, feed, job_id, name, awaited)
        feed.awaited.add(awaited)
        try:
            # Not `wait_for`: on Python 3.11 it loses a cancellation that comes together with the end of its wait.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CONFIRMED_SECONDS):
                    await feed.confirmed.wait()
            try:
                await send_signal(client, job_id, name, data, asking.ttl, asking.once, question=key)
            except (DuplicateSignal, JobStateError) as error:
                if asking.once is None:
                    raise
                question.refused = error if isinstance(error, JobStateError) else None
            yield question
        finally:
            feed.awaited.discard(awaited)


async def awaited_reply(
    client: QueueClient, job_id: str, asking: Asking, timeout: float | timedelta | None, reply_type: type[Reply] | None
) -> Reply:
    """Send a signal, and return the reply; see `Queue.send_and_wait`."""
    seconds = optional_seconds("timeout", timeout)
    if reply_type is not None:
        signal_type(reply_type)
    async with asked(client, job_id, asking) as question:
        value = await question.reply(seconds)
    return cast("Reply", value) if reply_type is None else decoded(reply_type, value)
