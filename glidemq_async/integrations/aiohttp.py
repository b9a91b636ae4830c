"""aiohttp: queues that open when the app starts and close during its cleanup."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Unpack

try:
    from aiohttp import web
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install 'glidemq-async[aiohttp]'") from error

from glidemq_async.integrations.queues import AnyQueue, QueueOptions, Queues, StorageOrApp

__all__ = ["QUEUES", "get_queue", "queues_context"]

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
