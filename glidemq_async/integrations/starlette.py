"""Starlette: queues that open and close with the lifespan of the app."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias, Unpack, cast

try:
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install starlette, or 'glidemq-async[fastapi]'") from error

from glidemq_async.integrations.queues import AnyQueue, QueueOptions, Queues, StorageOrApp

__all__ = ["Lifespan", "get_queue", "lifespan", "queues_of"]

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
