"""aiohttp: queues that open when the app starts and close with its cleanup, found from a request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Unpack

try:
    from aiohttp import web
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install 'glidemq-async[aiohttp]'") from error

from glidemq_async.integrations.queues import AnyQueue, Place, QueueOptions, Queues

__all__ = ["QUEUES", "get_queue", "queues_context"]

QUEUES: Final = web.AppKey("glidemq", Queues)
"""Where an application keeps its queues: `app[QUEUES].get("emails")`."""


def queues_context(
    storage: Place = None, *, prefix: str | None = None
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a cleanup context: `app.cleanup_ctx.append(queues_context("redis://..."))`.

    `storage` and `prefix` are those of Queue. Or `storage` is a GlideMQ app: it is opened and closed with the web app,
    and the queues are its own; its workers are not run here. The app does not start when the storage cannot be reached
    (StorageUnavailable); the queues close after the last request.
    """

    async def open_queues(app: web.Application) -> AsyncIterator[None]:
        async with Queues(storage, prefix=prefix) as queues:
            app[QUEUES] = queues
            yield

    return open_queues


def get_queue(request: web.Request, name: str, **options: Unpack[QueueOptions]) -> AnyQueue:
    """Return an open queue of the app that serves this request, or of one that it is mounted in.

    Options are those of Queue, of the first call. Raises RuntimeError when no app has queues.
    """
    queues = request.config_dict.get(QUEUES)
    if queues is None:
        raise RuntimeError("the app has no queues: app.cleanup_ctx.append(queues_context(url)) when making it")
    return queues.get(name, **options)
