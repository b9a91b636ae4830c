"""Streams of jobs as server-sent events (SSE), for the modules of the web frameworks.

`stream_response` of glidemq_async.integrations.fastapi, .starlette and .aiohttp serves these events. A browser reads
them with `EventSource`, which connects again after an interruption and sends the id of the last event.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from glidemq_async.errors import GlideMQError, JobFailed, JobNotFound, StreamForgotten
from glidemq_async.integrations.queues import AnyQueue
from glidemq_async.jobs.chunks import Chunk, ChunkGap, StreamItem, parse_position
from glidemq_async.options.validation import positive_seconds

__all__ = ["HEADERS", "ChunkEvents", "Encode"]

# Any: a chunk has any type.
Encode: TypeAlias = "Callable[[Any], str]"
"""Returns the text of a chunk for its event."""

HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # nginx would collect events before it sends them
}
"""The headers of a response."""
OVER: Final = "end"
"""The id of the last event. A browser that connects again with it needs nothing more."""
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_HEARTBEAT: Final = b": keep-alive\n\n"


class Start(NamedTuple):
    """The first line of a response: its HTTP status, and the text of an error."""

    status: int
    text: str = ""


class ChunkEvents:
    """The server-sent events of one request for the stream of a job.

    `last_event_id` is the header `Last-Event-ID` of the request. After `heartbeat` seconds without a chunk a comment is
    sent, so that proxies keep the connection. `encode` returns the text of a chunk; the default is JSON.
    """

    def __init__(
        self,
        queue: AnyQueue,
        job_id: str,
        last_event_id: str | None = None,
        *,
        heartbeat: float | timedelta = 15.0,
        encode: Encode = json.dumps,
    ) -> None:
        self._queue = queue
        self._job_id = job_id
        self._after = last_event_id or None
        self._heartbeat = positive_seconds("heartbeat", heartbeat)
        self._encode = encode

    async def start(self) -> Start:
        """Return the status of the response: 200, 204 after the end, 400 for a bad id, 410 for a forgotten stream."""
        if self._after == OVER:
            return Start(204)
        try:
            parse_position(self._after)
        except ValueError:
            return Start(400, "Last-Event-ID is not the id of an event of this stream")
        if not await self._queue.has_chunks(self._job_id):
            return Start(410, "the stream of this job is forgotten, or the job does not exist")
        return Start(200)

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield events until the job has ended.

        If the storage cannot be reached, the events end without the event `end`, and the browser connects again.
        """
        items = self._queue.chunks(self._job_id, self._after)
        reading: asyncio.Task[StreamItem | None] | None = None
        try:
            while True:
                # The task survives a heartbeat. Cancelling the read for each heartbeat would end the iterator.
                reading = reading or asyncio.create_task(_next(items))
                if not (await asyncio.wait([reading], timeout=self._heartbeat))[0]:
                    yield _HEARTBEAT
                    continue
                event, is_over = self._outcome(reading)
                reading = None
                if event:
                    yield event
                if is_over:
                    return
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
            await items.aclose()

    def _outcome(self, reading: asyncio.Task[StreamItem | None]) -> tuple[bytes, bool]:
        """Return the event for a read, b"" for none, and whether it is the last one."""
        try:
            item = reading.result()
        except JobFailed:
            # Without the error, which may contain more than a browser should see.
            return _event(OVER, "end", json.dumps({"state": "failed"})), True
        except (JobNotFound, StreamForgotten):
            return _event(OVER, "end", json.dumps({"state": "removed"})), True
        except GlideMQError:
            return b"", True
        if item is None:
            return _event(OVER, "end", json.dumps({"state": "completed"})), True
        return self._event_of(item), False

    def _event_of(self, item: StreamItem) -> bytes:
        if isinstance(item, Chunk):
            return _event(item.position, "", self._encode(item.value))
        if isinstance(item, ChunkGap):
            return _event(item.position, "gap", json.dumps({"missed": item.missed}))
        return _event(item.position, "restarted", json.dumps({"run": item.run}))


async def _next(items: AsyncIterator[StreamItem]) -> StreamItem | None:
    with suppress(StopAsyncIteration):
        return await anext(items)
    return None


def _event(event_id: str, name: str, text: str) -> bytes:
    head = [f"id: {event_id}", *([f"event: {name}"] if name else [])]
    return ("\n".join([*head, *(f"data: {line}" for line in _LINE_END.split(text))]) + "\n\n").encode()
