"""Starlette: queues that open and close with the lifespan of the app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias, Unpack, cast

from typing_extensions import override

try:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install starlette, or 'glidemq-async[fastapi]'") from error

from glidemq_async.integrations.queues import AnyQueue, QueueOptions, Queues, StorageOrApp
from glidemq_async.integrations.sse import HEADERS, ChunkEvents, Encode

__all__ = ["Lifespan", "get_queue", "lifespan", "queues_of", "stream_response"]

STATE: Final = "glidemq"
"""The name of the queues in the lifespan state, which every request of the app sees."""

# Any: the app may have any class, and the state belongs to the other lifespan.
Lifespan: TypeAlias = "Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]"


def lifespan(
    storage: StorageOrApp = None, *, prefix: str | None = None, around: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that opens queues with the app and closes them after its last request.

    `storage` and `prefix` are the same as for Queue. `storage` can also be a GlideMQ app, which then opens and closes
    with the web app and provides the queues. Its workers do not run here.

    `around` is another lifespan of the web app. It starts first and ends last, and its state is kept. In a lifespan of
    your own, enter `Queues(url)` and yield `{"glidemq": queues}`. The web app does not start when the storage cannot be
    reached (StorageUnavailable).
    """

    @asynccontextmanager
    async def with_queues(app: Any) -> AsyncGenerator[dict[str, Any]]:
        # The application's own lifespan is the outer one: its resources are still there while the queues send their
        # last adds.
        outer = nullcontext() if around is None else around(app)
        async with outer as state, Queues(storage, prefix=prefix) as queues:
            yield {**(state or {}), STATE: queues}

    return with_queues


def queues_of(connection: HTTPConnection) -> Queues:
    """Return the queues of the app that serves this request. Raises RuntimeError if its lifespan opened none."""
    queues = cast("dict[str, object]", connection.scope.get("state", {})).get(STATE)
    if isinstance(queues, Queues):
        return queues
    raise RuntimeError(
        "the web app has no queues; pass lifespan=lifespan(url) of this module when you create it, and run it "
        "with its lifespan enabled"
    )


def get_queue(connection: HTTPConnection, name: str, **options: Unpack[QueueOptions]) -> AnyQueue:
    """Return an open queue of the app that serves this request. Options are as for Queue; the first call decides."""
    return queues_of(connection).get(name, **options)


def stream_response(
    queue: AnyQueue,
    job_id: str,
    *,
    heartbeat: float | timedelta = 15.0,
    encode: Encode = json.dumps,
) -> Response:
    """Return a response with the chunks of a job as server-sent events.

    It continues after the header `Last-Event-ID` of the request, and ends with the event `end`, whose data is
    `{"state": "completed" | "failed" | "removed"}`. The events `restarted` and `gap` stand for Restarted and ChunkGap.
    The status is 410 if the stream is forgotten. A client that disconnects does not stop the job. `heartbeat` is the
    number of seconds without a chunk after which a comment is sent, and `encode` returns the text of a chunk (default:
    JSON). Raises TypeError or ValueError for a bad `heartbeat`.
    """
    return _StreamResponse(lambda last: ChunkEvents(queue, job_id, last, heartbeat=heartbeat, encode=encode))


class _StreamResponse(Response):
    """The events of a job, as long as the client is connected."""

    def __init__(self, events_after: Callable[[str | None], ChunkEvents]) -> None:
        super().__init__()
        self._events_after = events_after
        events_after(None)  # raises for bad options before the request is answered

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        events = self._events_after(HTTPConnection(scope).headers.get("last-event-id"))
        status, text = await events.start()
        if status != 200:
            await Response(text, status, media_type="text/plain")(scope, receive, send)
            return
        # The client may disconnect while no chunk comes, so a second task waits for that.
        sending = asyncio.create_task(_send_all(events, send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            both = {sending, leaving}
            for task in both:
                task.cancel()
            await asyncio.wait(both)
        if not sending.cancelled():
            sending.result()


async def _send_all(events: ChunkEvents, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    # Servers raise OSError when the client has disconnected.
    with suppress(OSError):
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with aclosing(events.events()) as texts:
            async for text in texts:
                await send({"type": "http.response.body", "body": text, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
