"""The stream of live documents as server-sent events."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from glidemq_async.integrations.sse import HEADERS
from glidemq_async.ops.live import LiveDocument, View
from glidemq_async.web.context import RequestContext
from glidemq_async.web.endpoints import ApiCall, ApiRoute
from glidemq_async.web.models import EventQuery
from glidemq_async.web.problems import RequestError

MOST_TOPICS: Final = 20
HEARTBEAT_SECONDS: Final = 15.0
STUCK_SECONDS: Final = 10.0
"""Time after which a client that takes no bytes is disconnected. It connects again, and gets the newest documents."""
RETRY: Final = b"retry: 3000\n\n"
_ENDED: Final = object()


async def events(call: ApiCall) -> Response:
    """Stream live documents."""
    topics = [topic.strip() for topic in call.query.topics.split(",") if topic.strip()]
    if not 1 <= len(topics) <= MOST_TOPICS:
        raise RequestError(422, "invalid-query", f"topics: name 1 to {MOST_TOPICS} topics")
    for topic in topics:
        _check(call, topic)
    web = call.context.web
    if web.streams >= web.limits.streams:
        detail = f"this process has {web.limits.streams} open streams, and no more; read the documents without a stream"
        raise RequestError(503, "too-many-streams", detail, {"Retry-After": "5"})
    return LiveResponse(call.context, topics, call.headers.get("last-event-id"))


def _check(call: ApiCall, topic: str) -> None:
    kind, _, argument = topic.partition(":")
    if kind not in call.ops.live.kinds:
        raise RequestError(422, "invalid-query", f"topics: there is no topic {topic!r}")
    if kind == "queue":
        call.context.require("viewer", argument)
    elif kind == "job":
        call.context.require("viewer", argument.partition("/")[0])


class LiveResponse(Response):
    """The events of one client, until it disconnects or takes no bytes."""

    def __init__(self, context: RequestContext, topics: list[str], after: str | None) -> None:
        super().__init__()
        self._context = context
        self._topics = topics
        self._after = after

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        web = self._context.web
        web.streams += 1
        sending = asyncio.create_task(self._send_all(send))
        others = [asyncio.create_task(_disconnected(receive)), asyncio.create_task(web.ending.wait())]
        try:
            await asyncio.wait([sending, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            web.streams -= 1
            for task in (sending, *others):
                task.cancel()
            await asyncio.wait([sending, *others])
        if not sending.cancelled():
            sending.result()

    async def _send_all(self, send: Send) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        with suppress(OSError, TimeoutError):  # the client has disconnected, or takes no bytes
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await _send(send, RETRY)
            live = self._context.web.ops.live
            async with aclosing(live.subscribe(self._topics, after=self._after, view=self._view())) as documents:
                reading: asyncio.Task[Any] | None = None
                try:
                    while True:
                        reading = reading or asyncio.ensure_future(anext(documents, _ENDED))
                        if not (await asyncio.wait([reading], timeout=HEARTBEAT_SECONDS))[0]:
                            await _send(send, b": keep-alive\n\n")
                            continue
                        document, reading = reading.result(), None
                        if document is _ENDED:
                            break
                        await _send(send, event_of(document))
                finally:
                    if reading is not None:
                        reading.cancel()
                        await asyncio.wait([reading])
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _view(self) -> View:
        context = self._context

        def shown(topic: str, found: object) -> object:
            # Pages load their new state themselves, so they only need to know that there is one, and when to ask.
            if topic == "operations":
                return {"pace": context.web.pace}
            part = context.shown(found)
            return {**part, "pace": context.web.pace} if topic == "pulse" else part

        return View((context.identity.queues, context.identity.payloads), shown)


def event_of(document: LiveDocument) -> bytes:
    """Return a live document as an event. Its JSON has no line breaks, so it fits into one field of the event."""
    name = "snapshot" if document.is_snapshot else "update"
    data = f'{{"topic":{json.dumps(document.topic)},"document":{document.text}}}'
    return f"id: {document.id}\nevent: {name}\ndata: {data}\n\n".encode()


async def _send(send: Send, text: bytes) -> None:
    async with asyncio.timeout(STUCK_SECONDS):
        await send({"type": "http.response.body", "body": text, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


ENDPOINTS = (
    ApiRoute(
        method="GET",
        path="/events",
        name="streamEvents",
        summary="Stream live documents as server-sent events. Last-Event-ID resumes.",
        handle=events,
        query=EventQuery,
        media="text/event-stream",
    ),
)
