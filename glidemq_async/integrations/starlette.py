"""Starlette: queues that open and close with the app's lifespan, and are found from a request or a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias, Unpack, cast

try:
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install starlette, or 'glidemq-async[fastapi]'") from error

from glidemq_async.integrations.queues import AnyQueue, Place, QueueOptions, Queues

__all__ = ["Lifespan", "get_queue", "lifespan", "queues_of"]

STATE: Final = "glidemq"
"""The name of the queues in the state of the lifespan, which every request of the app sees."""

# Any: the app, of whatever class, and the state of the other lifespan.
Lifespan: TypeAlias = "Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]"


def lifespan(
    storage: Place = None, *, prefix: str | None = None, around: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan that opens queues with the app and closes them after its last request.

    `storage` and `prefix` are those of Queue. Or `storage` is a GlideMQ app: it is opened, so that its tasks can be
    added from the first request on, and closed; the queues are its own. Its workers are not run here.

    `around` is the app's own lifespan: it starts first, ends last, and what it yields is in the state as well. In a
    lifespan written by hand, enter `Queues(url)` and yield `{"glidemq": queues}`. The app does not start when the
    storage cannot be reached (StorageUnavailable).
    """

    @asynccontextmanager
    async def with_queues(app: Any) -> AsyncGenerator[dict[str, Any]]:
        outer = nullcontext() if around is None else around(app)
        async with outer as state, Queues(storage, prefix=prefix) as queues:
            yield {**(state or {}), STATE: queues}

    return with_queues


def queues_of(connection: HTTPConnection) -> Queues:
    """Return the queues of the app that serves this request. Raises RuntimeError when its lifespan opened none."""
    queues = cast("dict[str, object]", connection.scope.get("state", {})).get(STATE)
    if isinstance(queues, Queues):
        return queues
    raise RuntimeError(
        "the app has no queues: pass lifespan=lifespan(url) of this module when making it, and run it with its "
        "lifespan on"
    )


def get_queue(connection: HTTPConnection, name: str, **options: Unpack[QueueOptions]) -> AnyQueue:
    """Return an open queue of the app that serves this request; options are those of Queue, of the first call."""
    return queues_of(connection).get(name, **options)
