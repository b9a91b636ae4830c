"""aiohttp: queues that open when the app starts and close during its cleanup."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Final, Unpack

try:
    from aiohttp import web
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install 'glidemq-async[aiohttp]'") from error

from glidemq_async.integrations.queues import AnyQueue, QueueOptions, Queues, StorageOrApp
from glidemq_async.integrations.sse import HEADERS, ChunkEvents, Encode

__all__ = ["QUEUES", "get_queue", "queues_context", "stream_response"]

_LOOK_SECONDS: Final = 1.0
"""Seconds after which a stream without chunks checks that its client is still connected."""

QUEUES: Final = web.AppKey("glidemq", Queues)
"""The app key of the queues: `app[QUEUES].get("emails")`."""


def queues_context(
    storage: StorageOrApp = None, *, prefix: str | None = None
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a cleanup context: `app.cleanup_ctx.append(queues_context("redis://..."))`.

    `storage` and `prefix` are the same as for Queue. `storage` can also be a GlideMQ app, which then opens and closes
    with the web app and provides the queues; its workers do not run here. The web app does not start when the storage
    cannot be reached (StorageUnavailable). The queues close after the last request.
    """

    async def open_queues(app: web.Application) -> AsyncIterator[None]:
        async with Queues(storage, prefix=prefix) as queues:
            app[QUEUES] = queues
            yield

    return open_queues


def get_queue(request: web.Request, name: str, **options: Unpack[QueueOptions]) -> AnyQueue:
    """Return an open queue of the app that serves this request, or of an app that contains it.

    Options are the same as for Queue; the first call decides. Raises RuntimeError when no app has queues.
    """
    # `config_dict` also looks into the apps that contain this one.
    queues = request.config_dict.get(QUEUES)
    if queues is None:
        raise RuntimeError("the web app has no queues; add them with app.cleanup_ctx.append(queues_context(url))")
    return queues.get(name, **options)


async def stream_response(
    request: web.Request,
    queue: AnyQueue,
    job_id: str,
    *,
    heartbeat: float | timedelta = 15.0,
    encode: Encode = json.dumps,
) -> web.StreamResponse:
    """Send the chunks of a job as server-sent events, and return the response when the job or the client has ended.

    The response continues after the header `Last-Event-ID` of the request, and ends with the event `end`, whose data is
    `{"state": "completed" | "failed" | "removed"}`. The events `restarted` and `gap` stand for Restarted and ChunkGap.
    The status is 410 if the stream is forgotten. A client that disconnects does not stop the job. `heartbeat` is the
    number of seconds without a chunk after which a comment is sent, and `encode` returns the text of a chunk (default:
    JSON). Raises TypeError or ValueError for a bad `heartbeat`.
    """
    events = ChunkEvents(queue, job_id, request.headers.get("Last-Event-ID"), heartbeat=heartbeat, encode=encode)
    status, text = await events.start()
    if status != 200:
        return web.Response(status=status, text=text or None)
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    # aiohttp does not cancel the handler of a client that has disconnected, so a second task looks for that.
    sending = asyncio.create_task(_send_all(events, response))
    try:
        while not (await asyncio.wait([sending], timeout=_LOOK_SECONDS))[0] and _is_connected(request):
            pass
    finally:
        sending.cancel()
        await asyncio.wait([sending])
    if not sending.cancelled():
        sending.result()
    return response


async def _send_all(events: ChunkEvents, response: web.StreamResponse) -> None:
    with suppress(ConnectionError):  # the client has disconnected
        async with aclosing(events.events()) as texts:
            async for text in texts:
                await response.write(text)
        await response.write_eof()


def _is_connected(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()
