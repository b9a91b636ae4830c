"""FastAPI: queues that open and close with the app, and a dependency that passes them to endpoints."""

from __future__ import annotations

from typing import Any, Unpack

try:
    from fastapi import Depends
    from starlette.requests import HTTPConnection
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs {error.name}: pip install 'glidemq-async[fastapi]'") from error

from glidemq_async.integrations.queues import AnyQueue, QueueOptions
from glidemq_async.integrations.starlette import Lifespan, get_queue, lifespan, queues_of, stream_response
from glidemq_async.stored.names import QueueKeys

__all__ = ["Lifespan", "QueueDependency", "get_queue", "lifespan", "queues_of", "stream_response"]


# Any, as FastAPI's own Depends returns for type checkers, so that it can be a default value too.
def QueueDependency(name: str, **options: Unpack[QueueOptions]) -> Any:  # noqa: N802 - named like Depends
    """Return a dependency on the queue of this name; `options` are the options of Queue.

        app = FastAPI(lifespan=lifespan("redis://..."))
        Emails = Annotated[Queue[Email, None], QueueDependency("emails")]

        @app.post("/welcome")
        async def welcome(email: Email, emails: Emails) -> str:
            return (await emails.add("welcome", email)).id

    A plain (not async) endpoint calls `emails.sync.add(...)`. Raises ValueError for an invalid name.
    """
    # Checks the name when the module is imported, and not in the first request.
    QueueKeys("glide", name)

    async def queue_of(connection: HTTPConnection) -> AnyQueue:
        return get_queue(connection, name, **options)

    return Depends(queue_of)
